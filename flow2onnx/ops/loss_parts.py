"""The common parts of losses by name: reductions, the axis of classes, weights, checks."""

import math
from typing import Any, Literal

import numpy as np

from flow2onnx.dtypes import int64
from flow2onnx.errors import ArgumentError, DTypeError, ShapeError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dtype_of, limits_of, rank_of

__all__ = [
    "Reduction",
    "check_same",
    "check_setting",
    "class_axis",
    "class_count",
    "class_numbers",
    "class_weights",
    "distance",
    "mean",
    "reduced",
    "total",
]

Reduction = Literal["mean", "sum"]


def total(b: Builder, x: Value) -> Value:
    """The sum of all elements, a scalar."""
    return b.ReduceSum(x, keepdims=0) if rank_of(x) else x


def mean(b: Builder, x: Value) -> Value:
    """The mean of all elements, a scalar.

    A sum is divided by a size taken from the value itself, so that it holds for every batch.
    """
    if not rank_of(x):
        return x
    return b.Div(b.ReduceSum(x, keepdims=0), b.Cast(b.Size(x), to=dtype_of(x)))


def reduced(b: Builder, x: Value, reduction: Reduction) -> Value:
    """The mean or the sum of all elements, a scalar."""
    if reduction not in ("mean", "sum"):
        raise ArgumentError(f"reduction is {reduction!r}", hint="it is 'mean' or 'sum'")
    return mean(b, x) if reduction == "mean" else total(b, x)


def check_setting(
    name: str, value: Any, least: float = 0.0, most: float = math.inf, *, is_open: bool = False
) -> None:
    """Raise unless a setting is a number from `least` to `most`, without `least` if `is_open`."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not least <= value <= most or (is_open and value == least):
        low = f"above {least:g}" if is_open else f"at least {least:g}"
        end = "" if most == math.inf else f" and at most {most:g}"
        raise ArgumentError(f"{name} is {value!r}", hint=f"it is a number {low}{end}")


def check_same(**values: Value) -> None:
    """Raise unless the values have one shape and one real element type."""
    shapes = {name: limits_of(v) for name, v in values.items()}
    if len(set(shapes.values())) > 1:
        told = ", ".join(f"{name} is {shape}" for name, shape in shapes.items())
        raise ShapeError(f"shapes differ: {told}", hint="give values of one shape")
    for name, value in values.items():
        if not dtype_of(value).is_floating_point:
            raise DTypeError(
                f"{name} is of real numbers, got {dtype_of(value).name}", hint="cast it first"
            )


def class_axis(output: Value, axis: int | None) -> int:
    """The axis of the classes: 1 where nothing is said, which three axes leave open."""
    rank = rank_of(output)
    if axis is None:
        if rank == 3:
            raise ArgumentError(
                f"output {output.name} is {limits_of(output)}: which axis are the classes?",
                hint='write "cross_entropy(axis=-1)" for texts, axis=1 for torch\'s own order',
            )
        axis = 1
    if type(axis) is not int or not -rank <= axis < rank or rank < 2:
        raise ShapeError(
            f"output {output.name} is {limits_of(output)}, which has no axis {axis} of classes",
            hint="give the loss scores of shape (batch, classes), or say axis=",
        )
    return axis % rank


def class_count(output: Value, axis: int) -> int:
    """The number of classes, which has to be known."""
    count = limits_of(output)[axis]
    if isinstance(count, str):
        raise ShapeError(
            f"the number of classes on axis {axis} of {output.name} is free ({count})",
            hint=f"give its size: inputs={{{count!r}: 10}}",
        )
    return count


def class_numbers(b: Builder, output: Value, labels: Value, axis: int) -> Value:
    """Labels as int64, which have to be whole numbers in the shape of scores without the axis."""
    if dtype_of(labels).is_floating_point:
        raise DTypeError(
            f"labels are class numbers, got {dtype_of(labels).name}",
            hint="probabilities are for cross_entropy(probabilities=True)",
        )
    wanted = tuple(d for i, d in enumerate(limits_of(output)) if i != axis)
    if limits_of(labels) != wanted:
        raise ShapeError(
            f"labels are {limits_of(labels)}, scores {limits_of(output)} of classes on axis {axis}",
            hint=f"labels of these scores are {wanted}",
        )
    return labels if dtype_of(labels) == int64 else b.Cast(labels, to=int64)


def class_weights(b: Builder, output: Value, weight: Any, axis: int) -> Value | None:
    """A weight for each class as a constant vector, or None."""
    if weight is None:
        return None
    try:
        numbers = np.asarray(weight, np.float64)
    except (TypeError, ValueError):
        numbers = np.empty(0)
    count = class_count(output, axis)
    if numbers.shape != (count,) or not np.isfinite(numbers).all() or (numbers < 0).any():
        raise ArgumentError(
            f"weight is {weight!r}", hint=f"it is a list of {count} numbers of at least 0"
        )
    return b.const(numbers, dtype_of(output))


def distance(b: Builder, difference: Value, p: float) -> Value:
    """The p-norm over the last axis, which is left out."""
    if p == 2.0:
        return b.Sqrt(b.ReduceSum(b.Mul(difference, difference), [-1], keepdims=0))
    if p == 1.0:
        return b.ReduceSum(b.Abs(difference), [-1], keepdims=0)
    powers = b.ReduceSum(b.Pow(b.Abs(difference), b.like(p, difference)), [-1], keepdims=0)
    return b.Pow(powers, b.like(1.0 / p, difference))
