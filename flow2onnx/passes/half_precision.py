"""Conversion to half precision for serving: a whole predict graph in float16, its weights too."""

from collections import Counter
from collections.abc import Collection
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from flow2onnx.dtypes import DType, float16, float32
from flow2onnx.graph.model import unique_name
from flow2onnx.graph.nodes import RANDOM_OPERATORS, subgraphs_of
from flow2onnx.graph.schemas import Schema, schema
from flow2onnx.graph.types import constant_of, dtype_of
from flow2onnx.graph.verify import Kernels, type_bindings
from flow2onnx.passes.base import Pass, cast_node, redirect_readers
from flow2onnx.passes.dead_code import DeadCodeElimination
from flow2onnx.passes.mixed_precision import FAILING_IN_HALF
from flow2onnx.passes.redundant_casts import RemoveRedundantCasts
from flow2onnx.passes.upcast_missing_kernels import UpcastMissingKernels

__all__ = ["ConvertToHalf", "RoundMissingKernels", "count_missing_kernels"]

# Sums over many elements and what has a large range: they lose digits or overflow in float16.
PRECISE = FAILING_IN_HALF | frozenset({
    "CumSum", "Exp", "InstanceNormalization", "GroupNormalization", "LRN", "Log", "LogSoftmax",
    "LpNormalization", "MeanVarianceNormalization", "NegativeLogLikelihoodLoss", "Pow",
    "Reciprocal", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean",
    "ReduceProd", "ReduceSum", "ReduceSumSquare", "Softmax", "SoftmaxCrossEntropyLoss", "Softplus",
    "Sqrt",
})  # fmt: skip
# Their element type is an attribute, or they convert: what is around them decides.
_NEUTRAL = RANDOM_OPERATORS - {"Dropout"} | {
    "Cast", "CastLike", "Constant", "ConstantOfShape", "DequantizeLinear", "EyeLike",
    "QuantizeLinear", "Range",
}  # fmt: skip
# They make no real numbers and answer the same of a rounded value as of a cast of it.
_TYPE_BLIND = frozenset({"ArgMax", "ArgMin", "Shape", "Size"})

_DIGITS = 1e-3  # float16 has 11 bits

_WHY_PRECISE = "sums or a large range, which lose digits in float16"
_WHY_GRAPH = "has graphs inside"
_WHY_SCHEMA = "ONNX does not define it in float16"
_WHY_RANGE = "a constant that float16 cannot hold"


