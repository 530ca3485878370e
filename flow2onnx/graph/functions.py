"""Bodies made into nodes: functions of the standard, branches, and anything else given as nodes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from flow2onnx.dtypes import by_code
from flow2onnx.errors import ArgumentError, ShapeError, UnsupportedError
from flow2onnx.graph.builder import Builder
from flow2onnx.graph.schemas import schema
from flow2onnx.graph.sequence_content import SEQUENCE_READERS, read_sequence
from flow2onnx.graph.types import constant_of, is_static
from flow2onnx.graph.unroll import unroll_loop, unroll_scan

__all__ = ["expand_sequence", "fold_constants", "inline_nodes", "standard_body", "unroll"]

# What is computed while the graph is built: shapes and the like, not data.
_LARGEST_CONSTANT = 4096
_DRAWS = {
    "Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
    "RandomUniformLike",
}  # fmt: skip
_CONTROL = {"If", "Loop", "Scan", "SequenceMap"}

# The values that stand for those of a body.
Known = Mapping[ir.Value | None, ir.Value | None]
# What a body's node becomes: (builder, node, its inputs) -> its outputs, or None to copy it.
Substitute = Callable[
    [Builder, ir.Node, Sequence[ir.Value | None]], Sequence[ir.Value | None] | None
]


def standard_body(b: Builder, node: ir.Node) -> tuple[ir.Value, ...] | None:
    """The outputs of a node by the body that the standard gives its operator, or None."""
    content = _body_bytes(b, node)
    if content is None:
        return None
    proto = onnx.FunctionProto.FromString(content)
    del proto.output[len(node.outputs) :]  # a body may leave out what is not asked for
    function = ir.serde.deserialize_function(proto)
    given = {**_default_attributes(b, node), **node.attributes}
    inputs = [*node.inputs, *[None] * (len(function.inputs) - len(node.inputs))]
    made = inline_nodes(b, function, function.inputs, inputs, function.outputs, given)
    return tuple(v for v in made if v is not None)


def _body_bytes(b: Builder, node: ir.Node) -> bytes | None:
    """The body of an operator at the builder's opset, the one for these inputs if it has many."""
    # Any: onnx's own stub leaves out what it says of bodies
    definition: Any = schema(node.op_type, b.opset).definition
    if definition.has_function:
        version = _newest_version(definition.function_opset_versions, b.opset)
        if version is not None:
            content: bytes = definition.get_function_with_opset_version(version)
            return content
    if definition.has_context_dependent_function:
        version = _newest_version(definition.context_dependent_function_opset_versions, b.opset)
        if version is not None:
            types = [
                (b.type_proto(v) if v is not None else onnx.TypeProto()).SerializeToString()
                for v in node.inputs
            ]
            proto = b.node_proto(node).SerializeToString()
            found: bytes = definition.get_context_dependent_function_with_opset_version(
                version, proto, types
            )
            return found or None
    return None


def _newest_version(versions: Iterable[int], opset: int) -> int | None:
    return max((v for v in versions if v <= opset), default=None)


def _default_attributes(b: Builder, node: ir.Node) -> dict[str, ir.Attr]:
    """What the standard assumes for the attributes that a node does not give."""
    known = schema(node.op_type, b.opset).definition.attributes
    return {
        name: ir.serde.deserialize_attribute(a.default_value)
        for name, a in known.items()
        if a.default_value.name
    }


def inline_nodes(
    b: Builder,
    body: Iterable[ir.Node],
    formal: Sequence[ir.Value],
    actual: Sequence[ir.Value | None],
    results: Sequence[ir.Value],
    attributes: Mapping[str, ir.Attr] = {},
    substitute: Substitute | None = None,
) -> tuple[ir.Value | None, ...]:
    """Append copies of the nodes of `body` with `actual` in the place of `formal`.

    Returns the copies of `results`. Values of `body` that neither it nor `formal` defines are
    taken as they are. `attributes` are what a function was called with. What can be computed from
    constants is.
    """
    known: dict[ir.Value | None, ir.Value | None] = {None: None}
    known.update(zip(formal, actual, strict=True))
    if isinstance(body, ir.Graph):
        for value in body.initializers.values():
            assert value.const_value is not None, f"{value.name} has no content"
            known[value] = b.const(value.const_value.numpy())
    for node in body:
        inputs = [known.get(v, v) for v in node.inputs]
        made = substitute(b, node, inputs) if substitute else None
        if made is None:
            made = _copy_node(b, node, inputs, attributes, known)
        known.update(zip(node.outputs, made, strict=True))
    return tuple(known.get(v, v) for v in results)


