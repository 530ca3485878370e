"""Shape inference that ONNX's own leaves out though the standard says the shape."""

from collections.abc import Callable, Sequence, Set

import onnx
import onnx_ir as ir

from flow2onnx.graph.einsum import einsum_terms
from flow2onnx.graph.nodes import attribute
from flow2onnx.graph.size_text import product, quotient
from flow2onnx.graph.types import constant_of, dims, is_static, rank_of, sizes_of

__all__ = ["CONTENT", "infer_missing_shape"]

# Under this key the `meta` of a value has its elements, numbers and texts, where they are known.
CONTENT = "content"

Shape = tuple[int, ...]


def infer_missing_shape(
    node: ir.Node, position: int, proto: onnx.TypeProto | None
) -> onnx.TypeProto | None:
    """The type of an output, with its shape if that follows from the inputs after all."""
    if proto is None or proto.WhichOneof("value") != "tensor_type":
        return proto
    if node.op_type in _SIZED:
        return _shape_by_sizes(node, position, proto)
    if node.op_type in _WINDOWED:
        return _shape_by_windows(node, proto)
    if node.op_type == "Range":
        return _range_type(node, proto)
    if node.op_type == "Einsum" and not all(is_static(v) for v in node.inputs if v):
        # inference takes what broadcasts with a size that it does not know for 1
        return onnx.helper.make_tensor_type_proto(proto.tensor_type.elem_type, _einsum_shape(node))
    if node.op_type == "Attention" and not all(is_static(v) for v in node.inputs[:5] if v):
        # inference takes sizes that it does not know for 0
        shape = _free_attention_shapes(node)[position]
        return onnx.helper.make_tensor_type_proto(proto.tensor_type.elem_type, shape)
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
    known = constant_of(operand)
    if node.op_type == "Reshape" and known is not None and not _is_complete(proto):
        given = [int(d) for d in known]
    if given is None:
        return proto
    if node.op_type == "Split":
        sizes: list[int | str | None] = [*sizes_of(node.inputs[0])]  # type: ignore[arg-type]  # a Split has its input
        sizes[attribute(node, "axis", 0)] = given[position]
    elif node.op_type == "Reshape":
        sizes = _reshaped_sizes(node, given)
    elif node.op_type == "Expand":
        x = node.inputs[0]
        assert x is not None, "an Expand has its input"
        sizes = _expanded_sizes(_sizes(x), list(given))
    else:
        sizes = list(given)
    return onnx.helper.make_tensor_type_proto(proto.tensor_type.elem_type, sizes)


def _is_complete(proto: onnx.TypeProto) -> bool:
    dims = proto.tensor_type.shape.dim
    return proto.tensor_type.HasField("shape") and all(
        d.HasField("dim_value") or d.HasField("dim_param") for d in dims
    )


def _reshaped_sizes(node: ir.Node, given: Sequence[int | str]) -> list[int | str | None]:
    """The sizes of what a Reshape makes: 0 is taken over, and -1 is what is left."""
    x = node.inputs[0]
    assert x is not None, "a Reshape has its input"
    have = _sizes(x)
    takes_over = not attribute(node, "allowzero", 0)
    sizes: list[int | str | None] = [
        (have[i] if i < len(have) else None) if d == 0 and takes_over else d
        for i, d in enumerate(given)
    ]
    if -1 not in sizes:
        return sizes
    others = [d for d in sizes if d is not None and d != -1]
    whole = [d for d in have if d is not None]
    left = None
    if len(whole) == len(have) and len(others) == len(sizes) - 1:
        left = quotient(product(*whole), product(*others))
    return [left if d == -1 else d for d in sizes]


def _expanded_sizes(
    have: Sequence[int | str | None], given: Sequence[int | str]
) -> list[int | str | None]:
    """The sizes of what an Expand makes: the two shapes broadcast to each other."""
    rank = max(len(have), len(given))
    pairs = zip([1] * (rank - len(have)) + [*have], [1] * (rank - len(given)) + [*given],
                strict=True)  # fmt: skip
    return [_broadcast_size({x, y}) for x, y in pairs]


# Operators that slide windows along axes from the third on, whose lengths have names.
_WINDOWED = frozenset({"AveragePool", "Conv", "LpPool", "MaxPool"})


def _shape_by_windows(node: ir.Node, proto: onnx.TypeProto) -> onnx.TypeProto:
    """The type of what windows make, with names for lengths known at run time only.

    A length that padding keeps has the name that it had, so that it is known to be the same.
    """
    x, w = node.inputs[0], node.inputs[1] if node.op_type == "Conv" else None
    if x is None or x.shape is None or (is_static(x) and (w is None or is_static(w))):
        return proto
    sizes: list[int | str | None] = [*_sizes(x)]
    lead: list[int | str | None] = sizes[:2]
    if w is not None:
        lead[1] = _sizes(w)[0]
    known = proto.tensor_type.shape.dim if proto.tensor_type.HasField("shape") else ()
    rest: list[int | str | None] = [d.dim_value if d.HasField("dim_value") else None
                                    for d in known][2:]  # fmt: skip
    rest = rest or [None] * (len(sizes) - 2)
    for axis, length in enumerate(sizes[2:]):
        if rest[axis] is None and isinstance(length, str):
            rest[axis] = _window_count(node, axis, length)
    return onnx.helper.make_tensor_type_proto(proto.tensor_type.elem_type, [*lead, *rest])


def _sizes(value: ir.Value) -> list[int | str | None]:
    return [d if isinstance(d, int) else d.value for d in value.shape or ()]


