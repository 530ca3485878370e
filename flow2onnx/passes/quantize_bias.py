"""Quantization of the biases of quantized products."""

import onnx_ir as ir

from flow2onnx.dtypes import int32
from flow2onnx.graph.builder import Builder
from flow2onnx.passes.base import Pass

__all__ = ["QuantizeBias", "quantize_biases"]


class QuantizeBias(Pass):
    """Quantize the bias of a quantized product as what the product sums up in.

    Given:   a = DequantizeLinear(x, s);  v = DequantizeLinear(w, t);  y = Conv(a, v, b)
    Result:  st = Mul(s, t);  q = Div(b, st);  r = Round(q);  i: i32 = Cast(r)
             c = DequantizeLinear(i, st);  y = Conv(a, v, c)
    Kept:    products of other operands, biases that are not a vector

    Runtimes compute in integers where all three operands are quantized.
    """

    def __init__(self, b: Builder) -> None:
        self._b = b

    def run(self, graph: ir.Graph) -> bool:
        """Put the nodes of each bias before its product."""
        found = [n for n in graph if n.op_type in ("Conv", "Gemm") and _has_quantized_operands(n)]
        for node in found:
            start = len(self._b.nodes)
            with self._b.under(f"{node.name}/bias", node.meta.get("source")):
                bias = self._quantize(node)
            made = self._b.nodes[start:]
            graph.remove(made)
            graph.insert_before(node, made)
            node.replace_input_with(2, bias)
        return bool(found)

    def _quantize(self, node: ir.Node) -> ir.Value:
        b, (x, w, bias) = self._b, node.inputs
        scale = b.Mul(_producer(x).inputs[1], _producer(w).inputs[1])
        rank = len(scale.shape or ())
        steps = b.Cast(b.Round(b.Div(bias, scale)), to=int32)
        return b.DequantizeLinear(steps, scale, **({"axis": 0} if rank else {}))


def quantize_biases(b: Builder) -> None:
    """QuantizeBias on the graph of a builder."""
    QuantizeBias(b).run(b.graph)


def _has_quantized_operands(node: ir.Node) -> bool:
    if len(node.inputs) < 3 or node.inputs[2] is None or len(node.inputs[2].shape or ()) != 1:
        return False
    makers = [v.producer() if v is not None else None for v in node.inputs[:2]]
    return all(m is not None and m.op_type == "DequantizeLinear" for m in makers)


def _producer(value: ir.Value | None) -> ir.Node:
    assert value is not None, "a product has two operands"
    maker = value.producer()
    assert maker is not None, f"{value.name} is quantized nowhere"
    return maker
