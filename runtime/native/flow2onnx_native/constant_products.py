"""Products with constant weights, in models for prediction: `PackedProduct`.

Each weight is packed when the model is opened. Bias, Relu or GELU, and what is added to that, are
computed while the results are in the cache.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from math import isclose, prod, sqrt

import numpy as np
import onnx_ir as ir

from flow2onnx_native.abi import MOST_MATRIX_ELEMENTS, PACKED_COLUMNS, Activation
from flow2onnx_native.graph import (
    addition,
    dims,
    is_float,
    is_standard,
    is_static,
    number,
    only_user,
    replace_value,
    scalar,
)
from flow2onnx_native.node_builder import NodeBuilder
from flow2onnx_native.packed_products import is_plain_product, packed_product

__all__ = ["pack_constant_products"]

# Measured with AVX-512 beside the runtime, which packs constants too: of fewer columns or a few
# terms its loops are the faster ones, and a single row it reads the weight for as it lies.
_FEWEST_ROWS, _FEWEST_COLUMNS, _FEWEST_TERMS = 4, 128, 64
# Packed weights are in the model's own bytes, which have to stay below 2 GiB in all.
_MOST_PACKED_BYTES = 1 << 30


@dataclass(frozen=True)
class _Product:
    """rows W, and what follows it up to the value that `last` computes."""

    rows: ir.Value
    weight: ir.Value
    is_transposed: bool
    last: ir.Node
    bias: ir.Value | None = None
    activation: Activation = Activation.NONE
    residual: ir.Value | None = None

    @property
    def y(self) -> ir.Value:
        """The value that takes the place of the last one."""
        return self.last.outputs[0]


def pack_constant_products(graph: ir.Graph, operators: Collection[str], threads: int) -> None:
    """Put `PackedProduct` in the place of products with constants, and of what follows them.

    What computed the results before stays, unread.
    """
    if "PackedProduct" not in operators:
        return
    packed: dict[tuple[ir.Value, bool], ir.Value] = {}
    free = _MOST_PACKED_BYTES
    for node in list(graph):
        product = _product(node)
        if product is None:
            continue
        weight = packed.get((product.weight, product.is_transposed))
        if weight is None:
            size = 4 * prod(_packed_dims(product))
            if size > free:
                continue
            free -= size
            weight = _pack(graph, product)
            packed[product.weight, product.is_transposed] = weight
        _put(graph, _with_followers(product), weight, node.name or "", threads)


def _product(node: ir.Node) -> _Product | None:
    """A product with a constant matrix that is worth packing for; None for any other node."""
    if not is_plain_product(node):
        return None
    rows, weight, bias = (*node.inputs, None)[:3]
    if rows is None or weight is None or weight.const_value is None or rows.const_value is not None:
        return None
    if not all(is_static(v) and is_float(v) for v in (rows, weight, node.outputs[0])):
        return None
    if len(dims(weight)) != 2 or len(dims(rows)) < 2:
        return None
    product = _Product(rows, weight, bool(number(node, "transB", 0)), node)
    if bias is not None:
        if not _is_row(bias, product.y):
            return None
        product = replace(product, bias=bias)
    return product if _pays(product) else None


def _pays(product: _Product) -> bool:
    count, columns, depth = prod(dims(product.y)[:-1]), dims(product.y)[-1], dims(product.rows)[-1]
    sizes = prod(_packed_dims(product)), count * columns, count * depth
    return (
        count >= _FEWEST_ROWS
        and columns >= _FEWEST_COLUMNS
        and depth >= _FEWEST_TERMS
        and max(sizes) <= MOST_MATRIX_ELEMENTS
    )


def _packed_dims(product: _Product) -> tuple[int, int, int]:
    """Panels of columns, terms, and columns of a panel."""
    columns = dims(product.y)[-1]
    return -(-columns // PACKED_COLUMNS), dims(product.rows)[-1], PACKED_COLUMNS


def _is_row(value: ir.Value, y: ir.Value) -> bool:
    """True if a value has one number for each column of y, the same for all rows."""
    return is_static(value) and is_float(value) and dims(value) in (dims(y)[-1:], (1, dims(y)[-1]))


def _with_followers(product: _Product) -> _Product:
    """The product with what follows it: a bias, an activation, a residual."""
    found = addition(product.y) if product.bias is None else None
    if found is not None and _is_row(found[1], product.y) and _has_shape(found[0], product.y):
        product = replace(product, bias=found[1], last=found[0])
    relu = only_user(product.y)
    if relu is not None and is_standard(relu, "Relu"):
        product = replace(product, activation=Activation.RELU, last=relu)
    elif (gelu := _gelu(product.y)) is not None:
        product = replace(product, activation=Activation.GELU, last=gelu)
    found = addition(product.y)
    if found is None or not _has_shape(found[0], product.y):
        return product
    add, residual = found
    is_whole = is_static(residual) and is_float(residual) and dims(residual) == dims(product.y)
    return replace(product, residual=residual, last=add) if is_whole else product


def _has_shape(node: ir.Node, y: ir.Value) -> bool:
    """True if the result of a node is as large as y along each axis."""
    result = node.outputs[0]
    return is_static(result) and dims(result) == dims(y)


def _gelu(x: ir.Value) -> ir.Node | None:
    """The last node of x / 2 * (1 + erf(x / sqrt(2))) where nothing else reads x, or None."""
    only = only_user(x)
    if only is not None:
        approximate = only.attributes.get("approximate")
        is_exact = approximate is None or approximate.as_string() == "none"
        return only if is_standard(only, "Gelu") and is_exact else None
    users = {use.node for use in x.uses()}
    scaled = next((node for node in users if _is_scaled(node)), None)
    erf = only_user(scaled.outputs[0]) if scaled is not None else None
    if erf is None or not is_standard(erf, "Erf") or x.is_graph_output():
        return None
    one = addition(erf.outputs[0])
    if one is None or scalar(one[1]) != 1:
        return None
    last, reader = _half_product(one[0].outputs[0], x)
    if last is None or not _has_shape(last, x):
        return None
    return last if users == {scaled, reader} else None


def _is_scaled(node: ir.Node) -> bool:
    """True if a node computes its operand divided by the root of two."""
    if is_standard(node, "Div"):
        root = scalar(node.inputs[1])
    elif is_standard(node, "Mul"):
        factor = next(filter(None, map(scalar, node.inputs)), None)
        root = 1 / factor if factor is not None else None
    else:
        return False
    return root is not None and isclose(root, sqrt(2), rel_tol=1e-6)


def _half_product(value: ir.Value, x: ir.Value) -> tuple[ir.Node | None, ir.Node | None]:
    """The last of the nodes that multiply a value with x and 1/2, in any order, and x's reader."""
    half, reader = 1.0, None
    while reader is None or half != 0.5:
        node = only_user(value)
        if node is None or not is_standard(node, "Mul"):
            return None, None
        factor = next((v for v in node.inputs if v is not value), None)
        here, times = _times(node, factor, x)
        if times is None or (here is not None and reader is not None):
            return None, None
        reader, half, value = here or reader, half * times, node.outputs[0]
    return node, reader


