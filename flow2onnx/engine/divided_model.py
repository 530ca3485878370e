"""The model of a divided job as one rank runs it: segments, and what is passed between them.

Parts of a batch go through stages one after another: as many forward as there are stages after this
one, then one back for each forward (1F1B), so that every stage has work and keeps few activations.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from flow2onnx_runtime import State
from flow2onnx_runtime.collectives import Collectives, Pending
from flow2onnx_runtime.dtypes import Array
from flow2onnx_runtime.manifest import NEXT
from flow2onnx_runtime.program import DeviceFeeds, TensorInfo

from flow2onnx.compile.division import Passed
from flow2onnx.engine.executable import OpenedModel
from flow2onnx.engine.opening import Opening
from flow2onnx.engine.passing import pass_on, pass_rows
from flow2onnx.graph import Value
from flow2onnx.graph.types import dtype_of, sizes_of
from flow2onnx.passes.row_shares import Share

__all__ = ["DividedModel"]

# What happens once a run is done: it takes what the run returned here, by name.
Between = Callable[[Mapping[str, Array]], object]


@dataclass(frozen=True)
class _Segment:
    """A segment that is open, if this rank computes anything in it, and what is passed after it."""

    model: OpenedModel | None
    passed: tuple[Passed, ...]


class DividedModel(OpenedModel):
    """All segments of one model of a job; `run` is a run of them all, for every part of a batch."""

    def __init__(
        self,
        opening: Opening,
        state: State,
        suffix: str,
        collectives: Collectives,
        between: Between,
    ) -> None:
        division = opening.job.division
        assert division is not None, "hints or placements divide it"
        self.opening, self._division, self._collectives = opening, division, collectives
        self._between = between
        self._segments = [
            _Segment(
                None if planned is None else OpenedModel(planned, state, f"{suffix}/{k}"),
                cut.passed,
            )
            for k, (planned, cut) in enumerate(
                zip(opening.segments, division.segments, strict=True)
            )
        ]
        self._turn = _first_way_back(self._segments)
        opened = [s.model for s in self._segments if s.model is not None]
        if opened:  # a rank may compute nothing
            self.program = opened[0].program
        read = {info.name for model in opened for info in model.feeds}
        graph = opening.job.model.graph
        self._feeds = tuple(_info(v, None, 1) for v in graph.inputs if v.name in read)
        self._results = tuple(
            _info(v, division.shares.get(str(v.name)), division.micro)
            for v in graph.outputs
            if not str(v.name).startswith(NEXT)
        )
        self._writes = tuple(name for model in opened for name in model.writes)

    @property
    def feeds(self) -> tuple[TensorInfo, ...]:
        """The feeds of this rank's segments, each once."""
        return self._feeds

    @property
    def results(self) -> tuple[TensorInfo, ...]:
        """The results of the segments of all ranks."""
        return self._results

    @property
    def writes(self) -> tuple[str, ...]:
        """The state that this rank gives a next value."""
        return self._writes

    def run(
        self,
        feeds: Sequence[Array] | DeviceFeeds,
        guard: Callable[[list[Array]], None] | None = None,
    ) -> list[Array]:
        """One run: the results in order; zeros stand for those that another rank has."""
        assert not isinstance(feeds, DeviceFeeds), "ranks are fed from the host"
        named = dict(zip((f.name for f in self._feeds), feeds, strict=True))
        pending: list[Pending] = []
        micro = [self._micro_feeds(named, k) for k in range(self._division.micro)]
        for k, is_back in _schedule(len(micro), self._ahead()):
            if is_back:
                self._pass(self._segments[self._turn].passed, micro[k], k, pending)
                self._run(self._segments[self._turn + 1 :], micro[k], k, pending)
            else:
                self._run(self._segments[: self._turn], micro[k], k, pending)
                self._compute(self._segments[self._turn], micro[k])
        for send in pending:
            send.wait()
        outputs = {info.name: self._whole_output(info, micro) for info in self._results}
        if guard is not None:
            guard(list(outputs.values()))
        self._between({name: array for name, array in outputs.items() if name in micro[0]})
        return list(outputs.values())

    def _micro_feeds(self, named: Mapping[str, Array], k: int) -> dict[str, Array]:
        division = self._division
        if division.micro == 1:
            return dict(named)
        return {
            name: np.split(array, division.micro, division.split[name])[k]
            if name in division.split else array
            for name, array in named.items()
        }  # fmt: skip

    def _ahead(self) -> int:
        """How many parts of the batch go forward before the first goes back.

        As many as stages come after that of this rank; all, where one rank has several stages.
        """
        sends = [p.transfer for s in self._segments for p in s.passed if not p.is_back]
        order = list(dict.fromkeys(rank for t in sends for rank in (t.source, t.target)))
        if any(order.index(t.source) > order.index(t.target) for t in sends):
            return self._division.micro
        here = self._collectives.world.rank
        return len(order) - 1 - order.index(here) if here in order else 0

    def _run(
        self,
        segments: Iterable[_Segment],
        values: dict[str, Array],
        k: int,
        pending: list[Pending],
    ) -> None:
        for segment in segments:
            self._compute(segment, values)
            self._pass(segment.passed, values, k, pending)

    @staticmethod
    def _compute(segment: _Segment, values: dict[str, Array]) -> None:
        model = segment.model
        if model is not None:
            made = model.run([values[info.name] for info in model.feeds])
            values.update(zip((info.name for info in model.results), made, strict=True))

    def _pass(
        self,
        passed: Iterable[Passed],
        values: dict[str, Array],
        k: int,
        pending: list[Pending],
    ) -> None:
        """Do the transfers after a segment, for part `k` of the batch."""
        for one in passed:
            given = values.pop(one.given) if one.given is not None else None
            if one.indices is not None and given is not None:
                taken: Array | None = pass_rows(
                    self._collectives, one, given, values.pop(one.indices)
                )
            else:
                tag = one.number * self._division.micro + k
                taken = pass_on(self._collectives, one, given, tag, pending)
            if one.taken is not None and taken is not None:
                values[one.taken] = taken

    def _whole_output(self, info: TensorInfo, micro: Sequence[Mapping[str, Array]]) -> Array:
        """An output of the whole batch, from its parts."""
        if info.name not in micro[0]:
            return np.zeros(info.sizes, info.dtype)
        arrays = [values[info.name] for values in micro]
        share = self._division.shares.get(info.name)
        if len(arrays) == 1 or share is None:
            return arrays[0]
        if share.kind == "rows":
            return np.concatenate(arrays, share.axis)
        total = np.array(arrays[0])
        for array in arrays[1:]:
            total += array
        return total / len(arrays) if share.kind == "mean" else total


def _schedule(count: int, most_ahead: int) -> Iterable[tuple[int, bool]]:
    """The turns of a stage: the number of a part of the batch, and whether it goes back.

    >>> [f"{k}{'B' if is_back else 'F'}" for k, is_back in _schedule(3, 1)]
    ['0F', '1F', '0B', '2F', '1B', '2B']
    """
    ahead = min(most_ahead, count)
    for k in range(ahead):
        yield k, False
    for k in range(ahead, count):
        yield k, False
        yield k - ahead, True
    for k in range(count - ahead, count):
        yield k, True


def _first_way_back(segments: Sequence[_Segment]) -> int:
    """The segment after which the first gradient is passed; the last where none is."""
    places = [k for k, s in enumerate(segments) if any(p.is_back for p in s.passed)]
    return places[0] if places else len(segments) - 1


def _info(value: Value, share: Share | None, micro: int) -> TensorInfo:
    shape = list(sizes_of(value))
    if share is not None and share.kind == "rows" and micro > 1:
        shape[share.axis] *= micro
    dtype = dtype_of(value)
    kept = np.dtype(np.uint16) if dtype.name == "bfloat16" else dtype.numpy
    return TensorInfo(str(value.name), tuple(shape), kept, dtype.name)
