"""Tensors as arrays: constants, casts, shapes, joining."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from flow2onnx.dtypes import DType, element_type, float32
from flow2onnx.errors import ArgumentError, ShapeError, UnsupportedError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import (
    bounds_of,
    dims,
    dtype_of,
    is_static,
    limits_of,
    rank_of,
    size_of,
    sizes_of,
)
from flow2onnx.lowering.broadcasts import reshape_to
from flow2onnx.ops.arguments import at_least_1d, axes_of, axis_of
from flow2onnx.trace.constants import constant_type
from flow2onnx.trace.op import op


@op("identity")
def identity(b: Builder, x: Value, name: str | None = None) -> Value:
    """The value itself."""
    return b.Identity(x)


@op("cast_to_static_shape", is_static=True)
def cast_to_static_shape(b: Builder, x: Value, name: str | None = None) -> Value:
    """The value in its upper bound's shape: what a run does not fill is 0."""
    if is_static(x):
        return b.Identity(x)
    wanted = list(bounds_of(x))
    missing = b.Sub(wanted, b.Shape(x))
    padded = b.Pad(x, b.Concat(b.const([0] * rank_of(x)), missing, axis=0))
    return b.Reshape(padded, wanted)


@op("amp_white_identity")
def amp_white_identity(b: Builder, x: Value, name: str | None = None) -> Value:
    """The value itself, which mixed precision rounds to half precision as before a product."""
    y = b.Identity(x)
    b.nodes[-1].meta["precision"] = "white"
    return y


@op("identity_n")
def identity_n(b: Builder, inputs: list[Value], name: str | None = None) -> list[Value]:
    """The values themselves."""
    return [b.Identity(x) for x in inputs]


@op("cast")
def cast(b: Builder, x: Value, dtype: DType, name: str | None = None) -> Value:
    """Another element type; real numbers lose their fraction on the way to whole ones."""
    wanted = element_type(dtype)
    return x if dtype_of(x) == wanted else b.Cast(x, to=wanted)


@op("constant")
def constant(
    b: Builder,
    value: Any,
    dtype: DType | None = None,
    shape: Sequence[int] | None = None,
    name: str | None = None,
) -> Value:
    """A filled blob, of shape (1,) unless told otherwise; an array or a list is what it holds."""
    if isinstance(value, np.ndarray | list | tuple):
        return _held(b, value, dtype, shape)
    return b.const(np.full(tuple(shape or (1,)), value, element_type(dtype).numpy))


def _held(b: Builder, value: Any, dtype: DType | None, shape: Sequence[int] | None) -> Value:
    """The elements of an array or a nested list, in `shape` if there is one."""
    try:
        array = np.asarray(value)
        array = array if shape is None else array.reshape(tuple(shape))
    except ValueError as error:
        raise ShapeError(
            f"value: {error}", hint="leave shape out, or give it all elements"
        ) from None
    array = array if array.ndim else array.reshape(1)
    wanted = constant_type(array)
    return b.const(array, wanted if dtype is None else element_type(dtype))


@op("constant_scalar")
def constant_scalar(
    b: Builder, value: float, dtype: DType | None = None, name: str | None = None
) -> Value:
    """A filled blob of shape (1,)."""
    return constant.lower(b, value, dtype)


@op("constant_like")
def constant_like(
    b: Builder, like: Value, value: float, dtype: DType | None = None, name: str | None = None
) -> Value:
    """A filled blob of the shape, and unless told otherwise the element type, of `like`."""
    dtype = element_type(dtype, dtype_of(like))
    if not is_static(like):
        return b.Expand(b.const(value, dtype), list(sizes_of(like)))
    return b.const(np.full(dims(like), value, dtype.numpy))


@op("ones_like")
def ones_like(
    b: Builder, like: Value, dtype: DType | None = None, name: str | None = None
) -> Value:
    """Ones of the shape of `like`."""
    return constant_like.lower(b, like, 1, dtype)


@op("zeros_like")
def zeros_like(
    b: Builder, like: Value, dtype: DType | None = None, name: str | None = None
) -> Value:
    """Zeros of the shape of `like`."""
    return constant_like.lower(b, like, 0, dtype)


