"""Operators without a kernel, which the runtime replaces by the standard's body."""

import numpy as np
import pytest
from flow2onnx_runtime import kernels

from flow2onnx.dtypes import float32, float64, int64
from flow2onnx.errors import UnsupportedError
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_of
from flow2onnx.graph.verify import missing_kernels, verify
from tests.autodiff.graphs import open_graph


def of(op_type, dtype, shape=(2, 3), operands=(), **attributes):
    b = Builder()
    with b.under("layer", "train.py:41"):
        b.output(b.emit(op_type, (b.input("x", shape, dtype), *operands), attributes)[0], "y")
    return b


@pytest.mark.parametrize("op_type", ["Gelu", "HardSwish", "Mish", "ReduceL1", "Softsign"])
@pytest.mark.parametrize("dtype", [float32, float64])
def test_the_check_follows_bodies(op_type, dtype):
    """`open_graph` asserts that the runtime says the same."""
    run = open_graph(of(op_type, dtype))
    if dtype is float32:
        assert run is not None
        assert run(np.ones((2, 3), np.float32))[0].shape[0] in (1, 2)


def test_what_is_missing_is_named():
    b = of("HardSwish", float64)
    with pytest.raises(UnsupportedError, match="HardSigmoid, of which HardSwish is made") as e:
        verify(model_of(b.graph), kernels())
    assert e.value.source == "train.py:41"
    assert "float32" in e.value.hint
    assert missing_kernels(model_of(b.graph), kernels())[1] == [e.value.message]


def test_shapes_known_at_run_time_do_not_matter():
    b = Builder()
    b.output(b.HardSwish(b.input("x", ("n", 3), float32)), "y")
    assert verify(model_of(b.graph), kernels()).expanded == ("HardSwish",)


def test_no_body_no_kernel():
    class Without:
        provider = "CPUExecutionProvider"

        def supports(self, op_type, opset, types):
            return op_type != "NonZero"

        def has(self, op_type):
            return op_type != "NonZero"

        def knows(self, op_type, opset):
            return True

    b = of("NonZero", int64)
    with pytest.raises(UnsupportedError, match="no kernel for NonZero on int64"):
        verify(model_of(b.graph), Without())