def _window_count(node: ir.Node, axis: int, length: str) -> str | None:
    """The number of windows along an axis by name, or None where none is easily written."""
    kernel = attribute(node, "kernel_shape")
    w = node.inputs[1] if node.op_type == "Conv" else None
    if w is not None:
        kernel = dims(w)[2:] if is_static(w) else None
    if kernel is None or attribute(node, "ceil_mode", 0):
        return None
    rank = len(kernel)
    stride, dilation = (attribute(node, k, [1] * rank)[axis] for k in ("strides", "dilations"))
    how = attribute(node, "auto_pad", "NOTSET")
    if how.startswith("SAME"):
        return length if stride == 1 else f"(({length}+{stride - 1})/{stride})"
    pads = attribute(node, "pads", [0] * 2 * rank) if how == "NOTSET" else [0] * 2 * rank
    more = pads[axis] + pads[axis + rank] - (kernel[axis] - 1) * dilation
    if stride == 1:
        return f"({length}{more:+d})" if more else length
    return f"(({length}{more - 1:+d})/{stride}+1)"


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


def _range_type(node: ir.Node, proto: onnx.TypeProto) -> onnx.TypeProto:
    """The type of a Range that counts the elements of an axis."""
    start, limit, delta = (constant_of(v) for v in node.inputs)
    content = node.inputs[1].meta.get(CONTENT) if node.inputs[1] is not None else None
    counts = start is not None and delta is not None and start.item() == 0 and delta.item() == 1
    if limit is not None or not counts or content is None:
        return proto
    return onnx.helper.make_tensor_type_proto(proto.tensor_type.elem_type, list(content))


def _einsum_shape(node: ir.Node) -> list[int | str | None]:
    """The shape of what an Einsum makes, where some sizes are known at run time only."""
    terms, result = einsum_terms(node)
    sizes: dict[str, set[int | str | None]] = {}
    for value, term in zip(node.inputs, terms, strict=True):
        assert value is not None, "an Einsum leaves no operand out"
        for letter, size in zip(term, _sizes(value), strict=True):
            sizes.setdefault(letter, set()).add(size)
    return [_broadcast_size(sizes[letter]) for letter in result]


def _broadcast_size(sizes: Set[int | str | None]) -> int | str | None:
    """The size that sizes broadcast to, or None if only a run can tell."""
    wide = [d for d in sizes if d != 1]
    known = [d for d in wide if isinstance(d, int)]
    if known or not wide:
        return known[0] if known else 1
    return wide[0] if len(wide) == 1 else None


def _free_attention_shapes(node: ir.Node) -> list[list[int | str | None]]:
    """The shapes of all outputs where some sizes are known at run time only."""
    q, k, v = (_split_by_head(node, i) for i in range(3))
    past = node.inputs[4] if len(node.inputs) > 4 else None
    total = k[2] if past is None else None
    if past is not None and isinstance(k[2], int) and is_static(past):
        total = k[2] + dims(past)[2]
    first: list[int | str | None] = [*q[:3], v[3]]
    if rank_of(node.inputs[0]) == 3:  # type: ignore[arg-type]  # an Attention has its queries
        width = q[1] * v[3] if isinstance(q[1], int) and isinstance(v[3], int) else None
        first = [q[0], q[2], width]
    kept = [[k[0], k[1], total, k[3]], [v[0], v[1], total, v[3]]]
    return [first, *kept, [*q[:3], total]]


def _split_by_head(node: ir.Node, position: int) -> list[int | str | None]:
    """The shape of queries, keys or values as (image, head, row, number), as far as it is known."""
    value = node.inputs[position]
    assert value is not None, "queries, keys and values are no options"
    sizes = _sizes(value)
    if len(sizes) == 4:
        return sizes
    heads = attribute(node, "kv_num_heads" if position else "q_num_heads")
    images, rows, width = sizes
    return [images, heads, rows, width // heads if isinstance(width, int) else None]


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


def _transposed_shapes(node: ir.Node) -> list[list[None]]:
    """A transposed convolution keeps the rank."""
    return [[None] * rank_of(node.inputs[0])]  # type: ignore[arg-type]  # it has its input


def _stft_shapes(node: ir.Node) -> list[list[int | str | None]] | None:
    """(image, frame, frequency, 2) of signals of any length, in frames of a known one."""
    signal, step, window, length = [*node.inputs, None, None][:4]
    if window is not None and is_static(window):
        size = dims(window)[0]
    else:
        known = constant_of(length)
        if known is None:
            return None
        size = int(known)
    assert signal is not None, "an STFT has its signal"
    images, samples = _sizes(signal)[:2]
    jump = constant_of(step)
    count: int | str | None = None
    if jump is not None and isinstance(samples, str):
        count = f"(({samples}-{size})/{int(jump)}+1)"
    elif jump is not None and isinstance(samples, int):
        count = (samples - size) // int(jump) + 1
    return [[images, count, size // 2 + 1 if attribute(node, "onesided", 1) else size, 2]]


_SHAPES: dict[str, Callable[[ir.Node], Sequence[Sequence[int | str | None]] | None]] = {
    "Attention": _attention_shapes,
    "ConvTranspose": _transposed_shapes,
    "MaxUnpool": _max_unpool_shapes,
    "Pad": lambda node: [(None,) * rank_of(node.inputs[0])],  # type: ignore[arg-type]  # it has one
    "ReduceSum": _reduce_shapes,
    "STFT": _stft_shapes,
}
