"""Graphs as people look at them: layers, roles, parameters, multiplications, boxes, rows."""

import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest
from flow2onnx_runtime.errors import BundleError
from flow2onnx_runtime.view.costs import macs
from flow2onnx_runtime.view.graph import Node, Value, graph_of
from flow2onnx_runtime.view.layers import summary_of
from flow2onnx_runtime.view.layout import place_rows, rows_of
from flow2onnx_runtime.view.tree import box_tree
from onnx import TensorProto, helper

from tests.view.models import large, model

CONFORMANCE = Path(__file__).parents[2] / "runtime" / "conformance"
RNG = np.random.default_rng(1)


def graph(nodes, inputs, outputs, weights=(), **options):
    proto = model(nodes, inputs, outputs, weights)
    return graph_of(onnx.shape_inference.infer_shapes(proto, data_prop=True), "model", **options)


def test_a_step_by_layer():
    step = graph_of(onnx.load(CONFORMANCE / "lenet/bundle/step.onnx"), "lenet")
    found = summary_of(step)
    assert step.inputs == ("images", "labels")
    assert step.outputs == ("out/0",)
    layers = {layer.name: layer for layer in found.layers}
    assert list(layers)[:4] == ["conv1", "pool1", "conv2", "pool2"]
    assert layers["conv1"].parameters == layers["conv1"].trained == 4 * 1 * 3 * 3 + 4
    assert layers["conv2"].macs == 8 * 8 * 4 * 4 * 4 * 3 * 3
    assert layers["dense1"].output == Value("float32", (8, 16))
    assert layers["dense1"].macs == 8 * 32 * 16
    assert found.parameters == sum(layer.parameters for layer in found.layers) == 1034
    assert found.frozen == 0
    assert set(found.nodes) == {"forward", "gradient", "update"}
    assert sum(found.nodes.values()) == len(step.nodes)


def test_sums_of_gradients_are_no_layers():
    step = graph_of(onnx.load(CONFORMANCE / "transformer/bundle/step.onnx"), "transformer")
    names = [layer.name for layer in summary_of(step).layers]
    assert "Add" not in names
    assert len(names) == len(set(names))


# operator, shapes of inputs, attributes, multiply-adds
COUNTS = [
    ("Conv", [(2, 6, 9, 9), (8, 3, 3, 3)], {"group": 2}, 2 * 8 * 7 * 7 * 3 * 9),
    ("ConvTranspose", [(1, 4, 5, 5), (4, 6, 2, 2)], {}, 4 * 25 * 6 * 4),
    ("Gemm", [(5, 3), (3, 7)], {}, 5 * 3 * 7),
    ("Gemm", [(3, 5), (7, 3)], {"transA": 1, "transB": 1}, 5 * 3 * 7),
    ("MatMul", [(2, 4, 5), (5, 6)], {}, 2 * 4 * 5 * 6),
    ("MatMul", [(5,), (5, 6)], {}, 5 * 6),
    ("Einsum", [(2, 3, 4), (4, 5)], {"equation": "bij,jk->bik"}, 2 * 3 * 4 * 5),
    ("Einsum", [(2, 3, 4), (2, 4, 5)], {"equation": "...ij,...jk->...ik"}, 2 * 3 * 4 * 5),
    ("LSTM", [(7, 2, 3), (1, 16, 3), (1, 16, 4)], {"hidden_size": 4}, 7 * 2 * 4 * 4 * (3 + 4)),
    ("GRU", [(7, 2, 3), (1, 12, 3), (1, 12, 4)], {"hidden_size": 4}, 7 * 2 * 3 * 4 * (3 + 4)),
    ("Relu", [(3, 4)], {}, 0),
]


@pytest.mark.parametrize(("operator", "shapes", "attributes", "count"), COUNTS)
def test_multiplications(operator, shapes, attributes, count):
    names = [f"x{i}" for i in range(len(shapes))]
    node = helper.make_node(operator, names, ["y"], **attributes)
    found = graph([node], list(zip(names, shapes, strict=True)), [("y", None)])
    assert macs(found, found.nodes[0]) == count


@pytest.mark.parametrize("operator", ["Conv", "Einsum", "LSTM", "Attention", "MatMulNBits"])
def test_a_node_that_says_too_little_counts_nothing(operator):
    empty = graph([], [("x", [1])], [("x", [1])])
    assert macs(empty, Node(name="n", operator=operator, path=("n",), inputs=("x",))) == 0


def test_free_sizes_count_as_one():
    found = graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [("x", ["batch", 4])], [("y", ["batch", 3])], [("w", [4, 3])],
    )  # fmt: skip
    summary = summary_of(found)
    assert (summary.macs, summary.bytes, summary.is_free) == (12, 12, True)
    assert summary.as_dict()["layers"][0]["shape"] == ["batch", 3]