@op("ones")
def ones(
    b: Builder, shape: Sequence[int], dtype: DType | None = None, name: str | None = None
) -> Value:
    """Ones."""
    return constant.lower(b, 1, dtype or float32, shape)


@op("zeros")
def zeros(
    b: Builder, shape: Sequence[int], dtype: DType | None = None, name: str | None = None
) -> Value:
    """Zeros."""
    return constant.lower(b, 0, dtype or float32, shape)


@op("reshape")
def reshape(b: Builder, x: Value, shape: Sequence[int], name: str | None = None) -> Value:
    """The same elements in another shape; one dimension may be -1."""
    if not isinstance(shape, list | tuple):
        raise ArgumentError(f"shape is a list or tuple of dimensions, got {shape!r}")
    wanted = [int(d) for d in shape]
    if wanted.count(-1) > 1 or any(d < -1 or d == 0 for d in wanted):
        raise ShapeError(
            f"{wanted} is not a shape",
            hint="dimensions are positive; one may be -1, to be worked out",
        )
    if not is_static(x):
        return b.Reshape(x, wanted)
    known = int(np.prod([d for d in wanted if d != -1]))
    if size_of(x) % known if -1 in wanted else size_of(x) != known:
        raise ShapeError(
            f"{size_of(x)} elements of shape {dims(x)} do not fill {tuple(wanted)}",
            hint=f"give sizes whose product is {size_of(x)}; -1 stands for the one that is left",
        )
    return b.Reshape(x, wanted)


@op("dynamic_reshape")
def dynamic_reshape(b: Builder, x: Value, shape: Sequence[int], name: str | None = None) -> Value:
    """`reshape` of a blob whose shape is known at the call only; one dimension may be -1."""
    return reshape.lower(b, x, shape)


@op("sleep_identity")
def sleep_identity(b: Builder, x: Value, seconds: float, name: str | None = None) -> Value:
    """The value itself, at once: a model cannot sleep."""
    return b.Identity(x)


@op("reshape_like")
def reshape_like(b: Builder, x: Value, like: Value, name: str | None = None) -> Value:
    """The elements of `x` in the shape of `like`."""
    if is_static(x) and is_static(like):
        return reshape.lower(b, x, dims(like))
    return reshape_to(b, x, sizes_of(like))


@op("flatten")
def flatten(
    b: Builder, input: Value, start_dim: int = 0, end_dim: int = -1, name: str | None = None
) -> Value:
    """Dimensions start_dim to end_dim, both included, made one."""
    shape, rank = sizes_of(input), rank_of(input)
    first, last = axis_of(start_dim, rank), axis_of(end_dim, rank)
    if first > last:
        raise ArgumentError(f"start_dim {start_dim} lies behind end_dim {end_dim}")
    return b.Reshape(input, [*shape[:first], -1, *shape[last + 1 :]])


@op("transpose")
def transpose(
    b: Builder,
    a: Value,
    perm: Sequence[int] | None = None,
    conjugate: bool = False,
    batch_axis_non_change: bool = False,
    name: str | None = None,
) -> Value:
    """The axes in the order `perm`."""
    if not isinstance(perm, list | tuple):
        raise ArgumentError(f"perm is a list or tuple of axes, got {perm!r}")
    if conjugate:
        raise UnsupportedError(
            "there are no complex blobs to conjugate", hint="leave conjugate=False"
        )
    order = [axis_of(p, rank_of(a)) for p in perm]
    if sorted(order) != list(range(rank_of(a))):
        raise ArgumentError(f"perm {tuple(perm)} does not name each axis of {bounds_of(a)} once")
    return b.Transpose(a, perm=order)


@op("expand_dims")
def expand_dims(b: Builder, input: Value, axis: int, name: str | None = None) -> Value:
    """A dimension of 1 inserted at `axis`."""
    return b.Unsqueeze(input, [axis_of(axis, rank_of(input) + 1)])


