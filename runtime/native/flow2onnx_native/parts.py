"""Programs side by side: those of `Fused` nodes that differ in the number of elements alone."""

from collections.abc import Iterable, Sequence

import onnx_ir as ir

from flow2onnx_native.abi import DOMAIN, Mode
from flow2onnx_native.fused_plan import FusedPlan, parse_fused
from flow2onnx_native.fusion_groups import Key, independent_groups
from flow2onnx_native.graph import merge_nodes

__all__ = ["merge_programs"]


def merge_programs(graph: ir.Graph) -> None:
    """Put one `FusedParts` node in the place of `Fused` nodes that can run side by side.

    Such are the updates of the weights of a job. The graph is to be sorted afterwards.
    """
    for count, nodes in enumerate(independent_groups(graph, _key)):
        _merge(graph, nodes, f"native/parts/{count}")


def _key(node: ir.Node) -> Key | None:
    """All that programs have to agree in; None for one that cannot run beside others."""
    if node.domain != DOMAIN or node.op_type != "Fused":
        return None
    plan, _ = parse_fused(list(node.attributes["plan"].as_ints()))
    if plan.head.row or not _is_simple(plan) or len(node.inputs) != len(plan.inputs):
        return None
    values = node.attributes.get("values")
    operands = [(o.at, o.mode, o.element) for o in (*plan.inputs, *plan.outputs)]
    return (
        plan.head._replace(total=0), tuple(operands), plan.constants, plan.steps,
        () if values is None else tuple(values.as_floats()),
    )  # fmt: skip


def _is_simple(plan: FusedPlan) -> bool:
    """True if operands are whole or one number."""
    return all(o.mode == Mode.FULL or o.middle == 1 for o in (*plan.inputs, *plan.outputs))


def _merge(graph: ir.Graph, nodes: Sequence[ir.Node], name: str) -> None:
    attributes: list[ir.Attr] = [
        ir.AttrInt64("parts", len(nodes)),
        ir.AttrInt64s("plan", list(_numbers(nodes))),
    ]
    if "values" in nodes[0].attributes:
        attributes.append(nodes[0].attributes["values"])
    merge_nodes(graph, nodes, "FusedParts", attributes, name)


def _numbers(nodes: Iterable[ir.Node]) -> Iterable[int]:
    for node in nodes:
        yield from node.attributes["plan"].as_ints()
