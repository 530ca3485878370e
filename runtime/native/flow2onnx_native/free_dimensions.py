"""Sizes in the place of the names that a model has for its free dimensions."""

import re
from collections.abc import Iterator, Mapping

import onnx
import onnx_ir as ir

from flow2onnx_native.graph import dims, is_standard, is_static, number

__all__ = ["fix_dimensions", "fold_shapes"]

# Sums, products and quotients of names and numbers; sizes never take powers, which can be huge.
_EXPRESSION = re.compile(r"(?!.*\*\*)[\w.+\-*/(), ]{1,100}", re.ASCII)


def fix_dimensions(model: onnx.ModelProto, sizes: Mapping[str, int]) -> None:
    """Put sizes in the place of names in the shapes of a model's values.

    An expression of them, such as ``2*batch``, has its value; an axis of the graph within that
    cannot be told becomes one of which nothing is known, and shape inference finds out.
    """
    graph = model.graph
    for value in (*graph.input, *graph.output):
        for axis in _named_axes(value):
            size = _size(axis.dim_param, sizes)
            if size is not None:
                axis.dim_value = size
    for value in _values_within(graph):
        for axis in _named_axes(value):
            size = _size(axis.dim_param, sizes)
            if size is None:
                axis.Clear()
            else:
                axis.dim_value = size


def _values_within(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    """The values between inputs and outputs, and all those of subgraphs."""
    yield from graph.value_info
    for attribute in (a for node in graph.node for a in node.attribute):
        for inner in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
            yield from (*inner.input, *inner.output)
            yield from _values_within(inner)


def _named_axes(value: onnx.ValueInfoProto) -> list[onnx.TensorShapeProto.Dimension]:
    if not value.type.HasField("tensor_type"):
        return []
    return [axis for axis in value.type.tensor_type.shape.dim if axis.dim_param]


def _size(text: str, sizes: Mapping[str, int]) -> int | None:
    """The value of an expression of names; None where it has others."""
    if text in sizes:
        return sizes[text]
    if text.isidentifier() or not _EXPRESSION.fullmatch(text):
        return None
    try:
        found = ir.SymbolicDim(text).evaluate(dict(sizes))
    except ValueError:
        return None
    return found if isinstance(found, int) and found >= 0 else None


def fold_shapes(graph: ir.Graph) -> None:
    """Put constants in the place of `Shape` where all sizes are known.

    What only they have read is dead code then.
    """
    for node in [n for n in graph if is_standard(n, "Shape")]:
        value, sizes = node.inputs[0], node.outputs[0]
        if value is None or not is_static(value) or sizes.is_graph_output():
            continue
        known, first, last = list(dims(value)), number(node, "start", 0), node.attributes.get("end")
        part = known[int(first) : len(known) if last is None else last.as_int()]
        content = ir.tensor(part, ir.DataType.INT64, name=sizes.name)
        constant = ir.val(sizes.name, const_value=content)
        sizes.name = None
        graph.register_initializer(constant)
        sizes.replace_all_uses_with(constant)
        graph.remove(node, safe=True)
