"""The builder: `b.MatMul(x, w)` appends one typed ONNX node and returns its value."""

from collections import ChainMap, Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
from onnx.defs import OpSchema
from onnx.shape_inference import InferenceError, infer_node_outputs

from flow2onnx.dtypes import DType, by_name, by_numpy
from flow2onnx.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError
from flow2onnx.graph.contrib import CONTRIB, contrib_types
from flow2onnx.graph.dimension import Dimension
from flow2onnx.graph.inference_cache import InferenceCache, Inferred, is_static_tensor
from flow2onnx.graph.nodes import operator_name, read_values
from flow2onnx.graph.schemas import Schema, element_name, opset_ids, schema
from flow2onnx.graph.shape_inference import infer_missing_shape
from flow2onnx.graph.symbolic_sizes import SymbolicSize, known_bounds, output_bounds
from flow2onnx.graph.transfers import Transfer, transfer_node
from flow2onnx.graph.types import dims, dtype_of, is_static, sizes_of

__all__ = ["Builder", "Operand"]

Operand = ir.Value | Dimension | np.ndarray | bool | int | float | Sequence[Any] | None

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
        self.place: int | None = None  # the one process that computes what is made, if not all do
        self._names: Counter[str] = Counter()
        self._constants: dict[tuple[Any, ...], ir.Value] = {}
        self._types: dict[ir.Value, onnx.TypeProto] = {}
        self._contents: dict[ir.TensorProtocol, onnx.TensorProto] = {}
        self._inferred = InferenceCache(_INFERENCE_LIMIT)
        self._opsets = opset_ids(opset)
        self._extents: ChainMap[str, SymbolicSize] = ChainMap()  # sizes known at run time, by name
        self.unrolled = 0  # nodes that loops have been unrolled to
        self.unrolled_times = 1  # how often the loops run that the one to unroll stands in
        self.most_nodes: int | None = None  # more raise, where others say what is made
        self._place: int | None = None  # where nodes go; None: at the end
        self._imports = self.graph.opset_imports  # of the graph that all others are inside of
        # a size that stands for any: nothing of that size becomes a constant
        self.free_size: int | None = None
        # what is said elsewhere of the outputs of the next node; used where inference knows less
        self.expected: Sequence[ir.Value] = ()

    @classmethod
    def inside(cls, outer: "Builder", name: str | None) -> "Builder":
        """A builder of a graph inside a node, which may read the values around it."""
        inner = cls(outer.opset)
        inner.graph.name, inner._names = name, outer._names
        inner._imports, inner._opsets = outer._imports, outer._opsets
        inner._extents, inner._inferred = outer._extents.new_child(), outer._inferred
        return inner

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

    def name_counts(self) -> Mapping[str, int]:
        """How often each name was asked for, which decides on the names of what comes next."""
        return dict(self._names)

    def input(self, name: str, shape: Sequence[int | str | None], dtype: DType) -> ir.Value:
        """A new input of the graph."""
        value = ir.Value(
            name=self.unique(name),
            shape=ir.Shape(shape),
            type=ir.TensorType(ir.DataType(dtype.code)),
        )
        assert value.name == name, f"input {name} is there already"
        self.graph.inputs.append(value)
        self._name_sizes(value, known_bounds(value))
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

    def vector(self, sizes: Sequence[int | str | Dimension]) -> ir.Value:
        """Sizes as an operand; those that have a name are read off a value when the graph runs."""
        parts = [self._size(d) for d in sizes]
        joined: ir.Value = parts[0] if len(parts) == 1 else self.Concat(*parts, axis=0)
        joined.meta["sizes"] = tuple(d.text if isinstance(d, Dimension) else d for d in sizes)
        return joined

    def _size(self, size: int | str | Dimension) -> ir.Value:
        """A size as a vector of one element."""
        if isinstance(size, Dimension):
            return size.value
        return self._extent(size) if isinstance(size, str) else self.const([int(size)])

    def _extent(self, name: str) -> ir.Value:
        """A size with a name, as a vector of one element."""
        extent = self._extents[name]
        if self.opset < 15:
            return self.emit("Gather", (self.Shape(extent.value), [extent.axis]))[0]
        return self.emit("Shape", (extent.value,), {"start": extent.axis, "end": extent.axis + 1})[
            0
        ]

    def agree(self, value: ir.Value, other: ir.Value) -> ir.Value:
        """`value`, which is known to have the shape of `other`, with the names of its sizes."""
        if is_static(value):
            return value
        known = zip(sizes_of(value), sizes_of(other), strict=True)
        value.shape = ir.Shape([d if isinstance(d, int) else e for d, e in known])
        value.meta["bounds"] = known_bounds(other)
        self._types.pop(value, None)
        return value

    def read_sizes_of(self, value: ir.Value, other: ir.Value) -> None:
        """Read what sizes by name `other` was read for off `value`, which stands for it."""
        for name, size in list(self._extents.items()):
            if size.value is other:
                self._extents[name] = replace(size, value=value)

    def _initializer(self, array: np.ndarray[Any, Any]) -> ir.Value:
        name = self.unique(f"const/{len(self._constants)}")
        tensor = ir.Tensor(array, dtype=ir.DataType(by_numpy(array.dtype).code), name=name)
        value = ir.val(name, const_value=tensor)
        self.graph.register_initializer(value)
        return value

    def emit(
        self,
        op_type: str,
        operands: Sequence[Operand],
        attributes: Mapping[str, Any] = {},
        outputs: int = 0,
    ) -> tuple[ir.Value, ...]:
        """Append a node; returns the outputs asked for, else as few as it may have.

        An operator of the runtime's own is named with its domain: ``com.microsoft::MatMulNBits``.
        """
        kind = schema(op_type, self.opset)
        inputs = self._operands(kind, operands)
        attrs = [_attribute(kind, self.opset, k, v) for k, v in attributes.items() if v is not None]
        count = outputs or kind.minimum_outputs
        node = ir.Node(kind.domain, kind.op_type, inputs, attrs, num_outputs=count)
        if kind.domain and kind.domain not in self._imports:
            self._imports[kind.domain] = kind.definition.since_version
            self._opsets.append(onnx.helper.make_opsetid(kind.domain, 1))
        stem = f"{self.prefix}/{kind.op_type}" if self.prefix else kind.op_type
        for value in node.outputs:
            value.name = self.unique(stem)
        node.name = node.outputs[0].name
        node.meta["source"] = self.source
        if self.place is not None:
            node.meta["place"] = self.place
        self._infer(kind, node)
        self._place_node(node)
        return tuple(node.outputs)

    def transfer(
        self,
        transfer: Transfer,
        value: ir.Value,
        shape: Sequence[int],
        before: ir.Node | None,
        indices: ir.Value | None = None,
    ) -> ir.Value:
        """The part of a value that processes have after a transfer, before a node or at the end."""
        node = transfer_node(transfer, value, indices)
        stem = f"{self.prefix}/{transfer.kind}" if self.prefix else transfer.kind
        made = node.outputs[0]
        made.name = node.name = self.unique(stem)
        made.shape = ir.Shape(shape)
        node.meta["source"] = self.source
        if before is None:
            self._place_node(node)
        else:
            with self.before(before):
                self._place_node(node)
        return made

    def another_output(self, node: ir.Node) -> ir.Value:
        """One more output of a node that was made with fewer than it may have."""
        node.resize_outputs(len(node.outputs) + 1)
        value = node.outputs[-1]
        value.name = self.unique(f"{node.name}/{len(node.outputs) - 1}")
        self._infer(schema(operator_name(node), self.opset), node)
        return value

    def resize(self, value: ir.Value, shape: Sequence[int]) -> None:
        """Give a value other sizes, which what makes it has, or is about to have."""
        value.shape = ir.Shape(shape)
        self._types.pop(value, None)

    def undo(self) -> None:
        """Take out the node made last, which nothing reads yet."""
        self.graph.remove(self.nodes.pop(self._place - 1 if self._place is not None else -1))
        if self._place is not None:
            self._place -= 1

    @contextmanager
    def before(self, node: ir.Node) -> Iterator[None]:
        """Put the nodes made inside before `node` instead of at the end."""
        assert self._place is None, "one place at a time"
        self._place = self.nodes.index(node)
        try:
            yield
        finally:
            self._place = None

    def _place_node(self, node: ir.Node) -> None:
        if self.most_nodes is not None and len(self.nodes) >= self.most_nodes:
            raise UnsupportedError(
                f"a graph of more than {self.most_nodes} nodes",
                hint="set FLOW2ONNX_MOST_NODES if it is meant to be so large",
            )
        if self._place is None:
            self.graph.append(node)
            self.nodes.append(node)
        else:
            self.graph.insert_before(self.nodes[self._place], node)
            self.nodes.insert(self._place, node)
            self._place += 1

    @staticmethod
    def node_proto(node: ir.Node) -> onnx.NodeProto:
        """A node in the standard's form."""
        return _node_proto(node)

    def _operands(self, kind: Schema, operands: Sequence[Operand]) -> list[ir.Value | None]:
        known: dict[str, DType] = {}
        for position, operand in enumerate(operands):
            if isinstance(operand, ir.Value):
                variable = kind.type_variable(position)
                dtype = dtype_of(operand)
                if known.setdefault(variable, dtype) != dtype and not _may_mix_types(
                    kind, position
                ):
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
        if isinstance(operand, Dimension):
            return operand.value
        variable = kind.type_variable(position)
        if isinstance(operand, list | tuple) and any(
            isinstance(d, str | Dimension) for d in operand
        ):
            return self.vector(operand)
        if variable.startswith("tensor("):
            return self.const(operand, by_name(element_name(variable)))
        if isinstance(operand, np.ndarray):
            return self.const(operand)
        return self.const(operand, known.get(variable))

    def _infer(self, kind: Schema, node: ir.Node) -> None:
        """Give the outputs of a node their types: inferred, or those of an equal node."""
        key = None if self.expected else self._inferred.key(node)
        known = None if key is None else self._inferred.types(key)
        if known is not None:
            for value, (dtype, shape, proto) in zip(node.outputs, known, strict=True):
                value.type, value.shape = ir.TensorType(dtype), ir.Shape(shape)
                self._types[value] = proto
            return
        if operator_name(node) in CONTRIB:
            self._infer_contrib(node)
        else:
            self._infer_standard(kind, node)
        if key is not None and all(map(is_static_tensor, node.outputs)):
            types = [Inferred.of(value, self.type_proto(value)) for value in node.outputs]
            self._inferred.keep(key, types)

    def _infer_standard(self, kind: Schema, node: ir.Node) -> None:
        proto = _node_proto(node)
        types: dict[str, onnx.TypeProto] = {}
        data: dict[str, onnx.TensorProto] = {}
        for value in read_values(node):
            if value is not None:
                assert value.name is not None
                types[value.name] = self.type_proto(value)
                content = value.const_value
                if content is not None and content.size <= _INFERENCE_LIMIT:
                    data[value.name] = self._tensor_proto(content)
        try:
            inferred = infer_node_outputs(
                kind.inference, proto, types, data, opset_imports=self._opsets, ir_version=10
            )
        except InferenceError as error:
            raise ShapeError(f"{_call_text(node)}: {_reason(error)}") from None
        except onnx.checker.ValidationError as error:
            kind_of_error = DTypeError if " type" in str(error) else ArgumentError
            raise kind_of_error(f"{_call_text(node)}: {_reason(error)}") from None
        except ValueError as error:  # as onnx calls an element type that there is not
            raise ArgumentError(f"{_call_text(node)}: {error}") from None
        if not kind.inference.has_type_and_shape_inference_function:
            # two normalisations, which keep the type of what they normalise
            inferred[proto.output[0]] = types[proto.input[0]]
        expected = self.expected if len(self.expected) == len(node.outputs) else ()
        for i, value in enumerate(node.outputs):
            assert value.name is not None
            found = infer_missing_shape(node, i, inferred.get(value.name))
            known = _complete_type(found, expected[i] if expected else None)
            self._set_type(value, known)
        self._bound(kind, node, proto, types, data)

    def _infer_contrib(self, node: ir.Node) -> None:
        """Give the outputs of an operator beside the standard their types."""
        types = contrib_types(operator_name(node), node)
        for value in node.outputs:
            self._set_type(value, types[str(value.name)])
            self._name_sizes(value, [None] * len(value.shape or ()))

    def _bound(
        self,
        kind: Schema,
        node: ir.Node,
        proto: onnx.NodeProto,
        types: Mapping[str, onnx.TypeProto],
        data: Mapping[str, onnx.TensorProto],
    ) -> None:
        """Name the sizes of the outputs that are known at run time only, and find their bounds."""
        unknown = [
            v for v in node.outputs if isinstance(v.type, ir.TensorType) and not is_static(v)
        ]
        if not unknown:
            return
        most = {str(v.name): _type_at_bounds(types[str(v.name)], v) for v in node.inputs if v}
        told = {
            str(v.name): t for v in node.inputs if v and (t := _sizes_content(self._extents, v))
        }
        try:
            found = infer_node_outputs(
                kind.inference, proto, {**types, **most}, {**data, **told},
                opset_imports=self._opsets, ir_version=10,
            )  # fmt: skip
        except (InferenceError, onnx.checker.ValidationError, ValueError):
            found = {}
        limits = output_bounds(node, [found.get(str(v.name)) for v in node.outputs])
        for value, bounds in zip(node.outputs, limits, strict=True):
            if value in unknown:
                self._name_sizes(value, bounds)

    def _name_sizes(self, value: ir.Value, bounds: Sequence[int | None]) -> None:
        """Name every size of a value that has no name; `bounds` are those of the new names."""
        shape: list[int | str] = []
        for axis, d in enumerate(value.shape or ()):
            name = d if isinstance(d, int) else d.value or self._free_size_name()
            if isinstance(name, str) and name not in self._extents:
                self._extents[name] = SymbolicSize(value, axis, bounds[axis])
            shape.append(name)
        if any(isinstance(d, str) for d in shape):
            value.shape = ir.Shape(shape)
            value.meta["bounds"] = tuple(
                self._extents[d].bound if isinstance(d, str) else d for d in shape
            )
            self._types.pop(value, None)

    def _free_size_name(self) -> str:
        self._names["size known at run time"] += 1
        return f"dynamic_{self._names['size known at run time']}"

    def _tensor_proto(self, tensor: ir.TensorProtocol) -> onnx.TensorProto:
        if tensor not in self._contents:
            self._contents[tensor] = ir.serde.serialize_tensor(tensor)
        return self._contents[tensor]

    def type_proto(self, value: ir.Value) -> onnx.TypeProto:
        """The type of a value in the standard's form."""
        if value not in self._types:
            assert value.type is not None, f"{value.name} has no type"
            assert value.shape is not None, f"{value.name} has no shape"
            proto = _type_proto(value.type)
            ir.serde.serialize_shape_into(proto, value.shape)
            self._types[value] = proto
        return self._types[value]

    def _set_type(self, value: ir.Value, proto: onnx.TypeProto | None) -> None:
        if proto is not None and proto.WhichOneof("value") == "sequence_type":
            value.type = ir.serde.deserialize_type_proto_for_type(proto)
            value.shape = ir.serde.deserialize_type_proto_for_shape(proto)
            self._types[value] = proto
            return
        if proto is None or not proto.tensor_type.elem_type:
            raise ShapeError(f"the type of {value.name} cannot be inferred")
        value.type = ir.TensorType(ir.DataType(proto.tensor_type.elem_type))
        if not proto.tensor_type.HasField("shape"):
            raise ShapeError(
                f"the rank of {value.name} is known only at run time",
                hint="let the operands that decide on it be constants",
            )
        sizes = [
            d.dim_value if d.HasField("dim_value") else (d.dim_param or None)
            for d in proto.tensor_type.shape.dim
        ]
        if any(isinstance(size, int) and size < 0 for size in sizes):
            raise ShapeError(
                f"{value.name} would have the sizes {sizes}",
                hint="give windows, pads and slices that fit into the operand",
            )
        value.shape = ir.Shape(sizes)
        self._types[value] = proto


