"""A future of the results of a run, which can be cancelled while it runs."""

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from flow2onnx_runtime.step_queue import StepFuture

__all__ = ["Results", "RunFuture"]

Results = dict[str, NDArray[Any]]


class RunFuture(StepFuture[Results]):
    """The results of a run by name, once it is done; `cancel` also ends a run under way.

    Like any `concurrent.futures.Future` it can be waited for, or awaited by
    `asyncio.wrap_future`. It cannot be seen whether the run has begun.
    """

    def __init__(self, run: Callable[[], Results], stop: Callable[[], None] = lambda: None) -> None:
        super().__init__(run)
        self._stop = stop

    def cancel(self) -> bool:
        """End the run at its next node; False if it is over already."""
        if self._is_over and not self._is_cancelled:
            return False
        self._is_cancelled = True  # also of one under way: what comes of it is dropped
        super().cancel()
        self._stop()
        self._wake()
        return True

    def running(self) -> bool:
        """False: it cannot be seen."""
        return False

    def settle(self, outcome: Results | BaseException) -> None:
        """Hand over results or an error that were computed elsewhere; on a worker's thread."""
        self.take(outcome)
        self.end()
        self.tell()
