"""Model files on disk: weights inside or beside them, written whole or not at all."""

import os
import tempfile
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
from flow2onnx_runtime import replace_file, save_safetensors
from flow2onnx_runtime.dtypes import Array
from flow2onnx_runtime.files import lock_folder, replace_bytes
from flow2onnx_runtime.safetensors import read_header

from flow2onnx.dtypes import DType
from flow2onnx.errors import BundleError
from flow2onnx.graph import Model
from flow2onnx.graph.model import model_bytes
from flow2onnx.onnx_io.parse import input_dtypes
from flow2onnx.onnx_io.serialize import Placement, embed_values, externalize_values

__all__ = [
    "INSIDE_LIMIT",
    "Weights",
    "link_file",
    "places_in",
    "publish",
    "staging",
    "write_bytes",
    "write_predict",
    "write_weights",
]

# A protobuf message ends at 2 GB; the graph itself needs some of it.
INSIDE_LIMIT = 1_800_000_000
_PAGE = 4096

Weights = Literal["inside", "safetensors", "external"]


def write_bytes(path: Path, content: bytes) -> None:
    """Make `path` a file of this content."""
    try:
        replace_bytes(path, content)
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        raise _unwritable(path, error) from error


def link_file(source: Path, path: Path) -> None:
    """Make `path` another name of the file `source`, whose content is not copied.

    Raises BundleError where the file system does not let a file have two names.
    """
    try:
        os.link(os.path.realpath(source), path)
    except OSError as error:
        raise BundleError(
            f"{source} cannot be shared with {path.parent}: {error.strerror}",
            hint="write to a folder on the same file system: large weights are never copied",
        ) from error


def write_weights(
    path: Path,
    values: Mapping[str, Array],
    dtypes: Mapping[str, DType],
    first: Collection[str] = (),
) -> None:
    """Write values to a .safetensors file, those named by `first` before the others."""
    elements = {name: dtypes[name].name for name in values}
    try:
        save_safetensors(path, values, {"format": "pt"}, elements, first=first)
    except (OSError, ValueError) as error:
        if isinstance(error, BundleError):
            raise
        raise _unwritable(path, error) from error


def places_in(path: Path, names: Iterable[str]) -> dict[str, Placement]:
    """Where tensors lie in a .safetensors file."""
    tensors = read_header(path).tensors
    return {
        n: Placement(path.name, tensors[n].start, tensors[n].end - tensors[n].start) for n in names
    }


def write_predict(
    path: Path,
    model: Model,
    values: Mapping[str, Array],
    *,
    weights: Weights,
) -> list[Path]:
    """Write a model whose variables become initializers; returns the files, the model first.

    `weights` is where these lie: inside, or beside the model in a .safetensors file of the same
    stem, or external in a file with .data after the model's name. Both files are complete before
    either is seen. A process killed just between leaves the weights without a model, never a model
    with the weights of another. More than 1.8 GB are never inside.
    """
    size = sum(v.nbytes for v in values.values())
    if not values or (weights == "inside" and size <= INSIDE_LIMIT):
        embed_values(model, values)
        write_bytes(path, model_bytes(model))
        return [path]
    is_data = weights == "external"
    beside = path.with_name(f"{path.name}.data") if is_data else path.with_suffix(".safetensors")
    with staging(path) as folder:
        stage = Path(folder)
        if is_data:
            places = _write_data(stage / beside.name, values)
        else:
            write_weights(stage / beside.name, values, input_dtypes(model))
            places = places_in(stage / beside.name, values)
        externalize_values(model, places)
        write_bytes(stage / path.name, model_bytes(model))
        publish(stage, [beside, path])
    return [path, beside]


def _write_data(path: Path, values: Mapping[str, Array]) -> dict[str, Placement]:
    """Write values one after the other, each at a multiple of a page where it may be mapped."""
    places, end = {}, 0
    for name, value in values.items():
        start = -(-end // _PAGE) * _PAGE if value.nbytes >= _PAGE else -(-end // 8) * 8
        end = start + value.nbytes
        places[name] = Placement(path.name, start, value.nbytes)

    def write(file: BinaryIO) -> None:
        for name, value in values.items():
            file.write(b"\0" * (places[name].offset - file.tell()))
            file.write(np.ascontiguousarray(value).tobytes())

    try:
        replace_file(path, write)
    except OSError as error:
        raise _unwritable(path, error) from error
    return places


def publish(stage: Path, targets: list[Path]) -> None:
    """Move finished files to their places; the last, which names the others, is away meanwhile.

    Writers of one model take turns, so that all files are of the same one in the end.
    """
    try:
        with lock_folder(targets[-1].parent):
            targets[-1].unlink(missing_ok=True)
            for target in targets:
                os.replace(stage / target.name, target)
    except OSError as error:
        raise _unwritable(targets[-1], error) from error


def staging(path: Path) -> "tempfile.TemporaryDirectory[str]":
    """A folder beside `path` for files that are not finished."""
    try:
        return tempfile.TemporaryDirectory(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: Exception) -> BundleError:
    return BundleError(
        f"{path} cannot be written: {error}",
        hint="check that the folder exists, its permissions and the free space",
    )