def _times(
    node: ir.Node, factor: ir.Value | None, x: ir.Value
) -> tuple[ir.Node | None, float | None]:
    """Who reads x for a factor of a node, if somebody does, and the known number in it."""
    if factor is x:
        return node, 1.0
    half = factor.producer() if factor is not None else None
    if factor is None or half is None:
        return None, scalar(factor)
    if not is_standard(half, "Mul") or x not in half.inputs or only_user(factor) is not node:
        return None, None
    return half, next((scalar(v) for v in half.inputs if v is not x), None)


def _pack(graph: ir.Graph, product: _Product) -> ir.Value:
    content = product.weight.const_value
    assert content is not None, "it was asked for"
    matrix = content.numpy().T if product.is_transposed else content.numpy()
    panels, depth, width = _packed_dims(product)
    padded = np.zeros((depth, panels * width), np.float32)
    padded[:, : matrix.shape[1]] = matrix
    packed = np.ascontiguousarray(padded.reshape(depth, panels, width).transpose(1, 0, 2))
    name = f"native/packed/{product.weight.name}{'/transposed' * product.is_transposed}"
    value = ir.val(name, const_value=ir.tensor(packed, name=name))
    graph.register_initializer(value)
    return value


def _put(graph: ir.Graph, product: _Product, weight: ir.Value, name: str, threads: int) -> None:
    """Put a node behind the last one of a product, for all who read that."""
    shape = dims(product.y)
    extents = prod(shape[:-1]), shape[-1]
    native = packed_product(
        product.rows, weight, extents, product.bias, threads, product.activation, product.residual
    )
    builder = NodeBuilder(graph, product.last, f"{name}/packed")
    (y,) = builder.put(native, [extents], ir.DataType.FLOAT)
    replace_value(product.y, y if len(shape) == 2 else builder.reshape(y, shape))
