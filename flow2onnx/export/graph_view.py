"""Models, bundles and jobs as the graphs that people look at."""

import os
from pathlib import Path
from typing import Any

from flow2onnx_runtime import Manifest
from flow2onnx_runtime.manifest import MANIFEST
from flow2onnx_runtime.view import Graph, graph_of

from flow2onnx.compile import CompiledJob
from flow2onnx.errors import BundleError
from flow2onnx.graph.model import to_proto
from flow2onnx.onnx_io.read import open_model, typed_proto

__all__ = ["graph_of_compiled", "graph_of_job", "graph_of_path"]

_HEAD = 4096  # bytes that tell a text from a model


def graph_of_path(path: str | os.PathLike[str]) -> Graph:
    """The graph of an .onnx file, or of the step of a bundle with its weights told apart.

    Raises BundleError, with file and reason, for what is missing, foreign or damaged.
    """
    place = Path(path)
    if not os.path.lexists(place):
        raise BundleError(f"{place} is not there", hint="give an .onnx file or a bundle")
    if not place.is_dir():
        _check_binary(place)
        return graph_of(typed_proto(open_model(place)), place.name)
    if not (place / MANIFEST).is_file():
        raise BundleError(
            f"{place} is a folder without {MANIFEST}, hence no bundle",
            hint="give a bundle, or an .onnx file in the folder",
        )
    manifest = Manifest.read(place)
    variables = [spec for spec in manifest.state if spec.role == "variable"]
    return graph_of(
        typed_proto(open_model(place / manifest.step)),
        f"{manifest.job} of {place.resolve().name}",
        state=[spec.name for spec in manifest.state],
        variables=[spec.name for spec in variables],
        trained=[spec.name for spec in variables if spec.trainable],
    )


def _check_binary(place: Path) -> None:
    """Raise for a file of text, of which a parser has more to say than anyone wants to read."""
    try:
        with place.open("rb") as file:
            text = file.read(_HEAD).decode("utf-8", "ignore")
    except OSError as error:
        raise BundleError(
            f"{place}: cannot be read: {error.strerror}", hint="give the path of an .onnx file"
        ) from error
    if text and all(c.isprintable() or c in "\n\r\t" for c in text):
        raise BundleError(
            f"{place} is a text file, no ONNX model", hint="give an .onnx file or a bundle"
        )


def graph_of_compiled(job: CompiledJob) -> Graph:
    """The graph of a compiled job, whose variables are its weights."""
    names = [name for name, v in job.variables.items() if v.role == "variable"]
    trained = None if job.kind == "predict" else [n for n in names if n in job.writes]
    return graph_of(
        to_proto(job.model),
        f"{job.kind} job {job.spec.name}",
        state=list(job.variables),
        variables=names,
        trained=trained,
    )


def graph_of_job(job: Any) -> Graph:  # a JobFunction, which imports this room
    """The graph of a job, compiled apart; raises as its first call would."""
    return graph_of_compiled(job.session.compile(job.spec))
