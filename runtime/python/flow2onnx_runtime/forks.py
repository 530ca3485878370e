"""Forks detected: an object with threads is used in the process that opened it, in no other."""

import os

from flow2onnx_runtime.errors import StateError

__all__ = ["check_process"]


def check_process(opened_in: int, what: str) -> None:
    """Raise `StateError` in another process than that, whose threads a fork does not copy."""
    if opened_in != os.getpid():
        raise StateError(
            f"{what} cannot be used in a forked process: its threads stayed behind",
            hint='open another one here, or start processes by "spawn" in place of "fork"',
        )
