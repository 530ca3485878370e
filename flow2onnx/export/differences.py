"""How far one array is from another."""

from typing import Any

import numpy as np

from flow2onnx.export.report import Output

__all__ = ["compared"]

Array = np.ndarray[Any, np.dtype[Any]]


def compared(name: str, ours: Array, theirs: Array, rtol: float, atol: float) -> Output:
    """The runtime's array against the reference's: whole numbers must be equal, others near."""
    inf = float("inf")
    dtype = ours.dtype.name
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return Output(name, ours.shape, dtype, inf, inf, False)
    x, y = _wide(ours), _wide(theirs)
    with np.errstate(all="ignore"):
        apart = np.where(_same(x, y), 0.0, np.nan_to_num(np.abs(x - y), nan=inf, posinf=inf))
        size = np.abs(y)
        relative = np.where(size > atol, apart / size, 0.0)
        limit = atol + rtol * np.where(np.isfinite(size), size, 0.0)
    near = apart <= limit if ours.dtype.kind not in "iub" else apart == 0
    return Output(
        name, ours.shape, dtype, float(apart.max(initial=0.0)), float(relative.max(initial=0.0)),
        bool(near.all()),
    )  # fmt: skip


def _same(x: Array, y: Array) -> Array:
    return np.asarray((x == y) | (np.isnan(x) & np.isnan(y)))


def _wide(array: Array) -> Array:
    return array.astype(np.float64)
