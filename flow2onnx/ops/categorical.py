"""Numbering categories in order of appearance, by a table that grows from call to call."""

import numpy as np

from flow2onnx.dtypes import int32, int64
from flow2onnx.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dims, dtype_of, size_of
from flow2onnx.lowering.scatters import zeros
from flow2onnx.ops.layers import layer_variable
from flow2onnx.ops.variable import assign
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.context import current_job
from flow2onnx.trace.initializers import Constant
from flow2onnx.trace.op import composite, op


@op("categorical_ordinal_encode.numbered", is_public=False)
def encode(
    b: Builder, table: Value, size: Value, keys: Value, name: str | None = None
) -> tuple[Value, Value, Value]:
    """The number of each key, and the table and its size with those that are new.

    Every key is compared with every entry, so the order of the entries does not matter: tables
    that OneFlow's hash put in order are read too. The lookup fails where the table is full.
    """
    capacity = dims(table)[0] // 2
    x = b.Reshape(b.Cast(keys, to=int64), [-1])
    entries = b.Reshape(b.Cast(table, to=int64), [capacity, 2])
    have, numbers = (b.Gather(entries, i, axis=1) for i in (0, 1))
    hit = b.Equal(b.Unsqueeze(x, [1]), have)
    found = b.ReduceMax(b.Where(hit, numbers, b.const(0, int64)), [1], keepdims=0)
    is_known = b.Greater(b.ReduceMax(b.Cast(hit, to=int32), [1], keepdims=0), 0)
    first, is_new, rank = _find_new(b, x, is_known)
    number = b.Add(b.Cast(size, to=int64), rank)
    ids = b.Where(is_known, found, b.Gather(number, first, axis=0))
    kind = dtype_of(table)
    grown = b.Add(b.Cast(size, to=int64), b.ReduceSum(b.Cast(is_new, to=int64), [0]))
    entered = _insert(b, entries, have, is_new, rank, b.Concat(
        b.Unsqueeze(x, [1]), b.Unsqueeze(number, [1]), axis=1
    ))  # fmt: skip
    return (
        b.Reshape(b.Cast(ids, to=dtype_of(keys)), list(dims(keys))),
        b.Cast(b.Reshape(entered, [2 * capacity]), to=kind),
        b.Cast(grown, to=kind),
    )


def _find_new(b: Builder, x: Value, is_known: Value) -> tuple[Value, Value, Value]:
    """Where each key appears first, whether that is here and the key new, how many are so far."""
    same = b.Cast(b.Equal(b.Unsqueeze(x, [1]), x), to=int32)
    first = b.ArgMax(same, axis=1, keepdims=0)
    is_here = b.Equal(first, np.arange(size_of(x), dtype=np.int64))
    is_new = b.And(is_here, b.Not(is_known))
    return first, is_new, b.CumSum(b.Cast(is_new, to=int64), b.const(0, int64))


def _insert(
    b: Builder, entries: Value, have: Value, is_new: Value, rank: Value, fresh: Value
) -> Value:
    """The entries with the fresh ones that are new in places that were free."""
    capacity = dims(entries)[0]
    is_free = b.Cast(b.Equal(have, 0), to=int32)
    order = b.several("TopK", is_free, [capacity], axis=0, outputs=2)[1]
    free = b.ReduceSum(b.Cast(is_free, to=int64), [0])
    # out of bounds, which the runtime refuses: a full table must not lose what it holds
    place = b.Where(b.Greater(rank, free), b.const(capacity), b.Sub(rank, 1))
    slot = b.Gather(order, b.Where(is_new, place, b.const(0)), axis=0)
    target = b.Where(is_new, slot, b.const(capacity))
    longer = b.Concat(entries, zeros(b, [1, 2], int64), axis=0)
    return b.Slice(b.ScatterND(longer, b.Unsqueeze(target, [1]), fresh), [0], [capacity])


@composite("categorical_ordinal_encode")
def categorical_ordinal_encode(
    table: Blob,
    size: Blob,
    input_tensor: Blob,
    hash_precomputed: bool = True,
    name: str | None = None,
) -> Blob:
    """Numbers from 1 on in order of appearance, over all calls; 0 for the key 0.

    `table` (2 x capacity) and `size` (1) are variables, which hold what was numbered.
    """
    if not hash_precomputed:
        raise UnsupportedError("keys are hashes already", hint="leave hash_precomputed=True")
    if len(table.shape) != 1 or table.shape[0] % 2 or size.shape != (1,):
        raise ShapeError(
            f"table is {table.shape}, size {size.shape}", hint="table is (2 x capacity,), size (1,)"
        )
    if any(v.dtype not in (int32, int64) for v in (table, size, input_tensor)):
        raise DTypeError("table, size and input are int32 or int64", hint="use flow.cast first")
    ids, entered, grown = encode(table, size, input_tensor, name=name)
    assign.lower(table, entered)
    assign.lower(size, grown)
    found: Blob = ids
    return found


@composite("layers.categorical_ordinal_encoder")
def categorical_ordinal_encoder(
    input_tensor: Blob,
    capacity: int,
    hash_precomputed: bool = True,
    name: str = "CategoricalOrdinalEncoder",
) -> Blob:
    """`categorical_ordinal_encode` with variables ``Table`` and ``Size`` of its own."""
    if not isinstance(capacity, int) or capacity < 1:
        raise ArgumentError(f"capacity is a positive int, got {capacity!r}")
    kind = "CategoricalOrdinalEncoder"
    layer = current_job("layers.categorical_ordinal_encoder").name_layer(name or kind, kind)
    table, size = (
        layer_variable(layer, what, shape, Constant(0), None, False, dtype=input_tensor.dtype)
        for what, shape in (("Table", (2 * capacity,)), ("Size", (1,)))
    )
    return categorical_ordinal_encode.lower(table, size, input_tensor, hash_precomputed)
