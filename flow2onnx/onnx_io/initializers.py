"""Numbers of a model brought to one place: the initializers of its main graph.

They may also stand in Constant nodes, in graphs inside nodes, and in sparse form.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from flow2onnx.errors import BundleError, UnsupportedError

__all__ = ["gather_initializers"]

_STANDARD = ("", "ai.onnx")
_REAL = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
_MOST_DENSE = 1 << 28  # elements of a sparse tensor written out


def gather_initializers(graph: onnx.GraphProto) -> frozenset[str]:
    """Make initializers of the graph of all tensors of real numbers, in place.

    Returns the names of those that stood in Constant nodes. A single number stays where it is, and
    so does what a graph inside a node hands out as it is.
    """
    return frozenset(_Gathering(graph).run())


class _Gathering:
    def __init__(self, graph: onnx.GraphProto) -> None:
        self.graph = graph
        self.counts = Counter(_defined_names(graph))
        self.constants: set[str] = set()

    def run(self) -> set[str]:
        self._densify(self.graph)
        self._take_constants(self.graph, {}, [o.name for o in self.graph.output])
        for node in self.graph.node:
            self._visit(node, {})
        return self.constants

    def _visit(self, node: onnx.NodeProto, renamed: dict[str, str]) -> None:
        """Take the tensors out of the graphs inside a node, where names may be others' too."""
        node.input[:] = [renamed.get(name, name) for name in node.input]
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                if inner.node or inner.initializer or inner.sparse_initializer:
                    self._take(inner, dict(renamed))

    def _take(self, inner: onnx.GraphProto, renamed: dict[str, str]) -> None:
        self._densify(inner)
        handed_out = {o.name for o in inner.output}
        kept = []
        for tensor in inner.initializer:
            if tensor.name in handed_out or not _is_weight(tensor):
                kept.append(tensor)
                renamed.pop(tensor.name, None)
            else:
                self._add(tensor, tensor.name, renamed)
        del inner.initializer[:]
        inner.initializer.extend(kept)
        self._take_constants(inner, renamed, handed_out)
        for node in inner.node:
            self._visit(node, renamed)

    def _take_constants(
        self, graph: onnx.GraphProto, renamed: dict[str, str], handed_out: Collection[str]
    ) -> None:
        nodes = []
        for node in graph.node:
            tensor = _constant_content(node)
            if tensor is None or not _is_weight(tensor) or node.output[0] in handed_out:
                nodes.append(node)
                continue
            self._add(tensor, node.output[0], renamed)
            self.constants.add(renamed.get(node.output[0], node.output[0]))
        if len(nodes) < len(graph.node):
            del graph.node[:]
            graph.node.extend(nodes)

    def _add(self, tensor: onnx.TensorProto, name: str, renamed: dict[str, str]) -> None:
        """Add a tensor to the initializers of the main graph, under a name that is free there."""
        unique, count = name, 0
        while self.counts[unique] > (unique == name):
            count += 1
            unique = f"{name}_{count}"
        self.counts[unique] += 1
        if unique != name:
            renamed[name] = unique
        self.graph.initializer.add().CopyFrom(tensor)
        self.graph.initializer[-1].name = unique

    def _densify(self, graph: onnx.GraphProto) -> None:
        for sparse in graph.sparse_initializer:
            graph.initializer.append(numpy_helper.from_array(_dense(sparse), sparse.values.name))
        del graph.sparse_initializer[:]


def _defined_names(graph: onnx.GraphProto) -> Iterator[str]:
    """The names that a graph and the graphs inside its nodes give, one for each time."""
    own = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    yield from own | {t.values.name for t in graph.sparse_initializer}
    for node in graph.node:
        yield from (name for name in node.output if name)
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _defined_names(inner)


def _is_weight(tensor: onnx.TensorProto) -> bool:
    return tensor.data_type in _REAL and len(tensor.dims) > 0 and math.prod(tensor.dims) > 1


def _constant_content(node: onnx.NodeProto) -> onnx.TensorProto | None:
    """The tensor of a Constant node in any of its forms."""
    if node.op_type != "Constant" or node.domain not in _STANDARD or len(node.output) != 1:
        return None
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            return None
        if attribute.name == "value":
            content: onnx.TensorProto = attribute.t
            return content
        if attribute.name == "value_floats":
            return numpy_helper.from_array(np.asarray(attribute.floats, np.float32))
        if attribute.name == "sparse_value":
            dense = numpy_helper.from_array(_dense(attribute.sparse_tensor))
            attribute.CopyFrom(helper.make_attribute("value", dense))
            return dense
    return None


def _dense(sparse: onnx.SparseTensorProto) -> np.ndarray[Any, Any]:
    """A sparse tensor written out."""
    shape, name = tuple(sparse.dims), sparse.values.name
    count = math.prod(shape)
    if min(shape, default=1) < 0 or count > _MOST_DENSE:
        raise UnsupportedError(
            f"the sparse tensor {name} of shape {shape} has {count} elements when written out",
            hint=f"up to {_MOST_DENSE} are supported: store it as it is looked up, in rows",
        )
    try:
        values = numpy_helper.to_array(sparse.values)
        places = numpy_helper.to_array(sparse.indices)
        dense = np.zeros(count, values.dtype)
        flat = places if places.ndim == 1 else np.ravel_multi_index(tuple(places.T), shape)
        if flat.size and not 0 <= int(flat.min()) <= int(flat.max()) < count:
            raise ValueError("an index is outside")
        dense[flat] = values
    except (ValueError, TypeError) as error:
        raise BundleError(
            f"the sparse tensor {name} is damaged: {error}", hint="export it again"
        ) from error
    return dense.reshape(shape)
