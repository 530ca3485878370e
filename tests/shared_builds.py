"""Builds that the processes of a run share: one makes them, the others wait for it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["alone", "shared_folder"]


def shared_folder(factory: pytest.TempPathFactory) -> Path:
    """The temporary folder of all processes of a run."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@contextmanager
def alone(place: Path) -> Iterator[None]:
    """Wait until no other process is in here for the same file or folder, of a folder there is."""
    import fcntl  # only of POSIX systems, as all that is built

    with place.with_name(f"{place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
