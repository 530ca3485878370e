"""Batches that a job reads, on their way to its device while the run before takes its own."""

from collections.abc import Sequence
from dataclasses import dataclass

from flow2onnx_runtime import Program
from flow2onnx_runtime.device_feeds import FeedBuffers
from flow2onnx_runtime.dtypes import Array
from flow2onnx_runtime.program import DeviceFeeds
from flow2onnx_runtime.step_queue import StepFuture, StepQueue

from flow2onnx.data.pipeline import Pipeline

__all__ = ["FeedsAhead"]

_SETS = 2  # of buffers: one that a run takes, one that is filled


@dataclass(frozen=True)
class _Laid:
    """A batch as arrays, and as the program of `buffers` takes it."""

    arrays: Sequence[Array]
    feeds: Sequence[Array] | DeviceFeeds
    buffers: FeedBuffers


class FeedsAhead:
    """The batches of a source in the order of a program's feeds, laid on its device one ahead.

    One thread fetches them and copies them through pinned memory, so that reading, decoding and
    the way to the device go on while a step runs.
    """

    def __init__(self, source: Pipeline, order: Sequence[int]) -> None:
        self._source, self._order = source, order
        self._queue = StepQueue("a job that reads batches ahead", is_chained=False)
        self._program: Program | None = None
        self._buffers: FeedBuffers | None = None
        self._next: StepFuture[_Laid] | None = None

    def take(self, program: Program) -> Sequence[Array] | DeviceFeeds:
        """The feeds of the next run; those of the one behind it are on their way then.

        Raises what the source or the copy failed with. They are valid until the next call.
        """
        buffers = self._buffers_of(program)
        laying, self._next = self._next or self._lay(buffers), None
        laid = laying.result()
        # a capture that the runtime refused leaves the job with another program
        feeds = laid.feeds if laid.buffers is buffers else buffers.put(laid.arrays)
        self._next = self._lay(buffers)
        return feeds

    def _buffers_of(self, program: Program) -> FeedBuffers:
        if self._buffers is None or self._program is not program:
            self._program, self._buffers = program, FeedBuffers(program, _SETS)
        return self._buffers

    def _lay(self, buffers: FeedBuffers) -> StepFuture[_Laid]:
        source, order = self._source, self._order

        def work() -> _Laid:
            batch = source.next()
            arrays = [batch[i] for i in order]
            return _Laid(arrays, buffers.put(arrays), buffers)

        return self._queue.submit(lambda: work)
