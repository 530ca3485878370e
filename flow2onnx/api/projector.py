"""`flow.summary.Projector` and `Graph`: files beside the event files."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flow2onnx_runtime.dtypes import Array

from flow2onnx.api.session import current_session
from flow2onnx.errors import ArgumentError
from flow2onnx.export.files import write_bytes
from flow2onnx.proto.summary import SummaryProjector
from flow2onnx.source import user_frame

__all__ = ["Graph", "Projector"]

_KINDS = {"image": 0, "audio": 1, "text": 2}


def _folder(logdir: str | None, name: str) -> Path:
    if not isinstance(logdir, str):
        raise ArgumentError("logdir should not be None!", source=user_frame(),
                            hint="name the folder of the summaries")  # fmt: skip
    folder = Path(logdir, name)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class Projector:
    """Writes embeddings, with labels and samples, to files of OneFlow's projector."""

    def __init__(self, logdir: str | None = None) -> None:
        self.logdir = str(_folder(logdir, "projector"))
        self.embedding_filename: str | None = None
        self.exception_filename: str | None = None

    def create_embedding_projector(self) -> None:
        """Choose the file that `embedding_projector` writes."""
        self.embedding_filename = self._new(self.embedding_filename, "projector")

    def create_exception_projector(self) -> None:
        """Choose the file that `exception_projector` writes."""
        self.exception_filename = self._new(self.exception_filename, "projector.gradit")

    def embedding_projector(
        self,
        value: Array,
        label: Array | None = None,
        tag: str | None = None,
        step: int | None = None,
        sample_name: str | None = None,
        sample_type: str | None = None,
        x: Array | None = None,
    ) -> None:
        """Write an embedding; a later one replaces it."""
        tensors = {"value": value} | ({} if label is None else {"label": label})
        text = tag or "embedding_projector"
        self._write(0, self.embedding_filename, text, step, tensors, sample_name, sample_type, x)

    def exception_projector(
        self,
        value: Array,
        tag: str | None = None,
        step: int | None = None,
        sample_name: str | None = None,
        sample_type: str | None = None,
        x: Array | None = None,
    ) -> None:
        """Write values that are out of the ordinary; later ones replace them."""
        text, tensors = tag or "exception_projector", {"value": value}
        self._write(1, self.exception_filename, text, step, tensors, sample_name, sample_type, x)

    def _new(self, known: str | None, stem: str) -> str:
        if known is not None and Path(known).exists():
            raise ArgumentError("You must create only one embedding projector!",
                                source=user_frame(), hint=f"{known} is one already")  # fmt: skip
        return str(Path(self.logdir, f"{stem}.{int(time.time())}.log"))

    def _write(
        self,
        kind: int,
        path: str | None,
        tag: str,
        step: int | None,
        tensors: Mapping[str, Array],
        sample_name: str | None,
        sample_type: str | None,
        x: Array | None,
    ) -> None:
        if path is None:
            raise ArgumentError("no file is chosen to write to", source=user_frame(),
                                hint="call create_embedding_projector() or "
                                "create_exception_projector() first")  # fmt: skip
        whole = SummaryProjector()
        whole.metadata.type = kind
        held = whole.projector.add(tag=tag, WALL_TIME=time.time())
        if step is not None:
            held.step = step
        for name, array in tensors.items():
            _set(getattr(held, name), array)
        if sample_name is not None and sample_type is not None and x is not None:
            whole.sample.name, whole.sample.type = sample_name, _kind(sample_type)
            _set(whole.sample.X, x)
        write_bytes(Path(path), whole.SerializeToString())


def _kind(sample_type: str) -> int:
    number = _KINDS.get(sample_type.lower())
    if number is None:
        raise ArgumentError(f"sample_type is {sample_type!r}", source=user_frame(),
                            hint=f"it is one of {', '.join(_KINDS)}")  # fmt: skip
    return number


def _set(tensor: Any, array: Array) -> None:
    tensor.dtype, tensor.content = str(array.dtype), array.tobytes()
    for size in array.shape:
        tensor.shape.dim.add(size=size)


class Graph:
    """Writes the structure of the session's jobs as JSON."""

    def __init__(self, logdir: str | None = None) -> None:
        self.logdir = str(_folder(logdir, "graph"))
        self.structure_graph_filename: str | None = None

    def write_structure_graph(self) -> None:
        """Write, for each job, its operators and what each reads and makes."""
        session = current_session()
        session.start()
        jobs = {name: session.opening(name).job.structure() for name in session.job_names()}
        self.structure_graph_filename = str(Path(self.logdir, "structure_graph.json"))
        text = json.dumps({"jobs": jobs}, indent=1)
        write_bytes(Path(self.structure_graph_filename), text.encode())
