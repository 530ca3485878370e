"""Programs side by side: those of `Fused` nodes that differ in the number of elements alone."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from flow2onnx_native.abi import DOMAIN, Mode
from flow2onnx_native.elementwise import Fusible
from flow2onnx_native.fused_plan import FusedPlan, parse_fused
from flow2onnx_native.fusion_groups import Group, Grouping
from flow2onnx_native.graph import has_subgraphs, replace_value

__all__ = ["merge_programs"]

_Key = tuple[object, ...]


def merge_programs(graph: ir.Graph) -> None:
    """Put one `FusedParts` node in the place of `Fused` nodes that can run side by side.

    Such are the updates of the weights of a job. The graph is to be sorted afterwards.
    """
    nodes = list(graph)
    if has_subgraphs(nodes):
        return
    grouping = Grouping(nodes, _Alike)
    groups: dict[_Key, list[Group]] = {}
    for i, node in enumerate(nodes):
        key = _key(node)
        if key is not None:
            _join(grouping, i, groups.setdefault(key, []))
    merged = [g for found in groups.values() for g in found if len(g.parts) > 1]
    for count, group in enumerate(merged):
        _merge(graph, [nodes[i] for i in sorted(group.parts)], f"native/parts/{count}")


@dataclass(eq=False)
class _Alike(Group):
    """Nodes of one key, of which none depends on another."""

    def fits(self, other: Group) -> bool:
        """True if none of one reads what one of the other makes."""
        return self.readers.isdisjoint(other.parts) and self.makers.isdisjoint(other.parts)


def _join(grouping: Grouping, i: int, groups: list[Group]) -> None:
    """Let a node be part of the first group that it can join, or of one of its own."""
    own = grouping.of[i]
    own.become(i, Fusible("each", 1))
    for at, group in enumerate(groups):
        both = grouping.join(group, own)
        if both is not None:
            groups[at] = both
            return
    groups.append(own)


def _key(node: ir.Node) -> _Key | None:
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
    inputs = [v for node in nodes for v in node.inputs]
    old = [v for node in nodes for v in node.outputs]
    merged = ir.Node(DOMAIN, "FusedParts", inputs, attributes, num_outputs=len(old), name=name)
    graph.insert_after(nodes[-1], merged)
    for value, new in zip(old, merged.outputs, strict=True):
        replace_value(value, new)
    graph.remove(nodes, safe=True)


def _numbers(nodes: Iterable[ir.Node]) -> Iterable[int]:
    for node in nodes:
        yield from node.attributes["plan"].as_ints()
