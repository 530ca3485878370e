"""Work on threads of its own, which neither other work nor the end of the process waits for."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["in_thread", "is_at_work"]

T = TypeVar("T")
_PREFIX = "flow2onnx-"  # of the threads' names


def in_thread(work: Callable[[], T], name: str) -> "asyncio.Future[T]":
    """The result of work on a new thread, as a future of the running loop.

    A thread that opens a model cannot be stopped: the process may end while it runs.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def tell(result: T | None, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is None:
            future.set_result(result)  # type: ignore[arg-type]  # there is one without an error
        else:
            future.set_exception(error)

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except BaseException as error:  # whatever it is, it belongs to who waits
            failure = error
        if not loop.is_closed():  # else nobody waits any more
            loop.call_soon_threadsafe(tell, result, failure)

    threading.Thread(target=run, name=f"{_PREFIX}{name}", daemon=True).start()
    return future


def is_at_work() -> bool:
    """True while any such thread runs."""
    return any(thread.name.startswith(_PREFIX) for thread in threading.enumerate())
