"""MNIST in batches, or scikit-learn's digits in its place; nothing is ever downloaded."""

import hashlib
import logging
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flow2onnx.data.arrays import UNREADABLE, read_arrays
from flow2onnx.errors import ArgumentError, UnsupportedError
from flow2onnx.source import user_frame

__all__ = ["load_mnist"]

Batches = tuple[NDArray[np.float32], NDArray[np.int32]]
_Set = tuple[NDArray[np.generic], NDArray[np.generic]]

_log = logging.getLogger("flow2onnx.data")

_ENVIRONMENT = "FLOW2ONNX_MNIST"
_HOW = f"pass path=, put mnist.npz into the working directory, or set {_ENVIRONMENT}"
_KEYS = ("x_train", "y_train", "x_test", "y_test")


def load_mnist(
    train_batch_size: int = 100,
    test_batch_size: int = 100,
    data_format: str = "NCHW",
    url: str | None = None,
    hash_check: str | None = None,
    out_dir: str = ".",
    *,
    path: str | os.PathLike[str] | None = None,
) -> tuple[Batches, Batches]:
    """Training and test images and labels in batches, an incomplete last batch left out.

    Images are float32 in [0, 1] of shape (batches, size, 1, 28, 28), or (…, 28, 28, 1) as
    "NHWC"; labels are int32. The file is `path`, else `out_dir`/mnist.npz, else what the
    environment variable FLOW2ONNX_MNIST names. Without one the images are scikit-learn's
    digits enlarged to the same size, and a warning says so. Unlike OneFlow's, this function
    never fetches `url`, and compares the file's SHA-256 only with a `hash_check` that is given.
    """
    if data_format not in ("NCHW", "NHWC"):
        raise _wrong(f"data_format takes 'NCHW' or 'NHWC'; got {data_format!r}")
    file = _file(path, out_dir)
    train, test = _read(file, hash_check) if file else _digits(Path(out_dir, "mnist.npz"))
    return (
        _batch(train, train_batch_size, data_format, "train"),
        _batch(test, test_batch_size, data_format, "test"),
    )


def _wrong(message: str, hint: str | None = None) -> ArgumentError:
    return ArgumentError(message, hint=hint, op="load_mnist", source=user_frame())


def _file(path: str | os.PathLike[str] | None, out_dir: str) -> Path | None:
    """The file to read, or None; one asked for by name has to be there."""
    beside = Path(out_dir, "mnist.npz")
    if path is None and beside.is_file():
        return beside
    asked = path if path is not None else os.environ.get(_ENVIRONMENT)
    if not asked:
        return None
    if not Path(asked).is_file():
        where = "path" if path is not None else f"the environment variable {_ENVIRONMENT}"
        raise _wrong(f"there is no file {os.fspath(asked)!r}", f"{where} names it; {_HOW}")
    return Path(asked)


def _read(file: Path, hash_check: str | None) -> tuple[_Set, _Set]:
    if hash_check is not None and _sha256(file) != hash_check:
        raise _wrong(f"{file} has the SHA-256 {_sha256(file)}, not {hash_check}")
    try:
        arrays = read_arrays(file, _KEYS)
    except UNREADABLE as error:
        raise _wrong(f"{file} cannot be read as an .npz file: {error}", _HOW) from error
    return _set(file, arrays, "train"), _set(file, arrays, "test")


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _set(file: Path, arrays: dict[str, NDArray[np.generic]], part: str) -> _Set:
    images, labels = arrays[f"x_{part}"], arrays[f"y_{part}"]
    if images.ndim != 3 or images.shape[1:] != (28, 28) or images.dtype != np.uint8:
        got = f"{images.dtype} of shape {images.shape}"
        raise _wrong(f"{file}: x_{part} should be uint8 of shape (n, 28, 28); it is {got}")
    if labels.shape != images.shape[:1] or labels.dtype.kind not in "iu":
        got = f"{labels.dtype} of shape {labels.shape}"
        raise _wrong(
            f"{file}: y_{part} should be integers of shape {images.shape[:1]}; it is {got}"
        )
    if labels.size and not (labels.min() >= 0 and labels.max() <= 9):
        raise _wrong(f"{file}: y_{part} should be digits from 0 to 9")
    return images.astype(np.float32) / np.float32(255), labels


def _digits(looked_at: Path) -> tuple[_Set, _Set]:
    """scikit-learn's 1797 digits, a fifth of every class held out for the test."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise UnsupportedError(
            "load_mnist: there is no mnist.npz, and scikit-learn, whose digits would do, "
            "is not installed",
            hint=f"pip install scikit-learn, or {_HOW}",
            source=user_frame(),
        ) from error
    _log.warning(
        "load_mnist: using scikit-learn's digits (1797 images of 8x8, enlarged to 28x28) "
        "because there is no %s and nothing is downloaded; for MNIST itself, %s",
        looked_at,
        _HOW,
    )
    found = load_digits()
    return _split(_enlarge(found.images), found.target)


def _enlarge(images: NDArray[np.float64]) -> NDArray[np.float32]:
    """8×8 images of 0…16 as 28×28 images of 0…1: blocks of 3×3 in a frame of 2."""
    blocks = images.repeat(3, axis=1).repeat(3, axis=2) / 16
    return np.pad(blocks, ((0, 0), (2, 2), (2, 2))).astype(np.float32)


def _split(images: NDArray[np.float32], labels: NDArray[np.int64]) -> tuple[_Set, _Set]:
    random = np.random.default_rng(0)
    order = random.permutation(len(labels))
    held_out = np.zeros(len(labels), bool)
    for digit in range(10):
        of_digit = order[labels[order] == digit]
        held_out[of_digit[: round(len(of_digit) / 5)]] = True
    train, test = order[~held_out[order]], order[held_out[order]]
    return (images[train], labels[train]), (images[test], labels[test])


def _batch(data: _Set, size: int, data_format: str, part: str) -> Batches:
    images, labels = data
    if type(size) is not int or not 1 <= size <= len(labels):
        takes = f"{part}_batch_size takes an int from 1 to {len(labels)}, the number of images"
        raise _wrong(f"{takes}; got {size!r}")
    count = len(labels) // size
    shape = (1, 28, 28) if data_format == "NCHW" else (28, 28, 1)
    return (
        images[: count * size].reshape(count, size, *shape).astype(np.float32),
        labels[: count * size].reshape(count, size).astype(np.int32),
    )