@dataclass
class ConvertToHalf(Pass):
    """Compute in float16 what keeps its digits there, and store the weights that it reads so.

    Given:   y = Conv(x, w);  r = Relu(y);  s = Softmax(r)                  float32, w a weight
    Result:  x' = Cast(x);  y' = Conv(x', w);  r' = Relu(y');  r = Cast(r');  s = Softmax(r)
    Kept:    `fixed` nodes, by name; inputs and outputs in float32, unless `half_io`

    `weights` are the inputs that become float16, where a node in float16 reads them; `large` those
    among them that float16 cannot hold. Afterwards `halved` counts nodes by operator, and `left`
    those in float32, by operator and reason.
    """

    weights: Collection[str]
    _: KW_ONLY
    large: Collection[str] = ()
    fixed: Collection[str] = ()
    half_io: bool = False
    halved: Counter[str] = field(default_factory=Counter)
    left: Counter[tuple[str, str]] = field(default_factory=Counter)
    _float16: dict[ir.Value, ir.Value] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)

    def run(self, graph: ir.Graph) -> bool:
        """Rewrite node by node, then drop the casts that cancel out."""
        self._names = {str(v.name) for v in (*graph.inputs, *graph.initializers.values())}
        self._names |= {str(v.name) for n in graph.all_nodes() for v in n.outputs}
        nodes = list(graph)
        if self.half_io:
            for value in graph.inputs:
                if str(value.name) not in self.weights and _is_float32(value):
                    self._store_as_float16(graph, value)
        for node in nodes:
            self._convert(graph, node)
        if self.half_io:
            for i, value in enumerate(graph.outputs):
                graph.outputs[i] = self._output_as_float16(graph, value)
        RemoveRedundantCasts().run(graph)
        DeadCodeElimination().run(graph)
        return bool(self.halved)

    def _convert(self, graph: ir.Graph, node: ir.Node) -> None:
        opset = graph.opset_imports[""]
        if node.op_type in _TYPE_BLIND and node.inputs[0] in self._float16:
            node.replace_input_with(0, self._float16[node.inputs[0]])
        if node.op_type in _NEUTRAL or not any(_is_float32(v) for v in node.outputs):
            return
        if node.name in self.fixed:
            return
        kind = schema(node.op_type, opset)
        reads = [
            i for i, v in enumerate(node.inputs) if _is_float32(v) and _is_type_variable(kind, i)
        ]
        reason = self._reason(kind, node, reads)
        if reason is not None:
            self.left[node.op_type, reason] += 1
            return
        for i in reads:
            value = node.inputs[i]
            assert value is not None, "a wide operand is there"
            node.replace_input_with(i, self._as_float16(graph, node, value))
        for value in [v for v in node.outputs if _is_float32(v)]:
            self._compute_in_float16(graph, node, value)
        self.halved[node.op_type] += 1

    def _reason(self, kind: Schema, node: ir.Node, reads: list[int]) -> str | None:
        """Why a node stays in float32; None if it does not."""
        if subgraphs_of(node):
            return _WHY_GRAPH
        if node.op_type in PRECISE:
            return _WHY_PRECISE
        made = _output_variables(kind, node)
        variables = made | {kind.type_variable(i) for i in reads}
        if not variables or any(not kind.allows(v, float16) for v in variables):
            return _WHY_SCHEMA
        operands = [v for i in reads if (v := node.inputs[i]) is not None]
        if any(str(v.name) in self.large for v in operands):
            return _WHY_RANGE
        contents = [constant_of(v) for v in operands]
        return None if all(c is None or _fits_float16(c) for c in contents) else _WHY_RANGE

    def _as_float16(self, graph: ir.Graph, node: ir.Node, value: ir.Value) -> ir.Value:
        """The float16 form of a value, made before `node` if there is none yet."""
        if value in self._float16:
            return self._float16[value]
        content = constant_of(value)
        if content is not None:
            return self._constant(graph, value, content)
        if value.name in self.weights:
            self._store_as_float16(graph, value)
            return value
        cast = self._cast(value, float16, f"{value.name}/float16")
        graph.insert_before(node, cast)
        self._float16[value] = cast.outputs[0]
        return cast.outputs[0]

    def _constant(self, graph: ir.Graph, value: ir.Value, content: Any) -> ir.Value:
        name = self._unique(f"{value.name}/float16")
        tensor = ir.Tensor(content.astype(np.float16), name=name)
        small = ir.val(name, const_value=tensor)
        graph.register_initializer(small)
        self._float16[value] = small
        return small

    def _store_as_float16(self, graph: ir.Graph, value: ir.Value) -> None:
        """Make an input float16; who reads it in float32 reads a cast of it."""
        cast = self._cast(value, float32, f"{value.name}/float32")
        redirect_readers(value, cast)
        value.type = _tensor_type(float16)
        graph.insert_before(graph[0], cast)
        self._float16[cast.outputs[0]] = value
        # nodes seen later may still hold the value itself: it is its own small form
        self._float16[value] = value

    def _compute_in_float16(self, graph: ir.Graph, node: ir.Node, value: ir.Value) -> None:
        """The node makes float16 from now on; whoever read `value` reads a cast of it."""
        name = str(value.name)
        cast = self._cast(value, float32, None)
        wide = cast.outputs[0]
        redirect_readers(value, cast)
        for i in [i for i, v in enumerate(graph.outputs) if v is value]:
            graph.outputs[i] = wide
        value.name, wide.name = self._unique(f"{name}/float16"), name
        value.type = _tensor_type(float16)
        graph.insert_after(node, cast)
        self._float16[wide] = value

    def _output_as_float16(self, graph: ir.Graph, value: ir.Value) -> ir.Value:
        """An output in float16 under the name that it had."""
        if not _is_float32(value):
            return value
        name, small = str(value.name), self._float16.get(value)
        value.name = self._unique(f"{name}/float32")
        if small is not None and small.producer() is not None and not small.is_graph_output():
            small.name = name
            return small
        cast = self._cast(value, float16, None)
        cast.outputs[0].name = name
        graph.append(cast)
        return cast.outputs[0]

    def _cast(self, value: ir.Value, to: DType, name: str | None) -> ir.Node:
        """A cast of a value, in no graph yet, attributed to what makes the value."""
        maker = value.producer()
        source = maker.meta.get("source") if maker is not None else None
        node = cast_node(value, to, self._unique(f"{value.name}/to_{to.name}"), source)
        node.outputs[0].name = self._unique(name) if name is not None else None
        return node

    def _unique(self, name: str) -> str:
        return unique_name(name, self._names)


