"""Products of a loop that do not depend on its state, computed before it at once."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from flow2onnx.graph.builder import Builder
from flow2onnx.graph.nodes import attribute, read_values
from flow2onnx.graph.types import dims, is_static, rank_of
from flow2onnx.passes.base import Pass, only_user

__all__ = ["HoistProducts", "hoist_products"]

# Fewer products are no loop, and with more rows in each a product is fast by itself.
_FEWEST, _MOST_ROWS = 4, 256


@dataclass(frozen=True, kw_only=True)
class _Product:
    """rows W + bias, computed up to `last`; the columns of `rows` are `parts` side by side."""

    node: ir.Node
    last: ir.Node
    rows: ir.Value
    parts: tuple[ir.Value, ...]
    weight: ir.Value
    bias: ir.Value | None
    is_transposed: bool

    @property
    def result(self) -> ir.Value:
        """The products that are to be computed otherwise."""
        return self.last.outputs[0]

    @property
    def kind(self) -> tuple[object, ...]:
        """All that products have to agree in to be computed together."""
        return self.weight, self.bias, self.is_transposed, dims(self.rows), self.rows.dtype

    @property
    def widths(self) -> tuple[int, ...]:
        """The number of columns of each part."""
        return tuple(dims(part)[1] for part in self.parts)


class HoistProducts(Pass):
    """Multiply what the steps of a loop read from outside with their weight in one product.

    Given:   a0 = Concat(x0, h0);  y0 = Gemm(a0, w);  h1 = Tanh(y0);  a1 = Concat(x1, h1);  …
    Result:  u, v = Split(w);  x = Concat(x0, x1, …);  p = Gemm(x, u);  p0, p1, … = Split(p)
             y0 = Gemm(h0, v, p0);  h1 = Tanh(y0);  y1 = Gemm(h1, v, p1);  …
    Kept:    products that are `kept` or have a `fixed` gradient, fewer than four, those of many
             rows or of unknown shape, and parts that depend on another of the products

    Each product is a sum over columns: those of `x` are added up before those of `h`.
    """

    def __init__(self, kept: Collection[ir.Value] = (), fixed: Collection[ir.Node] = ()) -> None:
        self._kept, self._fixed = frozenset(kept), frozenset(fixed)

    def run(self, graph: ir.Graph) -> bool:
        """Hoist weight after weight; each sees what has become of the others."""
        groups: dict[tuple[object, ...], list[ir.Node]] = defaultdict(list)
        for node in graph:
            product = None if node in self._fixed else _product(node, self._kept)
            if product is not None:
                groups[product.kind].append(node)
        changed = False
        for nodes in [g for g in groups.values() if len(g) >= _FEWEST]:
            found = (_product(node, self._kept) for node in nodes)
            changed |= _hoist(graph, [p for p in found if p is not None])
        return changed


def hoist_products(b: Builder, kept: Collection[ir.Value], fixed: Collection[ir.Node] = ()) -> None:
    """HoistProducts on a graph that more is going to be appended to."""
    if HoistProducts(kept, fixed).run(b.graph):
        b.nodes[:] = list(b.graph)


def _product(node: ir.Node, kept: Collection[ir.Value]) -> _Product | None:
    """The product that a node computes, with the bias added to it; None for any other node."""
    if node.domain or node.op_type not in ("Gemm", "MatMul") or node.outputs[0] in kept:
        return None
    rows, weight, *rest = node.inputs
    bias = rest[0] if rest else None
    if rows is None or weight is None or not _is_matrix(rows) or not _is_matrix(weight):
        return None
    if not _is_plain(node) or dims(rows)[0] > _MOST_ROWS or node.outputs[0].is_graph_output():
        return None
    if bias is not None and not _is_row(bias, dims(node.outputs[0])):
        return None
    last = node
    if bias is None:
        bias, last = _added(node, kept)
    return _Product(
        node=node, last=last, rows=rows, parts=_parts(rows), weight=weight, bias=bias,
        is_transposed=bool(attribute(node, "transB", 0)),
    )  # fmt: skip


def _is_matrix(value: ir.Value) -> bool:
    """True for a matrix of known size in a type that products with an addend have kernels for."""
    is_real = value.dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE)
    return is_real and value.shape is not None and is_static(value) and rank_of(value) == 2


def _is_plain(node: ir.Node) -> bool:
    """True if a product takes its rows as they are, and no factor."""
    factors = attribute(node, "alpha", 1.0), attribute(node, "beta", 1.0)
    return not attribute(node, "transA", 0) and factors == (1.0, 1.0)


def _is_row(value: ir.Value, shape: Sequence[int]) -> bool:
    """True if a value is one row for all rows of a matrix of this shape."""
    return value.shape is not None and is_static(value) and dims(value) == (shape[1],)


def _added(node: ir.Node, kept: Collection[ir.Value]) -> tuple[ir.Value | None, ir.Node]:
    """The row that is added to a product by its only reader, and the node of the sum."""
    add, y = only_user(node.outputs[0]), node.outputs[0]
    if add is None or add.op_type != "Add" or add.domain or add.outputs[0] in kept:
        return None, node
    others = [v for v in add.inputs if v is not None and v is not y]
    if add.outputs[0].is_graph_output() or len(others) != 1 or not _is_row(others[0], dims(y)):
        return None, node
    return others[0], add


def _parts(rows: ir.Value) -> tuple[ir.Value, ...]:
    """The values whose columns stand side by side in a matrix."""
    node = rows.producer()
    if node is None or node.op_type != "Concat" or attribute(node, "axis") not in (1, -1):
        return (rows,)
    return tuple(p for v in node.inputs if v is not None for p in _parts(v))


def _hoist(graph: ir.Graph, group: Sequence[_Product]) -> bool:
    """Compute before the loop what can be, of products with one weight; False if nothing can."""
    later = _depending(graph, [p.result for p in group])
    if len({p.widths for p in group}) > 1 or len(group[0].parts) == 1:
        are_early = [all(p.rows not in later for p in group)]
        parts = [[p.rows for p in group]]
    else:
        parts = [list(column) for column in zip(*(p.parts for p in group), strict=True)]
        are_early = [all(v not in later for v in column) for column in parts]
    if not any(are_early):
        return False
    write = _Writer(graph, group[0])
    weights = write.split_weight([dims(column[0])[1] for column in parts])
    early = [(c, w) for c, w, first in zip(parts, weights, are_early, strict=True) if first]
    total: ir.Value | None = group[0].bias
    for column, weight in early:
        total = write.gemm(write.concat(column, 0), weight, total)
    addends = write.split(total, len(group)) if total is not None else []
    late = [(c, w) for c, w, first in zip(parts, weights, are_early, strict=True) if not first]
    state_weight = write.join_weights([w for _, w in late])
    standing = dict[ir.Value, ir.Value]()  # for results that later products read
    for i, product in enumerate(group):
        new = addends[i]
        if state_weight is not None:
            rows = [standing.get(column[i], column[i]) for column, _ in late]
            new = write.gemm(write.concat(rows, 1), state_weight, new)
        standing[product.result] = new
        _replace(graph, product, new)
    graph.sort()
    return True


def _depending(graph: ir.Graph, values: Iterable[ir.Value]) -> set[ir.Value]:
    """All that depends on one of the values, with them."""
    found = set(values)
    for node in graph:
        if any(v in found for v in read_values(node) if v is not None):
            found.update(node.outputs)
    return found


def _replace(graph: ir.Graph, product: _Product, new: ir.Value) -> None:
    old = product.result
    name, old.name = old.name, None
    new.name = name
    old.replace_all_uses_with(new)
    graph.remove([product.last], safe=True)
    if product.node is not product.last:
        graph.remove([product.node], safe=True)


class _Writer:
    """Appends typed nodes to a graph, named after one of the products that they stand for."""

    def __init__(self, graph: ir.Graph, product: _Product) -> None:
        self._graph, self._product = graph, product
        self._stem, self._count = f"{product.node.name}/steps", 0

    def gemm(self, rows: ir.Value, weight: ir.Value, addend: ir.Value | None) -> ir.Value:
        """The product with a part of the weight, and what is added to it."""
        is_transposed = self._product.is_transposed
        columns = dims(weight)[0 if is_transposed else 1]
        attributes = [ir.AttrInt64("transB", 1)] if is_transposed else []
        inputs = [rows, weight, *([] if addend is None else [addend])]
        return self._emit("Gemm", inputs, attributes, [(dims(rows)[0], columns)])[0]

    def concat(self, values: Sequence[ir.Value], axis: int) -> ir.Value:
        """Matrices one after the other along an axis."""
        if len(values) == 1:
            return values[0]
        shape = list(dims(values[0]))
        shape[axis] = sum(dims(v)[axis] for v in values)
        return self._emit("Concat", values, [ir.AttrInt64("axis", axis)], [tuple(shape)])[0]

    def split(self, value: ir.Value, count: int) -> list[ir.Value]:
        """The rows of each of so many equal products."""
        rows, columns = dims(value)
        attributes = [ir.AttrInt64("axis", 0), *self._number_of_outputs(count)]
        return self._emit("Split", [value], attributes, [(rows // count, columns)] * count)

    def split_weight(self, widths: Sequence[int]) -> list[ir.Value]:
        """The rows of the weight for each part, its columns where it is transposed."""
        weight, axis = self._product.weight, int(self._product.is_transposed)
        if len(widths) == 1:
            return [weight]
        other = dims(weight)[1 - axis]
        shapes = [(other, n) if axis else (n, other) for n in widths]
        sizes = self._constant(widths)
        return self._emit("Split", [weight, sizes], [ir.AttrInt64("axis", axis)], shapes)

    def join_weights(self, weights: Sequence[ir.Value]) -> ir.Value | None:
        """The weight of the parts that are left; None without any."""
        return self.concat(weights, int(self._product.is_transposed)) if weights else None

    def _number_of_outputs(self, count: int) -> list[ir.Attr]:
        is_told = self._graph.opset_imports[""] >= 18
        return [ir.AttrInt64("num_outputs", count)] if is_told else []

    def _constant(self, numbers: Sequence[int]) -> ir.Value:
        name = f"{self._stem}/widths"
        content = ir.tensor(np.asarray(numbers, np.int64), name=name)
        value = ir.val(name, const_value=content)
        self._graph.register_initializer(value)
        return value

    def _emit(
        self, operator: str, inputs: Sequence[ir.Value], attributes: Sequence[ir.Attr],
        shapes: Sequence[tuple[int, ...]],
    ) -> list[ir.Value]:  # fmt: skip
        node = ir.Node("", operator, inputs, attributes, num_outputs=len(shapes))
        node.name, self._count = f"{self._stem}/{self._count}", self._count + 1
        node.meta["source"] = self._product.node.meta.get("source")
        for i, (value, shape) in enumerate(zip(node.outputs, shapes, strict=True)):
            value.name = node.name if len(shapes) == 1 else f"{node.name}/{i}"
            value.type, value.shape = self._product.rows.type, ir.Shape(shape)
        self._graph.append(node)
        return list(node.outputs)
