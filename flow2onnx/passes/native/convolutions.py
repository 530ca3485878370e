"""Convolutions and their gradients as operators of the native library."""

from collections.abc import Collection, Mapping, Sequence
from math import prod

import onnx_ir as ir

from flow2onnx.graph.marks import GradientOf, gradient_noted
from flow2onnx.graph.types import dims, dtype_of, is_static
from flow2onnx.passes.native.programs import DOMAIN, take_place

__all__ = ["use_native_convolutions", "winograd_tile"]

_SMALLEST_IMAGE = 50  # positions of the output
_GRADIENTS = ("ConvInputGradient", "ConvWeightGradient")
_TILES = {3: 4, 5: 2}  # the side of a tile's results for that of a kernel: 6 by 6 are read
# Measured: below these, what tiles and weights cost to transform is more than they save.
_FEWEST_CHANNELS = {3: 16, 5: 32}
_FEWEST_TILES = 16  # of all images
_LEAST_FILLED = 0.75  # of the tiles, which may hang over the edge of the image
# What the library takes: of images as of channels; of rows and of columns.
_MOST_CHANNELS, _MOST_EXTENT = 1 << 16, 1 << 12


def use_native_convolutions(
    graph: ir.Graph,
    copies: Mapping[ir.Value, ir.Value],
    operators: Collection[str],
    threads: int,
    *,
    winograd: bool,
) -> None:
    """Put the library's operators in the place of Conv and of what computes its gradients.

    `copies`: the value of this graph for each that a note may name. What computed a gradient
    before stays, unread. `winograd`: whether they may use that algorithm, where it is faster.
    """
    for node in list(graph):
        noted = gradient_noted(node)
        if noted is not None and noted.op_type == "Conv" and noted.position < len(_GRADIENTS):
            _gradient(graph, node, noted, copies, operators, threads, winograd)
        elif node.op_type == "Conv" and node.domain == "" and "Conv" in operators:
            _forward(graph, node, threads, winograd)


def _forward(graph: ir.Graph, node: ir.Node, threads: int, winograd: bool) -> None:
    shape = _shape(node.inputs, node.outputs[0], node.attributes, threads)
    if shape is None:
        return
    attributes = [
        *_attributes(shape, winograd_tile("Conv", shape) if winograd else 0),
        ir.AttrInt64("has_bias", len(node.inputs) == 3),
    ]
    made = ir.Node(DOMAIN, "Conv", node.inputs, attributes, num_outputs=1, name=node.name)
    graph.insert_before(node, made)
    take_place(graph, node.outputs[0], made.outputs[0])


def _gradient(
    graph: ir.Graph,
    node: ir.Node,
    noted: GradientOf,
    copies: Mapping[ir.Value, ir.Value],
    operators: Collection[str],
    threads: int,
    winograd: bool,
) -> None:
    name, old = _GRADIENTS[noted.position], node.outputs[0]
    x, w = (None if v is None else copies.get(v) for v in noted.inputs[:2])
    g = copies.get(noted.gradients[0]) if noted.gradients[0] is not None else None
    if (
        name not in operators
        or x is None
        or w is None
        or g is None
        or dims(old) != dims((x, w)[noted.position])
    ):
        return
    shape = _shape((x, w), g, noted.attributes, threads)
    if shape is None:
        return
    tile = winograd_tile(name, shape) if winograd else 0
    if noted.position == 1 and tile == 0 and _is_product(shape):
        return
    operands = (g, w) if noted.position == 0 else (x, g)
    made = ir.Node(DOMAIN, name, operands, _attributes(shape, tile), num_outputs=1, name=node.name)
    graph.insert_after(node, made)
    take_place(graph, old, made.outputs[0])


def _attributes(shape: list[int], tile: int) -> list[ir.Attr]:
    return [ir.AttrInt64s("shape", shape), ir.AttrInt64("winograd", tile)]


def winograd_tile(name: str, shape: Sequence[int]) -> int:
    """The side of the tiles by which a convolution or gradient is fastest; 0: it is without."""
    n, ci, *image, co, kernel, width, out_height, out_width = shape[:9]
    side = _TILES.get(kernel, 0)
    is_plain = (
        kernel == width
        and shape[9:13] == [1] * 4
        and shape[17] == 1
        and max(n, ci, co) <= _MOST_CHANNELS
        and max(*image, out_height, out_width) <= _MOST_EXTENT
    )
    if not side or not is_plain or max(shape[13:17]) >= kernel:
        return 0
    extents = image if name == "ConvInputGradient" else [out_height, out_width]
    tiles = prod(-(-extent // side) for extent in extents)
    pays = (
        min(ci, co) >= _FEWEST_CHANNELS[kernel]
        and n * tiles >= _FEWEST_TILES
        and prod(extents) >= _LEAST_FILLED * tiles * side**2
    )
    return side if pays else 0


def _is_product(shape: list[int]) -> bool:
    """Whether the weight gradient is faster as matrix products: measured on small images."""
    groups, out_height, out_width = shape[17], shape[7], shape[8]
    return groups == 1 and out_height * out_width < _SMALLEST_IMAGE


def _shape(
    inputs: Collection[ir.Value | None],
    y: ir.Value,
    attributes: Mapping[str, ir.Attr],
    threads: int,
) -> list[int] | None:
    """The numbers of a convolution of single precision over two axes; None for any other."""
    values = [v for v in (*inputs, y) if v is not None]
    if any(not is_static(v) or dtype_of(v).name != "float32" for v in values):
        return None
    x, w = values[:2]
    if len(dims(x)) != 4 or ("auto_pad" in attributes and attributes["auto_pad"].value != "NOTSET"):
        return None

    def numbers(name: str, default: list[int]) -> list[int]:
        return list(attributes[name].value) if name in attributes else default

    groups = attributes["group"].value if "group" in attributes else 1
    n, ci, *extents = dims(x)
    co, _, *kernel = dims(w)
    tasks = max(t for t in range(1, max(threads, 1) + 1) if n % t == 0)
    return [
        n, ci, *extents, co, *kernel, *dims(y)[2:], *numbers("strides", [1, 1]),
        *numbers("dilations", [1, 1]), *numbers("pads", [0] * 4), groups, tasks,
    ]  # fmt: skip
