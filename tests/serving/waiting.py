"""Waiting for what a server does in its own time."""

import time
from collections.abc import Callable


def wait_until(is_so: Callable[[], bool]) -> None:
    """Return as soon as it is so; a minute is far too long."""
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)
