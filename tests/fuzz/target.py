"""One input given to a reader: how it may end, and what it may cost."""

import atexit
import contextlib
import functools
import importlib
import os
import pkgutil
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

from flow2onnx_runtime import FlowError

__all__ = ["CORPUS", "MEGABYTES", "NAMES", "SECONDS", "CostError", "corpus", "execute", "load",
           "scratch", "shared_scratch"]  # fmt: skip

SECONDS = 2.0  # of the processor, for one input
MEGABYTES = 512.0  # that one input may add to the most that the process has ever had
_SCRATCH = "FLOW2ONNX_FUZZ_SCRATCH"
CORPUS = Path(__file__).with_name("corpus")
NAMES = tuple(
    sorted(m.name for m in pkgutil.iter_modules([str(Path(__file__).parent / "targets")]))
)


class CostError(Exception):
    """An input that took more time or memory than one may."""


def load(name: str) -> ModuleType:
    """The module of a target: `run(data)`, `seeds()`, and perhaps `TOKENS` of its language."""
    return importlib.import_module(f"tests.fuzz.targets.{name}")


def corpus(name: str) -> list[bytes]:
    """The inputs kept in the repository for a target: found before, and once the end of it."""
    return [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]


def execute(run: Callable[[bytes], object], data: bytes) -> bool:
    """True where an input is accepted, False where it is refused in words.

    Whatever else a reader raises is raised here too; `CostError` for too much time or memory.
    """
    began, before = time.process_time(), _peak()
    try:
        run(data)
        is_accepted = True
    except FlowError as refusal:
        is_accepted = False
        if not str(refusal).strip():
            raise AssertionError("a refusal says why") from refusal
    seconds, megabytes = time.process_time() - began, _peak() - before
    if seconds > SECONDS or megabytes > MEGABYTES:
        raise CostError(f"{len(data)} bytes took {seconds:.1f} s and {megabytes:.0f} MB")
    return is_accepted


def _peak() -> float:
    """The most memory that this process has ever had, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@functools.cache
def scratch() -> Path:
    """A folder for files that readers are given: the one of the process that started this one.

    Where there is none, one that is removed when this process ends; libFuzzer ends it without that.
    """
    if given := os.environ.get(_SCRATCH):
        return Path(given)
    folder = _new_scratch()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@contextlib.contextmanager
def shared_scratch() -> Iterator[dict[str, str]]:
    """The variable by which processes share one folder for files, removed at the end."""
    folder = _new_scratch()
    try:
        yield {_SCRATCH: folder}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _new_scratch() -> str:
    memory = Path("/dev/shm")
    return tempfile.mkdtemp(prefix="flow2onnx-fuzz-", dir=memory if memory.is_dir() else None)