def _type_at_bounds(proto: onnx.TypeProto, value: ir.Value) -> onnx.TypeProto:
    """The type of a value that is as large as it may be."""
    if is_static(value) or not isinstance(value.type, ir.TensorType):
        return proto
    return onnx.helper.make_tensor_type_proto(proto.tensor_type.elem_type, known_bounds(value))


def _sizes_content(extents: Mapping[str, SymbolicSize], value: ir.Value) -> onnx.TensorProto | None:
    """A vector of sizes as large as they may be."""
    given = value.meta.get("sizes", ())
    if not given or any(isinstance(d, str) and d not in extents for d in given):
        return None
    sizes = [extents[d].bound if isinstance(d, str) else d for d in given]
    if None in sizes:
        return None
    return onnx.numpy_helper.from_array(np.asarray(sizes, np.int64))


def _complete_type(proto: onnx.TypeProto | None, said: ir.Value | None) -> onnx.TypeProto | None:
    """An inferred type with what inference left open taken from what is said of the value."""
    if said is None or said.type is None or said.shape is None:
        return proto
    told = _type_proto(said.type)
    ir.serde.serialize_shape_into(told, said.shape)
    if proto is None or not proto.WhichOneof("value"):
        return told
    if proto.WhichOneof("value") != "tensor_type" or told.WhichOneof("value") != "tensor_type":
        return proto
    have, other = proto.tensor_type, told.tensor_type
    if not have.HasField("shape"):
        have.shape.CopyFrom(other.shape)
    elif len(have.shape.dim) == len(other.shape.dim):
        for mine, theirs in zip(have.shape.dim, other.shape.dim, strict=True):
            if not mine.HasField("dim_value") and theirs.HasField("dim_value"):
                mine.dim_value = theirs.dim_value
    return proto


