"""Matrix products as operators of the native library."""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from flow2onnx.graph.types import dims, dtype_of, is_static
from flow2onnx.passes.base import only_user
from flow2onnx.passes.native.operations import number
from flow2onnx.passes.native.programs import DOMAIN, take_place

__all__ = ["pays", "use_native_products"]

# The numbers are those of `runtime/native/src/product.cc`.
NOTHING, ONE, PER_COLUMN, PER_ROW, FULL, MASK = range(6)
_LARGEST, _MOST_TASKS = 1 << 30, 1 << 12
_TINY = 1e-30  # factors beyond may turn into zero or infinity on the way

# Multiplications in all, of one pair of matrices, and those that are worth a second thread; columns
# of the result. Measured: below, a call costs more than it saves.
_FEWEST, _FEWEST_OF_PAIR, _FEWEST_SHARED = 1 << 17, 1 << 15, 1 << 20
_FEWEST_COLUMNS, _FEW_COLUMNS = 16, 8  # the latter where elements are dot products of rows


@dataclass(frozen=True)
class _View:
    """A value times a number, seen with axes of these extents and ways between their elements."""

    value: ir.Value
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    scale: float = 1.0

    def turned(self, order: Sequence[int]) -> "_View":
        """With its axes in another order."""
        shape, strides = ([of[i] for i in order] for of in (self.shape, self.strides))
        return replace(self, shape=tuple(shape), strides=tuple(strides))

    def across(self) -> "_View":
        """With its last two axes exchanged."""
        rank = len(self.shape)
        return self.turned([*range(rank - 2), rank - 1, rank - 2])


@dataclass(frozen=True)
class _Product:
    """A product and what follows it: y = relu(alpha * sum_k a[..., m, k] b[..., k, n] + beta * c).

    Axis i of the product, batches first and m, n last, is axis axes[i] of y, which `last` makes.
    As a mask, c is what must be above zero where the product is kept; `sums` are then the sums of
    the columns of y, if somebody makes them.
    """

    a: _View
    b: _View
    y: ir.Value
    axes: tuple[int, ...]
    last: ir.Node
    alpha: float = 1.0
    beta: float = 1.0
    c: ir.Value | None = None
    addend: int = NOTHING
    has_relu: bool = False
    sums: ir.Value | None = None

    @property
    def result(self) -> _View:
        """y with the axes of the product."""
        return _plain(self.y).turned(self.axes)


@dataclass(frozen=True)
class _Pairs:
    """An axis of pairs of matrices: how many, and the way from one to the next in A, B and Y."""

    count: int
    ways: tuple[int, ...]

    def joins(self, inner: "_Pairs") -> bool:
        """Whether the two axes are one."""
        return all(w == inner.count * v for w, v in zip(self.ways, inner.ways, strict=True))


def use_native_products(graph: ir.Graph, operators: Collection[str], threads: int) -> None:
    """Put `Product` in the place of MatMul and Gemm, and of what it can do on the way.

    That are transpositions of operands and of the result, factors, an addend, Relu and what Relu
    does to gradients, the sums of the columns of those, and to leave out columns that nobody
    reads. What computed the result before stays, unread.
    """
    if "Product" not in operators:
        return
    taken = [n for n in graph if _is_taken(n)]
    for node in taken:
        for product in _ways(node, frozenset(taken)):
            made = _made(product, threads)
            if made is not None:
                made.name = node.name
                graph.insert_after(product.last, made)
                for old, new in zip((product.y, product.sums), made.outputs, strict=False):
                    if old is not None:
                        take_place(graph, old, new)
                break


def _is_taken(node: ir.Node) -> bool:
    """Whether the library is to compute this product."""
    if node.domain != "" or node.op_type not in ("MatMul", "Gemm"):
        return False
    values = [v for v in (*node.inputs, node.outputs[0]) if v is not None]
    if any(not is_static(v) or dtype_of(v).name != "float32" for v in values):
        return False
    a, b = values[:2]
    if min(len(dims(a)), len(dims(b))) < 2 or b.const_value is not None:
        return False  # the runtime packs a constant once, not in every step
    turned = _is_set(node, "transA"), _is_set(node, "transB")
    depth = dims(a)[-2 if turned[0] else -1]
    return number(node, "alpha", 1) != 0 and pays(dims(node.outputs[0]), depth, turned)


