"""A future of the results of a run, which can be cancelled while it runs."""

from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any

from numpy.typing import NDArray

__all__ = ["Results", "RunFuture"]

Results = dict[str, NDArray[Any]]


class RunFuture(Future[Results]):
    """The results of a run by name, once it is done; `cancel` also ends a run under way.

    Like any `concurrent.futures.Future` it can be waited for, or awaited by
    `asyncio.wrap_future`. It cannot be seen whether the run has begun.
    """

    def __init__(self, stop: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._stop = stop

    def cancel(self) -> bool:
        """End the run at its next node; False if it is over already."""
        is_cancelled = super().cancel()
        if is_cancelled:
            self._stop()
        return is_cancelled

    def fulfil(self, run: Callable[[], Results]) -> None:
        """Run, and hand over what comes of it; do nothing if it is cancelled."""
        if self.cancelled():
            self.set_running_or_notify_cancel()
            return
        try:
            self.settle(run())
        except BaseException as error:
            self.settle(error)

    def settle(self, outcome: Results | BaseException) -> None:
        """Hand over the results or the error, unless it was cancelled meanwhile."""
        try:
            if isinstance(outcome, BaseException):
                self.set_exception(outcome)
            else:
                self.set_result(outcome)
        except InvalidStateError:
            self.set_running_or_notify_cancel()