def _may_mix_types(kind: Schema, position: int) -> bool:
    """True if inputs of this operator may differ though they share a type variable's name."""
    heterogeneous = kind.is_variadic and not kind.definition.inputs[-1].is_homogeneous
    return heterogeneous and position >= len(kind.type_variables) - 1


def _attribute(kind: Schema, opset: int, name: str, value: Any) -> ir.Attr:
    if isinstance(value, ir.Attr):
        return value
    if isinstance(value, DType):
        value = value.code
    if isinstance(value, ir.Graph):
        return ir.AttrGraph(name, value)
    if isinstance(value, np.ndarray):
        return ir.AttrTensor(name, ir.tensor(value))
    wanted = kind.attribute_types.get(name)
    if wanted is None:
        raise UnsupportedError(
            f"{kind.op_type} has no attribute {name} at opset {opset}",
            hint="ask for a newer opset; 21 is the usual one",
        )
    if wanted == OpSchema.AttrType.FLOAT:
        return ir.AttrFloat32(name, float(value))
    if wanted == OpSchema.AttrType.FLOATS:
        return ir.AttrFloat32s(name, [float(v) for v in value])
    if wanted == OpSchema.AttrType.STRINGS:
        return ir.AttrStrings(name, list(value))
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
        serialize = (
            ir.serde.serialize_reference_attribute
            if attribute.is_ref()
            else ir.serde.serialize_attribute
        )
        proto.attribute.append(serialize(attribute))
    return proto


def _type_proto(kind: ir.TypeProtocol) -> onnx.TypeProto:
    proto = onnx.TypeProto()
    ir.serde.serialize_type_into(proto, kind)
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
