"""Upcasts to float32 where a runtime has no kernel for half precision."""

import onnx_ir as ir

from flow2onnx.dtypes import DType, float16, float32
from flow2onnx.graph.types import dtype_of
from flow2onnx.graph.verify import Kernels, type_bindings
from flow2onnx.passes.base import Pass, cast_node, redirect_readers
from flow2onnx.passes.mixed_precision import FAILING_IN_HALF, computes_in

__all__ = ["UpcastMissingKernels", "casts_itself"]

_TYPED_BY_ATTRIBUTE = frozenset({"Cast", "ConstantOfShape"})


def casts_itself(half: DType, opset: int, kernels: Kernels) -> bool:
    """True if the runtime casts around nodes without a kernel itself, as the CPU provider does.

    Between two of its own casts it rounds nothing; casts of ours it carries out.
    """
    return half == float16 and not computes_in(half, opset, kernels)


class UpcastMissingKernels(Pass):
    """Compute in float32 what the runtime cannot compute in half precision; values stay rounded.

    Given:   y: bf16 = Greater(x: bf16, z: bf16)                and no kernel of that type
    Result:  a = Cast(x);  b = Cast(z);  y = Greater(a, b)      in float32
    Kept:    what the runtime casts around itself
    """

    def __init__(self, half: DType, kernels: Kernels) -> None:
        self._half, self._kernels = half, kernels

    def run(self, graph: ir.Graph) -> bool:
        """Put casts around each node without a kernel."""
        opset = graph.opset_imports[""]
        found = [n for n in graph if self._lacks_kernel(n, opset)]
        for node in found:
            self._upcast(graph, node)
        return bool(found)

    def _lacks_kernel(self, node: ir.Node, opset: int) -> bool:
        values = [v for v in (*node.inputs, *node.outputs) if v is not None and v.name]
        if node.op_type in _TYPED_BY_ATTRIBUTE or not any(self._is_half(v) for v in values):
            return False
        is_native = computes_in(self._half, opset, self._kernels)
        if node.op_type in FAILING_IN_HALF and not is_native and "reduction" in node.attributes:
            return True
        types = type_bindings(node, opset)
        is_missing = not self._kernels.supports(node.op_type, opset, types)
        return is_missing and not casts_itself(self._half, opset, self._kernels)

    def _is_half(self, value: ir.Value) -> bool:
        return dtype_of(value) == self._half

    def _upcast(self, graph: ir.Graph, node: ir.Node) -> None:
        wide = {
            v: _cast_to_float32(graph, node, v)
            for v in node.inputs
            if v is not None and v.name and self._is_half(v)
        }
        for i, value in enumerate(node.inputs):
            if value in wide:
                node.replace_input_with(i, wide[value])
        for value in [v for v in node.outputs if v.name and self._is_half(v)]:
            self._downcast_output(graph, node, value)

    def _downcast_output(self, graph: ir.Graph, node: ir.Node, value: ir.Value) -> None:
        """The node makes float32 from now on; whoever read `value` reads a cast of it."""
        cast = cast_node(value, self._half, f"{value.name}/narrow", node.meta.get("source"))
        small, is_output, name = cast.outputs[0], value.is_graph_output(), value.name
        redirect_readers(value, cast)
        if is_output:
            graph.outputs[list(graph.outputs).index(value)] = small
        value.name, small.name = f"{name}/wide", name
        value.type = ir.TensorType(ir.DataType.FLOAT)
        graph.insert_after(node, cast)


def _cast_to_float32(graph: ir.Graph, node: ir.Node, value: ir.Value) -> ir.Value:
    """`value` as float32, made before `node`."""
    name = f"{node.name}/{value.name}/wide"
    cast = cast_node(value, float32, name, node.meta.get("source"))
    cast.outputs[0].name = name
    graph.insert_before(node, cast)
    return cast.outputs[0]