def pays(shape: tuple[int, ...], depth: int, turned: tuple[bool, bool]) -> bool:
    """Whether a product of this shape, of so many terms each, is worth a call of the library.

    `turned`: whether the operands come transposed.
    """
    rows, columns = shape[-2:]
    return (
        math.prod(shape) * depth >= _FEWEST
        and rows * columns * depth >= _FEWEST_OF_PAIR
        and (columns == 1 or columns >= _FEWEST_COLUMNS or _is_of_rows(columns, turned))
    )


def _is_of_rows(columns: int, turned: tuple[bool, bool]) -> bool:
    """Whether each element is the dot product of two rows, and there are few columns."""
    return columns <= _FEW_COLUMNS and turned == (False, True)


def _is_set(node: ir.Node, name: str) -> bool:
    return number(node, name, 0) != 0


def _ways(node: ir.Node, taken: Collection[ir.Node]) -> Iterator[_Product]:
    """The product with ever less of what surrounds it."""
    operands = [v for v in node.inputs[:2] if v is not None]
    deep, plain = [_traced(v, taken) for v in operands], [_plain(v) for v in operands]
    for a, b in (deep, plain):
        start = _start(
            node,
            a.across() if _is_set(node, "transA") else a,
            b.across() if _is_set(node, "transB") else b,
        )
        yield from reversed(list(_followed(start)))


def _plain(value: ir.Value) -> _View:
    shape = dims(value)
    return _View(value, shape, tuple(math.prod(shape[i + 1 :]) for i in range(len(shape))))


def _traced(value: ir.Value, taken: Collection[ir.Node]) -> _View:
    """The value that an operand comes from by turning and scaling."""
    node = value.producer()
    source = node.inputs[0] if node is not None and node.domain == "" and node.inputs else None
    if node is None or source is None:
        return _plain(value)
    if node.op_type == "Transpose" and is_static(source):
        return _traced(source, taken).turned(_order(node))
    scaled = _scaled(node)
    if scaled is None or not _feeds_only(value, taken):
        return _plain(value)
    view = _traced(scaled[0], taken)
    return replace(view, scale=view.scale * scaled[1])


def _order(transpose: ir.Node) -> list[int]:
    """Which axis of its operand each axis of the result is."""
    found = transpose.attributes.get("perm")
    rank = len(dims(transpose.outputs[0]))
    return list(range(rank))[::-1] if found is None else list(found.as_ints())


def _feeds_only(value: ir.Value, taken: Collection[ir.Node]) -> bool:
    """Whether all who read a value are our products, or turn it for them."""
    if value.is_graph_output():
        return False
    return all(
        node in taken
        or node.domain == DOMAIN
        or (node.op_type == "Transpose" and _feeds_only(node.outputs[0], taken))
        for node in (use.node for use in value.uses())
    )


def _scaled(node: ir.Node) -> tuple[ir.Value, float] | None:
    """What a node multiplies with a constant number, and the number."""
    if node.domain != "" or node.op_type not in ("Mul", "Div"):
        return None
    x, factor = node.inputs
    if node.op_type == "Mul" and _number(x) is not None:
        x, factor = factor, x
    found = _number(factor)
    if x is None or not found or not is_static(x) or dims(x) != dims(node.outputs[0]):
        return None
    scale = found if node.op_type == "Mul" else 1 / found
    return (x, scale) if _TINY < abs(scale) < 1 / _TINY else None


def _number(value: ir.Value | None) -> float | None:
    content = value.const_value if value is not None else None
    return float(content.numpy().reshape(())) if content is not None and content.size == 1 else None


def _start(node: ir.Node, a: _View, b: _View) -> _Product:
    """The product itself, with the addend of a Gemm."""
    y = node.outputs[0]
    product = _Product(a, b, y, tuple(range(len(dims(y)))), node)
    if node.op_type == "MatMul":
        return product
    product = replace(product, alpha=number(node, "alpha", 1), beta=number(node, "beta", 1))
    c = node.inputs[2] if len(node.inputs) > 2 else None
    if c is None or not product.beta:
        return product
    return replace(product, c=c, addend=_addend(dims(c), dims(y)))


