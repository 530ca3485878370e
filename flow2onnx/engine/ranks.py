"""Train jobs of several processes: each does its rows, then all move the variables alike.

The gradients half of a step sends what the update half needs. Between the two stand the
collectives: no graph holds one.
"""

import logging
import platform
from collections.abc import Mapping, Sequence

import numpy as np
import onnxruntime
from flow2onnx_runtime import State
from flow2onnx_runtime.collectives import (
    Collectives,
    check_alike,
    follow_first,
    gather_bytes,
)
from flow2onnx_runtime.dtypes import Array, all_finite
from flow2onnx_runtime.program import DeviceFeeds
from flow2onnx_runtime.world import launched_world

from flow2onnx.compile import CompiledJob
from flow2onnx.compile.names import ROWS
from flow2onnx.config import Settings
from flow2onnx.data.pipeline import Pipeline
from flow2onnx.engine.executable import Executable
from flow2onnx.engine.opening import Opening
from flow2onnx.errors import ConfigError

__all__ = ["RankedExecutable", "check_devices", "check_same_jobs"]

_HALVES = ("float16", "bfloat16")
_log = logging.getLogger("flow2onnx.execute")


def check_devices(settings: Settings) -> None:
    """Raise `ConfigError` where a program asks for other devices than processes were started.

    One process alone plays all devices, and says so.
    """
    world = launched_world()
    name = "gpu_device_num" if settings.value("gpu_device_num") else "cpu_device_num"
    wanted = settings.value(name)
    if world.size == 1 and (wanted or 1) > 1:
        _log.warning(
            "%s: %s is %s, and this process plays all of them; `flow2onnx launch -n %s` starts one "
            "for each", settings.source(name) or "flow2onnx", name, wanted, wanted,
        )  # fmt: skip
    if world.size > 1 and wanted is not None and wanted != world.local_size:
        raise ConfigError(
            f"{name} is {wanted}, and {world.local_size} processes run on this machine, one for "
            "each device",
            source=settings.source(name),
            hint=f"start {wanted} processes on each machine, or set {name} to {world.local_size} "
            "or not at all",
        )


def check_same_jobs(
    collectives: Collectives, jobs: Mapping[str, CompiledJob], settings: Settings
) -> None:
    """Raise `RankError` on every rank unless all compiled the same, for the same settings."""
    versions = f"{platform.machine()} {onnxruntime.__version__} {np.__version__}"
    parts = {
        "the version of onnxruntime or numpy, or the kind of processor": versions,
        "the list of the jobs": " ".join(jobs),
        "flow.config": repr(sorted(settings.values().items())),
    }
    for name, job in jobs.items():
        parts[f"the configuration of job {name}"] = repr(sorted(_plain(job).items()))
        parts[f"the program of job {name}"] = job.digest or repr(job.structure())
    check_alike(collectives, {name: text.encode() for name, text in parts.items()})


def _plain(job: CompiledJob) -> dict[str, str]:
    """The flags of a job whose values look alike in every process."""
    values = job.spec.config.values()
    kinds = (bool, int, float, str, dict, list, tuple, type(None))
    return {name: repr(v) for name, v in values.items() if isinstance(v, kinds)}


