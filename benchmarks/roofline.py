"""The least time of a step, node by node: what its graph moves and computes.

A node reads its operands and writes its results once, and does its arithmetic meanwhile; so it
takes as long as the slower of both, and no less than a launch. What a compiler fuses needs less:
this is the roofline of a graph as it stands, and says how far its kernels are from their best.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["LAUNCH", "Ceilings", "Cost", "by_operator", "costs", "costs_by_node", "least_ms"]

LAUNCH = 2.5e-6  # seconds from one kernel to the next, within a captured graph

# What is another view of its operand, or made before the first step.
_VIEWS = frozenset({
    "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Shape", "Size", "Constant",
})  # fmt: skip
# What reads or writes as much of a tensor as its smaller operands name.
_GATHERS = frozenset({"Gather", "GatherElements", "GatherND", "Rows", "Slice"})
_SCATTERS = frozenset({"ScatterElements", "ScatterND", "TensorScatter", "AddRows", "PutRows"})
# Native operators whose work depends on what they are fed.
_UNCOUNTED = frozenset({
    "Attention", "AttentionGradient", "Recurrence", "RecurrenceGradient", "AddNamedRows",
})  # fmt: skip
# The tensor whose elements meet a kernel each, and the kernel, of operands and a result.
_WINDOWS: Mapping[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "Conv": lambda operands, y: (y, operands[1]),
    "ConvTranspose": lambda operands, y: (operands[0], operands[1]),
    "ConvInputGradient": lambda operands, y: (operands[0], operands[1]),
    "ConvWeightGradient": lambda operands, y: (operands[1], y),
}
_PRODUCT_SIZES = {"Product": 5, "PackedProduct": 3}  # of the attribute `shape`, how many multiply


@dataclass(frozen=True)
class Ceilings:
    """The best that a device reaches: `products` in FLOP/s by precision, `bandwidth` in bytes/s."""

    products: Mapping[str, float]
    bandwidth: float
    launch: float = LAUNCH


@dataclass(frozen=True)
class Cost:
    """The work of each of `count` nodes of one kind: bytes moved, and arithmetic in a precision."""

    operator: str
    precision: str
    bytes: int
    flops: int
    count: int = 1

    def seconds(self, ceilings: Ceilings) -> float:
        """The least time of all of them."""
        work = self.flops / ceilings.products[self.precision] if self.flops else 0.0
        return self.count * max(self.bytes / ceilings.bandwidth, work, ceilings.launch)


def costs(graph: Any, precision: str) -> list[Cost]:
    """The costs of a graph of `onnx_ir`, one for all nodes that are alike.

    `precision`: in which products of float32 are computed, "float32" or "tf32".
    """
    wide = "tf32" if precision == "tf32" else "float32"
    found = Counter(_cost(node, wide) for node in graph if node.op_type not in _VIEWS)
    return [Cost(*cost, count) for cost, count in found.items()]


def costs_by_node(graph: Any) -> dict[str, Cost]:
    """The cost of each node of a graph of `onnx_ir`, by its name, native ones too where known."""
    left_out = _VIEWS | _UNCOUNTED
    return {str(n.name): Cost(*_cost(n, "float32")) for n in graph if n.op_type not in left_out}


def least_ms(found: Iterable[Cost], ceilings: Ceilings) -> float:
    """The least time of a step in milliseconds, its nodes one after another."""
    return 1e3 * sum(cost.seconds(ceilings) for cost in found)


def by_operator(found: Iterable[Cost], ceilings: Ceilings) -> dict[str, float]:
    """The least milliseconds of each operator, the largest first."""
    sums: Counter[str] = Counter()
    for cost in found:
        sums[cost.operator] += 1e3 * cost.seconds(ceilings)  # type: ignore[assignment]  # floats
    return dict(sums.most_common())


def _cost(node: Any, wide: str) -> tuple[str, str, int, int]:
    operands = [value for value in node.inputs if value is not None]
    first = operands[0].dtype.name if operands and operands[0].dtype is not None else "FLOAT"
    precision = {"FLOAT16": "float16", "BFLOAT16": "bfloat16"}.get(first, wide)
    return node.op_type, precision, _bytes_moved(node, operands), _flops(node)


def _bytes_moved(node: Any, operands: list[Any]) -> int:
    results = sum(map(_bytes, node.outputs))
    if node.op_type in _GATHERS:
        return 2 * results + sum(map(_bytes, operands[1:]))
    if node.op_type in _SCATTERS:  # in its own buffer
        return 2 * _bytes(operands[2]) + _bytes(operands[1])
    return sum(map(_bytes, operands)) + results


def _flops(node: Any) -> int:
    """Two for each multiplication with an addition, in products and convolutions."""
    if node.op_type in ("MatMul", "Gemm"):
        shape = _shape(node.inputs[0])
        transposed = node.attributes.get("transA")
        inner = shape[0] if transposed is not None and transposed.value else shape[-1]
        return 2 * math.prod(_shape(node.outputs[0])) * inner
    if node.op_type in ("Product", "PackedProduct"):
        return 2 * math.prod(node.attributes["shape"].value[: _PRODUCT_SIZES[node.op_type]])
    if node.op_type in _WINDOWS:
        side, kernel = _WINDOWS[node.op_type](node.inputs, node.outputs[0])
        each = math.prod(_shape(kernel)[1:])
        return 2 * math.prod(_shape(side)) * each
    return 0


def _shape(value: Any) -> list[int]:
    """The sizes of a value; 0 for one that only a call decides."""
    if value.shape is None:
        return [0]
    return [size if isinstance(size, int) else 0 for size in value.shape]


def _bytes(value: Any) -> int:
    if value is None or value.dtype is None:
        return 0
    return math.ceil(math.prod(_shape(value)) * value.dtype.itemsize)
