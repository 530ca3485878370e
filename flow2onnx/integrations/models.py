"""What integrations are given: a trainer, the folder of a bundle, or a model file."""

import contextlib
import os
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from flow2onnx_runtime import OptionsError, Predictor, Trainer

__all__ = ["Source", "files_beside", "model_file", "numbers", "numpy_type", "open_files",
           "open_predictor"]  # fmt: skip

Source = Trainer | str | os.PathLike[str]


@contextlib.contextmanager
def model_file(source: Source, job: str | None = None) -> Iterator[Path]:
    """The model file that predicts, for as long as the context lasts.

    That of a trainer, or of a bundle's folder, is the predict job `job`, the first unless named,
    with the present weights; a model file is its own.
    """
    if not isinstance(source, Trainer) and Path(source).is_file():
        if job is not None:
            raise OptionsError(f"{source} is a model file, which has no job {job!r}")
        yield Path(source)
        return
    trainer = source if isinstance(source, Trainer) else Trainer(source)
    with tempfile.TemporaryDirectory(prefix="flow2onnx-") as folder:
        yield trainer.export_predict(folder, job)


def open_predictor(source: Source, job: str | None = None) -> Predictor:
    """A predictor of the model file, with the weights of a trainer or bundle as they are now."""
    if not isinstance(source, Trainer) and Path(source).is_file():
        with model_file(source, job) as path:
            return Predictor(path)
    with model_file(source, job) as path:
        return open_files(files_beside(path), path.name)


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
    """What is measured in a row of a history: all but where it is."""
    return {name: float(value) for name, value in row.items() if name not in ("epoch", "step")}


def numpy_type(name: str, what: str) -> "np.dtype[np.generic]":
    """numpy's own type of an element type; raises `OptionsError` if it has none, as of bfloat16."""
    try:
        return np.dtype(name)
    except TypeError:
        raise OptionsError(f"{what} is {name}, which numpy does not have") from None
