"""Edits of graphs that native passes share."""

import onnx_ir as ir
from flow2onnx_native.graph import fed_values_unknown, sort


def chain(*order: int) -> tuple[ir.Graph, list[ir.Node]]:
    """A graph of four nodes that read each other in turn, in some order."""
    x = ir.val("x", ir.DataType.FLOAT, [2])
    nodes, value = list[ir.Node](), x
    for i in range(4):
        node = ir.node("Relu", [value], name=f"n{i}")
        nodes.append(node)
        value = node.outputs[0]
    return ir.Graph([x], [value], nodes=[nodes[i] for i in order]), nodes


def test_nodes_come_after_those_that_they_read() -> None:
    graph, nodes = chain(2, 0, 3, 1)
    sort(graph)
    assert list(graph) == nodes


def test_what_is_sorted_stays_as_it_is() -> None:
    graph, nodes = chain(0, 1, 2, 3)
    beside = ir.node("Neg", [graph.inputs[0]], name="beside")
    graph.insert_after(nodes[1], beside)
    before = list(graph)
    sort(graph)
    assert list(graph) == before
    graph.sort()
    assert list(graph) == before


def test_what_a_run_may_feed_is_unknown_meanwhile() -> None:
    contents = {name: ir.tensor([1.0], name=name) for name in ("w", "c")}
    fed, constant = (ir.val(name, const_value=content) for name, content in contents.items())
    graph = ir.Graph([fed], [], nodes=[], initializers=[fed, constant])
    with fed_values_unknown(graph):
        assert fed.const_value is None
        assert constant.const_value is contents["c"]
    assert fed.const_value is contents["w"]
