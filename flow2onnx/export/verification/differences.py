"""How far one array is from another."""

from dataclasses import dataclass

import numpy as np
from flow2onnx_runtime.dtypes import Array

from flow2onnx.export.report import Output

__all__ = ["Tolerance", "distances"]


def distances(ours: Array, theirs: Array, floor: float) -> tuple[Array, Array]:
    """The absolute and the relative difference of each element; below `floor` the latter is 0.

    Elements that are both infinite or both NaN are equal; where one is finite, they are infinitely
    far apart.
    """
    x, y = ours.astype(np.float64), theirs.astype(np.float64)
    with np.errstate(all="ignore"):
        is_same = (x == y) | (np.isnan(x) & np.isnan(y))
        apart = np.nan_to_num(np.abs(x - y), nan=np.inf, posinf=np.inf)
        apart = np.where(is_same, 0.0, apart)
        size = np.abs(y)
        return apart, np.where(size > floor, apart / size, 0.0)


@dataclass(frozen=True)
class Tolerance:
    """How far a value may be from the reference: ``atol + rtol * |reference|``."""

    rtol: float
    atol: float

    def compare(self, name: str, ours: Array, theirs: Array) -> Output:
        """The runtime's array beside the reference's: whole numbers must be equal, others near."""
        most = most_relative = np.inf
        is_near = False
        if ours.shape == theirs.shape and ours.dtype == theirs.dtype:
            apart, relative = distances(ours, theirs, self.atol)
            most, most_relative = (float(a.max(initial=0.0)) for a in (apart, relative))
            size = np.abs(theirs.astype(np.float64))
            limit = self.atol + self.rtol * np.where(np.isfinite(size), size, 0.0)
            is_whole = ours.dtype.kind in "iub"
            is_near = bool((apart == 0 if is_whole else apart <= limit).all())
        return Output(
            name=name,
            shape=ours.shape,
            dtype=ours.dtype.name,
            max_abs=most,
            max_rel=most_relative,
            ok=is_near,
        )

    def __str__(self) -> str:
        return f"rtol {self.rtol:g}, atol {self.atol:g}"
