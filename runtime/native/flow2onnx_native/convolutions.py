"""Convolutions and their gradients: `Conv`, `ConvInputGradient`, `ConvWeightGradient`."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import prod

import onnx_ir as ir
from flow2onnx_runtime.extensions import GRADIENT_OF, GradientOf

from flow2onnx_native.abi import (
    DOMAIN,
    MOST_MATRIX_TASKS,
    ConvForm,
    ConvShape,
    Method,
)
from flow2onnx_native.convolution_methods import (
    MOST_AXES,
    are_windows_apart,
    by_axis,
    fastest_method,
    is_pointwise,
    winograd_tile,
)
from flow2onnx_native.graph import (
    addition,
    dims,
    integers,
    is_float,
    is_standard,
    only_user,
    replace_value,
)

__all__ = ["replace_constant_convolutions", "replace_convolutions"]

_GRADIENTS = ("ConvInputGradient", "ConvWeightGradient")
_TILES_OF_THREAD = 64  # with fewer of all images, some threads would wait for others
# Measured for weights that are transformed once: from fewer results of a channel they are only read
# once, and from memory, unless they are small enough to stay in the cache.
_FEWEST_KEPT, _FEWEST_KEPT_OF_SMALL, _SMALL = 256, 128, 1 << 14
# Positions of all images, for which it pays to bring weights into another order in each call.
_FEWEST_TRANSPOSED = 128


def replace_convolutions(
    graph: ir.Graph,
    copies: Mapping[ir.Value, ir.Value],
    operators: Collection[str],
    threads: int,
    *,
    winograd: bool,
    avx512: bool,
) -> None:
    """Put the library's operators in the place of Conv, ConvTranspose and of their gradients.

    A transposed convolution is the input gradient of the one that it transposes, and its own input
    gradient is that convolution.

    `copies`: the value of this graph for each that a note may name. What computed a gradient
    before stays, unread. `winograd`: whether they may use that algorithm, where it is faster.
    `avx512`: whether the library's loops use that instruction set.
    """
    rewrite = _Rewrite(graph, copies, operators, threads, winograd, avx512)
    for node in list(graph):
        note: GradientOf | None = node.meta.get(GRADIENT_OF)
        if note is not None and note.op_type == "Conv" and note.position < len(_GRADIENTS):
            rewrite.replace_gradient(node, note)
        elif note is not None and note.op_type == "ConvTranspose" and note.position == 1:
            rewrite.replace_transposed_gradient(node, note)
        elif is_standard(node, "Conv") and "Conv" in operators:
            rewrite.replace_forward(node)
        elif is_standard(node, "ConvTranspose") and _GRADIENTS[0] in operators:
            rewrite.replace_transposed(node)


@dataclass(frozen=True)
class _Rewrite:
    """The convolutions of one graph, some of them replaced."""

    graph: ir.Graph
    copies: Mapping[ir.Value, ir.Value]
    operators: Collection[str]
    threads: int
    winograd: bool
    avx512: bool
    replaced: dict[ir.Value, ir.Value] = field(default_factory=dict)

    def value_of(self, noted: ir.Value | None) -> ir.Value | None:
        """The value of this graph that a note means, of a new node perhaps."""
        value = None if noted is None else self.copies.get(noted)
        return value if value is None else self.replaced.get(value, value)

    def replace_forward(self, node: ir.Node) -> None:
        """Replace a convolution, if the library has it."""
        shape = _shape(node.inputs, node.outputs[0], node.attributes, self.threads)
        if shape is None:
            return
        method = self._method("Conv", shape)
        if method is None:
            return
        form = ConvForm(has_bias=len(node.inputs) == 3, has_addend=0, relu=0, keeps=0)
        attributes = [*_attributes(shape, method), ir.AttrInt64s("form", form)]
        native = ir.Node(DOMAIN, "Conv", node.inputs, attributes, num_outputs=1, name=node.name)
        self.graph.insert_before(node, native)
        self._replace_output(node, native)

    def replace_gradient(self, node: ir.Node, note: GradientOf) -> None:
        """Replace what computes a gradient of a convolution, if the library has it."""
        name, old = _GRADIENTS[note.position], node.outputs[0]
        x, w, g = (self.value_of(v) for v in (*note.inputs[:2], note.gradients[0]))
        if name not in self.operators or x is None or w is None or g is None:
            return
        shape = _shape((x, w), g, note.attributes, self.threads)
        if shape is None or dims(old) != dims((x, w)[note.position]):
            return
        method = self._method(name, shape)
        if method is None:
            return
        operands = (g, w) if note.position == 0 else (x, g)
        native = ir.Node(
            DOMAIN, name, operands, _attributes(shape, method), num_outputs=1, name=node.name
        )
        self.graph.insert_after(node, native)
        self._replace_output(node, native)

    def replace_transposed(self, node: ir.Node) -> None:
        """Replace a transposed convolution by the gradient that it is, and add its bias."""
        (x, w, *bias), y = node.inputs, node.outputs[0]
        shape = _transposed_shape(y, w, x, node.attributes, self.threads)
        method = None if shape is None else self._method(_GRADIENTS[0], shape)
        if shape is None or method is None:
            return
        native = ir.Node(
            DOMAIN, _GRADIENTS[0], [x, w], _attributes(shape, method), num_outputs=1,
            name=node.name,
        )  # fmt: skip
        self.graph.insert_before(node, native)
        if not bias or bias[0] is None:
            self._replace_output(node, native)
            return
        _describe_as(native.outputs[0], y, f"{node.name}/product")
        wide = _reshape(self.graph, node, bias[0], (shape.in_, *[1] * shape.axes))
        total = ir.Node(
            "", "Add", [native.outputs[0], wide], num_outputs=1, name=f"{node.name}/sum"
        )
        self.graph.insert_before(node, total)
        self._replace_output(node, total)

    def replace_transposed_gradient(self, node: ir.Node, note: GradientOf) -> None:
        """Replace what computes the gradient of a transposed convolution in its weights."""
        name, old = _GRADIENTS[1], node.outputs[0]
        x, w, g = (self.value_of(v) for v in (*note.inputs[:2], note.gradients[0]))
        if name not in self.operators or x is None or w is None or g is None:
            return
        shape = _transposed_shape(g, w, x, note.attributes, self.threads)
        method = None if shape is None or dims(old) != dims(w) else self._method(name, shape)
        if shape is None or method is None:
            return
        native = ir.Node(
            DOMAIN, name, [g, x], _attributes(shape, method), num_outputs=1, name=node.name
        )
        self.graph.insert_after(node, native)
        self._replace_output(node, native)

    def _method(self, name: str, shape: ConvShape) -> Method | None:
        return fastest_method(name, shape, winograd=self.winograd, avx512=self.avx512)

    def _replace_output(self, node: ir.Node, native: ir.Node) -> None:
        replace_value(node.outputs[0], native.outputs[0])
        self.replaced[node.outputs[0]] = native.outputs[0]


def replace_constant_convolutions(
    graph: ir.Graph, operators: Collection[str], threads: int, *, avx512: bool
) -> None:
    """Put the library's convolutions where weights are constant, and transposed ones.

    Over two axes only those by Winograd's algorithm, with the sum and ReLU after them: others the
    runtime is at its best with. Over one axis or three it puts windows of several elements into
    columns.
    """
    rewrite = _Rewrite(graph, {}, operators, threads, winograd=False, avx512=avx512)
    for node in list(graph):
        if not all(v is not None and v.const_value is not None for v in node.inputs[1:]):
            continue
        if is_standard(node, "ConvTranspose") and _GRADIENTS[0] in operators:
            if _adds_many_windows(node):
                rewrite.replace_transposed(node)
        elif is_standard(node, "Conv") and "Conv" in operators:
            shape = _shape(node.inputs, node.outputs[0], node.attributes, 1, any_batch=True)
            if shape is not None and shape.axes == 2:
                _replace_constant(graph, node, shape, threads)
            elif shape is not None and not is_pointwise(shape):
                rewrite.replace_forward(node)


def _adds_many_windows(node: ir.Node) -> bool:
    """True for a transposed convolution that gains though its weights are reordered in each call.

    Of windows side by side over two axes the runtime has a product that is as fast.
    """
    (x, w), y = node.inputs[:2], node.outputs[0]
    shape = _transposed_shape(y, w, x, node.attributes, 1)
    if shape is None or (shape.axes < MOST_AXES and are_windows_apart(shape)):
        return False
    return shape.images * prod(by_axis(shape, "out_depth")) >= _FEWEST_TRANSPOSED


def _replace_constant(graph: ir.Graph, node: ir.Node, shape: ConvShape, threads: int) -> None:
    tile = winograd_tile("Conv", shape._replace(images=max(shape.images, 1)))
    if not tile or not _pays_if_constant(shape, tile, threads):
        return
    x, w, bias = (*node.inputs, None)[:3]
    last, addend = node.outputs[0], None
    total = addition(last)
    if total is not None and _has_same_shape(total[1], last):
        last, addend = total[0].outputs[0], total[1]
    relu = _following(last, "Relu")
    last = last if relu is None else relu.outputs[0]
    form = ConvForm(bias is not None, addend is not None, relu is not None, keeps=True)
    inputs = [x, w] if addend is None and bias is None else [x, w, bias, addend]
    native = ir.Node(
        DOMAIN, "Conv", inputs[: 4 if addend is not None else 3],
        [*_attributes(shape, tile), ir.AttrInt64s("form", form)], num_outputs=1, name=node.name,
    )  # fmt: skip
    graph.append(native)  # it is sorted when all are there
    replace_value(last, native.outputs[0])


def _pays_if_constant(shape: ConvShape, tile: int, threads: int) -> bool:
    """True if a convolution gains from weights that are transformed once."""
    images = max(shape.images, 1)
    is_small = shape.in_ * shape.out <= _SMALL
    if images * shape.out_height * shape.out_width < (
        _FEWEST_KEPT_OF_SMALL if is_small else _FEWEST_KEPT
    ):
        return False
    tiles = images * -(-shape.out_height // tile) * -(-shape.out_width // tile)
    return threads <= 1 or tiles >= _TILES_OF_THREAD * threads


def _following(value: ir.Value, operator: str) -> ir.Node | None:
    """The one node that reads a value, if it is this operator."""
    node = only_user(value)
    return node if node is not None and node.op_type == operator else None


def _has_same_shape(a: ir.Value, b: ir.Value) -> bool:
    return a.shape is not None and b.shape is not None and tuple(a.shape) == tuple(b.shape)


def _attributes(shape: ConvShape, method: int) -> list[ir.Attr]:
    return [ir.AttrInt64s("shape", shape), ir.AttrInt64("method", method)]


def _transposed_shape(
    y: ir.Value,
    w: ir.Value | None,
    x: ir.Value | None,
    attributes: Mapping[str, ir.Attr],
    threads: int,
) -> ConvShape | None:
    """The numbers of the convolution that a transposed one from `x` to `y` is the gradient of."""
    if x is None or w is None or "output_shape" in attributes:
        return None
    found = _shape((y, w), x, attributes, threads)
    if found is None:
        return None
    axes = zip(
        *(by_axis(found, first) for first in (
            "depth", "front", "back", "kernel_depth", "dilation_z", "stride_z", "out_depth"
        )), strict=True,
    )  # fmt: skip
    is_exact = all(
        (extent + before + after - dilation * (kernel - 1) - 1) // stride + 1 == outputs
        for extent, before, after, kernel, dilation, stride, outputs in axes
    )  # more windows fit where output_padding makes room
    return found if is_exact else None


def _describe_as(value: ir.Value, other: ir.Value, name: str) -> None:
    value.name, value.type, value.shape = name, other.type, other.shape


def _reshape(graph: ir.Graph, before: ir.Node, value: ir.Value, shape: tuple[int, ...]) -> ir.Value:
    """A value of another shape, made in front of a node."""
    name = f"{before.name}/shape"
    wanted = ir.val(name, const_value=ir.tensor(list(shape), ir.DataType.INT64, name=name))
    graph.register_initializer(wanted)
    node = ir.Node("", "Reshape", [value, wanted], num_outputs=1, name=f"{before.name}/bias")
    node.outputs[0].name, node.outputs[0].type = node.name, value.type
    node.outputs[0].shape = ir.Shape(shape)
    graph.insert_before(before, node)
    return node.outputs[0]


def _shape(
    inputs: Collection[ir.Value | None],
    y: ir.Value,
    attributes: Mapping[str, ir.Attr],
    threads: int,
    *,
    any_batch: bool = False,
) -> ConvShape | None:
    """The numbers of a convolution of single precision over up to three axes; None for any other.

    `any_batch`: the number of images may be open, and is 0 then. Without images, or with another
    axis that has nothing on it, it is the runtime's.
    """
    values = [v for v in (*inputs, y) if v is not None]
    sizes = [_sizes(v, any_batch) for v in values]
    if any(s is None or not is_float(v) for s, v in zip(sizes, values, strict=True)):
        return None
    x, w, *_, output = (s for s in sizes if s is not None)
    if 0 in (*x[any_batch:], *w, *output[any_batch:]):
        return None
    axes = len(x) - 2
    if not 1 <= axes <= MOST_AXES:
        return None
    if "auto_pad" in attributes and attributes["auto_pad"].value != "NOTSET":
        return None
    groups = attributes["group"].as_int() if "group" in attributes else 1
    ones, zeros = [1] * axes, [0] * axes
    pads = integers(attributes, "pads", zeros * 2)
    more = [1] * (MOST_AXES - axes)
    none = [0] * (MOST_AXES - axes)
    return ConvShape._make([
        *x[:2], *more, *x[2:], w[0], *more, *w[2:], *more, *output[2:],
        *more, *integers(attributes, "strides", ones),
        *more, *integers(attributes, "dilations", ones), *none, *pads[:axes], *none, *pads[axes:],
        groups, axes, min(max(threads, 1), MOST_MATRIX_TASKS),
    ])  # fmt: skip


def _sizes(value: ir.Value, any_batch: bool) -> tuple[int, ...] | None:
    shape = [d if isinstance(d, int) else None for d in value.shape or ()]
    if any_batch and shape:
        shape[0] = shape[0] or 0
    known = tuple(d for d in shape if d is not None)
    return known if value.shape is not None and len(known) == len(shape) else None
