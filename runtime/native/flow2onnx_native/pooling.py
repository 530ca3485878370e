"""Pools of maxima whose gradient is asked for, and that gradient: `MaxPool`, `MaxPoolGradient`."""

from collections.abc import Collection

import onnx_ir as ir
from flow2onnx_runtime.extensions import GRADIENT_OF, GradientOf

from flow2onnx_native.abi import (
    DOMAIN,
    MOST_IMAGES,
    MOST_POOL_EXTENT,
    MOST_POOL_STRIDE,
    MOST_POOL_WINDOW,
    MOST_TASKS,
    PoolShape,
)
from flow2onnx_native.graph import dims, integers, is_float, is_standard, is_static, replace_value

__all__ = ["replace_pools"]

_BOTH = {"MaxPool", "MaxPoolGradient"}
_SPATIAL = {2, 3}


def replace_pools(graph: ir.Graph, operators: Collection[str], threads: int) -> None:
    """Put the library's operators in the place of MaxPool and of what computes its gradient.

    What computed the gradient before stays, unread. Pools without a gradient stay in use.
    """
    if not _BOTH.issubset(operators):
        return
    # By name: what took another's place has its name, and notes know those of before.
    values = {str(v.name): v for v in graph.inputs}
    values |= {str(v.name): v for node in graph for v in node.outputs}
    places: dict[ir.Node, ir.Value] = {}
    for node in list(graph):
        note: GradientOf | None = node.meta.get(GRADIENT_OF)
        if note is not None and note.op_type == "MaxPool" and note.position == 0:
            _replace_gradient(graph, node, note, values, places, threads)


def _replace_gradient(
    graph: ir.Graph,
    node: ir.Node,
    note: GradientOf,
    values: dict[str, ir.Value],
    places: dict[ir.Node, ir.Value],
    threads: int,
) -> None:
    y, g = (values.get(str(v.name)) for v in (note.outputs[0], note.gradients[0]) if v)
    pool, old = y.producer() if y is not None else None, node.outputs[0]
    if pool is None or g is None or not _is_supported(pool, g):
        return
    if dims(old) != _dims_if_known(pool.inputs[0]):
        return
    attributes = [
        ir.AttrInt64s("shape", _shape(pool)),
        ir.AttrInt64("tasks", min(max(threads, 1), MOST_TASKS)),
    ]
    if pool not in places:
        places[pool] = _replace_forward(graph, pool, attributes)
    native = ir.Node(
        DOMAIN, "MaxPoolGradient", [g, places[pool]], attributes, num_outputs=1, name=node.name
    )
    graph.insert_after(node, native)
    _sum_before_spreading(old, g)
    replace_value(old, native.outputs[0])
    values[str(old.name)] = native.outputs[0]


def _replace_forward(graph: ir.Graph, pool: ir.Node, attributes: list[ir.Attr]) -> ir.Value:
    """The places of the maxima, of an operator in the place of a pool."""
    native = ir.Node(DOMAIN, "MaxPool", pool.inputs[:1], attributes, num_outputs=2, name=pool.name)
    graph.insert_before(pool, native)
    replace_value(pool.outputs[0], native.outputs[0])
    places = native.outputs[1]
    places.name = f"{native.outputs[0].name}/places"
    places.type, places.shape = ir.TensorType(ir.DataType.UINT8), native.outputs[0].shape
    return places


def _sum_before_spreading(spread: ir.Value, g: ir.Value) -> None:
    """Let sums over whole planes be of what is spread over them: it all goes somewhere."""
    for use in list(spread.uses()):
        if not is_standard(use.node, "ReduceSum") or len(use.node.inputs) != 2:
            continue
        axes = use.node.inputs[1].const_value if use.node.inputs[1] is not None else None
        if axes is not None and {int(a) % 4 for a in axes.numpy()} >= _SPATIAL:
            use.node.replace_input_with(0, g)


def _is_supported(pool: ir.Node, g: ir.Value) -> bool:
    """True if the library has such a pool, and nobody else reads its positions."""
    values = [v for v in (*pool.inputs, g) if v is not None]
    if not is_standard(pool, "MaxPool") or not all(is_static(v) for v in values):
        return False
    is_plain = all(is_float(v) and len(dims(v)) == 4 for v in values)
    if not is_plain or dims(g) != _dims_if_known(pool.outputs[0]):
        return False
    positions = pool.outputs[1:]
    if any(v.is_graph_output() or len(v.uses()) > 1 for v in positions):
        return False
    auto_pad, order = pool.attributes.get("auto_pad"), pool.attributes.get("storage_order")
    return (
        (auto_pad is None or auto_pad.as_string() == "NOTSET")
        and (order is None or order.as_int() == 0)
        and integers(pool.attributes, "dilations", [1, 1]) == [1, 1]
        and _fits(_shape(pool))
    )


def _dims_if_known(value: ir.Value | None) -> tuple[int, ...]:
    return dims(value) if value is not None and is_static(value) else ()


def _shape(pool: ir.Node) -> PoolShape:
    return PoolShape(
        *_dims_if_known(pool.inputs[0]), *_dims_if_known(pool.outputs[0])[2:],
        *integers(pool.attributes, "kernel_shape", []),
        *integers(pool.attributes, "strides", [1, 1]),
        *integers(pool.attributes, "pads", [0] * 4)[:2],
    )  # fmt: skip


def _fits(shape: PoolShape) -> bool:
    images, channels, height, width, *others = shape
    return (
        min(shape[:10]) > 0
        and max(images, channels) <= MOST_IMAGES
        and max(height, width, *others) <= MOST_POOL_EXTENT
        and max(shape.stride_y, shape.stride_x) <= MOST_POOL_STRIDE
        and shape.kernel_height * shape.kernel_width <= MOST_POOL_WINDOW
        and _is_covered(height, shape.out_height, shape.kernel_height, shape.stride_y, shape.top)
        and _is_covered(width, shape.out_width, shape.kernel_width, shape.stride_x, shape.left)
    )


def _is_covered(extent: int, windows: int, kernel: int, stride: int, padding: int) -> bool:
    """True if each window has an element of the image."""
    return 0 <= padding < kernel and (windows - 1) * stride - padding < extent
