"""The verifier: what every graph must hold before it is run or written."""

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import onnx
import onnx_ir as ir

from flow2onnx.errors import DTypeError, ShapeError, UnsupportedError
from flow2onnx.graph.builder import Builder
from flow2onnx.graph.contrib import CONTRIB, CONTRIB_DOMAIN, shown_to_checker
from flow2onnx.graph.functions import standard_body
from flow2onnx.graph.nodes import operator_name
from flow2onnx.graph.schemas import schema
from flow2onnx.graph.types import dtype_of

__all__ = ["Kernels", "Report", "missing_kernels", "type_bindings", "verify"]


_Key = tuple[Hashable, ...]

_TENSORS = frozenset({ir.AttributeType.TENSOR, ir.AttributeType.TENSORS})

# Without a kernel and without a body, and yet it runs: the runtime makes initializers of it.
_FOLDED = "Constant"
_UNLESS_DOUBLE = ", or leave default_data_type at flow.float32 where it is flow.float64"


class Kernels(Protocol):
    """The kernels of a runtime (`flow2onnx_runtime.kernels`)."""

    def supports(
        self, op_type: str, opset: int, types: Mapping[str, str], domain: str = ""
    ) -> bool:
        """True if a kernel takes these element types."""

    def has(self, op_type: str) -> bool:
        """True if there is a kernel for any types."""

    def knows(self, op_type: str, opset: int) -> bool:
        """True if the operator is known, kernel or not."""

    def refuses_half(self, op_type: str, reduction: str) -> bool:
        """True if a kernel that lists half precision fails there when it is to reduce so."""

    def leaves(self, op_type: str, opset: int | None = None) -> bool:
        """True if the first provider has no kernel of an operator, and leaves it to the next.

        With `opset`, of the version that it means.
        """

    def pads_alike(self, op_type: str) -> bool:
        """True if kernels take equal pads on both sides and no others."""


@dataclass(frozen=True)
class Report:
    """Nodes counted by operator, and the operators that the runtime expands."""

    nodes: dict[str, int]
    expanded: tuple[str, ...]


def verify(
    model: ir.Model, kernels: Kernels | None = None, contrib: Collection[str] = ()
) -> Report:
    """Check single assignment, types, domains, the ONNX checker, and kernels if given.

    Operators are of the standard, or of those of the runtime that `contrib` names.

    The checker accepts models that no runtime can run, hence the question to the runtime's own
    registry. Raises UnsupportedError for what the runtime lacks; the rest is our own invariant.
    """
    graph = model.graph
    opset = graph.opset_imports[""]
    domains = {"", CONTRIB_DOMAIN} if contrib else {""}
    assert set(graph.opset_imports) <= domains, f"domains of no use: {graph.opset_imports}"
    _check_assignment(graph)
    expanded, counts, supported = set(), dict[str, int](), set[_Key]()
    for node in graph.all_nodes():
        counts[node.op_type] = counts.get(node.op_type, 0) + 1
        name = operator_name(node)
        is_known = name in contrib if name in CONTRIB else not node.domain
        assert is_known, f"{node.name} is {name}, of no standard"
        if kernels is None or (key := _key(node)) in supported:
            continue
        if _has_kernel(node, opset, kernels):
            supported.add(key)
        else:
            expanded.add(node.op_type)
    _check_valid(model, has_subgraphs=sum(counts.values()) > len(graph))
    return Report(counts, tuple(sorted(expanded)))


def _key(node: ir.Node) -> _Key:
    """All that decides on whether a kernel takes a node: networks repeat their layers."""
    reduction = node.attributes.get("reduction") if node.attributes.data else None
    return (
        node.domain, node.op_type, None if reduction is None else reduction.as_string(),
        tuple(None if v is None else v.type for v in node.inputs),
        tuple(v.type if v.name else None for v in node.outputs),
    )  # fmt: skip