def test_constants_are_no_weights():
    nodes = [
        helper.make_node("Constant", [], ["c"], value_float=2.0),
        helper.make_node("Mul", ["x", "c"], ["a"]),
        helper.make_node("Mul", ["a", "const/0"], ["b"]),
        helper.make_node("Mul", ["b", "scale"], ["d"]),
        helper.make_node("Mul", ["d", "w"], ["y"]),
    ]
    weights = [("const/0", [3]), ("scale", []), ("w", [3])]
    found = graph(nodes, [("x", [3])], [("y", [3])], weights)
    assert found.parameters == ("w",)
    assert [node.operator for node in found.nodes] == ["Mul"] * 4


def test_layers_as_torch_notes_them():
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="node_conv2d")
    node.metadata_props.add(
        key="pkg.torch.onnx.name_scopes", value="['', 'layer1', 'layer1.0', 'layer1.0.conv', 'c']"
    )
    found = graph([node], [("x", [1, 3, 8, 8])], [("y", None)], [("w", [4, 3, 3, 3])])
    assert found.nodes[0].path == ("layer1", "0", "conv")
    script = helper.make_node("Relu", ["x"], ["y"], name="/layer1/layer1.0/act/Relu")
    assert graph([script], [("x", [1])], [("y", [1])]).nodes[0].path == ("layer1", "0", "act")


def test_graphs_inside_nodes():
    branch = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["inner"], name="neg")], "b", [],
        [helper.make_tensor_value_info("inner", TensorProto.FLOAT, [2])],
    )  # fmt: skip
    node = helper.make_node(
        "If", ["c"], ["y"], name="choose", then_branch=branch, else_branch=branch
    )
    proto = model([node], [("x", [2])], [("y", [2])])
    found = graph_of(proto, "branches")
    assert [n.operator for n in found.nodes] == ["If", "Neg", "Neg"]
    assert found.nodes[1].path == ("choose", "choose else_branch")


def test_graphs_too_deep():
    inner = helper.make_graph([], "b", [], [])
    for _ in range(20):
        node = helper.make_node("If", ["c"], ["y"], then_branch=inner)
        inner = helper.make_graph([node], "b", [], [])
    proto = onnx.ModelProto()
    proto.graph.CopyFrom(inner)
    with pytest.raises(BundleError, match="more than 16 deep"):
        graph_of(proto, "deep")


def test_a_model_without_nodes():
    found = graph([], [("x", [1])], [("x", [1])])
    summary = summary_of(found)
    assert (summary.layers, summary.parameters, summary.trained) == ((), 0, None)
    root = box_tree(found)
    assert [m.kind for m in root.members] == ["input", "output"]


@pytest.mark.parametrize("is_named", [True, False])
def test_no_box_holds_more_than_a_screen(is_named):
    found = graph_of(large(2000, is_named=is_named), "large")
    root = box_tree(found)
    assert sorted(root.leaves) == list(range(len(found.nodes) + 2))
    boxes = [root]
    for box in boxes:
        boxes += box.members
        assert len(box.members) <= 120
        assert all(e.start != e.end for e in box.edges)
        assert not (len(box.members) == 1 and box is not root)


def test_edges_join_what_the_model_joins():
    found = graph_of(onnx.load(CONFORMANCE / "lenet/bundle/step.onnx"), "lenet")
    root = box_tree(found)
    boxes, pairs = [root], set()
    for box in boxes:
        boxes += box.members
        for edge in box.edges:
            inside = [set(box.members[end].leaves) for end in (edge.start, edge.end)]
            for start, end, name in edge.pairs:
                assert start in inside[0]
                assert end in inside[1]
                pairs.add((start, end, name))
    makers = {name: i for i, node in enumerate(found.nodes) for name in node.outputs}
    wires = {
        (makers[name], i, name)
        for i, node in enumerate(found.nodes) for name in node.inputs if name in makers
    }  # fmt: skip
    assert wires <= pairs


def test_rows_follow_the_edges_and_nothing_overlaps():
    for _ in range(20):
        count = int(RNG.integers(2, 30))
        pairs = [(a, b) for a, b in itertools.combinations(range(count), 2) if RNG.random() < 0.15]
        rows = rows_of(count, pairs, range(count))
        rank = {item: n for n, row in enumerate(rows.rows) for item in row}
        assert sorted(i for i in rank if i >= 0) == list(range(count))
        for a, b in pairs:
            way = [a, *rows.bends.get((a, b), []), b]
            assert [rank[i] for i in way] == list(range(rank[a], rank[b] + 1))
        widths = {i: float(RNG.integers(20, 90)) if i >= 0 else 8.0 for i in rank}
        x = place_rows(rows.rows, widths, pairs, 10.0)
        for row in rows.rows:
            for left, right in itertools.pairwise(row):
                assert x[right] - x[left] >= (widths[left] + widths[right]) / 2 + 10 - 1e-6


def test_edges_against_the_order():
    rows = rows_of(3, [(0, 1), (1, 2), (2, 0)], range(3))
    assert rows.rows[0] == [0]
    assert set(rows.bends) == {(2, 0)}
