"""Peers side by side: each a process of its own, asked for blocks of steps in turn.

Whatever else the machine does then hits all of them. A peer is timed only if its losses of three
steps, or its predictions, are ours.
"""

import functools
import math
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import instruction_sets
from benchmarks.environments import ROOT, interpreter, recipe_of
from benchmarks.worker_process import PeerError, WorkerProcess
from benchmarks.workloads import workload

MKL = (
    "torch's MKL takes a slow path on processors that are not Intel's. *as shipped* is what pip "
    "installs; *MKL: Intel* has a library of one function preloaded that answers MKL's question "
    "for the vendor with yes, which lifts matrix products (convolutions are oneDNN's, which asks "
    "for features instead). On Intel's own processors the two are one, *as shipped*."
)
_SOURCE = "int mkl_serv_intel_cpu_true(void) { return 1; }\n"
_FACTS = Path("/proc/cpuinfo")  # of the processor, on Linux
_ROUGH = {"tf32": 1e-2, "float16": 5e-2, "bfloat16": 5e-2}  # how far losses differ by rounding
OURS = "flow2onnx"


@dataclass(frozen=True)
class Contestant:
    """A peer as it takes part: `peer` is what the worker takes, such as ``torch:compile``."""

    label: str
    peer: str
    is_intel: bool = False
    model: str = ""
    reason: str = ""  # why it takes no part

    @property
    def module(self) -> str:
        """The module of benchmarks.peers."""
        return self.peer.partition(":")[0]


@dataclass(frozen=True)
class Pace:
    """How long is measured: a block's seconds, those of a peer altogether, and how many blocks."""

    block_s: float = 0.1
    peer_s: float = 5.0
    fewest: int = 15  # of seven, on a machine that others use too, medians differed by a tenth
    most: int = 50


QUICK = Pace(block_s=0.15, peer_s=0.5, most=3)


@dataclass(frozen=True)
class Setting:
    """The settings that all peers of a row share."""

    task: str
    workload: str
    threads: int = 1
    device: str = "cpu"
    precision: str = "float32"
    isa: str = ""  # of `instruction_sets.SETS`; empty: what the processor has


class Peer:
    """A worker that has made its first steps."""

    def __init__(
        self, who: Contestant, command: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        self.who, self.times, self.busy = who, [], []
        self.peak_mb = math.nan
        self._worker = WorkerProcess(command, environment)
        try:
            self.facts = self._worker.record()
            self.rest()
        except BaseException:
            self.close()
            raise

    times: list[float]
    busy: list[float]

    def run(self, steps: int) -> float:
        """The seconds of so many steps; `busy` gets those of processors for one."""
        self._worker.signal("SIGCONT")
        self._worker.tell(f"run {steps}")
        wall, busy = self._worker.numbers(2)
        self.busy.append(busy / steps)
        self.rest()
        return wall

    def rest(self) -> None:
        """Stop the process until its next turn: some libraries go on for a while, or poll."""
        self._worker.signal("SIGSTOP")

    def end(self) -> None:
        """Ask for the peak memory, and end the process."""
        self._worker.signal("SIGCONT")
        self._worker.tell("end")
        (self.peak_mb,) = self._worker.numbers(1)
        self.close()

    def close(self) -> None:
        """End the process, whatever it does."""
        self._worker.close()


@dataclass
class Row:
    """The result of one peer of one workload; times are in milliseconds a step.

    `ms` is the median of blocks, `fastest_ms` the fastest of them: on a machine that is used by
    others too, the nearest to a machine that is not. `ratio` is the median of the quotients of two
    blocks of one turn, theirs by ours: a processor that is slow for a while is so for both.

    `busy_ms` is that of all processors: with one thread as much as `ms`, unless other programs
    took the processor meanwhile.
    """

    workload: str
    threads: int
    peer: str
    note: str = ""
    ms: float | None = None
    quartiles: tuple[float, float] | None = None
    fastest_ms: float | None = None
    busy_ms: float | None = None
    ratio: float | None = None
    first_step_s: float | None = None
    import_s: float | None = None
    peak_mb: float | None = None
    blocks: int = 0
    precision: str = "float32"
    extra: dict[str, float] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)  # what the peer tells of itself


