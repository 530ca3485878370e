"""Matrix products with what surrounds them: `Product`."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import onnx_ir as ir

from flow2onnx_native.abi import (
    DOMAIN,
    MOST_MATRIX_ELEMENTS,
    MOST_MATRIX_TASKS,
    Addend,
    Matrix,
    ProductHead,
)
from flow2onnx_native.graph import (
    dims,
    is_float,
    is_standard,
    is_static,
    number,
    only_user,
    replace_value,
    scalar,
    size,
)

__all__ = ["is_worth_a_call", "replace_constant_products", "replace_products"]

_TINY = 1e-30  # factors beyond may turn into zero or infinity on the way

# Multiplications in all, of one pair of matrices, and those that are worth a second thread; columns
# of the result. Measured: below, a call costs more than it saves.
_FEWEST, _FEWEST_OF_PAIR, _FEWEST_SHARED = 1 << 17, 1 << 15, 1 << 20
_FEWEST_COLUMNS, _FEW_COLUMNS = 16, 8  # the latter where elements are dot products of rows
# With fewer rows it costs more to order a weight in every call than the runtime, which does so
# once, loses by writing many rows a few columns at a time.
_FEWEST_ROWS_OF_CONSTANT = 2048


@dataclass(frozen=True)
class _View:
    """A value times a number, seen with axes of these extents and strides."""

    value: ir.Value
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    scale: float = 1.0

    def permute(self, order: Sequence[int]) -> "_View":
        """With its axes in another order."""
        shape, strides = ([of[i] for i in order] for of in (self.shape, self.strides))
        return replace(self, shape=tuple(shape), strides=tuple(strides))

    def transpose(self) -> "_View":
        """With its last two axes exchanged."""
        rank = len(self.shape)
        return self.permute([*range(rank - 2), rank - 1, rank - 2])


@dataclass(frozen=True)
class _Product:
    """A product and what follows it: y = relu(alpha * sum_k a[..., m, k] b[..., k, n] + beta * c).

    Axis i of the product, batches first and m, n last, is axis axes[i] of y, which `last` computes.
    As a mask, c is what must be above zero where the product is kept; `sums` are then the sums of
    the columns of y, if somebody computes them.
    """

    a: _View
    b: _View
    y: ir.Value
    axes: tuple[int, ...]
    last: ir.Node
    alpha: float = 1.0
    beta: float = 1.0
    c: ir.Value | None = None
    addend: Addend = Addend.NOTHING
    has_relu: bool = False
    sums: ir.Value | None = None

    @property
    def result(self) -> _View:
        """y with the axes of the product."""
        return _view(self.y).permute(self.axes)


@dataclass(frozen=True)
class _Batch:
    """An axis of pairs of matrices: how many, and the strides in A, B and Y."""

    count: int
    strides: tuple[int, ...]

    def continues(self, inner: "_Batch") -> bool:
        """True if this axis and the next are one."""
        return all(s == inner.count * t for s, t in zip(self.strides, inner.strides, strict=True))


def replace_products(graph: ir.Graph, operators: Collection[str], threads: int) -> None:
    """Put `Product` in the place of MatMul and Gemm, and of what it can do on the way.

    That are transpositions of operands and of the result, factors, an addend, Relu and what Relu
    does to gradients, the sums of the columns of those, and to leave out columns that nobody
    reads. What computed the result before stays, unread.
    """
    if "Product" not in operators:
        return
    nodes = [n for n in graph if _is_supported(n)]
    products = frozenset(nodes)
    for node in nodes:
        for product in _fusions(node, products):
            if _put(graph, product, node.name, threads):
                break


def replace_constant_products(graph: ir.Graph, operators: Collection[str], threads: int) -> None:
    """Put `Product` in the place of products of many rows with a constant, with bias and Relu.

    What else surrounds them stays as it is, as the runtime fuses it by itself: it knows GELU by its
    factors, say. What computed the result before stays, unread.
    """
    if "Product" not in operators:
        return
    for node in [n for n in graph if _is_worth_a_constant(n)]:
        a, b = (_view(v) for v in node.inputs[:2] if v is not None)
        product = _without_followers(node, a, b)
        for operator in ("Add", "Relu"):
            after = only_user(product.y)
            if after is not None and is_standard(after, operator):
                longer = _append(replace(product, y=after.outputs[0], last=after), after)
                product = longer or product
        _put(graph, product, node.name, threads)


def _put(graph: ir.Graph, product: _Product, name: str | None, threads: int) -> bool:
    """Put the node of the library in the place of a product; False if it cannot compute it."""
    native = _node(product, threads)
    if native is None:
        return False
    native.name = name
    graph.insert_after(product.last, native)
    for old, new in zip((product.y, product.sums), native.outputs, strict=False):
        if old is not None:
            replace_value(old, new)
    return True


def _is_worth_a_constant(node: ir.Node) -> bool:
    """True for a product with a constant that takes the library less time than the runtime."""
    factors = _factors(node)
    if factors is None or factors[1].const_value is None or len(dims(factors[1])) != 2:
        return False
    rows = prod(dims(node.outputs[0])[:-1])
    return rows >= _FEWEST_ROWS_OF_CONSTANT and _pays(node, factors[0])


def _is_supported(node: ir.Node) -> bool:
    """True if the library is to compute this product, of values that a step makes."""
    factors = _factors(node)
    return factors is not None and not _is_constant(factors[1]) and _pays(node, factors[0])


def _is_constant(value: ir.Value) -> bool:
    """True for a constant and its transpose, which the runtime packs once, not in every step."""
    node = value.producer()
    if is_standard(node, "Transpose") and node is not None and node.inputs[0] is not None:
        value = node.inputs[0]
    return value.const_value is not None


def _factors(node: ir.Node) -> tuple[ir.Value, ir.Value] | None:
    """Both operands of a product of matrices of known sizes; None for other nodes."""
    if not is_standard(node, "MatMul", "Gemm"):
        return None
    values = [v for v in (*node.inputs, node.outputs[0]) if v is not None]
    if any(not is_static(v) or not is_float(v) for v in values):
        return None
    a, b = values[:2]
    return (a, b) if min(len(dims(a)), len(dims(b))) >= 2 else None


def _pays(node: ir.Node, a: ir.Value) -> bool:
    transposed = _is_set(node, "transA"), _is_set(node, "transB")
    depth = dims(a)[-2 if transposed[0] else -1]
    shape = dims(node.outputs[0])
    return number(node, "alpha", 1) != 0 and is_worth_a_call(shape, depth, transposed)


def is_worth_a_call(shape: tuple[int, ...], depth: int, transposed: tuple[bool, bool]) -> bool:
    """True if a product of this shape, of so many terms each, is worth a call of the library.

    `transposed`: whether the operands come so.
    """
    rows, columns = shape[-2:]
    # few columns, where each element is the dot product of two rows
    has_dot_products = columns <= _FEW_COLUMNS and transposed == (False, True)
    return (
        prod(shape) * depth >= _FEWEST
        and rows * columns * depth >= _FEWEST_OF_PAIR
        and (columns == 1 or columns >= _FEWEST_COLUMNS or has_dot_products)
    )


def _is_set(node: ir.Node, name: str) -> bool:
    return number(node, name, 0) != 0


def _fusions(node: ir.Node, products: Collection[ir.Node]) -> Iterator[_Product]:
    """The product with ever less of what surrounds it."""
    operands = [v for v in node.inputs[:2] if v is not None]
    sources, plain = [_source(v, products) for v in operands], [_view(v) for v in operands]
    for a, b in (sources, plain):
        yield from reversed(list(_with_followers(_without_followers(node, a, b))))


def _view(value: ir.Value) -> _View:
    shape = dims(value)
    return _View(value, shape, tuple(prod(shape[i + 1 :]) for i in range(len(shape))))


def _source(value: ir.Value, products: Collection[ir.Node]) -> _View:
    """The value that an operand comes from by transposing and scaling."""
    node = value.producer()
    source = node.inputs[0] if node is not None and node.domain == "" and node.inputs else None
    if node is None or source is None:
        return _view(value)
    if node.op_type == "Transpose" and is_static(source):
        return _source(source, products).permute(_order(node))
    scaled = _scaled(node)
    if scaled is None or not _feeds_only(value, products):
        return _view(value)
    view = _source(scaled[0], products)
    return replace(view, scale=view.scale * scaled[1])


def _order(transpose: ir.Node) -> list[int]:
    """Which axis of its operand each axis of the result is."""
    order = transpose.attributes.get("perm")
    rank = len(dims(transpose.outputs[0]))
    return list(range(rank))[::-1] if order is None else list(order.as_ints())


def _feeds_only(value: ir.Value, products: Collection[ir.Node]) -> bool:
    """True if all who read a value are our products, or transpose it for them."""
    if value.is_graph_output():
        return False
    return all(
        node in products
        or node.domain == DOMAIN
        or (node.op_type == "Transpose" and _feeds_only(node.outputs[0], products))
        for node in (use.node for use in value.uses())
    )


def _scaled(node: ir.Node) -> tuple[ir.Value, float] | None:
    """The value that a node multiplies with a constant number, and the number."""
    if not is_standard(node, "Mul", "Div"):
        return None
    x, factor = node.inputs
    if node.op_type == "Mul" and scalar(x) is not None:
        x, factor = factor, x
    by = scalar(factor)
    if x is None or not by or not is_static(x) or dims(x) != dims(node.outputs[0]):
        return None
    scale = by if node.op_type == "Mul" else 1 / by
    return (x, scale) if _TINY < abs(scale) < 1 / _TINY else None


def _without_followers(node: ir.Node, a: _View, b: _View) -> _Product:
    """The product of both operands itself, with the addend of a Gemm."""
    a = a.transpose() if _is_set(node, "transA") else a
    b = b.transpose() if _is_set(node, "transB") else b
    y = node.outputs[0]
    product = _Product(a, b, y, tuple(range(len(dims(y)))), node)
    if node.op_type == "MatMul":
        return product
    product = replace(product, alpha=number(node, "alpha", 1), beta=number(node, "beta", 1))
    c = node.inputs[2] if len(node.inputs) > 2 else None
    if c is None or not product.beta:
        return product
    return replace(product, c=c, addend=_addend(dims(c), dims(y)))


def _addend(given: tuple[int, ...], wanted: tuple[int, ...]) -> Addend:
    """How an addend stands beside the result, which is a single matrix."""
    rows, columns = wanted
    given = (1, 1, *given)[-2:]
    if prod(given) == 1:
        return Addend.ONE
    if given == (1, columns):
        return Addend.PER_COLUMN
    return Addend.PER_ROW if given == (rows, 1) else Addend.FULL


def _with_followers(product: _Product) -> Iterator[_Product]:
    """The product with ever more of the nodes behind it."""
    yield product
    node = only_user(product.y)
    is_last = product.has_relu or product.addend == Addend.MASK
    if node is None or node.domain != "" or is_last:
        return
    longer = _append(replace(product, y=node.outputs[0], last=node), node)
    if longer is not None:
        yield from _with_followers(longer)


def _append(product: _Product, node: ir.Node) -> _Product | None:
    """The product that does what the node after it does."""
    if node.op_type == "Relu":
        return replace(product, has_relu=True)
    if product.addend:
        return None
    if node.op_type == "Split":
        return _without_columns(product, node)
    if node.op_type == "Transpose":
        order = _order(node)
        return replace(product, axes=tuple(order.index(i) for i in product.axes))
    scaled = _scaled(node)
    if scaled is not None:
        return replace(product, alpha=product.alpha * scaled[1])
    if node.op_type == "Mul":
        return _with_mask(product, node)
    return _with_bias(product, node) if node.op_type == "Add" else None


def _with_bias(product: _Product, add: ir.Node) -> _Product | None:
    """The product with a number for each column, unless its axes are permuted."""
    columns = (product.b.shape[-1],)
    bias = next((v for v in add.inputs if v and is_static(v) and dims(v) == columns), None)
    if bias is None or not _is_in_order(product):
        return None
    return replace(product, c=bias, addend=Addend.PER_COLUMN, beta=1.0)


def _with_mask(product: _Product, mul: ir.Node) -> _Product | None:
    """The product where a value of its shape is above zero: a gradient before Relu."""
    found = (_positive(v) for v in mul.inputs if v is not None)
    positive = next((x for x in found if x is not None), None)
    if positive is None or dims(positive) != dims(product.y) or not _is_in_order(product):
        return None
    return replace(product, c=positive, addend=Addend.MASK, sums=_column_sums(mul.outputs[0]))


def _column_sums(y: ir.Value) -> ir.Value | None:
    """The sums of the columns of a matrix, as one row of numbers."""
    columns = (dims(y)[-1],)
    for node in (use.node for use in y.uses()):
        row = node.outputs[0] if _sums_columns(node, y) else None
        reshape = only_user(row) if row is not None else None
        if reshape is not None and is_standard(reshape, "Reshape"):
            sums = reshape.outputs[0]
            if is_static(sums) and dims(sums) == columns:
                return sums
    return None


def _sums_columns(node: ir.Node, y: ir.Value) -> bool:
    """True if a node computes one row of the sums of the columns of a matrix."""
    if not is_standard(node, "ReduceSum", "MatMul") or dims(node.outputs[0]) != (1, dims(y)[-1]):
        return False
    if node.op_type == "ReduceSum":
        return True
    if node.inputs[1] is not y or node.inputs[0] is None:
        return False
    ones = node.inputs[0].const_value
    return ones is not None and bool(np.all(ones.numpy() == 1))


def _positive(truth: ir.Value) -> ir.Value | None:
    """The floats of which a value tells, as one or zero, whether they are above zero."""
    cast = truth.producer()
    if cast is None or not is_standard(cast, "Cast") or cast.inputs[0] is None:
        return None
    greater = cast.inputs[0].producer()
    if greater is None or not is_standard(greater, "Greater"):
        return None
    x, bound = greater.inputs
    is_zero = bound is not None and scalar(bound) == 0 and len(dims(bound)) <= len(dims(truth))
    if x is None or x.is_graph_input() or not is_zero:
        return None  # an input may be state, and what is computed here its next value
    return x if is_static(x) and is_float(x) else None


def _without_columns(product: _Product, split: ir.Node) -> _Product | None:
    """The product without its last columns, if nobody reads them."""
    rank = len(dims(product.y))
    first, *others = split.outputs
    is_last = number(split, "axis", 0) in (-1, rank - 1)
    if not is_last or not is_static(first) or not _is_in_order(product):
        return None
    if any(v.uses() or v.is_graph_output() for v in others):
        return None
    b = replace(product.b, shape=(*product.b.shape[:-1], dims(first)[-1]))
    return replace(product, b=b, y=first, last=split)


def _is_in_order(product: _Product) -> bool:
    """True if the axes of the result are those of the product, in their order."""
    return product.axes == tuple(range(len(product.axes)))


def _node(product: _Product, threads: int) -> ir.Node | None:
    """The node of the library; None if the product lies in memory as it cannot."""
    a, b, y = product.a, product.b, product.result
    if y.strides[-1] != 1 and y.shape[-1] != 1:  # its transpose lies row by row, perhaps
        a, b, y = b.transpose(), a.transpose(), y.transpose()
    shape = _shape(a, b, y, product, threads)
    if shape is None:
        return None
    attributes = [
        ir.AttrInt64s("shape", shape),
        ir.AttrFloat32s("scales", [product.alpha * a.scale * b.scale, product.beta]),
        ir.AttrInt64s("dims", dims(product.y)),
    ]
    inputs = [v for v in (a.value, b.value, product.c) if v is not None]
    outputs = 1 if product.sums is None else 2
    return ir.Node(DOMAIN, "Product", inputs, attributes, num_outputs=outputs)


def _shape(a: _View, b: _View, y: _View, product: _Product, threads: int) -> list[int] | None:
    """The attribute `shape`: a `ProductHead` and three of `Matrix`."""
    rows, columns, depth = *y.shape[-2:], a.shape[-1]
    batches, rows = _batches_as_rows(_batches(a, b, y), rows, (a, y))
    batches = [_Batch(1, (0, 0, 0))] * (2 - len(batches)) + batches
    count = prod(batch.count for batch in batches)
    # two axes of pairs at most, and an addend for a single one
    if len(batches) > 2 or (product.addend and count > 1):
        return None
    extents = ((rows, depth), (depth, columns), (rows, columns))
    matrices = [
        _matrix(view, *extent, [batch.strides[i] for batch in batches])
        for i, (view, extent) in enumerate(zip((a, b, y), extents, strict=True))
    ]
    found = [m for m in matrices if m is not None and 0 < m.size <= MOST_MATRIX_ELEMENTS]
    if len(found) < 3 or found[-1].is_transposed:
        return None
    outer, inner = (batch.count for batch in batches)
    head = ProductHead(
        rows, columns, depth, outer, inner,
        _tasks(count, count * rows * columns * depth, threads),
        product.addend, product.has_relu, product.sums is not None,
    )  # fmt: skip
    return [*head, *(n for matrix in found for n in matrix)]


def _tasks(pairs: int, multiplications: int, threads: int) -> int:
    if multiplications < _FEWEST_SHARED:
        return 1
    return min(threads, MOST_MATRIX_TASKS, *([pairs] if pairs > 1 else []))


def _batches(*views: _View) -> list[_Batch]:
    """The axes of A, B and Y before the last two; neighbours that are one axis are merged."""
    *_, y = views
    batches: list[_Batch] = []
    for axis in range(-len(y.shape), -2):
        strides = tuple(
            v.strides[axis] if len(v.shape) >= -axis and v.shape[axis] != 1 else 0 for v in views
        )
        here = _Batch(y.shape[axis], strides)
        if here.count == 1:
            continue
        if batches and batches[-1].continues(here):
            here = _Batch(batches.pop().count * here.count, strides)
        batches.append(here)
    return batches


def _batches_as_rows(
    batches: list[_Batch], rows: int, views: tuple[_View, _View]
) -> tuple[list[_Batch], int]:
    """Pairs that all have one right operand, as more rows of the left one."""
    while batches:
        a, b, y = batches[-1].strides
        if b or rows == 1 or (a, y) != tuple(rows * v.strides[-2] for v in views):
            break
        rows *= batches[-1].count
        batches = batches[:-1]
    return batches, rows


def _matrix(view: _View, rows: int, columns: int, strides: Sequence[int]) -> Matrix | None:
    """How matrices lie, plain or transposed; None if neither way."""
    down, right = view.strides[-2:]
    if right == 1 or columns == 1:
        is_transposed, leading, least = False, down if rows > 1 else columns, columns
    elif down == 1 or rows == 1:
        is_transposed, leading, least = True, right, rows
    else:
        return None
    if leading < least:
        return None
    return Matrix(is_transposed, leading, strides[0], strides[1], size(view.value))