def _check_valid(model: ir.Model, *, has_subgraphs: bool) -> None:
    """Ask the ONNX checker: of a plain model once for each form of a node, else of the whole."""
    try:
        if model.functions or has_subgraphs:
            with shown_to_checker(ir.to_proto(model)) as shown:
                onnx.checker.check_model(shown)
        else:
            _check_nodes(model.graph, model.ir_version)
    except onnx.checker.ValidationError as error:
        reason = str(error).strip().partition("\n")[0]
        raise UnsupportedError(
            f"what is made of this is no valid ONNX: {reason}",
            hint="do values of an imported model share a name in graphs inside each other?",
        ) from error


def _check_nodes(graph: ir.Graph, ir_version: int) -> None:
    context = onnx.checker.C.CheckerContext()
    context.ir_version, context.opset_imports = ir_version, dict(graph.opset_imports)
    checked = set[_Key]()
    for node in graph:
        form = _form(node)
        if form not in checked and operator_name(node) not in CONTRIB:
            checked.add(form)
            onnx.checker.check_node(Builder.node_proto(node), context)


def _form(node: ir.Node) -> _Key:
    """All that the checker looks at, of a node whose operands are made before it."""
    attributes = node.attributes.data.values() if node.attributes.data else ()
    return (
        node.domain, node.op_type, len(node.outputs),
        tuple(v is None for v in node.inputs),
        # of a tensor also how it is written down
        tuple((a.name, a.type, a.value if a.type in _TENSORS else None) for a in attributes),
    )  # fmt: skip


def _check_assignment(graph: ir.Graph) -> None:
    seen: set[str] = set()
    for value in (*graph.inputs, *graph.initializers.values()):
        _check_definition(value, seen)
    for node in graph:
        for operand in node.inputs:
            assert operand is None or operand.name in seen, f"{node.name} is before {operand}"
        for value in node.outputs:
            if value.name:
                _check_definition(value, seen)


def _check_definition(value: ir.Value, seen: set[str]) -> None:
    assert value.name, "a value has no name"
    assert value.name not in seen, f"{value.name} is assigned twice"
    assert value.type is not None, f"{value.name} has no type"
    assert value.shape is not None, f"{value.name} has no shape"
    seen.add(value.name)


def _has_kernel(node: ir.Node, opset: int, kernels: Kernels) -> bool:
    """True for a kernel, False for an operator the runtime expands; raises where it has neither."""
    types = type_bindings(node, opset)
    # around an operator without a half precision kernel the runtime casts to float32 and back
    widened = {k: "float32" if t == "float16" else t for k, t in types.items()}
    _check_reduction(node, types, kernels)
    if operator_name(node) in CONTRIB:
        return _has_contrib_kernel(node, types, kernels)
    if kernels.supports(node.op_type, opset, types) or kernels.supports(
        node.op_type, opset, widened
    ):
        return True
    lacks = node.op_type
    if kernels.knows(node.op_type, opset) and not kernels.has(node.op_type):
        lacks = _part_without_kernel(node, opset, kernels) or ""
    if not lacks:
        return False
    wanted = ", ".join(sorted(set(types.values())))
    within = f", of which {node.op_type} is made," if lacks != node.op_type else ""
    raise UnsupportedError(
        f"the runtime has no kernel for {lacks}{within} on {wanted}",
        op=node.name,
        source=node.meta.get("source"),
        hint=_hint(node.op_type, opset, types, kernels),
    )


def _has_contrib_kernel(node: ir.Node, types: Mapping[str, str], kernels: Kernels) -> bool:
    """True for an operator of the runtime's own that has a kernel; raises for another."""
    if kernels.supports(node.op_type, 1, types, node.domain):
        return True
    wanted = ", ".join(sorted(set(types.values())))
    raise UnsupportedError(
        f"the runtime has no kernel for {operator_name(node)} on {wanted}",
        op=node.name,
        source=node.meta.get("source"),
        hint="open it with a runtime that has one: it is of onnxruntime alone",
    )