@dataclass
class Contest:
    """All rows so far, and the versions that the peers told."""

    pace: Pace
    tell: Callable[[str], None] = lambda text: None  # what is going on
    rows: list[Row] = field(default_factory=list)
    versions: dict[str, dict[str, str]] = field(default_factory=dict)

    def measure(self, name: str, setting: Setting, who: Sequence[Contestant]) -> list[Row]:
        """The rows of one workload; the first contestant is ours, without whom nobody runs."""
        rows = {w.label: Row(name, setting.threads, w.label, precision=setting.precision)
                for w in who}  # fmt: skip
        peers: list[Peer] = []
        try:
            with _folder_of_compiler() as folder:
                for one in who:
                    self._start(peers, rows, setting, one, folder)
                take_turns(peers, rows, self.pace)
            for peer in list(peers):
                with _leaving(peers, rows, peer):
                    peer.end()
        finally:
            for peer in peers:
                peer.close()
        ours = next((p for p in peers if p.who is who[0]), None)
        for peer in peers:
            fill(rows[peer.who.label], peer, ours)
        self.rows += rows.values()
        return list(rows.values())

    def _start(
        self, peers: list[Peer], rows: dict[str, Row], setting: Setting, one: Contestant,
        folder: str,
    ) -> None:  # fmt: skip
        """Add a peer that computes what ours does, or say in its row why there is none."""
        row, is_ours = rows[one.label], one.label == next(iter(rows))
        self.tell(f"{row.workload}: {one.label}")
        row.note = absence(one) or ("" if peers or is_ours else "not run: ours failed")
        if row.note:
            return
        try:
            environment = environment_of(one, folder, setting.isa)
            peer = Peer(one, _command(one, setting), environment)
        except PeerError as error:
            row.note = str(error)
            return
        if "compile" in one.peer and any(p.who.peer == one.peer for p in peers):
            peer.facts["first_step_s"] = None  # the compiler found what it had made before
        tolerance = max(workload(setting.workload).tolerance, _ROUGH.get(setting.precision, 0.0))
        row.note = _difference(peer, peers[0], tolerance) if peers else ""
        if row.note and not peer.facts["differs"]:
            peer.close()
            return
        self.versions[one.peer if one.module == OURS else one.module] = peer.facts["versions"]
        peers.append(peer)


def absence(one: Contestant) -> str:
    """Why a contestant takes no part; empty if it does."""
    if one.reason:
        return one.reason
    if interpreter(one.peer) is None:
        return f"not installed: python -m benchmarks.environments {recipe_of(one.peer)}"
    if one.is_intel and intel_library() is None:
        return "not asked: no C compiler, or not Linux, to answer MKL's question with"
    return ""


def _command(one: Contestant, setting: Setting) -> list[str]:
    """The command of the process that is a peer."""
    python = interpreter(one.peer)
    assert python is not None, f"{one.label} was found not installed before"
    return [
        python, "-m", "benchmarks.worker", setting.task, one.peer, setting.workload,
        "--threads", str(setting.threads), "--device", setting.device,
        "--precision", setting.precision, "--offset", str(os.getpid()),
        *(["--model", one.model] if one.model else []),
    ]  # fmt: skip


def mkl_paths() -> list[tuple[str, bool]]:
    """The names of torch's paths through MKL, each with True if MKL is told to take Intel's."""
    is_intel = _FACTS.exists() and "GenuineIntel" in _FACTS.read_text()
    return [("as shipped", False), *([] if is_intel else [("MKL: Intel", True)])]


@functools.cache
def intel_library() -> str | None:
    """A library that tells MKL that the processor is Intel's; None where it cannot be made."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or platform.system() != "Linux":
        return None
    folder = _kept_folder()
    source, library = Path(folder, "intel.c"), Path(folder, "intel.so")
    source.write_text(_SOURCE)
    command = [compiler, "-shared", "-fPIC", "-o", str(library), str(source)]
    done = subprocess.run(command, capture_output=True, check=False)
    return None if done.returncode else str(library)


_FOLDERS: list[Any] = []  # temporary folders that live as long as the process


def _kept_folder() -> str:
    folder = tempfile.TemporaryDirectory()
    _FOLDERS.append(folder)
    return folder.name


@contextmanager
def _folder_of_compiler() -> Iterator[str]:
    """A cache of torch.compile's own for a row, so that its first compilation is a first one."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        yield folder


