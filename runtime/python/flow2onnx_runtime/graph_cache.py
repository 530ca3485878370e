"""Graphs as the runtime has rewritten them, kept on disk: opening one again takes a third."""

import contextlib
import hashlib
import logging
import os
import platform
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnxruntime as ort

from flow2onnx_runtime.errors import BundleError
from flow2onnx_runtime.files import replace_bytes

__all__ = ["LIMIT", "GraphCache", "processor_features"]

LIMIT = 2 << 30  # bytes of a folder; the graphs that were not used for longest go first
_LARGEST = 256 << 20  # a protobuf message ends at 2 GB, and folded constants may add to a graph
_log = logging.getLogger("flow2onnx.runtime")


@dataclass(frozen=True)
class GraphCache:
    """A folder of graphs by what they are made from.

    The key is a hash over the model's bytes, the runtime's version, the machine and everything
    that decides how the session is opened, so an entry is never out of date. Its name ends in the
    hash of its own content: one that was damaged is found, removed and made again.
    """

    folder: Path
    limit: int = LIMIT

    def open(
        self, model: bytes, how: str, create: Callable[[bytes, Any], Any], settings: Any
    ) -> Any:
        """The session of `model` that `create` makes of bytes and settings.

        `how` is whatever else decides on the graph. What cannot be kept, for want of rights or
        space, is opened all the same, and said in the log.
        """
        key = _key(model, how)
        kept = self._kept(key)
        if kept is not None:
            level = settings.graph_optimization_level
            settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
            try:
                return create(kept, settings)
            except Exception as error:  # the runtime's exceptions have no common base
                _log.warning("a graph kept in %s does not open any more: %s", self.folder, error)
                self._forget(key)
                settings.graph_optimization_level = level
        return self._make(key, model, create, settings)

    def _make(
        self, key: str, model: bytes, create: Callable[[bytes, Any], Any], settings: Any
    ) -> Any:
        asked = settings.optimized_model_filepath  # where the caller wants it too
        with tempfile.TemporaryDirectory(prefix="flow2onnx-") as scratch:
            written = Path(asked or Path(scratch) / "graph.onnx")
            settings.optimized_model_filepath = str(written)
            try:
                session = create(model, settings)
            finally:
                settings.optimized_model_filepath = asked
            with contextlib.suppress(FileNotFoundError):
                self._keep(key, written.read_bytes())
        return session

    def _kept(self, key: str) -> bytes | None:
        for path in self._entries(key):
            with contextlib.suppress(OSError):
                content = path.read_bytes()
                if _digest(content) == path.stem.rpartition("-")[2]:
                    os.utime(path)
                    return content
                path.unlink()
        return None

    def _keep(self, key: str, content: bytes) -> None:
        if len(content) > min(_LARGEST, self.limit):
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self.folder / f"{key}-{_digest(content)}.onnx"
            replace_bytes(path, content)
            self._shrink()
        except (OSError, BundleError) as error:
            _log.warning("the graph is not kept in %s: %s", self.folder, error)

    def _forget(self, key: str) -> None:
        for path in self._entries(key):
            with contextlib.suppress(OSError):
                path.unlink()

    def _entries(self, key: str) -> list[Path]:
        return sorted(self.folder.glob(f"{key}-*.onnx"))

    def _shrink(self) -> None:
        found = []
        for path in self.folder.glob("*-*.onnx"):
            with contextlib.suppress(OSError):  # another process may have removed it
                state = path.stat()
                found.append((state.st_mtime, state.st_size, path))
        excess = sum(size for _, size, _ in found) - self.limit
        for _, size, path in sorted(found):
            if excess <= 0:
                return
            with contextlib.suppress(OSError):
                path.unlink()
            excess -= size


def _key(model: bytes, how: str) -> str:
    machine = (ort.__version__, platform.system(), platform.machine(), processor_features(), how)
    return hashlib.sha256(repr(machine).encode() + b"\0" + model).hexdigest()[:32]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def processor_features() -> str:
    """The instruction sets of the processor: the runtime's blocked layouts depend on it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith(("flags", "Features")):
                return line
    return platform.processor()
