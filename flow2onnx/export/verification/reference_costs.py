"""How long the ONNX reference evaluator takes, so that nobody waits for it in vain."""

import math
from collections.abc import Mapping

import onnx

__all__ = ["reference_seconds"]

Shapes = Mapping[str, tuple[int, ...]]

_PER_ELEMENT = 5e-9  # numpy, one pass or two
_PER_PRODUCT = {"Conv": 1e-10, "MatMul": 3e-11, "Gemm": 3e-11}
# Written as loops in Python: seconds for each element of the output.
_LOOPS = {
    "AveragePool": 1e-5, "Bernoulli": 1e-6, "CenterCropPad": 1e-6, "Col2Im": 1e-5,
    "DeformConv": 1e-4, "GatherND": 1e-6,
    "GridSample": 1e-4, "LpPool": 1e-5, "MaxUnpool": 1e-5, "OneHot": 1e-7, "Resize": 1e-4,
    "RoiAlign": 1e-4, "ScatterND": 2e-6, "Upsample": 1e-4,
}  # fmt: skip
_PER_WINDOW = 7e-7  # MaxPool: for each element of each window
_PER_SCATTER = 3e-6  # ConvTranspose: for each product that is added to the output


def reference_seconds(node: onnx.NodeProto, shapes: Shapes) -> float:
    """About how long the reference evaluator takes for a node on one core."""
    sizes = [math.prod(shapes.get(name, ())) for name in (*node.input, *node.output)]
    out = math.prod(shapes.get(node.output[0], ())) if node.output else 0
    plain = _PER_ELEMENT * sum(sizes)
    if node.op_type == "MaxPool":
        return plain + _PER_WINDOW * out * _window(node)
    if node.op_type == "ConvTranspose":
        return plain + _PER_SCATTER * _scatter_count(node, shapes)
    return plain + _LOOPS.get(node.op_type, 0.0) * out + _products(node, shapes, out)


def _products(node: onnx.NodeProto, shapes: Shapes, out: int) -> float:
    """Seconds for the products that are summed for the elements of the output."""
    if node.op_type not in _PER_PRODUCT:
        return 0.0
    rows, weights = shapes.get(node.input[0], ()), shapes.get(node.input[1], ())
    depth = math.prod(weights[1:]) if node.op_type == "Conv" else max((*rows, 1))
    return _PER_PRODUCT[node.op_type] * out * depth


def _scatter_count(node: onnx.NodeProto, shapes: Shapes) -> int:
    x, w = shapes.get(node.input[0], ()), shapes.get(node.input[1], ())
    return math.prod(x[:1]) * math.prod(x[2:]) * math.prod(w[1:])


def _window(node: onnx.NodeProto) -> int:
    return math.prod(next((a.ints for a in node.attribute if a.name == "kernel_shape"), ()))