def _part_without_kernel(node: ir.Node, opset: int, kernels: Kernels) -> str | None:
    """The first operator without a kernel in the body that the runtime puts in a node's place."""
    if node.op_type == _FOLDED:
        return None
    try:
        parts = _body(node, opset)
    except ShapeError:
        return None  # how the body looks depends on shapes that are known at run time only
    if parts is None:
        return node.op_type
    for part in parts:
        try:
            _has_kernel(part, opset, kernels)
        except UnsupportedError:
            return part.op_type
    return None


def _body(node: ir.Node, opset: int) -> list[ir.Node] | None:
    """The nodes of the body that the standard gives a node's operator; None if it gives none."""
    b = Builder(opset)
    inputs = [_placeholder(b, v, f"input_{i}") for i, v in enumerate(node.inputs)]
    b.emit(node.op_type, inputs, node.attributes, len(node.outputs))
    copy = b.nodes[-1]
    made = standard_body(b, copy)
    return None if made is None else [n for n in b.nodes if n is not copy]


def _placeholder(b: Builder, value: ir.Value | None, name: str) -> ir.Value | None:
    """A value that stands for another one, of its type and shape."""
    if value is None:
        return None
    if value.const_value is not None:
        return b.const(value.const_value.numpy())
    if value.shape is None or not isinstance(value.type, ir.TensorType):
        raise ShapeError(f"{value.name} is no tensor of a known rank")
    return b.input(
        name, [d if isinstance(d, int) else d.value for d in value.shape], dtype_of(value)
    )


def _hint(op_type: str, opset: int, types: Mapping[str, str], kernels: Kernels) -> str:
    """The way around a missing kernel: another opset where that helps, else another type."""
    others = [n for n in range(18, onnx.defs.onnx_opset_version() + 1) if n != opset]
    able = [n for n in others if kernels.supports(op_type, n, types)]
    if able:
        nearest = min(able, key=lambda n: abs(n - opset))
        return f"this is so at opset {opset}; ask for opset {nearest}, at which there is one"
    return "cast to float32 around it" + _UNLESS_DOUBLE * ("float64" in types.values())


def _check_reduction(node: ir.Node, types: Mapping[str, str], kernels: Kernels) -> None:
    reduction = node.attributes.get("reduction")
    if reduction is None or "float16" not in types.values():
        return
    if kernels.refuses_half(node.op_type, reduction.as_string()):
        raise UnsupportedError(
            f"the runtime's {node.op_type} cannot {reduction.as_string()} on float16",
            op=node.name,
            source=node.meta.get("source"),
            hint="cast to float32 around it",
        )


def type_bindings(node: ir.Node, opset: int) -> dict[str, str]:
    """The element type of each type variable of a node's schema."""
    kind = schema(operator_name(node), opset)
    outputs = [o.type_str for o in kind.definition.outputs]
    return {
        **_bind(
            zip((kind.type_variable(i) for i in range(len(node.inputs))), node.inputs, strict=True)
        ),
        **_bind(
            (outputs[min(i, len(outputs) - 1)], v) for i, v in enumerate(node.outputs) if v.name
        ),
    }


def _bind(pairs: Iterable[tuple[str, ir.Value | None]]) -> dict[str, str]:
    return {
        variable: dtype_of(value).name
        for variable, value in pairs
        if value is not None
        and isinstance(value.type, ir.TensorType)  # nothing is asked about sequences
        and not variable.startswith("tensor(")
    }


def missing_kernels(model: ir.Model, kernels: Kernels) -> tuple[list[str], list[str]]:
    """Operators the runtime expands as functions, and what it has no kernel for, both sorted.

    For any model, not only ours: nodes whose types we do not know are passed over.
    """
    opset = model.graph.opset_imports.get("", 0)
    expanded, missing = set[str](), set[str]()
    for node in model.graph.all_nodes():
        if node.domain or any(v is not None and v.type is None for v in node.inputs):
            continue
        try:
            if not _has_kernel(node, opset, kernels):
                expanded.add(node.op_type)
        except UnsupportedError as error:
            missing.add(error.message)
        except DTypeError:
            continue  # an element type that no job has, such as text
    return sorted(expanded), sorted(missing)
