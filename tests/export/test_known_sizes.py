"""Sizes of axes that are sums and products of others."""

import onnx_ir as ir
import pytest

from flow2onnx.graph.model import model_of
from flow2onnx.onnx_io.known_sizes import known_sizes
from tests.passes.text import graph_of

SIZES = {"batch": 3, "past_rows": 2, "batch-rows": 9}


@pytest.mark.parametrize(
    ("name", "size"),
    [("batch", 3), ("batch-rows", 9), ("2*batch", 6), ("2*batch + 1", 7),
     ("past_rows + batch", 5), ("other", 1), pytest.param("-" * 2000 + "batch", 1, id="deep"),
     ("batch*other", 3), ("(batch + 1)//2", 2), ("-batch + 5", 2), ("batch - 5", 0),
     ("2*other + 1", 1), ("batch//other", 3), ("batch//(batch - 3)", 1), ("batch**2", 1),
     ("max(batch, 2)", 1), ("batch of", 1), ("batch*1.5", 1)],
)  # fmt: skip
def test_an_axis_of_others(name, size):
    graph = graph_of("g (float[n] x) => (float[n] y) { y = Relu(x) }")
    for value in (*graph.inputs, *graph.outputs):
        value.shape = ir.Shape([name])
    found = known_sizes(model_of(graph), SIZES)
    assert [tuple(v.shape) for v in (*found.graph.inputs, *found.graph.outputs)] == [(size,)] * 2
