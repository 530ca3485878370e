"""Graphs for commands: of a model, of a bundle, or of a job in a script."""

from collections.abc import Sequence
from pathlib import Path

from flow2onnx_runtime.view import Graph

from flow2onnx.cli.script import opened_job, parse_target
from flow2onnx.cli.show import working
from flow2onnx.export import graph_of_job, graph_of_path

__all__ = ["graph_at", "is_place"]


def graph_at(target: str, arguments: Sequence[str] = (), release: str | None = None) -> Graph:
    """The graph of an .onnx file, of a bundle's step, or of ``script.py:job``."""
    if is_place(target):
        with working(f"Reading {target}"):
            return graph_of_path(target)
    with opened_job(target, arguments, release) as job, working(f"Compiling {target}"):
        return graph_of_job(job)


def is_place(target: str) -> bool:
    """True for a model or a bundle, or what is to be one; False for a job in a script."""
    place = Path(target)
    return place.suffix in (".onnx", ".ort") or place.is_dir() or _is_other_file(place)


def _is_other_file(place: Path) -> bool:
    """True for a file that is no script, or a path that is to be one and is not there."""
    if place.is_file():
        return place.suffix != ".py"
    return parse_target(str(place)).job is None and len(place.parts) > 1 and place.suffix != ".py"
