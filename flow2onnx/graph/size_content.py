"""Vectors of sizes followed through the nodes that exporters compute shapes with.

A value's `meta` has under ``content`` its elements, numbers and texts, where these are known.
"""

import itertools
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from flow2onnx.graph.builder import Builder
from flow2onnx.graph.nodes import attribute
from flow2onnx.graph.shape_inference import CONTENT
from flow2onnx.graph.size_text import Size, difference, product, quotient, remainder, total
from flow2onnx.graph.types import constant_of, dtype_of, rank_of, sizes_of

__all__ = ["follow_sizes"]

Content = tuple[Size, ...]

_MOST_ELEMENTS = 64
_FAR = 2**31  # an end that stands for the end of the axis


def follow_sizes(b: Builder, outputs: tuple[ir.Value, ...]) -> tuple[ir.Value, ...]:
    """The outputs of the node made last: a constant where all sizes in it turn out to be known."""
    node = outputs[0].producer()
    rule = _RULES.get(node.op_type) if node is not None and len(outputs) == 1 else None
    if node is None or rule is None or not isinstance(outputs[0].type, ir.TensorType):
        return outputs
    value = outputs[0]
    found = rule(node) if value.shape is not None and rank_of(value) < 2 else None
    if found is None or len(found) > _MOST_ELEMENTS:
        return outputs
    if all(isinstance(d, int) for d in found):
        shape = (len(found),) if rank_of(value) else ()
        kind = dtype_of(value).numpy
        if b.free_size not in shape:
            b.undo()
            return (b.const(np.asarray(found).reshape(shape).astype(kind)),)
    value.meta[CONTENT] = found
    if rank_of(value) and dtype_of(value).numpy == np.int64:
        value.meta["sizes"] = found  # by which inference names what is shaped so
    return outputs


def _content(value: ir.Value | None) -> Content | None:
    """The elements of a number or vector, if they are known."""
    known = constant_of(value)
    if known is not None:
        if known.dtype.kind not in "iu" or known.ndim > 1 or known.size > _MOST_ELEMENTS:
            return None
        return tuple(int(d) for d in known.ravel())
    found: Content | None = value.meta.get(CONTENT) if value is not None else None
    return found


def _shape(node: ir.Node) -> Content | None:
    x = node.inputs[0]
    if x is None or x.shape is None or None in [getattr(d, "value", d) for d in x.shape]:
        return None
    return sizes_of(x)[attribute(node, "start", 0) : attribute(node, "end")]


def _size(node: ir.Node) -> Content | None:
    sizes = _shape(node)
    return None if sizes is None else (product(*sizes),)


def _same(node: ir.Node) -> Content | None:
    return _content(node.inputs[0])


def _cast(node: ir.Node) -> Content | None:
    is_whole = dtype_of(node.outputs[0]).numpy in (np.int64, np.int32)
    return _content(node.inputs[0]) if is_whole else None


def _gather(node: ir.Node) -> Content | None:
    content, places = _content(node.inputs[0]), constant_of(node.inputs[1])
    if content is None or places is None or places.ndim > 1:
        return None
    return tuple(content[int(i)] for i in places.ravel())


def _slice(node: ir.Node) -> Content | None:
    content = _content(node.inputs[0])
    given = [constant_of(v) for v in node.inputs[1:]]
    if content is None or any(v is None or v.size != 1 for v in given):
        return None
    start, end, *rest = (int(v.item()) for v in given if v is not None)
    step = rest[1] if len(rest) > 1 else 1
    return content[slice(start, end if abs(end) < _FAR else None, step)]


def _concat(node: ir.Node) -> Content | None:
    parts = [_content(v) for v in node.inputs]
    if any(p is None for p in parts):
        return None
    return tuple(itertools.chain.from_iterable(p for p in parts if p is not None))


def _elementwise(reckon: Callable[[Size, Size], Size]) -> Callable[[ir.Node], Content | None]:
    def rule(node: ir.Node) -> Content | None:
        x, y = (_content(v) for v in node.inputs)
        if x is None or y is None or (len(x) != len(y) and 1 not in (len(x), len(y))):
            return None
        length = max(len(x), len(y))
        x, y = (v * length if len(v) == 1 else v for v in (x, y))
        return tuple(reckon(a, c) for a, c in zip(x, y, strict=True))

    return rule


def _divide(x: Size, y: Size) -> Size:
    if isinstance(x, int) and isinstance(y, int) and y:
        return int(x / y)  # towards 0, as the runtime divides
    return quotient(x, y)


def _product_of_all(node: ir.Node) -> Content | None:
    content = _content(node.inputs[0])
    return None if content is None else (product(*content),)


def _equal(node: ir.Node) -> Content | None:
    """Truths: a size is never negative, and else only the same text is known to be equal."""
    x, y = (_content(v) for v in node.inputs)
    if x is None or y is None or (len(x) != len(y) and 1 not in (len(x), len(y))):
        return None
    length = max(len(x), len(y))
    x, y = (v * length if len(v) == 1 else v for v in (x, y))
    found = [_is_equal(a, c) for a, c in zip(x, y, strict=True)]
    return None if None in found else tuple(int(bool(f)) for f in found)


def _is_equal(x: Size, y: Size) -> bool | None:
    if x == y or (isinstance(x, int) and isinstance(y, int)):
        return x == y
    negative = any(isinstance(d, int) and d < 0 for d in (x, y))
    return False if negative else None


def _where(node: ir.Node) -> Content | None:
    condition = constant_of(node.inputs[0])
    x, y = (_content(v) for v in node.inputs[1:])
    if condition is None or x is None or y is None or condition.ndim > 1:
        return None
    length = max(condition.size, len(x), len(y))
    if any(n not in (1, length) for n in (condition.size, len(x), len(y))):
        return None
    chosen = np.broadcast_to(condition.ravel(), length)
    x, y = (v * length if len(v) == 1 else v for v in (x, y))
    return tuple(a if c else d for c, a, d in zip(chosen, x, y, strict=True))


_RULES: dict[str, Callable[[ir.Node], Content | None]] = {
    "Add": _elementwise(total),
    "Cast": _cast,
    "Concat": _concat,
    "Div": _elementwise(_divide),
    "Equal": _equal,
    "Gather": _gather,
    "Identity": _same,
    "Mod": _elementwise(remainder),
    "Mul": _elementwise(product),
    "ReduceProd": _product_of_all,
    "Reshape": _same,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "Squeeze": _same,
    "Sub": _elementwise(difference),
    "Unsqueeze": _same,
    "Where": _where,
}
