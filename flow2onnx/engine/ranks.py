"""Train jobs of several processes: each does its rows, then all move the variables alike.

The gradients half of a step sends what the update half needs. Between the two stand the
collectives: no graph holds one.
"""

import logging
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np
import onnxruntime
from flow2onnx_runtime import State
from flow2onnx_runtime.collectives import (
    Collectives,
    Pending,
    PendingPart,
    check_alike,
    follow_first,
    gather_bytes,
)
from flow2onnx_runtime.divided import join_parts, part_size
from flow2onnx_runtime.dtypes import Array, all_finite
from flow2onnx_runtime.program import DeviceFeeds, Program, TensorInfo
from flow2onnx_runtime.world import launched_world

from flow2onnx.compile import CompiledJob
from flow2onnx.compile.names import MOVED, OWN, PARTIAL, RANK, ROWS, SHARD, SUM
from flow2onnx.config import Settings
from flow2onnx.data.pipeline import Pipeline
from flow2onnx.engine.buckets import BucketMemory
from flow2onnx.engine.divided_model import DividedModel
from flow2onnx.engine.executable import Executable, OpenedModel
from flow2onnx.engine.kept import gather_rows, refresh
from flow2onnx.engine.opening import Opening
from flow2onnx.engine.parts import PartedModel
from flow2onnx.errors import ConfigError, UnsupportedError
from flow2onnx.passes.slices import vector_of
from flow2onnx.trace.job import Kept
from flow2onnx.trace.variables import Variable

__all__ = ["RankedExecutable", "WholeExecutable", "check_devices", "check_same_jobs"]

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
        self._collectives = collectives
        self._exchange = _Exchange(collectives, opening.job.rounds)
        self._buckets = BucketMemory(opening)
        super().__init__(opening, state, source)
        assert self._model is not None, "a train job has outputs"
        assert self._update is not None, "ranks make their updates apart"
        infos, job = self._model.results, opening.job
        names = [info.name for info in infos]
        self._sent = frozenset(map(vector_of, job.sent))
        self._moved = opening.update.job.moved if opening.update is not None else {}
        self._shares = {names.index(n): s for n, s in job.shares.items() if n in names}
        watched = {i for arguments, _, _ in self._watches for pieces in arguments for i in pieces}
        self._shown = sorted({*self._results, *watched})
        self._in_buckets = {names.index(name): name for name in self._buckets.results}
        self._is_static = [info.is_static for info in infos]

    def run(
        self, arrays: Sequence[Array], feeds: Sequence[Array] | DeviceFeeds | None = None
    ) -> list[Array]:
        """One call of all ranks: new arrays in the order of the job's results."""
        assert self._model is not None, "checked when it was opened"
        assert self._update is not None, "checked when it was opened"
        local = self._own_part(arrays)
        self._exchange = _Exchange(self._collectives, self._job.rounds)
        rounds = [self._compute(local) for _ in range(self._job.rounds)]
        given: list[Array] = []
        if self._job.division is not None:  # ranks have updates of their own, and meet alike
            self._exchange.finish()
            given = self._received(self._update.feeds)
        self._update.run(given)
        self._exchange.finish()
        apart = [i for i in self._shown if i not in self._in_buckets]
        shown = [{i: self._whole(i, outputs[i]) for i in apart} for outputs in rounds]
        sums = self._buckets.sums()
        shown[0] |= {i: self._pieces_of_sum(i, sums[name]) for i, name in self._in_buckets.items()}
        division = self._job.division
        kept = division.kept if division is not None else {}
        shared = [name for name in self._model.writes if name not in kept]
        follow_first(self._collectives, self._state, shared)
        whole = shown[0] if len(shown) == 1 else {i: _join_rounds(shown, i) for i in self._shown}
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

    def _opened(self, opening: Opening, state: State, suffix: str = "") -> OpenedModel:
        between = self._take_sums if suffix else self._send
        if opening.job.division is not None:
            return DividedModel(opening, state, suffix, self._collectives, between)
        buckets = self._buckets
        if suffix:
            return PartedModel(
                opening, state, suffix,
                before=self._receive, between=between, links=buckets.received,
            )  # fmt: skip
        return PartedModel(
            opening, state, between=between, links=buckets.sent, written_by=buckets.written_by
        )

    def _send(self, results: Mapping[str, Array]) -> Mapping[str, Array]:
        """Send the gradients that a part has made; those of the next are not there yet."""
        self._buckets.put_results(results)
        self._exchange.send({name: a for name, a in results.items() if name in self._sent})
        return {}

    def _receive(self, program: Program) -> Mapping[str, Array]:
        """The feeds of a part of the update, once the sums that it reads are there."""
        found = self._exchange.received({vector_of(info.name) for info in program.inputs})
        return {**found, RANK: np.array([self._collectives.world.rank])}

    def _received(self, feeds: Sequence[TensorInfo]) -> list[Array]:
        """The arrays of these feeds of the update, once they are there."""
        found = self._exchange.received({info.name for info in feeds})
        found[RANK] = np.array([self._collectives.world.rank])
        return [found[info.name] for info in feeds]

    def _take_sums(self, results: Mapping[str, Array]) -> Mapping[str, Array]:
        """The sums that the next part of the update needs; what all have moved is gathered."""
        for name, own in results.items():
            if name.startswith(MOVED):
                self._gather_moved(self._moved[name], own)
        partial = {n: a for n, a in results.items() if n.startswith(PARTIAL)}
        if not partial:
            return {}
        numbers = np.array([a.item() for a in partial.values()])  # in float64
        self._collectives.all_reduce(numbers)
        return {
            SUM + name.removeprefix(PARTIAL): total.astype(array.dtype).reshape(array.shape)
            for (name, array), total in zip(partial.items(), numbers, strict=True)
        }

    def _gather_moved(self, names: Sequence[str], own: Array) -> None:
        """Give variables the next values of which every rank has made a part."""
        size = self._collectives.world.size
        parts, start = self._collectives.all_gather(own), 0
        for name in names:
            shape = self._state.shape(name)
            end = start + part_size(shape, size)
            self._state.write(name, join_parts([part[start:end] for part in parts], shape))
            start = end

    def _whole(self, i: int, array: Array) -> list[Array]:
        """An output as one process would have it; of a mirrored job the pieces of all ranks."""
        share, collectives = self._shares.get(i), self._collectives
        if share is None:
            return [array]
        if share.kind == "at":
            whole = np.array(array)
            collectives.broadcast(whole, share.axis)
            return [whole]
        if share.kind == "rows" and self._job.division is not None:
            return [gather_rows(collectives, array, share.axis)]
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
        return [piece.astype(array.dtype, copy=False) for piece in self._pieces_of_sum(i, total)]

    def _pieces_of_sum(self, i: int, total: Array) -> list[Array]:
        """An output that is a sum or a mean over the ranks, from the sum."""
        if self._shares[i].kind == "mean":
            total /= self._collectives.world.size
        return [total] * max(self._job.pieces, 1)

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


