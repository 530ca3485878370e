"""Shape inference that ONNX's own leaves out though the standard says the shape."""

from collections.abc import Callable, Sequence

import onnx
import onnx_ir as ir

from flow2onnx.graph.nodes import attribute
from flow2onnx.graph.types import constant_of, dims, is_static, rank_of, sizes_of

__all__ = ["infer_missing_shape"]

Shape = tuple[int, ...]


def infer_missing_shape(
    node: ir.Node, position: int, proto: onnx.TypeProto | None
) -> onnx.TypeProto | None:
    """The type of an output, with its shape if that follows from the inputs after all."""
    if proto is None or proto.WhichOneof("value") != "tensor_type":
        return proto
    if node.op_type in _SIZED:
        return _shape_by_sizes(node, position, proto)
    if proto.tensor_type.HasField("shape") or node.op_type not in _SHAPES:
        return proto
    shapes = _SHAPES[node.op_type](node)
    if shapes is None:
        return proto
    return onnx.helper.make_tensor_type_proto(proto.tensor_type.elem_type, shapes[position])


# Where an operand says the sizes of the result.
_SIZED = {"ConstantOfShape": 0, "Expand": 1, "Reshape": 1, "Split": 1}


def _shape_by_sizes(node: ir.Node, position: int, proto: onnx.TypeProto) -> onnx.TypeProto:
    """The type of an output whose sizes were given by name."""
    place = _SIZED[node.op_type]
    operand = node.inputs[place] if len(node.inputs) > place else None
    given = operand.meta.get("sizes") if operand is not None else None
    if given is None:
        return proto
    if node.op_type == "Split":
        sizes: list[int | str | None] = [*sizes_of(node.inputs[0])]  # type: ignore[arg-type]  # a Split has its input
        sizes[attribute(node, "axis", 0)] = given[position]
    else:
        sizes = [None if d == -1 else d for d in given]
    return onnx.helper.make_tensor_type_proto(proto.tensor_type.elem_type, sizes)


def _attention_shapes(node: ir.Node) -> list[Shape] | None:
    """Keys and values are put out as they are taken in where there is no past to add."""
    q, k, v = (_by_head(node, i) for i in range(3))
    if q is None or k is None or v is None:
        return None
    total = k[2]
    past = node.inputs[4] if len(node.inputs) > 4 else None
    if past is not None:
        if not is_static(past):
            return None
        total += dims(past)[2]
    kept = [(k[0], k[1], total, k[3]), (v[0], v[1], total, v[3])]
    return [(*q[:3], v[3]), *kept, (*q[:3], total)]


def _by_head(node: ir.Node, position: int) -> Shape | None:
    """The shape of queries, keys or values: (image, head, row, number)."""
    value = node.inputs[position]
    if value is None or not is_static(value):
        return None
    shape = dims(value)
    if len(shape) == 4:
        return shape
    heads = attribute(node, "kv_num_heads" if position else "q_num_heads")
    if heads is None:
        return None
    return shape[0], heads, shape[1], shape[2] // heads


def _reduce_shapes(node: ir.Node) -> list[tuple[None, ...]] | None:
    """Along axes known at run time: of the same rank, if the axes stay."""
    if not attribute(node, "keepdims", 1):
        return None
    return [(None,) * rank_of(node.inputs[0])]  # type: ignore[arg-type]  # a reduction has its input


def _max_unpool_shapes(node: ir.Node) -> list[Shape] | None:
    wanted = constant_of(node.inputs[2]) if len(node.inputs) > 2 else None
    return None if wanted is None else [tuple(int(d) for d in wanted)]


_SHAPES: dict[str, Callable[[ir.Node], Sequence[Sequence[int | None]] | None]] = {
    "Attention": _attention_shapes,
    "MaxUnpool": _max_unpool_shapes,
    "ReduceSum": _reduce_shapes,
}
