"""The multiplications that a node makes, by the shapes of what it reads and makes.

One multiplication with the addition of its product counts as one (MAC), as benchmarks of networks
count them. Elementwise work counts nothing.
"""

import math
from collections.abc import Callable, Sequence

from flow2onnx_runtime.view.graph import Graph, Node, Value

__all__ = ["COUNTED", "macs"]

Operands = Sequence[Value]


def macs(graph: Graph, node: Node) -> int:
    """The multiply-adds of a node for one call, free sizes taken for 1; 0 where shapes lack."""
    count = COUNTED.get(node.operator.rpartition("::")[2])
    if count is None:
        return 0
    inputs = [graph.value(name) for name in node.inputs]
    outputs = [graph.value(name) for name in node.outputs]
    try:
        return max(0, int(count(node, inputs, outputs)))
    except (LookupError, TypeError, ValueError):  # a shape that is not known, or a damaged node
        return 0


def _sizes(value: Value) -> list[int]:
    if value.shape is None:
        raise ValueError("nothing is known of the shape")
    return [d if isinstance(d, int) else 1 for d in value.shape]


def _product(value: Value) -> int:
    return math.prod(_sizes(value))


def _convolution(node: Node, x: Operands, y: Operands, weight: int = 1) -> int:
    """Each element of the result is a sum over a window: y · (channels / groups) · kernel."""
    return _product(y[0]) * math.prod(_sizes(x[weight])[1:])


def _transposed_convolution(node: Node, x: Operands, y: Operands) -> int:
    """Each element of the input goes into a window of the result."""
    return _product(x[0]) * math.prod(_sizes(x[1])[1:])


def _matmul(node: Node, x: Operands, y: Operands) -> int:
    """Each element of the result is a sum over the last axis of the left operand."""
    first = _sizes(x[0])
    inner = first[-2] if node.attributes.get("transA") and len(first) > 1 else first[-1]
    return _product(y[0]) * inner


def _block_matmul(node: Node, x: Operands, y: Operands) -> int:
    return _product(y[0]) * int(node.attributes["K"])


def _einsum(node: Node, x: Operands, y: Operands) -> int:
    """The product of all sizes that letters stand for, for every operand beyond the first."""
    terms = str(node.attributes["equation"]).replace(" ", "").partition("->")[0].split(",")
    sizes: dict[str, int] = {}
    for term, operand in zip(terms, x, strict=True):
        before, dots, after = term.partition("...")
        shape = _sizes(operand)
        inner = shape[len(before) : len(shape) - len(after)] if dots else []
        ends = shape[: len(before)] + (shape[len(shape) - len(after) :] if after else [])
        letters = [*zip(before + after, ends, strict=True)]
        letters += [(f"...{len(inner) - i}", d) for i, d in enumerate(inner)]
        for letter, size in letters:
            sizes[letter] = max(size, sizes.get(letter, 1))
    return math.prod(sizes.values()) * max(len(terms) - 1, 0)


def _recurrent(gates: int) -> Callable[[Node, Operands, Operands], int]:
    def count(node: Node, x: Operands, y: Operands) -> int:
        """For each step and text, gates · hidden · (inputs + hidden), in each direction."""
        steps, texts, width = _sizes(x[0])
        hidden = int(node.attributes["hidden_size"])
        directions = _sizes(x[1])[0]
        return steps * texts * directions * gates * hidden * (width + hidden)

    return count


def _attention(node: Node, x: Operands, y: Operands) -> int:
    """Scores and their products with the values: rows · keys · (width of keys + of values)."""
    q, k, v = (_sizes(value) for value in x[:3])
    rows, keys = q[-2], k[-2]
    heads = int(node.attributes.get("q_num_heads", node.attributes.get("num_heads", 0)))
    if len(q) == 4:
        return q[0] * q[1] * rows * keys * (q[3] + v[3])
    groups = int(node.attributes.get("kv_num_heads", heads)) or 1
    return q[0] * rows * keys * (q[-1] + v[-1] * max(heads, 1) // groups)


COUNTED: dict[str, Callable[[Node, Operands, Operands], int]] = {
    "Attention": _attention,
    "Conv": _convolution,
    "ConvInteger": _convolution,
    "ConvTranspose": _transposed_convolution,
    "Einsum": _einsum,
    "FusedConv": _convolution,
    "FusedGemm": _matmul,
    "FusedMatMul": _matmul,
    "GRU": _recurrent(3),
    "Gemm": _matmul,
    "LSTM": _recurrent(4),
    "MatMul": _matmul,
    "MatMulInteger": _matmul,
    "MatMulNBits": _block_matmul,
    "MultiHeadAttention": _attention,
    "QLinearConv": lambda node, x, y: _convolution(node, x, y, 3),
    "QLinearMatMul": _matmul,
    "RNN": _recurrent(1),
}
