"""Types of equal nodes are inferred once; nodes that differ in anything are not equal."""

import numpy as np
import pytest

from flow2onnx.dtypes import float32, int64
from flow2onnx.errors import FlowError
from flow2onnx.graph import Builder, builder
from flow2onnx.graph.types import dims, dtype_of, sizes_of


@pytest.fixture
def asked(monkeypatch):
    """The operators that inference was asked about."""
    found = []

    def infer(definition, proto, *arguments, **settings):
        found.append(proto.op_type)
        return inference(definition, proto, *arguments, **settings)

    inference = builder.infer_node_outputs
    monkeypatch.setattr(builder, "infer_node_outputs", infer)
    return found


def test_equal_nodes_are_inferred_once(asked):
    b = Builder()
    x = b.input("x", (3, 4), float32)
    made = [b.Relu(x) for _ in range(5)]
    assert asked == ["Relu"]
    assert [dims(v) for v in made] == [(3, 4)] * 5
    assert len({v.name for v in made}) == 5
    b.Relu(made[0])
    assert asked == ["Relu"], "another input of that type and shape"


def test_what_differs_is_inferred_anew():
    b = Builder()
    x = b.input("x", (3, 4), float32)
    assert dims(b.Reshape(x, [12])) == (12,)
    assert dims(b.Reshape(x, [2, 6])) == (2, 6)
    assert dims(b.Transpose(x, perm=[1, 0])) == (4, 3)
    assert dims(b.Transpose(x, perm=[0, 1])) == (3, 4)
    assert dims(b.ReduceSum(x, [0], keepdims=0)) == (4,)
    assert dims(b.ReduceSum(x, [0], keepdims=1)) == (1, 4)
    assert dims(b.ReduceSum(x, [1], keepdims=0)) == (3,)
    assert dtype_of(b.Cast(x, to=int64)) == int64
    assert dtype_of(b.Cast(x, to=float32)) == float32
    assert [dims(v) for v in b.several("Split", x, outputs=2, axis=1, num_outputs=2)] == [
        (3, 2)
    ] * 2
    assert [dims(v) for v in b.several("Split", x, outputs=4, axis=1, num_outputs=4)] == [
        (3, 1)
    ] * 4


def test_sizes_known_at_run_time_have_names_of_their_own(asked):
    b = Builder()
    mask = b.input("mask", (6,), float32)
    first, second = b.NonZero(mask), b.NonZero(mask)
    assert sizes_of(first) != sizes_of(second)
    assert asked.count("NonZero") >= 2


def test_an_error_is_one_each_time():
    b = Builder()
    x, y = b.input("x", (3, 4), float32), b.input("y", (5, 6), float32)
    for _ in range(2):
        with pytest.raises(FlowError, match="MatMul"):
            b.MatMul(x, y)


def test_large_contents_are_not_compared(asked):
    b = Builder()
    x = b.input("x", (1, 500), float32)
    for seed in range(3):
        b.Add(x, np.random.default_rng(seed).standard_normal((1, 500)).astype(np.float32))
    assert asked == ["Add"]
