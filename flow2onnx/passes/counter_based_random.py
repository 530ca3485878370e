"""Random nodes whose draws depend on the train step alone, and not on what was run before.

A runtime's own generators begin anew when a session is opened and go on with every run, so that a
training that was interrupted draws other numbers than one that was not.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir

from flow2onnx.dtypes import DType, float32, float64, int64
from flow2onnx.errors import UnsupportedError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.nodes import RANDOM_OPERATORS, attribute
from flow2onnx.graph.types import constant_of, dims, dtype_of, is_static, rank_of, sizes_of
from flow2onnx.passes.base import Pass, Placeholders, replace_node

__all__ = ["CounterBasedRandom"]

_PRIME = 2**31 - 1
_ODD = 48271  # spreads seeds, which may be neighbours, over the numbers below the prime
# Elements of one draw: a place plus a key, squared, then stays below 2**63.
_LIMIT = 2**29


class CounterBasedRandom(Pass):
    """Compute draws from seed, counters and position in whole numbers, equal in every runtime.

    Given:   y, mask = Dropout(x, ratio, true)
    Result:  k = hash(seed, step);  h = hash(k + position);  mask = h >= ratio * 2^31
             y = Where(mask, x / (1 - ratio), 0)
    Kept:    draws of other distributions are refused

    The hash is two rounds of x -> (x + key)^5 modulo the prime 2^31 - 1, of which the fifth power
    permutes the numbers. Squares of sums beyond 2^31.5 wrap around 64 bits, in every runtime alike.
    """

    def __init__(self, counters: Sequence[str]) -> None:
        self._counters = counters

    def run(self, graph: ir.Graph) -> bool:
        """Put the nodes of each draw where the one node was."""
        inputs = {str(v.name): v for v in graph.inputs}
        counters = [inputs[name] for name in self._counters]
        found = [n for n in graph if n.op_type in RANDOM_OPERATORS]
        for node in found:
            if node.op_type not in _DRAWS:
                raise UnsupportedError(
                    f"{node.op_type} {node.name} cannot be drawn equally after resuming",
                    hint="use dropout and uniform draws alone, or leave on_device out",
                )
        for node in found:
            _replace(graph, node, counters)
        return bool(found)


def _replace(graph: ir.Graph, node: ir.Node, counters: Sequence[Value]) -> None:
    def emit(b: Builder, read: Placeholders) -> tuple[Value, ...]:
        seed = int(attribute(node, "seed", 0.0))
        operands = [read[c] for c in counters]
        x = node.inputs[0] if node.inputs else None
        if x is not None and not is_static(node.outputs[0]):
            hashed = _hash(b, operands, seed, lambda: _places_like(b, read[x]))
        else:
            shape = attribute(node, "shape") or dims(node.outputs[0])
            flat = _hash(b, operands, seed, lambda: _places(b, prod(shape)))
            hashed = b.Reshape(flat, list(shape))
        return _DRAWS[node.op_type](b, node, hashed, read)

    replace_node(graph, node, emit, counters)


def _places(b: Builder, count: int) -> Value:
    """0, 1, …, in one dimension."""
    assert count < _LIMIT, f"{count} elements are too many for one draw"
    every: Value = b.Range(*(b.const(np.int64(n), int64) for n in (0, count, 1)))
    return every


def _places_like(b: Builder, x: Value) -> Value:
    """0, 1, …, one for each element of a value whose sizes are known at the run only.

    In its shape: a Range would have a size that stands for no size of the graph.
    """
    ones = b.Expand(b.const(np.ones(1, np.int64)), list(sizes_of(x)))
    place: Value = b.Sub(b.CumSum(ones, np.int64(0)), 1)
    for axis in range(1, rank_of(x)):
        before = b.Mul(place, b.Shape(x, start=axis, end=axis + 1))
        place = b.Add(before, b.Sub(b.CumSum(ones, np.int64(axis)), 1))
    return place


def _hash(b: Builder, counters: Sequence[Value], seed: int, places: Callable[[], Value]) -> Value:
    """A number in [0, prime) for each place."""
    key = b.const([(seed * _ODD + 1) % _PRIME], int64)
    for counter in counters:
        key = _power(b, b.Add(key, b.Mod(counter, b.const([_PRIME], int64))))
    first = _power(b, b.Add(places(), key))
    return _power(b, b.Add(first, _power(b, b.Add(key, b.const([_ODD], int64)))))


def _power(b: Builder, x: Value) -> Value:
    """x^5 modulo the prime."""
    prime = b.const([_PRIME], int64)
    square = b.Mod(b.Mul(x, x), prime)
    return b.Mod(b.Mul(b.Mod(b.Mul(square, square), prime), x), prime)


def _uniform(b: Builder, node: ir.Node, hashed: Value, read: Placeholders) -> tuple[Value, ...]:
    dtype = dtype_of(node.outputs[0])
    low, high = float(attribute(node, "low", 0.0)), float(attribute(node, "high", 1.0))
    share = _unit_interval(b, hashed, float64 if dtype == float64 else float32)
    spread = b.Add(b.Mul(share, high - low), low) if (low, high) != (0.0, 1.0) else share
    return (spread if dtype_of(spread) == dtype else b.Cast(spread, to=dtype),)


def _unit_interval(b: Builder, hashed: Value, dtype: DType) -> Value:
    """The number over 2^31, in [0, 1): of 24 bits in single precision, so that none rounds to 1."""
    if dtype == float64:
        return b.Mul(b.Cast(hashed, to=dtype), 2.0**-31)
    return b.Mul(b.Cast(b.Div(hashed, b.const([128], int64)), to=dtype), 2.0**-24)


def _dropout(b: Builder, node: ir.Node, hashed: Value, read: Placeholders) -> tuple[Value, ...]:
    x, ratio, is_training = (*node.inputs, None, None)[:3]
    assert x is not None, "Dropout drops something"
    rate = 0.5 if ratio is None else float(_constant_number(node, ratio))
    if is_training is None or not bool(_constant_number(node, is_training)):
        rate = 0.0
    mask = b.GreaterOrEqual(hashed, b.const([round(rate * _PRIME)], int64))
    return b.Where(mask, b.Mul(read[x], 1 / (1 - rate)), b.like(0, read[x])), mask


def _constant_number(node: ir.Node, value: Value) -> Any:
    known = constant_of(value)
    if known is None:
        raise UnsupportedError(
            f"{node.op_type} {node.name}: {value.name} is computed", hint="make it a constant"
        )
    return np.asarray(known).item()


_DRAWS: dict[str, Callable[..., tuple[Value, ...]]] = {
    "Dropout": _dropout,
    "RandomUniform": _uniform,
    "RandomUniformLike": _uniform,
}
