"""A user's own job, or its twin in another library, in a process of its own.

    python -m benchmarks.mine_worker job train.py:train_job FOLDER [--data FILE.npz]
    python -m benchmarks.mine_worker twin twins.py:train_step FOLDER

`benchmarks.mine` speaks with it as the contests do with `worker.py`: first comes a line of JSON,
which has nothing but "fault" where something is wrong. The job writes into FOLDER what the twin
starts from: batches.npz, and values.npz with the first values of its variables.
"""

import argparse
import importlib
import importlib.util
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.worker import confine, sample, serve, tell

BATCHES = 4  # of data that is drawn, which steps take in turn
_VALUES, _DATA = "values.npz", "batches.npz"


class GivenError(Exception):
    """An error in what the user gave; the text says which, and what to do."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("role", choices=("job", "twin"))
    parser.add_argument("target")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--home", type=Path, default=Path(), help="where the target is")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--offset", type=int, default=os.getpid())
    parser.add_argument(
        "--profile", action="store_true", help="write the runtime's trace to FOLDER"
    )
    args = parser.parse_args()
    confine(args.threads, args.offset)
    sys.stdout = sys.stderr  # of what the user's code prints; `tell` has the first one
    os.chdir(args.home)
    sys.path.insert(0, str(Path.cwd()))
    try:
        step, facts = (_job if args.role == "job" else _twin)(args)
    except Exception as error:  # the user's own code may raise anything
        tell(json.dumps({"fault": _words(error)}))
        return
    tell(json.dumps(facts))
    serve(step)


def _words(error: Exception) -> str:
    text = str(error).strip()
    if isinstance(error, GivenError) or type(error).__module__.startswith("flow2onnx"):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _first_record(step: Callable[[int], Any], begun: float, **more: Any) -> dict[str, Any]:
    """The first record of a process, after three steps of one batch."""
    losses = sample(step(0))
    first = time.perf_counter() - begun
    for _ in range(2):
        losses += sample(step(0))
    return {
        "results": [float(loss) for loss in losses], "first_step_s": first, "import_s": 0.0,
        "differs": None, "about": more, "versions": {"python": platform.python_version()},
    }  # fmt: skip


def _job(args: argparse.Namespace) -> tuple[Callable[[int], Any], dict[str, Any]]:
    """The user's job: a step is what one call of it computes."""
    import numpy as np

    import flow2onnx as flow
    from flow2onnx.cli.script import find_job, parse_target

    data = None if args.data is None else _read(args.data)
    with find_job(parse_target(args.target)) as job:
        flow.config.compute_thread_pool_size(args.threads)
        if args.profile:
            runtime = job.spec.config.runtime
            runtime.enable_profiling(True)
            runtime.profile_file_prefix(str(args.folder / "flow2onnx"))
        begun = time.perf_counter()
        session, spec = job.session, job.spec
        opening = session.opening(spec.name)
        opened = time.perf_counter()
        if not opening.job.results:
            raise GivenError(f"{spec.name} returns nothing: let it return its loss")
        batches = _batches(opening.job, spec.parameters, data)
        names = [n for n, v in opening.job.variables.items() if v.role == "variable"]
        np.savez(args.folder / _VALUES, **session.snapshot(names))
        stacked = [np.stack(column) for column in zip(*batches, strict=True)]
        np.savez(args.folder / _DATA, *stacked)

        def step(i: int) -> Any:
            return session.run(spec, batches[i % len(batches)])[0]

        begun += time.perf_counter() - opened  # making data is no part of the first step
        return step, _first_record(step, begun, **_about(opening, flow))


def _batches(job: Any, parameters: Any, data: Mapping[str, Any] | None) -> list[list[Any]]:
    """Batches of what the job is fed: those of a file, or random numbers that it takes."""
    import numpy as np
    from flow2onnx_runtime.synthetic import random_array

    from flow2onnx.engine.labels import fed_labels
    from flow2onnx.typing import flatten

    leaves, _ = flatten(list(parameters))
    names = job.feeds[: len(leaves)]
    if data is not None:
        return _given(dict(zip(names, leaves, strict=True)), data)
    limits = {label.position: label.range for label in fed_labels(job)}
    draws = np.random.default_rng(0)

    def drawn(position: int, leaf: Any) -> Any:
        found = limits.get(position)
        whole = (0, 2) if found is None else (max(found.least, 0), found.below)
        return random_array(draws, leaf.shape, leaf.dtype.numpy, integers=whole)

    return [[drawn(i, leaf) for i, leaf in enumerate(leaves)] for _ in range(BATCHES)]


def _read(path: Path) -> dict[str, Any]:
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as found:
            return {name: found[name] for name in found.files}
    except FileNotFoundError:
        raise GivenError(f"{path} does not exist: give a file of numpy.savez") from None
    except Exception as error:  # numpy and zipfile raise what they like for damaged files
        raise GivenError(f"{path} is no file of numpy.savez with numbers: {error}") from error


