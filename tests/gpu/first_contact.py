"""Checks that hold over the stand-in, on a GPU: to be run first where one is at hand.

    python -m tests.gpu.first_contact [STAGE ...] --out FOLDER [--rows mlp,lenet] [--seconds 420]

The stages are environment, paths, zoo, capture, native and forms, all unless told. Each check is a
line, PASS, FAIL or SKIP, with what was seen; FOLDER/first_contact.json has all of them, anew after
every line, so that a run that is cut short leaves what it saw. No stage begins a check after
`--seconds`. Speed is the affair of `benchmarks.gpu`. With `--rehearse` numbers are not compared, as
over the stand-in kernels compute nothing. It exits with 1 if anything failed.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from flow2onnx_runtime import (
    Options,
    Program,
    State,
    assigned_nodes,
    require_providers,
    usable_providers,
    why_unusable,
)
from flow2onnx_runtime.device_feeds import FeedBuffers
from flow2onnx_runtime.errors import OptionsError, OutOfMemoryError, UnsupportedError
from flow2onnx_runtime.extensions import accelerator
from flow2onnx_runtime.files import replace_bytes
from flow2onnx_runtime.free_memory import free_bytes
from flow2onnx_runtime.model_check import OwnModel
from flow2onnx_runtime.providers import CPU, PROVIDERS
from onnx import parser

import flow2onnx as flow
from flow2onnx.api.session import current_session
from flow2onnx.engine.tuning import measure_lowerings
from flow2onnx.graph.model import model_bytes
from models import resnet50
from tests.models.zoo import ROWS

CUDA, TENSORRT = PROVIDERS["cuda"], PROVIDERS["tensorrt"]
_OPTIONS = Options(providers=((CUDA.name, {"use_tf32": "0"}), CPU.name))
_LOSSES, _TIMED = 3, 5  # steps whose losses are compared, and whose time is told
_NEAR = 2e-3  # by which losses of three steps may differ from the CPU's, relatively

Facts = dict[str, Any]
Check = tuple[str, Callable[[], Facts]]


class MismatchError(Exception):
    """Something was computed, and it is not what it should be."""


@dataclass
class Contact:
    """The checks so far, and how they are done."""

    out: Path
    seconds: float = 420.0
    rows: tuple[str, ...] = ()
    compares: bool = True
    found: dict[str, dict[str, Facts]] = field(default_factory=dict)
    begun: float = field(default_factory=time.monotonic)

    def run(self, stages: list[str]) -> None:
        """Do the checks of each stage; one that fails leaves the others as they are."""
        for stage in stages:
            for name, check in STAGES[stage](self):
                self._note(stage, name, self._outcome(check))

    @property
    def failed(self) -> list[str]:
        """The checks that failed."""
        return [
            f"{stage}: {name}"
            for stage, checks in self.found.items()
            for name, facts in checks.items()
            if facts["outcome"] == "FAIL"
        ]

    def expect(self, holds: bool, what: str) -> None:
        """Raise `MismatchError` unless it holds, where numbers mean something."""
        if self.compares and not holds:
            raise MismatchError(what)

    def _outcome(self, check: Callable[[], Facts]) -> Facts:
        if time.monotonic() - self.begun > self.seconds:
            return {"outcome": "SKIP", "why": f"{self.seconds:.0f} seconds are over"}
        try:
            return {"outcome": "PASS", **check()}
        except Exception as error:  # whatever it is, it is what is to be found out
            told = f"{type(error).__name__}: {error}"
            trace = traceback.format_exc()[-3000:]
            return {"outcome": "FAIL", "error": told[:600], "trace": trace}

    def _note(self, stage: str, name: str, facts: Facts) -> None:
        self.found.setdefault(stage, {})[name] = facts
        shown = {k: v for k, v in facts.items() if k not in ("outcome", "trace")}
        print(facts["outcome"], stage, name, shown, flush=True)
        content = json.dumps(self.found, indent=1, default=str).encode()
        self.out.mkdir(parents=True, exist_ok=True)
        replace_bytes(self.out / "first_contact.json", content)


# --- environment: what is installed, and opens ---------------------------------------------------
def environment(contact: Contact) -> Iterator[Check]:
    """The device, the runtime, and which providers open."""

    def device() -> Facts:
        query = [
            "nvidia-smi",
            "--query-gpu=name,driver_version,memory.free",
            "--format=csv,noheader",
        ]
        told = subprocess.run(query, capture_output=True, text=True, check=True).stdout
        return {"GPU": told.strip(), "python": sys.version.split()[0]}

    def runtime() -> Facts:
        require_providers(_OPTIONS)
        return {"onnxruntime": ort.__version__, "at": ort.__file__, "usable": usable_providers()}

    def memory() -> Facts:
        free = free_bytes(("cuda", 0))
        contact.expect(bool(free), "the device does not tell its free memory")
        return {"free": free}

    def tensorrt() -> Facts:
        is_usable = TENSORRT.name in usable_providers()
        return {"usable": is_usable, "why": "" if is_usable else why_unusable(TENSORRT.name)}

    if contact.compares:
        yield "device", device
    yield from (("runtime", runtime), ("memory", memory), ("tensorrt", tensorrt))


# --- paths: data there and back ------------------------------------------------------------------
def paths(contact: Contact) -> Iterator[Check]:
    """Feeds, results, state and staging, and what becomes of a device that is full."""
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    turn = _model("g (float[4,3] x) => (float[3,4] y) { y = Transpose<perm=[1,0]>(x) }")
    free = _model("g (float[N,3] x) => (float[N,3] y) { y = Neg(x) }")

    def same(found: Any, wanted: Any) -> None:
        contact.expect(np.array_equal(found, wanted), f"{found} in place of {wanted}")

    def fetched(host_results: bool) -> Facts:
        options = replace(_OPTIONS, host_results=host_results)
        same(Program(turn, options=options).run([x])[0], x.T)
        return {}

    def varying() -> Facts:
        program = Program(free, options=_OPTIONS)
        for given in (x, x[:2], np.tile(x, (99, 1)), x[:0]):
            same(program.run([given])[0], -given)
        return {}

    def kept() -> Facts:
        state = State("cuda", 0)
        values = {"one": np.float32(3.5), "several": x, "switches": np.array([True, False]),
                  "none": np.zeros(0, np.float32), "half": x.astype(np.float16)}  # fmt: skip
        for name, value in values.items():
            state.add(name, np.asarray(value))
            same(state.read(name), value)
        state.write("several", x[::-1])
        same(state.read("several"), x[::-1])
        return {}

    def staged() -> Facts:
        program = Program(turn, options=_OPTIONS)
        feeds = FeedBuffers(program, 2)
        for i, given in enumerate([feeds.put([x + i]) for i in range(2)]):
            same(program.run(given)[0], (x + i).T)
        return {}

    def full() -> Facts:
        text = (
            "g (float[1] x) => (float[200000,200000] y) "
            "{ s = Constant<value = int64[2] {200000,200000}>() y = Expand(x, s) }"
        )
        try:
            Program(_model(text), options=_OPTIONS).run([np.zeros(1, np.float32)])
        except OutOfMemoryError as error:
            same(Program(turn, options=_OPTIONS).run([x])[0], x.T)
            return {"told": str(error)[:200]}
        raise MismatchError("160 GB were given")

    yield "results by the runtime", lambda: fetched(True)
    yield "results fetched", lambda: fetched(False)
    yield from (("shapes that vary", varying), ("state", kept), ("staged feeds", staged))
    if contact.compares:
        yield "a full device is told, and goes on", full


def _model(text: str) -> bytes:
    content: bytes = parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> {text}'
    ).SerializeToString()
    return content


# --- the zoo: losses beside those of the CPU, and captured ---------------------------------------
@dataclass(frozen=True)
class Steps:
    """The first losses of a job, the milliseconds of a later step, and its nodes by provider."""

    losses: list[float]
    ms: float
    nodes: Counter[tuple[str, str]]  # of operators and providers
    native: dict[str, int] = field(default_factory=dict)  # operators of flow2onnx-native

    @property
    def elsewhere(self) -> dict[str, int]:
        """The operators that CUDA leaves to another provider, counted."""
        return {op: n for (op, provider), n in self.nodes.items() if provider != CUDA.name}

    @property
    def draws(self) -> bool:
        """True if the runtime itself draws numbers, which differ from device to device."""
        return any("Random" in op or op == "Dropout" for op, _ in self.nodes)


def zoo(contact: Contact) -> Iterator[Check]:
    """The networks: losses on the GPU beside those on the CPU, and what is left to the CPU."""
    for row in _rows(contact):

        def check(row: Any = row) -> Facts:
            here, there = _steps(row, gpu=False), _steps(row, gpu=True)
            facts = {"cpu": here.losses, "gpu": there.losses, "elsewhere": there.elsewhere,
                     "ms": there.ms, "cpu ms": here.ms, "draws": there.draws}  # fmt: skip
            if not there.draws:
                _compare(contact, there.losses, here.losses, facts)
            return facts

        yield row.name, check


def capture(contact: Contact) -> Iterator[Check]:
    """The networks captured as CUDA graphs: losses beside those without, or why not."""
    for row in _rows(contact):

        def check(row: Any = row) -> Facts:
            plain = _steps(row, gpu=True, captures=False)
            try:
                captured = _steps(row, gpu=True, captures=True)
            except OptionsError as error:
                return {"refused": str(error)[:300], "ms": plain.ms}
            facts = {"plain": plain.losses, "captured": captured.losses, "ms": plain.ms,
                     "captured ms": captured.ms}  # fmt: skip
            _compare(contact, captured.losses, plain.losses, facts)
            return facts

        yield row.name, check


def native(contact: Contact) -> Iterator[Check]:
    """The networks with the native operators for CUDA: losses beside those without."""
    try:
        accelerator(True, needs_library=False)
    except UnsupportedError as error:
        why = f"{error.message}: {error.hint}"
        yield "native operators", lambda: {"absent": why}
        return
    for row in _rows(contact):

        def check(row: Any = row) -> Facts:
            plain, fused = (_steps(row, gpu=True, native=is_on) for is_on in (False, True))
            facts = {"plain": plain.losses, "native": fused.losses, "ms": plain.ms,
                     "native ms": fused.ms, "used": fused.native}  # fmt: skip
            if not plain.draws:
                _compare(contact, fused.losses, plain.losses, facts)
            return facts

        yield row.name, check


def _rows(contact: Contact) -> list[Any]:
    return [row for row in ROWS if not contact.rows or row.name in contact.rows]


def _compare(contact: Contact, found: list[float], wanted: list[float], facts: Facts) -> None:
    near = np.allclose(found, wanted, rtol=_NEAR, atol=_NEAR * 1e-3)
    contact.expect(near, f"losses differ: {facts}")


def _steps(row: Any, *, gpu: bool, captures: bool | None = None, native: bool = False) -> Steps:
    """Train a network of the zoo at its small size, on a session of its own."""
    flow.clear_default_session()
    flow.config.gpu_device_num(int(gpu))
    train, feed = row.small().train, row.feed()
    train.spec.config.runtime.use_tf32(False)
    train.spec.config.runtime.native(native)
    if captures is not None:
        train.spec.config.runtime.enable_cuda_graph(captures)
    losses = [float(np.mean(_first(train(*feed)))) for _ in range(_LOSSES)]
    begun = time.perf_counter()
    for _ in range(_TIMED):
        train(*feed)
    ms = round(1e3 * (time.perf_counter() - begun) / _TIMED, 4)
    opening = current_session().opening(train.spec.name)
    nodes = assigned_nodes(OwnModel(model_bytes(opening.model)), opening.options) if gpu else ()
    found = Counter((node.op_type, node.provider) for node in nodes or ())
    return Steps(losses, ms, found, dict(opening.native))


def _first(result: Any) -> Any:
    return result[0] if isinstance(result, tuple | list) else result


# --- forms of gradients --------------------------------------------------------------------------
def forms(contact: Contact) -> Iterator[Check]:
    """ResNet-50's questions: how fast each form is, which are refused, and which is best."""

    def check() -> Facts:
        flow.clear_default_session()
        flow.config.gpu_device_num(1)
        size = {"batch": 64} if contact.compares else {"batch": 2, "size": 64, "classes": 4}
        train = resnet50.jobs(**size).train
        opening = current_session().opening(train.spec.name)
        seconds = 0.1 if contact.compares else 0.001
        with tempfile.TemporaryDirectory() as folder:
            asked = measure_lowerings(
                opening.job, opening.options, Path(folder, "forms.json"), seconds=seconds
            )
        return {tuning.question.key: _answer(tuning) for tuning in asked}

    yield "resnet50", check


