"""Operators that the ONNX reference evaluator gets wrong or slow, as ONNX defines them."""

import numpy as np
from flow2onnx_runtime.dtypes import Array
from onnx.reference.op_run import OpRun

__all__ = ["FIXES"]


class GatherElements(OpRun):
    """The reference's own refuses a negative axis, and more than 32 rows in most shapes."""

    op_domain = ""

    def _run(self, data: Array, indices: Array, axis: int = 0) -> tuple[Array]:
        return (np.take_along_axis(_reached_part(data, indices, axis), indices, axis),)


class ScatterElements(OpRun):
    """The reference's own is a loop over every element."""

    op_domain = ""

    def _run(
        self,
        data: Array,
        indices: Array,
        updates: Array,
        axis: int = 0,
        reduction: str = "none",
    ) -> tuple[Array]:
        result = data.copy()
        places: list[Array] = list(np.indices(indices.shape, sparse=True))
        places[axis] = np.where(indices < 0, indices + data.shape[axis], indices)
        if reduction == "none":
            result[tuple(places)] = updates
        else:
            _COMBINE[reduction].at(result, tuple(places), updates)
        return (result,)


class LogSoftmax(OpRun):
    """The reference's own takes the logarithm of what has become 0."""

    op_domain = ""

    def _run(self, x: Array, axis: int = -1) -> tuple[Array]:
        shifted = x - x.max(axis, keepdims=True)
        total = np.log(np.exp(shifted).sum(axis, keepdims=True))
        return ((shifted - total).astype(x.dtype),)


_COMBINE = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}
FIXES: list[type[OpRun]] = [GatherElements, LogSoftmax, ScatterElements]


def _reached_part(data: Array, indices: Array, axis: int) -> Array:
    """The part of `data` that indices, which may be smaller along other axes, reach."""
    axis %= data.ndim
    parts = (slice(None if i == axis else n) for i, n in enumerate(indices.shape))
    return data[tuple(parts)]
