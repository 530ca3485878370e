"""Waiting for what a server does in its own time."""

import re
import time
from collections.abc import Callable
from typing import Any


def wait_until(is_so: Callable[[], bool]) -> None:
    """Return as soon as it is so; a minute is far too long."""
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)


def held_bytes(server: Any) -> float:
    """The bytes that a server holds for requests, as it says itself; some for a moment longer."""
    found = re.search(rb"^flow2onnx_held_bytes (\S+)$", server.ask("/metrics")[2], re.MULTILINE)
    assert found, "a server tells it"
    return float(found[1])