class RankedExecutable(Executable):
    """A train job of which this process does a part. Calls are as in one process.

    Every rank is given the whole arrays, or the lists, and gets the whole results.
    """

    def __init__(
        self,
        opening: Opening,
        state: State,
        collectives: Collectives,
        source: Pipeline | None = None,
    ) -> None:
        super().__init__(opening, state, source)
        self._collectives = collectives
        infos, job = self.program.results, opening.job
        names = [info.name for info in infos]
        self._sent = {name: names.index(name) for name in job.sent}
        self._shares = {names.index(n): s for n, s in job.shares.items() if n in names}
        watched = {i for arguments, _, _ in self._watches for pieces in arguments for i in pieces}
        self._shown = sorted({*self._results, *watched})
        self._is_static = [info.is_static for info in infos]

    def run(
        self, arrays: Sequence[Array], feeds: Sequence[Array] | DeviceFeeds | None = None
    ) -> list[Array]:
        """One call of all ranks: new arrays in the order of the job's results."""
        local = self._own_part(arrays)
        rounds = [self._compute(local) for _ in range(self._job.rounds)]
        sent = self._reduced(rounds)
        shown = [{i: self._whole(i, outputs[i]) for i in self._shown} for outputs in rounds]
        for pending in sent.values():
            pending.wait()
        assert self._update is not None, "ranks make their updates apart"
        self._update.run([sent[feed.name].array for feed in self._update.program.feeds])
        follow_first(self._collectives, self._state, self.program.writes)
        whole = shown[0] if len(shown) == 1 else {i: _joined(shown, i) for i in self._shown}
        self._show(whole)
        return [piece for i in self._results for piece in whole[i]]

    def _own_part(self, arrays: Sequence[Array]) -> list[Array]:
        """Of the arrays of a call, what this rank computes with."""
        rank, size = self._collectives.world.rank, self._collectives.world.size
        if self._job.pieces > 1:
            return list(arrays[rank::size])
        named = zip(self._job.feeds, arrays, strict=False)
        return [self._rows(name, array) for name, array in named]

    def _rows(self, name: str, array: Array) -> Array:
        axis = self._job.split.get(name)
        if axis is None:
            return array
        world = self._collectives.world
        return np.split(array, world.size, axis)[world.rank]

    def _reduced(self, rounds: Sequence[Sequence[Array]]) -> "dict[str, _Reduction]":
        """The reductions under way: sums over rounds and ranks, and rows of all ranks."""
        begun = {}
        for name, i in self._sent.items():
            total = rounds[0][i]
            for outputs in rounds[1:]:
                total += outputs[i]
            begun[name] = _Reduction(self._collectives, total, name.startswith(ROWS))
        return begun

    def _whole(self, i: int, array: Array) -> list[Array]:
        """An output as one process would have it; of a mirrored job the pieces of all ranks."""
        share, collectives = self._shares.get(i), self._collectives
        if share is None:
            return [array]
        if share.kind == "rows":
            return [np.concatenate(collectives.all_gather(array), share.axis)]
        if share.kind == "piece":
            return self._pieces(i, array)
        if share.kind == "own":
            array = np.ascontiguousarray(array)
            collectives.broadcast(array)
            return [array]
        total = array.astype(np.float32) if array.dtype.name in _HALVES else array.copy()
        collectives.all_reduce(total)
        if share.kind == "mean":
            total /= collectives.world.size
        return [total.astype(array.dtype, copy=False)] * max(self._job.pieces, 1)

    def _pieces(self, i: int, array: Array) -> list[Array]:
        if self._is_static[i]:
            return self._collectives.all_gather(array)
        shapes = gather_bytes(self._collectives, repr(array.shape).encode())
        parts = gather_bytes(self._collectives, np.ascontiguousarray(array).tobytes())
        sizes = [tuple(map(int, s.decode().strip("(,)").split(","))) for s in shapes]
        return [
            np.frombuffer(part, array.dtype).reshape(size).copy()
            for part, size in zip(parts, sizes, strict=True)
        ]

    def _show(self, whole: Mapping[int, list[Array]]) -> None:
        """Call the watch handlers: those that write something on the first rank alone."""
        for arguments, handler, is_once in self._watches:
            if not is_once or self._collectives.world.rank == 0:
                handler(*([p for i in pieces for p in whole[i]] for pieces in arguments))

    def _check_finite(self, outputs: list[Array]) -> None:
        """Raise on every rank if the loss of one is not finite."""
        is_finite = all(all_finite(outputs[i], element) for i, element in self._losses)
        wrong = np.array([0.0 if is_finite else 1.0], np.float32)
        self._collectives.all_reduce(wrong)
        if wrong[0]:
            raise self._non_finite()


def _joined(rounds: Sequence[Mapping[int, list[Array]]], i: int) -> list[Array]:
    """The pieces of an output, those of all rounds in a row."""
    of_rounds = zip(*(shown[i] for shown in rounds), strict=True)
    return [np.concatenate([np.atleast_1d(piece) for piece in pieces]) for pieces in of_rounds]


class _Reduction:
    """An array on its way: `array` is its sum, or the rows of all ranks, after `wait`."""

    def __init__(self, collectives: Collectives, array: Array, is_gathered: bool) -> None:
        self.array = np.concatenate(collectives.all_gather(array)) if is_gathered else array
        self._pending = None if is_gathered else collectives.begin_all_reduce(array)

    def wait(self) -> None:
        """Return once it is there."""
        if self._pending is not None:
            self._pending.wait()
