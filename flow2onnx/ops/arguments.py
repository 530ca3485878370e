"""Axes, element types and draws as users name them, and what operators ask of blobs."""

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np

from flow2onnx.errors import ArgumentError, DTypeError, UnsupportedError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dtype_of, rank_of

Axes = int | Sequence[int] | None
Operand = Value | float  # of arithmetic; a number takes the element type of the blob beside it


def axis_of(axis: Any, rank: int) -> int:
    """An axis of a blob of `rank` dimensions, counted from the front."""
    if not isinstance(axis, int) or not -rank <= axis < rank:
        raise ArgumentError(f"axis {axis!r} is outside -{rank} … {rank - 1}")
    return axis % rank


def axes_of(x: Value, axis: Axes) -> list[int]:
    """The axes named, in order and counted from the front; all of them for None."""
    rank = rank_of(x)
    if axis is None:
        return list(range(rank))
    chosen = [axis] if isinstance(axis, int) else list(axis)
    return sorted({axis_of(a, rank) for a in chosen})


def real(x: Value) -> Value:
    """`x`, whose elements have to be real numbers."""
    if not dtype_of(x).is_floating_point:
        raise DTypeError(f"takes real numbers, got {dtype_of(x).name}", hint="use flow.cast first")
    return x


def beside(b: Builder, content: Any, x: Value) -> Value:
    """An operand beside `x`: a value itself; a number or an array in the element type of `x`.

    A number beside whole numbers is cut, as in OneFlow; an array with fractions is an error.
    """
    if isinstance(content, np.ndarray | list | tuple) and not dtype_of(x).is_floating_point:
        array = np.asarray(content)
        if array.dtype.kind == "f" and not (np.trunc(array) == array).all():
            raise DTypeError(
                f"an array with fractions beside a blob of {dtype_of(x).name}",
                hint="cast the blob: flow.cast(x, flow.float32)",
            )
    return b.like(content, x)


def check_seed(seed: object, name: str | None) -> None:
    """Raise for a seed without a name: one operator may have it, and no other."""
    if seed is not None and name is None:
        raise ArgumentError("a seed needs a name", hint="pass name= beside seed=")


def check_rate(rate: Any, noise_shape: object) -> None:
    """Raise unless `rate` is the probability of a zero, drawn for each element."""
    is_number = isinstance(rate, Real)
    if not is_number or not 0 <= rate < 1:
        raise ArgumentError(f"rate is a probability in [0, 1), got {rate!r}")
    if noise_shape is not None:
        raise UnsupportedError("noise_shape was never implemented", hint="leave it None")


def at_least_1d(b: Builder, x: Value) -> Value:
    """`x`, a single number in shape (1,): OneFlow 0.4 has no blobs of rank 0."""
    return x if rank_of(x) else b.Reshape(x, [1])