def _given(leaves: Mapping[str, Any], data: Mapping[str, Any]) -> list[list[Any]]:
    """Batches from arrays by name, each of one batch or of as many along a first axis."""
    if data.keys() != leaves.keys():
        raise GivenError(
            f"the data file has {', '.join(data) or 'nothing'}, and the job is fed "
            f"{', '.join(leaves) or 'nothing'}: give an array for each, of that name"
        )
    columns = [_column(name, leaf, data[name]) for name, leaf in leaves.items()]
    counts = {name: len(c) for name, c in zip(leaves, columns, strict=True)}
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise GivenError(f"the data file has different numbers of batches: {shown}")
    return [list(batch) for batch in zip(*columns, strict=True)]


def _column(name: str, leaf: Any, array: Any) -> Any:
    """The batches of one array; it may have several along an axis before those of the job."""
    wanted, dtype = tuple(leaf.shape), leaf.dtype.numpy
    if array.dtype != dtype:
        raise GivenError(
            f"{name} in the data file is of {array.dtype}, and the job declares {dtype}: "
            f"save array.astype('{dtype}')"
        )
    if array.shape == wanted:
        return array[None]
    if array.shape[1:] == wanted and len(array):
        return array
    raise GivenError(
        f"{name} in the data file has shape {array.shape}, and the job declares {wanted}: give "
        f"that, or several batches as (batches, {', '.join(map(str, wanted))})"
    )


def _about(opening: Any, flow: ModuleType) -> dict[str, Any]:
    """The facts of the job that the report shows."""
    import onnxruntime
    from flow2onnx_runtime.extensions import GROUP

    from benchmarks.roofline import costs_by_node

    updated = [v.producer().name for v in opening.model.graph.outputs
               if str(v.name).startswith("next/") and v.producer() is not None]  # fmt: skip
    return {
        "kind": opening.job.kind,
        "nodes": len(list(opening.job.model.graph)),
        "opened_nodes": len(list(opening.model.graph)),
        "native": dict(opening.native),
        "has_native": bool(entry_points(group=GROUP)),
        "provider": opening.options.provider_names[0],
        "costs": _as_lists(costs_by_node(opening.job.model.graph)),
        "opened_costs": _as_lists(costs_by_node(opening.model.graph)),
        "updates": updated,
        "versions": {"flow2onnx": flow.__version__, "onnxruntime": onnxruntime.__version__},
    }


def _as_lists(costs: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {name: [c.operator, c.precision, c.bytes, c.flops] for name, c in costs.items()}


def _twin(args: argparse.Namespace) -> tuple[Callable[[int], Any], dict[str, Any]]:
    """The same step in another library: what the user's function makes of the first values."""
    import numpy as np

    with np.load(args.folder / _VALUES) as found:
        values = {name: found[name] for name in found.files}
    with np.load(args.folder / _DATA) as found:
        columns = [found[name] for name in found.files]
    batches = list(zip(*columns, strict=True)) or [()]
    make = _function(args.target)
    begun = time.perf_counter()
    made = make(values)
    if not callable(made):
        raise GivenError(
            f"{args.target} returned {type(made).__name__}: it gets the first values of the job's "
            "variables by name, and returns a function that takes the arrays of a batch, makes "
            "one training step, and returns the loss"
        )

    def step(i: int) -> Any:
        return _number(args.target, made(*batches[i % len(batches)]))

    return step, _first_record(step, begun)


def _number(target: str, loss: Any) -> Any:
    """A loss as numpy takes it."""
    import numpy as np

    detach = getattr(loss, "detach", None)  # a tensor of torch that has a gradient
    found = detach() if callable(detach) else loss
    try:
        return np.asarray(found, np.float64)
    except (TypeError, ValueError):
        raise GivenError(
            f"a step of {target} returned {type(loss).__name__}: let it return its loss, a number"
        ) from None


def _function(target: str) -> Callable[..., Any]:
    """The function that MODULE:function or FILE.py:function names."""
    place, _, name = target.rpartition(":")
    if not place or not name.isidentifier():
        raise GivenError(f"--twin {target}: write it as MODULE:function, or FILE.py:function")
    module = _module(place)
    found = getattr(module, name, None)
    if not callable(found):
        known = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise GivenError(f"{place} has no function {name}; it has {', '.join(known) or 'none'}")
    return found  # type: ignore[no-any-return]  # it is the user's


def _module(place: str) -> ModuleType:
    if not place.endswith(".py"):
        return importlib.import_module(place)
    path = Path(place)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise GivenError(f"{place} does not exist: give the file with the twin")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
