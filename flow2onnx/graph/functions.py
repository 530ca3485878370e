"""Inlining: nodes of functions of the standard, of branches and of loops, copied into a graph."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from flow2onnx.errors import ArgumentError, ShapeError, UnsupportedError
from flow2onnx.graph.builder import Builder
from flow2onnx.graph.constant_folding import fold_constants
from flow2onnx.graph.contrib import CONTRIB
from flow2onnx.graph.nodes import attribute, nesting_depth, operator_name
from flow2onnx.graph.schemas import schema
from flow2onnx.graph.sequences import SEQUENCE_READERS, read_sequence
from flow2onnx.graph.size_content import follow_sizes
from flow2onnx.graph.types import constant_of, is_static
from flow2onnx.graph.unroll import unroll_loop, unroll_scan

__all__ = ["constant_branch", "expand_sequence", "inline_nodes", "standard_body", "unroll"]

_DEEPEST_FOLDED = 24  # branches in each other; deeper ones are copied as they are
# The values that stand for those of a body.
Known = Mapping[ir.Value | None, ir.Value | None]


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
    definition: Any = schema(operator_name(node), b.opset).definition
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
    """The standard's defaults of the attributes that a node does not give."""
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
    branch = constant_branch(node, inputs)
    if branch is not None:
        made = inline_nodes(b, branch, [v for v in known if v], [known[v] for v in known if v],
                      branch.outputs, attributes)  # fmt: skip
        return tuple(v for v in made if v is not None)
    taken = _fold_compress(b, node, inputs)
    if taken is not None:
        return (taken,)
    while inputs and inputs[-1] is None:
        inputs = inputs[:-1]
    if node.op_type == "If" and 1 < nesting_depth(node) <= _DEEPEST_FOLDED:
        branches = {
            name: _inline_branch(b, branch.as_graph(), known, attributes)
            for name, branch in node.attributes.items()
        }
        return b.emit("If", inputs, branches, len(node.outputs))
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
    if operator_name(node) in CONTRIB:
        outputs = b.emit(operator_name(node), inputs, given, len(node.outputs))
        for old, new in zip(node.outputs, outputs, strict=True):
            new.name = new.name if old.name else ""  # a kernel may lack what it need not make
        return outputs
    made = fold_constants(b, b.emit(node.op_type, inputs, given, len(node.outputs)))
    return follow_sizes(b, made)


def _inline_branch(
    b: Builder, graph: ir.Graph, known: Known, attributes: Mapping[str, ir.Attr]
) -> ir.Graph:
    """A branch with what is known in it: the runtime may crash at branches of constant conditions
    inside of others.
    """
    inner = Builder.inside(b, graph.name)
    with inner.under(b.prefix, b.source):
        formal = [v for v in known if v is not None]
        made = inline_nodes(
            inner, graph, formal, [known[v] for v in formal], graph.outputs, attributes
        )
        own = set(inner.nodes)
        for value in made:
            assert value is not None, "a branch gives what it says"
            is_own = value.producer() in own and not value.is_graph_output()
            inner.graph.outputs.append(value if is_own else inner.Identity(value))
    return inner.graph


def expand_sequence(b: Builder, node: ir.Node, inputs: Sequence[ir.Value | None]) -> ir.Value:
    """The output of a node that reads a sequence, computed from the tensors in that sequence."""

    def map_body(body: ir.Graph, actual: Sequence[ir.Value | None]) -> Sequence[ir.Value | None]:
        return inline_nodes(b, body, body.inputs, actual, body.outputs)

    return read_sequence(b, node, inputs, map_body)


def _as_scalar(b: Builder, value: ir.Value | None) -> ir.Value | None:
    content = constant_of(value)
    return value if content is None or not content.ndim else b.const(content.reshape(()))


def _copy_loop(
    b: Builder,
    node: ir.Node,
    inputs: Sequence[ir.Value | None],
    attributes: Mapping[str, ir.Attr],
) -> tuple[ir.Value, ...]:
    """A copy of a loop where inference knows its shapes, else its unrolled iterations."""
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
    """The outputs of a Loop or Scan, unrolled; raises UnsupportedError for an unknown count."""
    body = attributes["body"].as_graph()

    def iterate(actual: Sequence[ir.Value | None]) -> list[ir.Value]:
        made = inline_nodes(b, body, body.inputs, actual, body.outputs)
        return [v for v in made if v is not None]

    by_kind = unroll_loop if node.op_type == "Loop" else unroll_scan
    return tuple(by_kind(b, node, inputs, iterate))[: len(node.outputs)]


def constant_branch(node: ir.Node, inputs: Sequence[ir.Value | None]) -> ir.Graph | None:
    """The branch that an If takes, where its condition is a constant."""
    condition = constant_of(inputs[0]) if node.op_type == "If" and not node.domain else None
    if condition is None:
        return None
    return node.attributes["then_branch" if condition.all() else "else_branch"].as_graph()


def _fold_compress(b: Builder, node: ir.Node, inputs: Sequence[ir.Value | None]) -> ir.Value | None:
    """A Compress with a constant condition as a Gather, whose size is known."""
    condition = constant_of(inputs[1]) if node.op_type == "Compress" else None
    if condition is None:
        return None
    axis = attribute(node, "axis")
    data = b.Reshape(inputs[0], [-1]) if axis is None else inputs[0]
    return b.Gather(data, np.flatnonzero(condition), axis=axis or 0)


def _resolve_attributes(
    node: ir.Node, attributes: Mapping[str, ir.Attr], known: Known
) -> dict[str, ir.Attr]:
    """The attributes of a node of a body: references looked up, graphs copied."""
    found: dict[str, ir.Attr] = {}
    for name, own in node.attributes.items():
        if own.is_ref():
            given = attributes.get(own.ref_attr_name or "")
            if given is not None:
                found[name] = ir.Attr(name, given.type, given.value)
        elif own.type == ir.AttributeType.GRAPH:
            found[name] = ir.AttrGraph(name, _copy_subgraph(own.as_graph(), attributes, known))
        else:
            found[name] = own
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
    if len(attributes) != 1:
        raise ArgumentError(
            f"a Constant has {len(attributes)} values: {', '.join(attributes) or 'none'}",
            hint="give it one: the model is damaged, or its exporter is",
        )
    (given,) = attributes.values()
    if given.type == ir.AttributeType.TENSOR:
        content: np.ndarray[Any, Any] = given.as_tensor().numpy()
        return content
    return np.asarray(given.value, np.float32 if "float" in given.name else np.int64)