def _copy_node(
    b: Builder,
    node: ir.Node,
    inputs: Sequence[ir.Value | None],
    attributes: Mapping[str, ir.Attr],
    known: Known,
) -> tuple[ir.Value, ...]:
    if node.op_type == "Constant":
        return (b.const(_constant_content(_resolve_attributes(node, attributes, known))),)
    branch = _constant_branch(node, inputs)
    if branch is not None:
        made = inline_nodes(b, branch, [v for v in known if v], [known[v] for v in known if v],
                      branch.outputs, attributes)  # fmt: skip
        return tuple(v for v in made if v is not None)
    taken = _fold_compress(b, node, inputs)
    if taken is not None:
        return (taken,)
    while inputs and inputs[-1] is None:
        inputs = inputs[:-1]
    given = _resolve_attributes(node, attributes, known)
    if node.op_type == "STFT":  # inference takes what is not said for 0, the standard for 1
        given.setdefault("onesided", ir.AttrInt64("onesided", 1))
    if node.op_type == "Range":  # bodies of the standard pass one element for a scalar
        inputs = [_as_scalar(b, v) for v in inputs]
    if node.op_type in ("Loop", "Scan"):
        return _copy_loop(b, node, inputs, given)
    if node.op_type in SEQUENCE_READERS:
        with suppress(UnsupportedError):
            return (expand_sequence(b, node, inputs),)
    return fold_constants(b, b.emit(node.op_type, inputs, given, len(node.outputs)))


def expand_sequence(b: Builder, node: ir.Node, inputs: Sequence[ir.Value | None]) -> ir.Value:
    """What a node makes of a sequence, made of the tensors that the sequence holds."""

    def mapped(body: ir.Graph, actual: Sequence[ir.Value | None]) -> Sequence[ir.Value | None]:
        return inline_nodes(b, body, body.inputs, actual, body.outputs)

    return read_sequence(b, node, inputs, mapped)


def _as_scalar(b: Builder, value: ir.Value | None) -> ir.Value | None:
    content = constant_of(value)
    return value if content is None or not content.ndim else b.const(content.reshape(()))


def _copy_loop(
    b: Builder,
    node: ir.Node,
    inputs: Sequence[ir.Value | None],
    attributes: Mapping[str, ir.Attr],
) -> tuple[ir.Value, ...]:
    """A loop as it is where inference knows its shapes, else one turn after the other."""
    try:
        outputs = b.emit(node.op_type, inputs, attributes, len(node.outputs))
    except ShapeError:
        return unroll(b, node, inputs, attributes)
    if all(is_static(v) for v in outputs):
        return outputs
    try:
        made = unroll(b, node, inputs, attributes)
    except UnsupportedError:
        return outputs  # shapes that are known at run time are enough to run it
    return made


def unroll(
    b: Builder,
    node: ir.Node,
    inputs: Sequence[ir.Value | None],
    attributes: Mapping[str, ir.Attr],
) -> tuple[ir.Value, ...]:
    """The outputs of a Loop or Scan as nodes of its turns; how many there are must be known."""
    body = attributes["body"].as_graph()

    def turn(actual: Sequence[ir.Value | None]) -> list[ir.Value]:
        made = inline_nodes(b, body, body.inputs, actual, body.outputs)
        return [v for v in made if v is not None]

    by_kind = unroll_loop if node.op_type == "Loop" else unroll_scan
    return tuple(by_kind(b, node, inputs, turn))[: len(node.outputs)]


def _constant_branch(node: ir.Node, inputs: Sequence[ir.Value | None]) -> ir.Graph | None:
    """The branch that an If takes, where its condition is a constant."""
    condition = constant_of(inputs[0]) if node.op_type == "If" else None
    if condition is None:
        return None
    return node.attributes["then_branch" if condition.all() else "else_branch"].as_graph()


def _fold_compress(b: Builder, node: ir.Node, inputs: Sequence[ir.Value | None]) -> ir.Value | None:
    """What a Compress with a constant condition takes, whose size is then known."""
    condition = constant_of(inputs[1]) if node.op_type == "Compress" else None
    if condition is None:
        return None
    axis = node.attributes.get("axis")
    data = inputs[0] if axis else b.Reshape(inputs[0], [-1])
    return b.Gather(data, np.flatnonzero(condition), axis=axis.as_int() if axis else 0)


def _resolve_attributes(
    node: ir.Node, attributes: Mapping[str, ir.Attr], known: Known
) -> dict[str, ir.Attr]:
    """The attributes of a node of a body: references looked up, graphs copied."""
    found: dict[str, ir.Attr] = {}
    for name, attribute in node.attributes.items():
        if attribute.is_ref():
            given = attributes.get(attribute.ref_attr_name or "")
            if given is not None:
                found[name] = ir.Attr(name, given.type, given.value)
        elif attribute.type == ir.AttributeType.GRAPH:
            found[name] = ir.AttrGraph(
                name, _copy_subgraph(attribute.as_graph(), attributes, known)
            )
        else:
            found[name] = attribute
    return found


