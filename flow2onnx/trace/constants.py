"""Arrays where an operator asks for blobs: constants of the job."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from flow2onnx.dtypes import DType, float32, int8
from flow2onnx.errors import DTypeError
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.job import Job

__all__ = ["array_constant", "constant_type", "number_constant"]

# What numpy makes of Python's numbers when nobody says anything else.
_DEFAULTS = {np.dtype(np.float64): "f", np.dtype(np.int64): "i"}


def array_constant(job: Job, array: "np.ndarray[Any, Any]", others: Iterable[Blob]) -> Blob:
    """An array as a blob.

    One of numpy's default types, float64 and int64, takes the type of the first real or whole blob
    beside it, as long as that holds its values; truths are int8, as those of comparisons.
    """
    return Blob(job.b.const(array, constant_type(array, (blob.dtype for blob in others))))


def number_constant(job: Job, number: float, other: Blob) -> Blob:
    """A number beside a blob, in its element type; a real one beside whole numbers is float32."""
    is_real = isinstance(number, float) and not other.dtype.is_floating_point
    return Blob(job.b.const(number, float32 if is_real else other.dtype))


def constant_type(array: "np.ndarray[Any, Any]", others: Iterable[DType] = ()) -> DType | None:
    """The element type that an array has as a constant beside blobs of others; None: its own."""
    kind = array.dtype.kind
    if kind == "b":
        return int8
    if kind not in "iuf" and array.dtype.name != "bfloat16":
        raise DTypeError(
            f"an array of {array.dtype} is no constant", hint="give an array of numbers"
        )
    if array.dtype not in _DEFAULTS:
        return None
    same = (d for d in others if d.is_floating_point == (kind == "f"))
    if kind == "f":
        return next(same, float32)
    wanted = next(same, None)
    return wanted if wanted is not None and _fits(array, wanted) else None


def _fits(array: "np.ndarray[Any, Any]", dtype: DType) -> bool:
    limits = np.iinfo(dtype.numpy)
    return bool(array.size) and limits.min <= array.min() and array.max() <= limits.max
