"""Nodes that a pass puts one behind the other into a graph, with the constants that they read."""

import hashlib
import itertools
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from numpy.typing import ArrayLike, DTypeLike

from flow2onnx_native.graph import describe, dims

__all__ = ["NodeBuilder"]


class NodeBuilder:
    """Adds nodes behind one of a graph; `name` is how the names of their results begin."""

    def __init__(self, graph: ir.Graph, behind: ir.Node, name: str) -> None:
        self.graph, self._behind, self.name = graph, behind, name
        self._count = itertools.count()

    def add(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        shapes: Sequence[Sequence[int]],
        attributes: Sequence[ir.Attr] = (),
        domain: str = "",
        dtype: ir.DataType | None = None,
    ) -> list[ir.Value]:
        """The results of one more node, of these shapes and, without `dtype`, the inputs' type."""
        node = ir.Node(domain, op_type, inputs, attributes, num_outputs=len(shapes))
        first = next(v for v in inputs if v is not None)
        return self.put(node, shapes, dtype or first.dtype)

    def put(
        self, node: ir.Node, shapes: Sequence[Sequence[int]], dtype: ir.DataType | None
    ) -> list[ir.Value]:
        """The results of a node that is put behind those before it; the first are described."""
        for value, shape in zip(node.outputs, shapes, strict=False):
            name = f"{self.name}/{node.op_type}_{next(self._count)}"
            describe(value, name, dtype or ir.DataType.FLOAT, shape)
        self.graph.insert_after(self._behind, node)
        self._behind = node
        return list(node.outputs)

    def constant(self, numbers: ArrayLike, dtype: DTypeLike = np.int64) -> ir.Value:
        """A constant; those of equal numbers are one."""
        array = np.asarray(numbers, dtype)
        content = repr((array.dtype, array.shape)).encode() + array.tobytes()
        name = f"native/constant/{hashlib.sha256(content).hexdigest()[:16]}"
        known = self.graph.initializers.get(name)
        if known is not None:
            return known
        value = ir.val(name, const_value=ir.tensor(array, name=name))
        self.graph.register_initializer(value)
        return value

    def reshape(self, x: ir.Value, shape: Sequence[int]) -> ir.Value:
        """The same numbers in another shape."""
        return self.add("Reshape", [x, self.constant(shape)], [shape])[0]

    def transpose(self, x: ir.Value, perm: Sequence[int]) -> ir.Value:
        """The same numbers with axes in another order."""
        shape = [dims(x)[axis] for axis in perm]
        return self.add("Transpose", [x], [shape], [ir.AttrInt64s("perm", list(perm))])[0]