def environment_of(one: Contestant, folder: str, isa: str = "") -> dict[str, str]:
    """The environment of a peer's process, kept to an instruction set if one is named.

    One that runs on the Python of this process finds what is on its path too, after the project
    itself; the packages of another environment would be of other versions.
    """
    paths = [str(ROOT)]
    if one.module == OURS or recipe_of(one.peer) is None:
        paths.append(str(ROOT / "runtime" / "python"))
    if interpreter(one.peer) == sys.executable:
        own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        paths += [os.path.abspath(path) for path in own if path]
    environment = os.environ | {
        **instruction_sets.variables(isa),
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        "TORCHINDUCTOR_CACHE_DIR": folder,
        "FLOW2ONNX_CACHE": "0",  # a first step is one, for ours too
        # unless told, JAX takes three quarters of a GPU's memory, which its peers need too
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
    if one.is_intel:
        environment["LD_PRELOAD"] = str(intel_library())
    return environment


def _difference(peer: Peer, ours: Peer, tolerance: float) -> str:
    """The differences of a peer's arithmetic; empty without any."""
    if peer.facts["differs"]:
        return f"(*) {peer.facts['differs']}"
    return disagreement(peer.facts["results"], ours.facts["results"], tolerance)


def disagreement(theirs: Sequence[float], ours: Sequence[float], tolerance: float) -> str:
    """A note with both results, where they differ by more than a share `tolerance` of ours.

    Empty where they agree: a number near 0 is held to be as exact as the others, a NaN agrees with
    nothing.
    """
    size = statistics.fmean(map(abs, ours))
    pairs = zip(theirs, ours, strict=True)
    if all(abs(a - b) <= tolerance * max(abs(b), size) for a, b in pairs):
        return ""
    return f"not timed: it computes {theirs}, we {ours}"


@contextmanager
def _leaving(peers: list[Peer], rows: Mapping[str, Row], peer: Peer) -> Iterator[None]:
    """Let a peer that fails leave the contest, with the reason in its row."""
    try:
        yield
    except PeerError as error:
        rows[peer.who.label].note = str(error)
        peers.remove(peer)
        peer.close()


def take_turns(peers: list[Peer], rows: Mapping[str, Row], pace: Pace) -> None:
    """Let peers run blocks of steps in turn; one that fails leaves, and its row says why."""
    steps = {}
    for peer in list(peers):
        with _leaving(peers, rows, peer):
            peer.run(1)
            steps[peer] = max(1, math.ceil(pace.block_s / max(peer.run(1), 1e-6)))
    for _ in range(pace.most):
        for peer in list(peers):
            spent = sum(peer.times) * steps[peer]
            if len(peer.times) < pace.fewest or spent < pace.peer_s:
                with _leaving(peers, rows, peer):
                    peer.times.append(peer.run(steps[peer]) / steps[peer])


def fill(row: Row, peer: Peer, ours: Peer | None) -> None:
    """Put into a row what was measured of a peer, and its ratio to ours."""
    times = [1000 * t for t in peer.times]
    low, row.ms, high = statistics.quantiles(times, n=4, method="inclusive")
    row.quartiles, row.blocks, row.fastest_ms = (low, high), len(times), min(times)
    row.busy_ms = 1000 * statistics.median(peer.busy[-len(times) :])
    if ours is not None:
        pairs = zip(peer.times, ours.times, strict=False)  # who was slow had fewer turns
        row.ratio = statistics.median(theirs / mine for theirs, mine in pairs)
    row.first_step_s, row.import_s = peer.facts["first_step_s"], peer.facts["import_s"]
    row.peak_mb, row.about = peer.peak_mb, peer.facts["about"]


def machine() -> dict[str, Any]:
    """The machine that the numbers were measured on."""
    names = re.findall(r"model name\s*: (.+)", _FACTS.read_text()) if _FACTS.exists() else []
    processor = names[0] if names else platform.processor() or platform.machine()
    return {
        "processor": processor, "cores": os.cpu_count(), "system": platform.platform(),
    }  # fmt: skip
