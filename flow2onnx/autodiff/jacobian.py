"""Jacobians: the reverse walk once, what it makes of one seed run for every element in a Scan."""

from collections.abc import Collection, Sequence

import numpy as np
import onnx_ir as ir

from flow2onnx.autodiff.walk import gradients
from flow2onnx.dtypes import int64
from flow2onnx.graph import Builder, Node, Value
from flow2onnx.graph.nodes import read_values
from flow2onnx.graph.types import dtype_of, sizes_of
from flow2onnx.lowering.broadcasts import reshape_to
from flow2onnx.lowering.scatters import zeros

__all__ = ["jacobians"]


def jacobians(b: Builder, y: Value, wrt: Sequence[Value]) -> dict[Value, Value]:
    """The derivatives of every element of `y`, by value: of the shape of `y`, then of the value.

    The nodes that depend on the seed are the body of a Scan over the elements of `y`, so that the
    graph is as large as that of one gradient, and one row is computed at a time. A value on which
    `y` does not depend is absent from the result.
    """
    seed = zeros(b, sizes_of(y), dtype_of(y))
    start = len(b.nodes)
    found = {x: g for x, g in gradients(b, {y: seed}, wrt).items() if x in set(wrt)}
    if not found:
        return {}
    count = b.Size(y)
    places = b.Range(np.int64(0), count, np.int64(1))
    shape = b.vector(sizes_of(y)) if sizes_of(y) else b.const(np.zeros(0, np.int64))
    body = _body(b, start, seed, (places, shape), list(found.values()))
    rows = b.emit("Scan", (places,), {"body": body, "num_scan_inputs": 1}, len(found))
    return {
        x: reshape_to(b, row, (*sizes_of(y), *sizes_of(x)))
        for x, row in zip(found, rows, strict=True)
    }


def _body(
    b: Builder, start: int, seed: Value, places: tuple[Value, Value], results: Sequence[Value]
) -> ir.Graph:
    """A graph of the nodes since `start` that depend on the seed, which is 1 at one place."""
    every, shape = places
    moved = _take_dependent(b, start, seed)
    name = b.unique("jacobian")
    inner = Builder.inside(b, name)
    place = inner.input(f"{name}/place", (), int64)
    with inner.under("jacobian"):
        chosen = inner.Cast(inner.Equal(every, place), to=dtype_of(seed))
        one = inner.Reshape(chosen, shape)
        seed.replace_all_uses_with(one)
        for node in moved:
            inner.graph.append(node)
            inner.nodes.append(node)
        own = {o for node in moved for o in node.outputs}
        for g in results:
            row = one if g is seed else g
            repeated = row not in own or row in inner.graph.outputs
            inner.graph.outputs.append(inner.Identity(row) if repeated else row)
    return inner.graph


def _take_dependent(b: Builder, start: int, seed: Value) -> list[Node]:
    """Take the nodes since `start` that depend on `seed` out of the graph, in their order."""
    reached: set[Value] = {seed}
    moved = []
    for node in b.nodes[start:]:
        if _reads(node, reached):
            reached.update(node.outputs)
            moved.append(node)
    taken = set(moved)
    b.nodes[:] = [n for n in b.nodes if n not in taken]
    for node in reversed(moved):
        b.graph.remove(node)
    return moved


def _reads(node: Node, values: Collection[Value]) -> bool:
    return any(v in values for v in read_values(node) if v is not None)
