"""Silence for onnxruntime's own log, where what it would write is expected."""

import contextlib
from collections.abc import Iterator

import onnxruntime as ort

__all__ = ["FATAL", "silent_runtime"]

# Severities below which nothing is written: the runtime's own, and while it is silent.
_WARNING, FATAL = 2, 4


@contextlib.contextmanager
def silent_runtime() -> Iterator[None]:
    """Keep the runtime from writing what no session writes, such as libraries that are missing.

    What severity held before cannot be asked; behind this it is the runtime's own.
    """
    ort.set_default_logger_severity(FATAL)
    try:
        yield
    finally:
        ort.set_default_logger_severity(_WARNING)
