"""Groups of nodes: two become one exactly if no way leads out of both and back."""

import numpy as np
import onnx_ir as ir
import pytest
from flow2onnx_native.elementwise import Fusible
from flow2onnx_native.fusion_groups import Group, Grouping

NODES = 60
PART = Fusible("each", 1)


def nodes_of(draw: np.random.Generator, *, is_deep: bool) -> list[ir.Node]:
    """Additions of what earlier nodes made: of the last few, or of any."""
    values, nodes = [ir.val("x"), ir.val("y")], []
    for _ in range(NODES):
        recent = values[-4:] if is_deep else values
        node = ir.Node("", "Add", [recent[i] for i in draw.integers(0, len(recent), 2)])
        nodes.append(node)
        values += node.outputs
    return nodes


def has_cycle(nodes: list[ir.Node], grouping: Grouping, a: Group, b: Group) -> bool:
    """True if groups need each other's results once two of them are one."""

    def of(node: ir.Node) -> Group:
        group = grouping.of[grouping.places[node]]
        return a if group is b else group

    makers = {of(n): set[Group]() for n in nodes}
    for node in nodes:
        made_by = (v.producer() for v in node.inputs if v is not None)
        makers[of(node)] |= {of(n) for n in made_by if n is not None} - {of(node)}
    while free := [g for g, needed in makers.items() if not needed]:
        for group in free:
            del makers[group]
        for needed in makers.values():
            needed.difference_update(free)
    return bool(makers)


@pytest.mark.parametrize("is_deep", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_groups_join_unless_a_way_leads_out_and_back(seed: int, is_deep: bool) -> None:
    draw = np.random.default_rng(seed)
    nodes = nodes_of(draw, is_deep=is_deep)
    grouping = Grouping(nodes)
    for i in range(NODES):
        grouping.of[i].become(i, PART)
    joined = 0
    for _ in range(150):
        a, b = (grouping.of[i] for i in draw.integers(0, NODES, 2))
        if a is b:
            continue
        expected = not has_cycle(nodes, grouping, a, b)
        both = grouping.join(a, b)
        assert (both is not None) == expected
        joined += expected
        if both is not None:
            assert all(grouping.of[i] is both for i in both.parts)
    assert 5 < joined < NODES
    order = sorted(set(grouping.of), key=lambda group: group.at)
    places = {group: at for at, group in enumerate(order)}
    for group in order:
        assert all(places[grouping.of[m]] <= places[group] for m in group.makers)


def test_groups_stand_in_order_where_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flow2onnx_native.fusion_groups._Order._GAP", 1)
    test_groups_join_unless_a_way_leads_out_and_back(3, is_deep=True)


def test_who_reads_a_sum_is_in_no_program_with_it() -> None:
    x = ir.val("x")
    first = ir.Node("", "ReduceSum", [x])
    second = ir.Node("", "Add", [x, first.outputs[0]])
    grouping = Grouping([first, second])
    grouping.of[0].become(0, Fusible("sum", 8))
    grouping.of[1].become(1, Fusible("each", 8))
    assert grouping.join(grouping.of[0], grouping.of[1]) is None
