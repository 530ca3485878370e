"""Convolutions and their gradients as operators of the native library."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import onnx_ir as ir

from flow2onnx.autodiff.annotations import GradientOf, gradient_noted
from flow2onnx.graph.types import dims, dtype_of
from flow2onnx.passes.native.programs import DOMAIN, take_place

__all__ = ["use_kept_convolutions", "use_native_convolutions", "winograd_tile"]

_SMALLEST_IMAGE = 50  # positions of the output
_GRADIENTS = ("ConvInputGradient", "ConvWeightGradient")
_TILES_OF_THREAD = 64  # with fewer of all images, some threads would wait for others
_TILES = {3: 4, 5: 2}  # the side of a tile's results for that of a kernel: 6 by 6 are read
# Measured: below these, what tiles and weights cost to transform is more than they save.
_FEWEST_CHANNELS = {3: 16, 5: 32}
_FEWEST_TILES = 16  # of all images
# Measured for weights that are transformed once: from fewer results of a channel they are only read
# once, and from memory, unless they are small enough to stay in the cache.
_FEWEST_KEPT, _FEWEST_KEPT_OF_SMALL, _SMALL = 256, 128, 1 << 14
_LEAST_FILLED = 0.75  # of the tiles, which may hang over the edge of the image
# What the library takes: of images as of channels; of rows and of columns.
_MOST_CHANNELS, _MOST_EXTENT = 1 << 16, 1 << 12
_MOST_TASKS = 1 << 12


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
    found = _Found(copies)
    for node in list(graph):
        noted = gradient_noted(node)
        if noted is not None and noted.op_type == "Conv" and noted.position < len(_GRADIENTS):
            made = _gradient(graph, node, noted, found, operators, threads, winograd)
        elif node.op_type == "Conv" and node.domain == "" and "Conv" in operators:
            made = _forward(graph, node, threads, winograd)
        else:
            continue
        if made is not None:
            found.replaced[node.outputs[0]] = made


@dataclass(frozen=True)
class _Found:
    """The values of this graph that notes of another mean, those of new nodes among them."""

    copies: Mapping[ir.Value, ir.Value]
    replaced: dict[ir.Value, ir.Value] = field(default_factory=dict)

    def get(self, noted: ir.Value | None) -> ir.Value | None:
        value = None if noted is None else self.copies.get(noted)
        return value if value is None else self.replaced.get(value, value)


def _forward(graph: ir.Graph, node: ir.Node, threads: int, winograd: bool) -> ir.Value | None:
    shape = _shape(node.inputs, node.outputs[0], node.attributes, threads)
    if shape is None:
        return None
    attributes = [
        *_attributes(shape, winograd_tile("Conv", shape) if winograd else 0),
        ir.AttrInt64s("form", [len(node.inputs) == 3, 0, 0, 0]),
    ]
    made = ir.Node(DOMAIN, "Conv", node.inputs, attributes, num_outputs=1, name=node.name)
    graph.insert_before(node, made)
    take_place(graph, node.outputs[0], made.outputs[0])
    return made.outputs[0]


def use_kept_convolutions(graph: ir.Graph, threads: int) -> None:
    """Put the library's convolutions where weights never change, with the sum and ReLU after them.

    Only those by Winograd's algorithm: others the runtime is at its best with.
    """
    for node in list(graph):
        if node.op_type == "Conv" and node.domain == "":
            _kept(graph, node, threads)


def _kept(graph: ir.Graph, node: ir.Node, threads: int) -> None:
    shape = _shape(node.inputs, node.outputs[0], node.attributes, 1, any_batch=True)
    if shape is None or any(v is None or v.const_value is None for v in node.inputs[1:]):
        return
    images, channels, others = max(shape[0], 1), shape[1], shape[4]
    tile = winograd_tile("Conv", [images, *shape[1:]])
    fewest = _FEWEST_KEPT_OF_SMALL if channels * others <= _SMALL else _FEWEST_KEPT
    if not tile or images * prod(shape[7:9]) < fewest:
        return
    if (
        threads > 1
        and images * prod(-(-n // tile) for n in shape[7:9]) < _TILES_OF_THREAD * threads
    ):
        return
    x, w, bias = (*node.inputs, None)[:3]
    last, addend, relu = node.outputs[0], None, False
    total = _only_reader(last, "Add")
    if total is not None:
        a, b = total.inputs
        other = b if a is last else a
        if other is not None and other is not last and _same_shape(other, last):
            last, addend = total.outputs[0], other
    cut = _only_reader(last, "Relu")
    if cut is not None:
        last, relu = cut.outputs[0], True
    form = ir.AttrInt64s("form", [bias is not None, addend is not None, relu, 1])
    inputs = [x, w] if addend is None and bias is None else [x, w, bias, addend]
    made = ir.Node(
        DOMAIN, "Conv", inputs[: 4 if addend is not None else 3], [*_attributes(shape, tile), form],
        num_outputs=1, name=node.name,
    )  # fmt: skip
    graph.append(made)  # it is sorted when all are there
    take_place(graph, last, made.outputs[0])


def _only_reader(value: ir.Value, op_type: str) -> ir.Node | None:
    uses = list(value.uses())
    is_one = len(uses) == 1 and not value.is_graph_output()
    return uses[0].node if is_one and uses[0].node.op_type == op_type else None


def _same_shape(a: ir.Value, b: ir.Value) -> bool:
    return a.shape is not None and b.shape is not None and tuple(a.shape) == tuple(b.shape)


def _gradient(
    graph: ir.Graph,
    node: ir.Node,
    noted: GradientOf,
    found: _Found,
    operators: Collection[str],
    threads: int,
    winograd: bool,
) -> ir.Value | None:
    name, old = _GRADIENTS[noted.position], node.outputs[0]
    x, w, g = (found.get(v) for v in (*noted.inputs[:2], noted.gradients[0]))
    if (
        name not in operators
        or x is None
        or w is None
        or g is None
        or dims(old) != dims((x, w)[noted.position])
    ):
        return None
    shape = _shape((x, w), g, noted.attributes, threads)
    if shape is None:
        return None
    tile = winograd_tile(name, shape) if winograd else 0
    if noted.position == 1 and tile == 0 and _is_product(shape):
        return None
    operands = (g, w) if noted.position == 0 else (x, g)
    made = ir.Node(DOMAIN, name, operands, _attributes(shape, tile), num_outputs=1, name=node.name)
    graph.insert_after(node, made)
    take_place(graph, old, made.outputs[0])
    return made.outputs[0]


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
    *,
    any_batch: bool = False,
) -> list[int] | None:
    """The numbers of a convolution of single precision over two axes; None for any other.

    `any_batch`: the number of images may be open, and is 0 then.
    """
    values = [v for v in (*inputs, y) if v is not None]
    sizes = [_sizes(v, any_batch) for v in values]
    if any(s is None or dtype_of(v).name != "float32" for s, v in zip(sizes, values, strict=True)):
        return None
    x, w, *_, y_sizes = (s for s in sizes if s is not None)
    if len(x) != 4 or ("auto_pad" in attributes and attributes["auto_pad"].value != "NOTSET"):
        return None

    def numbers(name: str, default: list[int]) -> list[int]:
        return list(attributes[name].value) if name in attributes else default

    groups = attributes["group"].value if "group" in attributes else 1
    n, ci, *extents = x
    co, _, *kernel = w
    tasks = max(t for t in range(1, min(max(threads, 1), _MOST_TASKS) + 1) if n % t == 0)
    return [
        n, ci, *extents, co, *kernel, *y_sizes[2:], *numbers("strides", [1, 1]),
        *numbers("dilations", [1, 1]), *numbers("pads", [0] * 4), groups, tasks,
    ]  # fmt: skip


def _sizes(value: ir.Value, any_batch: bool) -> tuple[int, ...] | None:
    shape = [d if isinstance(d, int) else None for d in value.shape or ()]
    if any_batch and shape:
        shape[0] = shape[0] or 0
    known = tuple(d for d in shape if d is not None)
    return known if value.shape is not None and len(known) == len(shape) else None
