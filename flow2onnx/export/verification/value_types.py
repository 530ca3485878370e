"""Shapes and element types of all values of a model without free sizes, node by node.

The standard's own propagation of data through a whole graph makes every list of numbers as long as
the graph says, and a few nodes say 2^40. Here only short lists are computed.
"""

import math
from collections.abc import Mapping

import numpy as np
import onnx
from flow2onnx_runtime.dtypes import Array
from onnx.defs import SchemaError, get_schema
from onnx.helper import make_graph, make_model, make_opsetid
from onnx.reference import ReferenceEvaluator
from onnx.shape_inference import infer_node_outputs, infer_shapes

from flow2onnx.export.verification.reference_fixes import FIXES
from flow2onnx.graph.nodes import RANDOM_OPERATORS

__all__ = ["Shape", "constants_of", "value_types"]

Shape = tuple[int, ...]
_LONGEST = 4096  # elements of a value that is computed: shapes, sizes, axes
_MOST = 1 << 62  # elements that numpy can count


def value_types(graph: onnx.GraphProto, opset: int) -> dict[str, tuple[Shape, int]]:
    """Shape and element type of each tensor of a flat graph that has both."""
    return _Inference(graph, opset).tensors()


def constants_of(graph: onnx.GraphProto) -> dict[str, Array]:
    """The tensors known before a graph runs: its initializers and those of its Constants."""
    found = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value":
                found[node.output[0]] = onnx.numpy_helper.to_array(attribute.t)
    return found


class _Inference:
    """The types of a graph's values, and the content of those that are known and short."""

    def __init__(self, graph: onnx.GraphProto, opset: int) -> None:
        self._opset = opset
        self._types = {v.name: v.type for v in graph.input}
        self._content: dict[str, onnx.TensorProto] = {}
        for tensor in graph.initializer:
            kind = onnx.helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
            self._types[tensor.name] = kind
            if math.prod(tensor.dims) <= _LONGEST:
                self._content[tensor.name] = tensor
        for node in graph.node:
            self._add(node)

    def tensors(self) -> dict[str, tuple[Shape, int]]:
        """Shape and element type by name."""
        found = {name: (_shape(kind), kind.tensor_type.elem_type)
                 for name, kind in self._types.items()}  # fmt: skip
        return {
            n: (shape, code) for n, (shape, code) in found.items() if shape is not None and code
        }

    def _add(self, node: onnx.NodeProto) -> None:
        found = self._infer(node)
        self._types |= {name: kind for name, kind in found.items() if name}
        if node.op_type not in RANDOM_OPERATORS:
            self._content |= self._compute(node)

    def _infer(self, node: onnx.NodeProto) -> Mapping[str, onnx.TypeProto]:
        types = {n: self._types[n] for n in node.input if n in self._types}
        content = {n: self._content[n] for n in types if n in self._content}
        imports = [make_opsetid("", self._opset)]
        try:
            schema = get_schema(node.op_type, self._opset, "")
            if len(types) < len(set(filter(None, node.input))):
                return {}  # a type is missing, which inference of one node asks for
            if not schema.has_type_and_shape_inference_function:
                return self._infer_by_body(node, types, content)
            return infer_node_outputs(
                schema, node, types, content, opset_imports=imports, ir_version=10
            )
        except (
            SchemaError,
            onnx.shape_inference.InferenceError,
            onnx.checker.ValidationError,
            ValueError,  # an element type that there is not
        ):
            return {}

    def _infer_by_body(
        self,
        node: onnx.NodeProto,
        types: Mapping[str, onnx.TypeProto],
        content: Mapping[str, onnx.TensorProto],
    ) -> dict[str, onnx.TypeProto]:
        """The types that follow from the functions that the standard defines an operator by."""
        inputs = [onnx.ValueInfoProto(name=n, type=t) for n, t in types.items()]
        outputs = [onnx.ValueInfoProto(name=n) for n in node.output if n]
        tensors = [_with_name(t, n) for n, t in content.items()]
        graph = make_graph([node], "node", inputs, outputs, tensors)
        model = make_model(graph, opset_imports=[make_opsetid("", self._opset)])
        found = infer_shapes(model).graph
        return {v.name: v.type for v in (*found.value_info, *found.output)}

    def _compute(self, node: onnx.NodeProto) -> dict[str, onnx.TensorProto]:
        """The content of the outputs of a node, where it is known and short."""
        shapes = [_shape(self._types.get(n, onnx.TypeProto())) for n in node.output if n]
        if not all(s is not None and math.prod(s) <= _LONGEST for s in shapes):
            return {}
        if node.op_type in ("Shape", "Size"):
            shape = _shape(self._types.get(node.input[0], onnx.TypeProto()))
            if shape is None or math.prod(shape) > _MOST:
                return {}
            feeds = {node.input[0]: np.broadcast_to(np.float32(0), shape)}  # of one element
        elif all(n in self._content for n in node.input if n):
            feeds = {n: onnx.numpy_helper.to_array(self._content[n]) for n in node.input if n}
        else:
            return {}
        return _evaluate(node, feeds, self._opset)


def _evaluate(
    node: onnx.NodeProto, feeds: Mapping[str, Array], opset: int
) -> dict[str, onnx.TensorProto]:
    graph = onnx.GraphProto(name="node", node=[node])
    graph.input.extend(onnx.ValueInfoProto(name=n) for n in feeds)
    graph.output.extend(onnx.ValueInfoProto(name=n) for n in node.output if n)
    try:
        with np.errstate(all="ignore"):
            found = ReferenceEvaluator(graph, opsets={"": opset}, new_ops=FIXES).run(
                None, dict(feeds)
            )
        return {
            n: onnx.numpy_helper.from_array(np.asarray(v), n)
            for n, v in zip(filter(None, node.output), found, strict=True)
        }
    except Exception:  # whatever its implementations in Python raise: it is not known, then
        return {}


def _with_name(tensor: onnx.TensorProto, name: str) -> onnx.TensorProto:
    copy = onnx.TensorProto()
    copy.CopyFrom(tensor)
    copy.name = name
    return copy


def _shape(kind: onnx.TypeProto) -> Shape | None:
    """The shape of a tensor all of whose sizes are known."""
    tensor = kind.tensor_type
    sizes = [d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim]
    return tuple(sizes) if tensor.HasField("shape") and min(sizes, default=0) >= 0 else None
