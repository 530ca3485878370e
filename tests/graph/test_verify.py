"""The verifier's words for operators that the runtime cannot run."""

import numpy as np
import onnx_ir as ir
import pytest
from flow2onnx_runtime import kernels

from flow2onnx.dtypes import float16, float32, int64
from flow2onnx.errors import UnsupportedError
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_of
from flow2onnx.graph.verify import verify


def scatter(op_type, reduction, dtype, opset=21):
    b = Builder(opset)
    x = b.input("x", (4, 2), dtype)
    i = b.input("i", (1, 2) if op_type == "ScatterElements" else (1, 1), int64)
    u = b.input("u", (1, 2), dtype)
    with b.under("mine", "model.py:3"):
        b.output(b.emit(op_type, (x, i, u), {"reduction": reduction})[0], "y")
    return model_of(b.graph)


@pytest.mark.parametrize(
    ("op_type", "reduction"),
    [("ScatterElements", "add"), ("ScatterElements", "mul"), ("ScatterND", "add"),
     ("ScatterND", "max")],
)  # fmt: skip
def test_half_precision_is_not_added_up(op_type, reduction):
    with pytest.raises(UnsupportedError, match=f"{op_type} cannot {reduction}") as info:
        verify(scatter(op_type, reduction, float16), kernels())
    assert info.value.source == "model.py:3"
    assert info.value.op == f"mine/{op_type}"
    assert "float32" in info.value.hint
    verify(scatter(op_type, reduction, float32), kernels())


def test_half_precision_is_moved():
    verify(scatter("ScatterND", "none", float16), kernels())


class Newer:
    """A runtime that has kernels for one opset only."""

    provider = "a device's"

    def supports(self, op_type, opset, types):
        return opset == 22

    def has(self, op_type):
        return True

    def knows(self, op_type, opset):
        return True


def test_another_opset_is_the_remedy_where_it_is():
    with pytest.raises(UnsupportedError, match="no kernel") as info:
        verify(scatter("ScatterND", "none", float32), Newer())
    assert info.value.hint == "this is so at opset 21; ask for opset 22, at which there is one"


def test_what_an_old_opset_lacks():
    b = Builder(15)
    x, i = b.input("x", (4, 2), float32), b.input("i", (1, 1), int64)
    with pytest.raises(UnsupportedError, match="no attribute reduction at opset 15") as info:
        b.ScatterND(x, i, np.ones((1, 2), np.float32), reduction="add")
    assert "newer opset" in info.value.hint
    with pytest.raises(UnsupportedError, match="no operator Gelu at opset 15"):
        b.Gelu(x)


def made_with(*nodes):
    """A model of nodes that read ``x`` of shape (4, 2) or each other, unchecked as they come."""
    x = ir.val("x", ir.DataType.FLOAT, [4, 2])
    values = {"x": x}
    made = []
    for op_type, operand, name, attributes in nodes:
        source = values.setdefault(operand, ir.val(operand, ir.DataType.FLOAT, [4, 2]))
        node = ir.node(op_type, [source], attributes, name=name)
        made.append(node)
        values[name] = node.outputs[0]
        values[name].name = name
        values[name].type, values[name].shape = x.type, x.shape
    graph = ir.Graph([x], [made[-1].outputs[0]], nodes=made, opset_imports={"": 21}, name="g")
    return ir.Model(graph, ir_version=10)


def test_each_form_of_a_node_is_shown_to_the_checker():
    plain = [("Relu", "x", f"y{i}", {}) for i in range(3)]
    verify(made_with(*plain))
    with pytest.raises(UnsupportedError, match=r"no valid ONNX: .*wrong") as info:
        verify(made_with(*plain, ("Relu", "y0", "z", {"wrong": 1})))
    assert "share a name" in info.value.hint


@pytest.mark.parametrize("attributes", [{"to": 1.0}, {}])
def test_an_attribute_of_another_type_and_one_that_is_missing(attributes):
    cast = ("Cast", "x", "y", {"to": 1})
    verify(made_with(cast))
    with pytest.raises(UnsupportedError, match="no valid ONNX"):
        verify(made_with(cast, ("Cast", "y", "z", attributes)))


def test_a_node_before_what_it_reads():
    with pytest.raises(AssertionError, match="first is before"):
        verify(made_with(("Relu", "later", "first", {}), ("Relu", "x", "later", {})))