class RoundMissingKernels(UpcastMissingKernels):
    """Round what the runtime has no float16 kernel for, as a device that has would.

    Given:   y: f16 = Conv(x: f16, w: f16)                          and no kernel of that type
    Result:  a = Cast(x);  b = Cast(w);  c = Conv(a, b);  y: f16 = Cast(c)
    Kept:    what has a kernel

    Casts that a runtime puts there itself it leaves out between two such nodes.
    """

    def __init__(self, kernels: Kernels) -> None:
        super().__init__(float16, kernels)

    def _lacks_kernel(self, node: ir.Node, opset: int) -> bool:
        types = type_bindings(node, opset)
        is_small = node.op_type != "Cast" and "float16" in types.values()
        return is_small and not self._kernels.supports(node.op_type, opset, types)


def count_missing_kernels(graph: ir.Graph, kernels: Kernels) -> Counter[str]:
    """The float16 nodes that a runtime has no kernel for, by operator; casts are none."""
    opset = graph.opset_imports[""]
    bound = [(n.op_type, type_bindings(n, opset)) for n in graph if n.op_type != "Cast"]
    return Counter(
        op
        for op, types in bound
        if "float16" in types.values() and not kernels.supports(op, opset, types)
    )


def _tensor_type(dtype: DType) -> ir.TensorType:
    return ir.TensorType(ir.DataType(dtype.code))


def _is_float32(value: ir.Value | None) -> bool:
    is_tensor = value is not None and value.name and isinstance(value.type, ir.TensorType)
    return bool(is_tensor) and dtype_of(value) == float32  # type: ignore[arg-type]  # a tensor is there


def _is_type_variable(kind: Schema, position: int) -> bool:
    """True if an operand's type may vary: the scales of a Resize are always float32."""
    return not kind.type_variable(position).startswith("tensor(")


def _output_variables(kind: Schema, node: ir.Node) -> set[str]:
    """The type variables of the real outputs of a node."""
    outputs = [o.type_str for o in kind.definition.outputs]
    return {outputs[min(i, len(outputs) - 1)] for i, v in enumerate(node.outputs) if _is_float32(v)}


def _fits_float16(content: np.ndarray[Any, Any]) -> bool:
    """True if numbers stay finite in float16; a lone one, which scales all, keeps its digits."""
    with np.errstate(over="ignore", under="ignore"):
        small = content.astype(np.float16)
    is_finite = bool(np.all(np.isfinite(small) == np.isfinite(content)))
    if not is_finite or content.size != 1 or not np.isfinite(content).all():
        return is_finite
    return bool(abs(float(small.item()) - content.item()) <= _DIGITS * abs(content.item()))
