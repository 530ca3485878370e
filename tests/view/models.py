"""Models to look at: large ones, strange ones, and one whose names would run as script.

``python -m tests.view.models FOLDER`` writes them for the tests in a browser.
"""

import sys
from pathlib import Path

import onnx
from onnx import TensorProto, helper

HOSTILE = (
    "<script>window.hit = 1</script>",
    '"><img src=x onerror="window.hit = 1">',
    "</script><script>window.hit = 1</script>",
    "__proto__",
    "constructor",
    "javascript:window.hit=1",
    "\u202egpj.exe\x00\x07",
)


def model(nodes, inputs, outputs, weights=(), *, producer="", opset=21):
    """A model of float32 values: names with shapes, and weights of ones."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs],
        [
            helper.make_tensor(n, TensorProto.FLOAT, s, [1.0] * int(onnx.numpy_helper.np.prod(s)))
            for n, s in weights
        ],
    )
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, producer_name=producer)


def hostile():
    """A chain whose every name is one that a page must not take for its own text."""
    nodes, before = [], "x"
    for name in HOSTILE:
        nodes.append(helper.make_node("Relu", [before], [name], name=name, note=name))
        before = name
    nodes.append(helper.make_node("MatMul", [before, "<b>w</b>"], ["<i>y</i>"], name="/a/<u>/m"))
    return model(nodes, [("x", [2, 4])], [("<i>y</i>", [2, 3])], [("<b>w</b>", [4, 3])])


def large(count, *, is_named):
    """Blocks of twenty nodes with a skip over each; in layers if their names say so."""
    nodes, x, kinds = [], "x", ("MatMul", "Relu", "Add")
    for i in range(count // 20):
        skip = x
        for j in range(19):
            kind, y = kinds[j % 3], f"v{i}_{j}"
            inputs = {"MatMul": [x, "w"], "Relu": [x], "Add": [x, x]}[kind]
            name = f"/stage{i // 100}/block{i}/part{j // 3}/{kind}" if is_named else ""
            nodes.append(helper.make_node(kind, inputs, [y], name=name))
            x = y
        name = f"/stage{i // 100}/block{i}/Add" if is_named else ""
        nodes.append(helper.make_node("Add", [x, skip], [f"s{i}"], name=name))
        x = f"s{i}"
    return model(nodes, [("x", ["batch", 4])], [(x, ["batch", 4])], [("w", [4, 4])])


def main():
    folder = Path(sys.argv[1])
    onnx.save(hostile(), folder / "hostile.onnx")
    onnx.save(large(10_000, is_named=True), folder / "large.onnx")
    onnx.save(large(10_000, is_named=False), folder / "flat.onnx")


if __name__ == "__main__":
    main()