def _addend(given: tuple[int, ...], wanted: tuple[int, ...]) -> int:
    """How an addend stands beside the result, which is a single matrix."""
    rows, columns = wanted
    given = (1, 1, *given)[-2:]
    if math.prod(given) == 1:
        return ONE
    if given == (1, columns):
        return PER_COLUMN
    return PER_ROW if given == (rows, 1) else FULL


def _followed(product: _Product) -> Iterator[_Product]:
    """The product with ever more of the nodes behind it."""
    yield product
    node = only_user(product.y)
    if node is None or node.domain != "" or product.has_relu or product.addend == MASK:
        return
    longer = _with(node, replace(product, y=node.outputs[0], last=node))
    if longer is not None:
        yield from _followed(longer)


def _with(node: ir.Node, product: _Product) -> _Product | None:
    """The product that does what the node after it does."""
    if node.op_type == "Relu":
        return replace(product, has_relu=True)
    if product.addend:
        return None
    if node.op_type == "Split":
        return _without_columns(node, product)
    if node.op_type == "Transpose":
        order = _order(node)
        return replace(product, axes=tuple(order.index(i) for i in product.axes))
    scaled = _scaled(node)
    if scaled is not None:
        return replace(product, alpha=product.alpha * scaled[1])
    if node.op_type == "Mul":
        return _with_mask(node, product)
    return _with_bias(node, product) if node.op_type == "Add" else None


def _with_bias(add: ir.Node, product: _Product) -> _Product | None:
    """The product with a number for each column, unless its axes have been turned."""
    columns = (product.b.shape[-1],)
    bias = next((v for v in add.inputs if v and is_static(v) and dims(v) == columns), None)
    if bias is None or not _is_straight(product):
        return None
    return replace(product, c=bias, addend=PER_COLUMN, beta=1.0)


def _with_mask(mul: ir.Node, product: _Product) -> _Product | None:
    """The product where a value of its shape is above zero: a gradient before Relu."""
    found = (_positive(v) for v in mul.inputs if v is not None)
    positive = next((x for x in found if x is not None), None)
    if positive is None or dims(positive) != dims(product.y) or not _is_straight(product):
        return None
    return replace(product, c=positive, addend=MASK, sums=_sums_of(mul.outputs[0]))


def _sums_of(y: ir.Value) -> ir.Value | None:
    """The sums of the columns of a matrix, as one row of numbers."""
    columns = (dims(y)[-1],)
    for node in (use.node for use in y.uses()):
        row = node.outputs[0] if _sums_columns(node, y) else None
        reshape = only_user(row) if row is not None else None
        if reshape is not None and (reshape.domain, reshape.op_type) == ("", "Reshape"):
            found = reshape.outputs[0]
            if is_static(found) and dims(found) == columns:
                return found
    return None


def _sums_columns(node: ir.Node, y: ir.Value) -> bool:
    """Whether a node makes one row of the sums of the columns of a matrix."""
    if node.domain != "" or dims(node.outputs[0]) != (1, dims(y)[-1]):
        return False
    if node.op_type == "ReduceSum":
        return True
    if node.op_type != "MatMul" or node.inputs[1] is not y or node.inputs[0] is None:
        return False
    ones = node.inputs[0].const_value
    return ones is not None and bool(np.all(ones.numpy() == 1))


def _positive(truth: ir.Value) -> ir.Value | None:
    """The floats of which a value tells, as one or zero, whether they are above zero."""
    cast = truth.producer()
    if cast is None or cast.domain != "" or cast.op_type != "Cast" or cast.inputs[0] is None:
        return None
    greater = cast.inputs[0].producer()
    if greater is None or greater.domain != "" or greater.op_type != "Greater":
        return None
    x, bound = greater.inputs
    is_zero = bound is not None and _number(bound) == 0 and len(dims(bound)) <= len(dims(truth))
    if x is None or x.is_graph_input() or not is_zero or not is_static(x):
        return None  # an input may be state, and what is made here its next value
    if dtype_of(x).name != "float32":
        return None
    return x