def _copy_subgraph(graph: ir.Graph, attributes: Mapping[str, ir.Attr], known: Known) -> ir.Graph:
    """A graph inside a node with what it reads from around it in the place `known` says."""
    inner = dict(known)
    for value in (*graph.inputs, *graph.initializers.values()):
        inner[value] = _copy_value(value)
    nodes = []
    for node in graph:
        given = _resolve_attributes(node, attributes, inner).values()
        inputs = [inner.get(v, v) for v in node.inputs]
        copy = ir.Node(
            node.domain, node.op_type, inputs, given, num_outputs=len(node.outputs), name=node.name
        )
        for old, new in zip(node.outputs, copy.outputs, strict=True):
            new.name, new.type, new.shape = old.name, old.type, old.shape
        inner.update(zip(node.outputs, copy.outputs, strict=True))
        nodes.append(copy)

    def there(values: Iterable[ir.Value]) -> list[ir.Value]:
        return [inner.get(v) or v for v in values]

    return ir.Graph(
        there(graph.inputs),
        there(graph.outputs),
        nodes=nodes,
        initializers=there(graph.initializers.values()),
        name=graph.name,
    )


def _copy_value(value: ir.Value) -> ir.Value:
    return ir.Value(
        name=value.name, type=value.type, shape=value.shape, const_value=value.const_value
    )


def _constant_content(attributes: Mapping[str, ir.Attr]) -> np.ndarray[Any, Any]:
    """The content of a Constant node in any of its forms."""
    (attribute,) = attributes.values()
    if attribute.type == ir.AttributeType.TENSOR:
        content: np.ndarray[Any, Any] = attribute.as_tensor().numpy()
        return content
    kind = np.float32 if attribute.name in ("value_float", "value_floats") else np.int64
    return np.asarray(attribute.value, kind)


def fold_constants(b: Builder, outputs: tuple[ir.Value, ...]) -> tuple[ir.Value, ...]:
    """The outputs of the node made last, as constants where they are small and known already."""
    node = outputs[0].producer()
    assert node is not None, "a node was made last"
    contents = _constant_outputs(b, node)
    if contents is None:
        return outputs
    if any(b.free_size in c.shape for c in contents):
        return outputs
    b.undo()
    return tuple(b.const(c) for c in contents)


def _constant_outputs(b: Builder, node: ir.Node) -> Sequence[np.ndarray[Any, Any]] | None:
    if any(not _is_small(v) for v in node.outputs):
        return None
    if node.op_type in ("Shape", "Size"):
        return _shape_content(node)
    is_known = all(v is None or v.const_value is not None for v in node.inputs)
    if not is_known or node.op_type in _DRAWS | _CONTROL:
        return None
    return _evaluate(b, node)


def _is_small(value: ir.Value) -> bool:
    if not isinstance(value.type, ir.TensorType):
        return False
    if value.shape is None or not value.shape.is_static():
        # known inputs, so it is known: the number of results is what depends on them
        return True
    return int(np.prod(value.shape.numpy(), dtype=np.int64)) <= _LARGEST_CONSTANT


def _shape_content(node: ir.Node) -> Sequence[np.ndarray[Any, Any]] | None:
    value = node.inputs[0]
    assert value is not None, f"{node.name} has no input"
    if value.shape is None or not value.shape.is_static():
        return None
    sizes = np.asarray(value.shape.numpy(), np.int64)
    if node.op_type == "Size":
        return [np.asarray(sizes.prod(), np.int64)]
    start, end = (node.attributes.get(k) for k in ("start", "end"))
    return [sizes[start.as_int() if start else None : end.as_int() if end else None]]


def _evaluate(b: Builder, node: ir.Node) -> Sequence[np.ndarray[Any, Any]]:
    from onnx.reference import ReferenceEvaluator  # a tenth of a second that few jobs need

    feeds = {
        str(v.name): v.const_value.numpy() for v in node.inputs if v is not None and v.const_value
    }
    known = {v.name: v for v in node.inputs if v is not None}
    graph = onnx.helper.make_graph(
        [b.node_proto(node)],
        "fold_constants",
        [onnx.ValueInfoProto(name=n, type=b.type_proto(v)) for n, v in known.items()],
        [onnx.ValueInfoProto(name=v.name or "", type=b.type_proto(v)) for v in node.outputs],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", b.opset)])
    try:
        with np.errstate(all="ignore"):  # what is no number here is none on the runtime either
            found = ReferenceEvaluator(model).run(None, feeds)
    except Exception as error:  # of many classes with no common base
        raise ArgumentError(f"{node.op_type} of constants has no result: {error}") from error
    kinds = [by_code(int(v.dtype or 0)).numpy for v in node.outputs]
    return [np.asarray(f, k) for f, k in zip(found, kinds, strict=True)]