@op("squeeze")
def squeeze(
    b: Builder, input: Value, axis: Sequence[int] | None = None, name: str | None = None
) -> Value:
    """Dimensions of 1 removed: those named, or all."""
    ones = [i for i, d in enumerate(sizes_of(input)) if d == 1]
    axes = ones if axis is None else axes_of(input, axis)
    return at_least_1d(b, b.Squeeze(input, axes)) if axes else input


@op("concat")
def concat(
    b: Builder,
    inputs: Sequence[Value] | None = None,
    axis: int = 0,
    max_dim_size: int | None = None,
    name: str | None = None,
    values: Sequence[Value] | None = None,
) -> Value:
    """The values one after another along `axis`."""
    given = list(inputs or values or ())
    if not given:
        raise ArgumentError("concat needs at least one blob in inputs")
    along = axis_of(axis, rank_of(given[0]))
    _check_equal_elsewhere(given, along)
    return given[0] if len(given) == 1 else b.Concat(*given, axis=along)


def _check_equal_elsewhere(values: Sequence[Value], axis: int) -> None:
    """Raise for shapes that differ along another axis than the one values are put together on."""
    first = sizes_of(values[0])
    for value in values[1:]:
        pairs = enumerate(zip(first, sizes_of(value), strict=False))
        differs = any(
            i != axis and isinstance(m, int) and isinstance(n, int) and m != n
            for i, (m, n) in pairs
        )
        if differs or rank_of(value) != len(first):
            raise ShapeError(
                f"{limits_of(values[0])} and {limits_of(value)} differ along another axis than "
                f"{axis}",
                hint=f"blobs put together along axis {axis} are equal along all others",
            )


@op("stack")
def stack(b: Builder, inputs: Sequence[Value], axis: int = 0, name: str | None = None) -> Value:
    """Values of one shape along a new axis."""
    if not inputs:
        raise ArgumentError("stack needs at least one blob in inputs")
    along = axis_of(axis, rank_of(inputs[0]) + 1)
    return b.Concat(*(b.Unsqueeze(x, [along]) for x in inputs), axis=along)


@op("matmul", "linalg.matmul")
def matmul(
    builder: Builder,
    a: Value,
    b: Value,
    transpose_a: bool = False,
    transpose_b: bool = False,
    alpha: Any = 1.0,
    name: str | None = None,
) -> Value:
    """The matrix product over the last two axes, times `alpha`."""
    _check_matmul(a, b, transpose_a, transpose_b)
    if rank_of(a) == rank_of(b) == 2:
        return builder.Gemm(
            a, b, alpha=float(alpha), transA=int(transpose_a), transB=int(transpose_b)
        )
    left = _swap(builder, a) if transpose_a else a
    right = _swap(builder, b) if transpose_b else b
    product: Value = builder.MatMul(left, right)
    return product if alpha == 1.0 else builder.Mul(product, alpha)


def _check_matmul(x: Value, y: Value, transpose_x: bool, transpose_y: bool) -> None:
    if rank_of(x) < 2 or rank_of(y) < 2 or rank_of(y) > rank_of(x):
        raise ShapeError(
            f"a is {bounds_of(x)}, b is {bounds_of(y)}",
            hint="both have rank 2 or more, and b no more than a",
        )
    if rank_of(x) > rank_of(y) > 2 or (
        rank_of(x) == rank_of(y) and bounds_of(x)[:-2] != bounds_of(y)[:-2]
    ):
        raise ShapeError(f"batch dimensions differ: a is {bounds_of(x)}, b is {bounds_of(y)}")
    inner = bounds_of(x)[-2 if transpose_x else -1], bounds_of(y)[-1 if transpose_y else -2]
    if inner[0] != inner[1]:
        raise ShapeError(
            f"inner dimensions differ: a is {bounds_of(x)}, b is {bounds_of(y)}",
            hint=f"transpose b, or pass transpose_b={not transpose_y}",
        )


def _swap(b: Builder, x: Value) -> Value:
    rank = rank_of(x)
    return b.Transpose(x, perm=[*range(rank - 2), rank - 1, rank - 2])
