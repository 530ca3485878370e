"""Made-up values for a model: what it is warmed up, tried and timed on."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from flow2onnx_runtime import Program
from flow2onnx_runtime.synthetic import random_array
from numpy.typing import NDArray

__all__ = ["batch_axis", "concrete_shape", "synthetic_array", "synthetic_inputs"]


def batch_axis(program: Program) -> str | None:
    """The name of the free first size that all inputs and outputs share."""
    infos = (*program.feeds, *program.results)
    names = {info.shape[0] if info.shape else 1 for info in infos}
    name = names.pop() if len(names) == 1 else 1
    return name if isinstance(name, str) and name != "?" and program.feeds else None


def concrete_shape(shape: Sequence[int | str], axis: str | None, rows: int) -> tuple[int, ...]:
    """A shape with `rows` for the batch and 1 for every other free size."""
    return tuple(s if isinstance(s, int) else rows if s == axis else 1 for s in shape)


def synthetic_array(dtype: Any, shape: tuple[int, ...], seed: int = 0) -> NDArray[Any]:
    """Values that any model of these sizes takes: small numbers, and indices 0 and 1."""
    return random_array(np.random.default_rng(seed), shape, dtype)


def synthetic_inputs(program: Program, rows: int, seed: int = 0) -> list[NDArray[Any]]:
    """An array for each input, of so many rows."""
    axis = batch_axis(program)
    return [
        synthetic_array(i.dtype, concrete_shape(i.shape, axis, rows), seed) for i in program.feeds
    ]
