"""Pools of maxima whose gradient is asked for, and that gradient, as native operators."""

from collections.abc import Collection

import onnx_ir as ir

from flow2onnx.autodiff.annotations import GradientOf, gradient_noted
from flow2onnx.graph.types import constant_of, dims, dtype_of, is_static
from flow2onnx.passes.native.programs import DOMAIN, take_place

__all__ = ["use_native_pools"]

_BOTH = {"MaxPool", "MaxPoolGradient"}
# What the library takes: of images as of channels; of rows and of columns; steps; tasks.
_MOST_IMAGES, _MOST_EXTENT, _MOST_STRIDE, _MOST_TASKS = 1 << 16, 1 << 14, 1 << 8, 1024
_MOST_PLACES = 255  # of a window: which one has the maximum is told in a byte
_SPATIAL = {2, 3}


def use_native_pools(graph: ir.Graph, operators: Collection[str], threads: int) -> None:
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
        noted = gradient_noted(node)
        if noted is not None and noted.op_type == "MaxPool" and noted.position == 0:
            _gradient(graph, node, noted, values, places, threads)


def _gradient(
    graph: ir.Graph,
    node: ir.Node,
    noted: GradientOf,
    values: dict[str, ir.Value],
    places: dict[ir.Node, ir.Value],
    threads: int,
) -> None:
    y, g = (values.get(str(v.name)) for v in (noted.outputs[0], noted.gradients[0]) if v)
    pool, old = y.producer() if y is not None else None, node.outputs[0]
    if pool is None or g is None or not _is_taken(pool, g) or dims(old) != _shape(pool.inputs[0]):
        return
    attributes = [
        ir.AttrInt64s("shape", _numbers(pool)),
        ir.AttrInt64("tasks", min(max(threads, 1), _MOST_TASKS)),
    ]
    if pool not in places:
        places[pool] = _forward(graph, pool, attributes)
    made = ir.Node(
        DOMAIN, "MaxPoolGradient", [g, places[pool]], attributes, num_outputs=1, name=node.name
    )
    graph.insert_after(node, made)
    _sum_before(old, g)
    take_place(graph, old, made.outputs[0])
    values[str(old.name)] = made.outputs[0]


def _forward(graph: ir.Graph, pool: ir.Node, attributes: list[ir.Attr]) -> ir.Value:
    """The places of the maxima, of an operator in the place of a pool."""
    made = ir.Node(DOMAIN, "MaxPool", pool.inputs[:1], attributes, num_outputs=2, name=pool.name)
    graph.insert_before(pool, made)
    take_place(graph, pool.outputs[0], made.outputs[0])
    found = made.outputs[1]
    found.name = f"{made.outputs[0].name}/places"
    found.type, found.shape = ir.TensorType(ir.DataType.UINT8), made.outputs[0].shape
    return found


def _sum_before(spread: ir.Value, g: ir.Value) -> None:
    """Let sums over whole planes be of what is spread over them: it all goes somewhere."""
    for use in list(spread.uses()):
        node = use.node
        if node.op_type == "ReduceSum" and not node.domain and len(node.inputs) == 2:
            axes = constant_of(node.inputs[1])
            if axes is not None and {int(a) % 4 for a in axes} >= _SPATIAL:
                node.replace_input_with(0, g)


def _is_taken(pool: ir.Node, g: ir.Value) -> bool:
    """Whether the library has such a pool, and nobody else reads its positions."""
    values = [v for v in (*pool.inputs, g) if v is not None]
    if pool.op_type != "MaxPool" or pool.domain or not all(is_static(v) for v in values):
        return False
    is_plain = all(dtype_of(v).name == "float32" and len(dims(v)) == 4 for v in values)
    if not is_plain or dims(g) != _shape(pool.outputs[0]):
        return False
    positions = pool.outputs[1:]
    if any(v.is_graph_output() or len(v.uses()) > 1 for v in positions):
        return False
    plain = {"auto_pad": "NOTSET", "storage_order": 0, "dilations": [1, 1]}
    given = {k: pool.attributes[k].value for k in plain if k in pool.attributes}
    return all(_listed(v) == plain[k] for k, v in given.items()) and _fits(_numbers(pool))


def _listed(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _shape(value: ir.Value | None) -> tuple[int, ...]:
    return dims(value) if value is not None and is_static(value) else ()


def _numbers(pool: ir.Node) -> list[int]:
    """The attribute `shape` of the operators."""

    def numbers(name: str, default: list[int]) -> list[int]:
        return list(pool.attributes[name].value) if name in pool.attributes else default

    return [
        *_shape(pool.inputs[0]), *_shape(pool.outputs[0])[2:], *numbers("kernel_shape", []),
        *numbers("strides", [1, 1]), *numbers("pads", [0] * 4)[:2],
    ]  # fmt: skip


def _fits(numbers: list[int]) -> bool:
    images, channels, *extents = numbers
    height, width, out_height, out_width, kernel, kernel_width, *steps, top, left = extents
    return (
        min(numbers[:10]) > 0
        and max(images, channels) <= _MOST_IMAGES
        and max(extents) <= _MOST_EXTENT
        and max(steps) <= _MOST_STRIDE
        and kernel * kernel_width <= _MOST_PLACES
        and _is_covered(height, out_height, kernel, steps[0], top)
        and _is_covered(width, out_width, kernel_width, steps[1], left)
    )


def _is_covered(extent: int, windows: int, kernel: int, step: int, padding: int) -> bool:
    """Whether each window has an element of the image."""
    return 0 <= padding < kernel and (windows - 1) * step - padding < extent
