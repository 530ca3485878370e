"""The builder: `b.MatMul(x, w)` appends one typed ONNX node and returns its value."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
from onnx.defs import OpSchema
from onnx.shape_inference import InferenceError, infer_node_outputs

from flow2onnx.dtypes import DType, by_name, by_numpy
from flow2onnx.errors import ArgumentError, DTypeError, ShapeError
from flow2onnx.graph.schemas import Schema, opset_ids, schema
from flow2onnx.graph.types import dims, dtype_of

__all__ = ["Builder", "Operand"]

Operand = ir.Value | np.ndarray | bool | int | float | Sequence[Any] | None

# Inference looks at the content of shape-like constants; larger ones are data.
_INFERENCE_LIMIT = 256


class Builder:
    """Appends nodes to one graph. Every value has its name, shape and element type at once.

    Each standard operator is a method: positional operands (`None` for an omitted one; a Python
    number takes the element type its operator asks for; a list of ints is int64), attributes by
    keyword. `several` is for operators with more than one output. `nodes` lists what was appended.
    """

    def __init__(self, opset: int = 21) -> None:
        self.opset = opset
        self.graph = ir.Graph([], [], nodes=[], opset_imports={"": opset}, name="job")
        self.nodes: list[ir.Node] = []
        self.prefix = ""
        self.source: str | None = None
        self._names: Counter[str] = Counter()
        self._constants: dict[tuple[Any, ...], ir.Value] = {}
        self._types: dict[ir.Value, onnx.TypeProto] = {}
        self._opsets = opset_ids(opset)

    def __getattr__(self, op_type: str) -> Callable[..., ir.Value]:
        if not op_type[:1].isupper():
            raise AttributeError(op_type)

        def emit(*operands: Operand, **attributes: Any) -> ir.Value:
            return self.emit(op_type, operands, attributes)[0]

        self.__dict__[op_type] = emit
        return emit

    def several(
        self, op_type: str, *operands: Operand, outputs: int, **attributes: Any
    ) -> tuple[ir.Value, ...]:
        """The first `outputs` outputs of a node."""
        return self.emit(op_type, operands, attributes, outputs)

    @contextmanager
    def under(self, prefix: str, source: str | None = None) -> Iterator[None]:
        """Name the nodes made inside after `prefix` and attribute them to the user's line."""
        before = self.prefix, self.source
        self.prefix, self.source = prefix, source or self.source
        try:
            yield
        finally:
            self.prefix, self.source = before

    def unique(self, name: str) -> str:
        """`name`, or the first of `name_1`, `name_2`, … that is still free in this graph."""
        count = self._names[name]
        self._names[name] += 1
        return name if not count else self.unique(f"{name}_{count}")

    def input(self, name: str, shape: Sequence[int | str | None], dtype: DType) -> ir.Value:
        """A new input of the graph."""
        value = ir.Value(
            name=self.unique(name),
            shape=ir.Shape(shape),
            type=ir.TensorType(ir.DataType(dtype.code)),
        )
        assert value.name == name, f"input {name} is there already"
        self.graph.inputs.append(value)
        return value

    def output(self, value: ir.Value, name: str) -> ir.Value:
        """Make `value` an output called `name`; one that has another role already is copied."""
        taken = value.is_graph_input() or value.is_graph_output() or value.is_initializer()
        if taken:
            value = self.Identity(value)
        assert value.producer() is not None, f"{value.name} comes from nowhere"
        value.name = self.unique(name)
        self.graph.outputs.append(value)
        return value

    def rename(self, value: ir.Value, name: str) -> None:
        """Give a value another name, numbered if that is taken."""
        value.name = self.unique(name)

    def const(self, content: Any, dtype: DType | None = None) -> ir.Value:
        """A constant; equal constants are one value."""
        try:
            if content is None:  # numpy would make it NaN
                raise TypeError
            array = np.asarray(content, dtype=dtype.numpy if dtype else None)
        except (OverflowError, TypeError, ValueError):
            what = f"{dtype.name} holds no" if dtype else "no constant is made of"
            raise ArgumentError(f"{what} {content!r}") from None
        if dtype is None and not isinstance(content, np.ndarray | np.generic):
            array = array.astype(
                {"f": np.float32, "i": np.int64}.get(array.dtype.kind, array.dtype)
            )
        key = (array.dtype.str, array.dtype.name, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self._initializer(
                np.ascontiguousarray(array).reshape(array.shape)
            )
        return self._constants[key]

    def like(self, content: Any, value: ir.Value) -> ir.Value:
        """`content` as an operand beside `value`: a number takes its element type."""
        return content if isinstance(content, ir.Value) else self.const(content, dtype_of(value))

    def _initializer(self, array: np.ndarray[Any, Any]) -> ir.Value:
        tensor = ir.Tensor(array, dtype=ir.DataType(by_numpy(array.dtype).code))
        name = self.unique(f"const/{len(self._constants)}")
        tensor.name = name
        value = ir.Value(
            name=name,
            shape=ir.Shape(array.shape),
            type=ir.TensorType(tensor.dtype),
            const_value=tensor,
        )
        self.graph.initializers[name] = value
        return value

    def emit(
        self,
        op_type: str,
        operands: Sequence[Operand],
        attributes: Mapping[str, Any] = {},
        outputs: int = 0,
    ) -> tuple[ir.Value, ...]:
        """Append a node; returns the outputs asked for, else as few as it may have."""
        kind = schema(op_type, self.opset)
        inputs = self._operands(kind, operands)
        attrs = [_attribute(kind, k, v) for k, v in attributes.items() if v is not None]
        node = ir.Node("", op_type, inputs, attrs, num_outputs=outputs or kind.minimum_outputs)
        stem = f"{self.prefix}/{op_type}" if self.prefix else op_type
        for value in node.outputs:
            value.name = self.unique(stem)
        node.name = node.outputs[0].name
        node.meta["source"] = self.source
        self._infer(kind, node)
        self.graph.append(node)
        self.nodes.append(node)
        return tuple(node.outputs)

    def another_output(self, node: ir.Node) -> ir.Value:
        """One more output of a node that was made with fewer than it may have."""
        node.resize_outputs(len(node.outputs) + 1)
        value = node.outputs[-1]
        value.name = self.unique(f"{node.name}/{len(node.outputs) - 1}")
        self._infer(schema(node.op_type, self.opset), node)
        return value

    def _operands(self, kind: Schema, operands: Sequence[Operand]) -> list[ir.Value | None]:
        known: dict[str, DType] = {}
        for position, operand in enumerate(operands):
            if isinstance(operand, ir.Value):
                variable = kind.type_variable(position)
                dtype = dtype_of(operand)
                if known.setdefault(variable, dtype) != dtype and not _mixes(kind, position):
                    raise DTypeError(
                        f"{kind.op_type} takes one element type, got "
                        f"{known[variable].name} and {dtype.name}",
                        hint="there is no promotion: cast one of them with flow.cast",
                    )
        return [self._operand(kind, i, o, known) for i, o in enumerate(operands)]

    def _operand(
        self, kind: Schema, position: int, operand: Operand, known: dict[str, DType]
    ) -> ir.Value | None:
        if operand is None or isinstance(operand, ir.Value):
            return operand
        variable = kind.type_variable(position)
        if variable.startswith("tensor("):
            return self.const(operand, _fixed_type(variable))
        if isinstance(operand, np.ndarray):
            return self.const(operand)
        return self.const(operand, known.get(variable))

    def _infer(self, kind: Schema, node: ir.Node) -> None:
        proto = _node_proto(node)
        types: dict[str, onnx.TypeProto] = {}
        data: dict[str, onnx.TensorProto] = {}
        for value in node.inputs:
            if value is not None:
                assert value.name is not None
                types[value.name] = self._type(value)
                content = value.const_value
                if content is not None and content.size <= _INFERENCE_LIMIT:
                    data[value.name] = ir.to_proto(content)
        try:
            inferred = infer_node_outputs(
                kind.definition, proto, types, data, opset_imports=self._opsets, ir_version=10
            )
        except InferenceError as error:
            raise ShapeError(f"{_call_text(node)}: {_reason(error)}") from None
        except onnx.checker.ValidationError as error:
            kind_of_error = DTypeError if " type" in str(error) else ArgumentError
            raise kind_of_error(f"{_call_text(node)}: {_reason(error)}") from None
        for value in node.outputs:
            assert value.name is not None
            self._set_type(value, inferred.get(value.name))

    def _type(self, value: ir.Value) -> onnx.TypeProto:
        if value not in self._types:
            assert value.type is not None, f"{value.name} has no type"
            assert value.shape is not None, f"{value.name} has no shape"
            proto = ir.to_proto(value.type)
            ir.serde.serialize_shape_into(proto, value.shape)
            self._types[value] = proto
        return self._types[value]

    def _set_type(self, value: ir.Value, proto: onnx.TypeProto | None) -> None:
        if proto is None or not proto.tensor_type.elem_type:
            raise ShapeError(f"the type of {value.name} cannot be inferred")
        value.type = ir.TensorType(ir.DataType(proto.tensor_type.elem_type))
        assert proto.tensor_type.HasField("shape"), f"no rank for {value.name}"
        sizes = [
            d.dim_value if d.HasField("dim_value") else (d.dim_param or None)
            for d in proto.tensor_type.shape.dim
        ]
        value.shape = ir.Shape(sizes)
        self._types[value] = proto


def _mixes(kind: Schema, position: int) -> bool:
    """Whether inputs of this operator may differ though they share a type variable's name."""
    heterogeneous = kind.is_variadic and not kind.definition.inputs[-1].is_homogeneous
    return heterogeneous and position >= len(kind.type_variables) - 1


def _fixed_type(text: str) -> DType:
    name = text.removeprefix("tensor(").removesuffix(")")
    return by_name({"float": "float32", "double": "float64"}.get(name, name))


def _attribute(kind: Schema, name: str, value: Any) -> ir.Attr:
    if isinstance(value, DType):
        value = value.code
    if isinstance(value, ir.Graph):
        return ir.AttrGraph(name, value)
    if isinstance(value, np.ndarray):
        return ir.AttrTensor(name, ir.tensor(value))
    wanted = kind.attribute_types.get(name)
    assert wanted is not None, f"{kind.op_type} has no attribute {name}"
    if wanted == OpSchema.AttrType.FLOAT:
        return ir.AttrFloat32(name, float(value))
    if wanted == OpSchema.AttrType.FLOATS:
        return ir.AttrFloat32s(name, [float(v) for v in value])
    if isinstance(value, str):
        return ir.AttrString(name, value)
    if isinstance(value, Sequence):
        return ir.AttrInt64s(name, [int(v) for v in value])
    return ir.AttrInt64(name, int(value))


def _node_proto(node: ir.Node) -> onnx.NodeProto:
    proto = onnx.NodeProto(op_type=node.op_type)
    proto.input.extend([(v.name or "") if v is not None else "" for v in node.inputs])
    proto.output.extend([v.name or "" for v in node.outputs])
    for attribute in node.attributes.values():
        proto.attribute.append(ir.to_proto(attribute))
    return proto


def _call_text(node: ir.Node) -> str:
    operands = ("-" if v is None else _operand_text(v) for v in node.inputs)
    return f"{node.op_type}({', '.join(operands)}) has no result"


def _operand_text(value: ir.Value) -> str:
    shape = dims(value) if value.shape is not None and value.shape.is_static() else value.shape
    return f"{dtype_of(value).name}{shape}"


def _reason(error: Exception) -> str:
    """The standard's own words without its brackets and line numbers."""
    text = str(error).split("] ", 1)[-1] if "] " in str(error) else str(error)
    return text.strip().splitlines()[0]


assert ml_dtypes  # registers bfloat16 with numpy
