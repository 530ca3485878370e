"""The memory of a job: what it updates in place, how much it needs, whether there is so much."""

import logging
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from flow2onnx.analysis.in_place import NEXT, WORTH_BYTES, InPlace, in_place
from flow2onnx.analysis.live_range import byte_size, constant_bytes, peak_bytes
from flow2onnx.compile import CompiledJob
from flow2onnx.errors import NotEnoughMemoryError
from flow2onnx.graph import Model
from flow2onnx.graph.model import parse_model
from flow2onnx.trace.variables import Variable

__all__ = [
    "InPlace",
    "MemoryLine",
    "check_memory",
    "confirmed",
    "memory_lines",
    "needed_bytes",
    "updated_in_place",
]

T = TypeVar("T")
_log = logging.getLogger("flow2onnx.memory")
_STATE = ("weights", "optimizer state")
_NEAR = 0.8  # of what there is


@dataclass(frozen=True)
class MemoryLine:
    """Memory of one kind, in bytes; `estimated` from shapes rather than counted."""

    kind: str
    bytes: int
    estimated: bool
    note: str


def updated_in_place(
    compiled: CompiledJob, keeps_old: bool = False, model: Model | None = None
) -> tuple[InPlace, ...]:
    """What may become of each large tensor of state that a job writes, as its graph stands.

    `keeps_old`: the values before a step are needed after it, if the loss is not finite. `model`:
    what runs in the place of the job's own.
    """
    large = [n for n, v in compiled.variables.items() if variable_bytes(v) >= WORTH_BYTES]
    found = in_place((model or compiled.model).graph, large)
    if keeps_old:
        return _refused(found, "a step whose loss is not finite changes nothing")
    if not compiled.spec.config.value("runtime.in_place"):
        return _refused(found, "runtime.in_place(False)")
    return found


def _refused(found: Sequence[InPlace], reason: str) -> tuple[InPlace, ...]:
    return tuple(replace(v, is_safe=False, reason=reason) for v in found)


def confirmed(
    found: Sequence[InPlace], optimize: Callable[[str], T]
) -> tuple[tuple[InPlace, ...], T]:
    """The verdicts once more, on the graph that the runtime makes of the job; and what opened it.

    `optimize` opens the job and has the runtime write its graph to a path.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "optimized.onnx")
        opened = optimize(str(path))
        graph = parse_model(path.read_bytes()).graph
    again = {v.name: v for v in in_place(graph, [v.name for v in found])}
    return tuple(_both(v, again[v.name]) for v in found), opened


def _both(here: InPlace, there: InPlace) -> InPlace:
    if not here.is_safe or there.is_safe:
        return here
    return replace(there, reason=f"as the runtime optimises it: {there.reason}")


def memory_lines(compiled: CompiledJob, found: Sequence[InPlace]) -> Iterator[MemoryLine]:
    """What a job takes while it runs, by kind."""
    graph, variables = compiled.model.graph, compiled.variables
    once = {v.name for v in found if v.is_safe}
    written = _written(compiled.model)
    for kind, is_weight in (("weights", True), ("optimizer state", False)):
        names = [n for n, v in variables.items() if (v.role == "variable") is is_weight]
        twice = [n for n in names if n in written and n not in once]
        size = sum(variable_bytes(variables[n]) for n in (*names, *twice))
        note = f"{len(names)} tensors, of which {len(twice)} in two buffers, as they are updated"
        yield MemoryLine(kind, size, False, note)
    yield MemoryLine("constants", constant_bytes(graph), False, "in the model itself")
    fed = [v for v in graph.inputs if v.name in compiled.feeds]
    yield MemoryLine("inputs", sum(map(byte_size, fed)), False, "of one call")
    shown = [v for v in graph.outputs if not str(v.name).startswith(NEXT)]
    yield MemoryLine("results", sum(map(byte_size, shown)), False, "of one call")
    yield MemoryLine(
        "activations", peak_bytes(graph), True,
        "most alive at once by shapes and order of the nodes; the runtime's scratch memory is not "
        "counted",
    )  # fmt: skip


def needed_bytes(jobs: Iterable[CompiledJob]) -> int:
    """The most bytes that jobs of one session take, by estimate: they share state and take turns.

    A job that runs once for several batches has its update beside it.
    """
    state, beside = dict[str, int](), [0]
    for job in (part for j in jobs for part in (j, *([j.update] if j.update else ()))):
        verdicts = {v.name: v.is_safe for v in updated_in_place(job)}
        written = _written(job.model)
        for name, variable in job.variables.items():
            copies = 2 if name in written and not verdicts.get(name) else 1
            state[name] = max(state.get(name, 0), copies * variable_bytes(variable))
        beside.append(sum(m.bytes for m in memory_lines(job, ()) if m.kind not in _STATE))
    return sum(state.values()) + max(beside)


def check_memory(jobs: Sequence[CompiledJob], free: int | None) -> None:
    """Raise `NotEnoughMemoryError` if jobs need more than there is; say so if it is close.

    `free` bytes are left on the device, unless `runtime.memory_limit` of a job says how many;
    None is not known, and checks nothing.
    """
    limits = [m for j in jobs if (m := j.spec.config.value("runtime.memory_limit")) is not None]
    most = min(limits, default=free)
    if most is None:
        return
    needed = needed_bytes(jobs)
    if needed > most:
        raise NotEnoughMemoryError(
            f"the jobs need about {_shown(needed)}, and there are {_shown(most)}: {_largest(jobs)}",
            job=jobs[0].spec.name,
            source=jobs[0].spec.source,
            hint="make the batch smaller, set config.runtime.recompute(True), or free memory; "
            "config.runtime.memory_limit(bytes) sets what there is",
        )
    if needed > _NEAR * most:
        _log.warning("the jobs need about %s of the %s there are", _shown(needed), _shown(most))


def _largest(jobs: Sequence[CompiledJob]) -> str:
    lines = [m for job in jobs for m in memory_lines(job, updated_in_place(job))]
    top = sorted(lines, key=lambda m: m.bytes, reverse=True)[:2]
    return ", ".join(f"{_shown(m.bytes)} of {m.kind}" for m in top)


def _shown(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"


def _written(model: Model) -> set[str]:
    """The state whose next values a model gives."""
    names = (str(v.name) for v in model.graph.outputs)
    return {n.removeprefix(NEXT) for n in names if n.startswith(NEXT)}


def variable_bytes(variable: Variable) -> int:
    """The bytes of one copy of a variable."""
    return math.prod(variable.shape) * variable.dtype.numpy.itemsize