def _answer(tuning: Any) -> Facts:
    ms = tuning.answer.ms if tuning.answer is not None else {}
    best = min(ms, key=ms.get) if ms else None
    refused = [form for form in tuning.question.forms if form not in ms]
    return {"rule": tuning.rule, "best": best, "ms": ms, "refused": refused, "nodes": tuning.nodes}


STAGES: dict[str, Callable[[Contact], Iterator[Check]]] = {
    "environment": environment, "paths": paths, "zoo": zoo, "capture": capture, "native": native,
    "forms": forms,
}  # fmt: skip


def main(given: list[str] | None = None) -> int:
    """Do what the command line says; 1 if a check failed."""
    parsed = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parsed.add_argument("stages", nargs="*", metavar="STAGE", help=f"of {', '.join(STAGES)}")
    parsed.add_argument("--out", type=Path, required=True)
    parsed.add_argument("--rows", default="", help="of the zoo; all unless told")
    parsed.add_argument("--seconds", type=float, default=420.0)
    parsed.add_argument("--rehearse", action="store_true", help="small, and compares nothing")
    args = parsed.parse_args(given)
    unknown = [stage for stage in args.stages if stage not in STAGES]
    if unknown:
        parsed.error(f"there is no stage {unknown[0]!r}; there are {', '.join(STAGES)}")
    rows = tuple(filter(None, args.rows.split(",")))
    contact = Contact(args.out, args.seconds, rows, not args.rehearse)
    contact.run(args.stages or list(STAGES))
    print(f"{len(contact.failed)} failed", *contact.failed, sep="\n  ")
    return int(bool(contact.failed))


if __name__ == "__main__":
    sys.exit(main())
