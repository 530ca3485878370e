"""The verifier's words for operators that the runtime cannot run."""

import numpy as np
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