def _without_columns(split: ir.Node, product: _Product) -> _Product | None:
    """The product without its last columns, if nobody reads them."""
    rank = len(dims(product.y))
    first, *others = split.outputs
    is_last = number(split, "axis", 0) in (-1, rank - 1)
    if not is_last or not is_static(first) or not _is_straight(product):
        return None
    if any(v.uses() or v.is_graph_output() for v in others):
        return None
    b = replace(product.b, shape=(*product.b.shape[:-1], dims(first)[-1]))
    return replace(product, b=b, y=first, last=split)


def _is_straight(product: _Product) -> bool:
    """Whether the axes of the result are those of the product, in their order."""
    return product.axes == tuple(range(len(product.axes)))


def _made(product: _Product, threads: int) -> ir.Node | None:
    """The node of the library; None if the product lies in memory as it cannot."""
    a, b, y = product.a, product.b, product.result
    if y.strides[-1] != 1 and y.shape[-1] != 1:  # its transpose lies row by row, perhaps
        a, b, y = b.across(), a.across(), y.across()
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
    """The numbers that the library is told."""
    rows, columns, depth = *y.shape[-2:], a.shape[-1]
    pairs, rows = _with_rows(_pairs(a, b, y), rows, (a, y))
    pairs = [_Pairs(1, (0, 0, 0))] * (2 - len(pairs)) + pairs
    count = math.prod(p.count for p in pairs)
    # two axes of pairs at most, and an addend for a single one
    if len(pairs) > 2 or (product.addend and count > 1):
        return None
    lying = _lying(a, rows, depth), _lying(b, depth, columns), _lying(y, rows, columns)
    sizes = [math.prod(dims(v.value)) for v in (a, b, y)]
    if lying[2] is None or lying[2][0] or not all(0 < n <= _LARGEST for n in sizes):
        return None
    shape = [
        rows, columns, depth, *(p.count for p in pairs),
        _tasks(count, count * rows * columns * depth, threads),
        product.addend, int(product.has_relu), int(product.sums is not None),
    ]  # fmt: skip
    for i, found in enumerate(lying):
        if found is None:
            return None
        shape += [*found, *(p.ways[i] for p in pairs), sizes[i]]
    return shape


def _tasks(pairs: int, size: int, threads: int) -> int:
    if size < _FEWEST_SHARED:
        return 1
    return min(threads, _MOST_TASKS, *([pairs] if pairs > 1 else []))


def _pairs(*views: _View) -> list[_Pairs]:
    """The axes of A, B and Y before the last two; neighbours that are one axis are put together."""
    *_, y = views
    found: list[_Pairs] = []
    for axis in range(-len(y.shape), -2):
        ways = tuple(
            v.strides[axis] if len(v.shape) >= -axis and v.shape[axis] != 1 else 0 for v in views
        )
        here = _Pairs(y.shape[axis], ways)
        if here.count == 1:
            continue
        if found and found[-1].joins(here):
            here = _Pairs(found.pop().count * here.count, ways)
        found.append(here)
    return found


def _with_rows(
    pairs: list[_Pairs], rows: int, views: tuple[_View, _View]
) -> tuple[list[_Pairs], int]:
    """Pairs that all have one right operand, as more rows of the left one."""
    while pairs:
        a, b, y = pairs[-1].ways
        if b or rows == 1 or (a, y) != tuple(rows * v.strides[-2] for v in views):
            break
        rows *= pairs[-1].count
        pairs = pairs[:-1]
    return pairs, rows


def _lying(view: _View, rows: int, columns: int) -> tuple[int, int] | None:
    """Whether a matrix lies transposed, and its leading dimension; None if it does neither way."""
    down, right = view.strides[-2:]
    if right == 1 or columns == 1:
        leading = down if rows > 1 else columns
        return (0, leading) if leading >= columns else None
    if down == 1 or rows == 1:
        return (1, right) if right >= rows else None
    return None