class WholeExecutable(Executable):
    """A predict job that reads variables of which ranks keep parts: every rank computes it whole.

    It has a state of its own, which gets the present values before each run.
    """

    def __init__(
        self,
        opening: Opening,
        state: State,
        collectives: Collectives,
        variables: Sequence[Variable],
        kept: Mapping[str, Kept],
        source: Pipeline | None = None,
    ) -> None:
        self._divided, self._collectives, self._kept = state, collectives, kept
        self._variables = variables
        own = State(state.device, state.device_id)
        for v in variables:
            own.reserve(v.name, v.shape, v.dtype.name)
        super().__init__(opening, own, source)
        written = [n for n in opening.job.writes if opening.job.variables[n].role == "variable"]
        if written:
            raise UnsupportedError(
                f"it assigns to {', '.join(written)} and reads variables of which processes keep "
                "parts",
                job=opening.job.spec.name, source=opening.job.spec.source,
                hint="assign in the train job, or by flow.load_variables",
            )  # fmt: skip

    def run(
        self, arrays: Sequence[Array], feeds: Sequence[Array] | DeviceFeeds | None = None
    ) -> list[Array]:
        """One call; every rank makes it."""
        refresh(self._collectives, self._divided, self._state, self._variables, self._kept)
        return super().run(arrays, feeds)


def _join_rounds(rounds: Sequence[Mapping[int, list[Array]]], i: int) -> list[Array]:
    """The pieces of an output, those of all rounds in a row."""
    of_rounds = zip(*(shown[i] for shown in rounds), strict=True)
    return [np.concatenate([np.atleast_1d(piece) for piece in pieces]) for pieces in of_rounds]


class _Exchange:
    """Arrays that a rank sends and gets in a call: sums over rounds and ranks, rows of all ranks.

    A reduction begins once the last round has given its part, in the array that it gave.
    """

    def __init__(self, collectives: Collectives, rounds: int) -> None:
        self._collectives, self._rounds = collectives, rounds
        self._totals: dict[str, Array] = {}
        self._counts = Counter[str]()
        self._pending: dict[str, Pending | PendingPart] = {}
        self._has_rows = False

    def send(self, arrays: Mapping[str, Array]) -> None:
        """Add what a round gave."""
        for name, array in arrays.items():
            if name in self._totals:
                array += self._totals[name]
            self._counts[name] += 1
            is_last = self._counts[name] == self._rounds
            self._totals[name] = array if is_last else array.copy()  # the next is made there
            if is_last and not name.startswith((ROWS, OWN)):
                self._pending[name] = self._begin(name)

    def received(self, names: AbstractSet[str]) -> dict[str, Array]:
        """The sums and rows among these names; each once in a call.

        Rows of all tables are gathered at the first of them, so that all ranks do so alike.
        """
        if any(name.startswith(ROWS) for name in names):
            self._gather_rows()
        for name in [name for name in self._pending if name in names]:
            part = self._pending.pop(name).wait()
            if isinstance(part, np.ndarray):
                self._totals[name] = part
        return {name: array for name, array in self._totals.items() if name in names}

    def finish(self) -> None:
        """Wait for what nobody has asked for."""
        self._gather_rows()
        self.received(set(self._pending))

    def _gather_rows(self) -> None:
        rows = [name for name in self._totals if name.startswith(ROWS)]
        for name in rows if not self._has_rows else ():
            self._totals[name] = np.concatenate(self._collectives.all_gather(self._totals[name]))
        self._has_rows = True

    def _begin(self, name: str) -> Pending | PendingPart:
        total = self._totals[name]
        if name.startswith(SHARD):
            return self._collectives.begin_reduce_scatter(total)
        return self._collectives.begin_all_reduce(total)
