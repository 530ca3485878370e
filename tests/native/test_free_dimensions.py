"""Sizes in the place of the names of free dimensions, as native operators need them."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from flow2onnx_native.free_dimensions import fix_dimensions, fold_shapes
from onnx import TensorProto, helper

SIZES = {"batch": 2, "sequence": 5}


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("batch", 2),
        ("batch*sequence", 10),
        ("3*sequence + 1", 16),
        ("sequence // 2", 2),
        ("other", None),
        ("batch*other", None),
        ("9**9**9**9", None),
        ("batch.__class__", None),
        ("(" * 60, None),
        ("batch" + "+1" * 200, None),
        ("-batch", None),
        ("batch/0", None),
    ],
)
def test_expressions_have_their_values(text: str, size: int | None) -> None:
    value = helper.make_tensor_value_info("v", TensorProto.FLOAT, [text, 3])
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", text])
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["v"])], "g", [given], [],
                              value_info=[value])  # fmt: skip
    model = helper.make_model(graph)
    fix_dimensions(model, SIZES)
    (axis, _) = model.graph.value_info[0].type.tensor_type.shape.dim
    assert (axis.dim_value if axis.HasField("dim_value") else None) == size
    assert not axis.dim_param
    first, second = model.graph.input[0].type.tensor_type.shape.dim
    assert first.dim_value == 2
    assert second.dim_param == ("" if size is not None else text)  # a run may say what it is


def test_axes_of_subgraphs_have_sizes_too() -> None:
    inner = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])], "body", [],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch"])],
    )  # fmt: skip
    node = helper.make_node("If", ["c"], ["z"], then_branch=inner, else_branch=inner)
    graph = helper.make_graph([node], "g", [
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch"])], [])  # fmt: skip
    model = helper.make_model(graph)
    fix_dimensions(model, SIZES)
    branch = model.graph.node[0].attribute[0].g
    assert branch.output[0].type.tensor_type.shape.dim[0].dim_value == 2


def test_sizes_that_are_known_are_constants() -> None:
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> g (float[2,3,4] x, float[n] y) '
        "=> (int64[3] a, int64[3] d) { s = Shape(x)  p = Shape<start = -2, end = -1>(x) "
        "r = Shape(y)  a = Add(s, p)  d = Add(s, r) }"
    )
    model = ir.from_proto(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))
    fold_shapes(model.graph)
    left = [node for node in model.graph if node.op_type == "Shape"]
    assert [node.inputs[0].name for node in left] == ["y"]
    add = next(node for node in model.graph if node.op_type == "Add")
    whole, part = (value.const_value.numpy() for value in add.inputs)
    np.testing.assert_array_equal(whole, [2, 3, 4])
    np.testing.assert_array_equal(part, [3])
    onnx.checker.check_model(ir.to_proto(model))
