"""Sources of integrations: a trainer, the folder of a bundle, or a model file."""

import contextlib
import math
import os
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeGuard

import numpy as np
from flow2onnx_runtime import OptionsError, Predictor, Trainer
from flow2onnx_runtime.dtypes import Array

__all__ = [
    "Source",
    "files_beside",
    "fit_shape",
    "model_file",
    "numbers",
    "numpy_type",
    "open_files",
    "open_predictor",
    "softmax",
]

Source = Trainer | str | os.PathLike[str]


@contextlib.contextmanager
def model_file(source: Source, job: str | None = None) -> Iterator[Path]:
    """The model file that predicts, for as long as the context lasts.

    That of a trainer, or of a bundle's folder, is the predict job `job`, the first unless named,
    with the present weights; a model file is its own.
    """
    if _is_file(source):
        if job is not None:
            raise OptionsError(f"{source} is a model file, which has no job {job!r}")
        yield Path(source)
        return
    trainer = source if isinstance(source, Trainer) else Trainer(source)
    with tempfile.TemporaryDirectory(prefix="flow2onnx-") as folder:
        yield trainer.export_predict(folder, job)


def open_predictor(source: Source, job: str | None = None) -> Predictor:
    """A predictor of the model file, with the weights of a trainer or bundle as they are now."""
    with model_file(source, job) as path:
        if _is_file(source):
            return Predictor(path)
        return open_files(files_beside(path), path.name)


def _is_file(source: Source) -> TypeGuard[str | os.PathLike[str]]:
    return not isinstance(source, Trainer) and Path(source).is_file()


def files_beside(model: Path) -> dict[str, bytes]:
    """The files of an exported predict job by name: its model and its weights."""
    return {path.name: path.read_bytes() for path in model.parent.iterdir() if path.is_file()}


def open_files(files: Mapping[str, bytes], name: str) -> Predictor:
    """A predictor of a model given by its files, which are on the disk as long as it lives."""
    folder = tempfile.TemporaryDirectory(prefix="flow2onnx-")
    try:
        for file, content in files.items():
            (Path(folder.name) / file).write_bytes(content)
        predictor = Predictor(Path(folder.name) / name)
    except BaseException:
        folder.cleanup()
        raise
    weakref.finalize(predictor, folder.cleanup)
    return predictor


def numbers(row: Mapping[str, float]) -> dict[str, float]:
    """The measurements in a row of a history: all but its epoch and step."""
    return {name: float(value) for name, value in row.items() if name not in ("epoch", "step")}


def softmax(scores: Array) -> Array:
    """The chances of scores along the last axis, in float64: exp(s - max) over their sum."""
    powers = np.exp(scores.astype(np.float64) - scores.max(-1, keepdims=True))
    chances: Array = powers / powers.sum(-1, keepdims=True)
    return chances


def fit_shape(sizes: Sequence[int | str], count: int) -> list[int] | None:
    """The sizes that `count` numbers have, of which one may be free; None if they do not fit."""
    free = sum(not isinstance(size, int) for size in sizes)
    known = math.prod(size for size in sizes if isinstance(size, int))
    if free > 1 or count % max(known, 1) or (not free and count != known):
        return None
    return [size if isinstance(size, int) else count // max(known, 1) for size in sizes]


def numpy_type(name: str, what: str) -> "np.dtype[np.generic]":
    """numpy's own type of an element type; raises `OptionsError` if it has none, as of bfloat16."""
    try:
        return np.dtype(name)
    except TypeError:
        raise OptionsError(f"{what} is {name}, which numpy does not have") from None
