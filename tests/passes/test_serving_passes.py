"""The passes of exports for serving: float16 throughout, folded normalizations."""

import numpy as np
import onnx_ir as ir
import pytest
from flow2onnx_runtime import Predictor, kernels

from flow2onnx.dtypes import float16, float32, int64
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_bytes, model_of
from flow2onnx.graph.types import dtype_of
from flow2onnx.graph.verify import verify
from flow2onnx.onnx_io.serialize import embed_values
from flow2onnx.passes import (
    ConvertToHalf,
    FoldBatchNorm,
    RoundMissingKernels,
    count_missing_kernels,
)

CPU = kernels("CPUExecutionProvider")
X = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(3, 3)).astype(np.float32)


def graph(emit, *, with_weight=True):
    """A builder with inputs x and w, and what `emit` makes of them as y."""
    b = Builder()
    x = b.input("x", (2, 3), float32)
    w = b.input("w", (3, 3), float32) if with_weight else None
    b.output(emit(b, x, w), "y")
    return b


def run(b, values, **feeds):
    model = model_of(b.graph)
    verify(model, CPU)
    types = {str(v.name): dtype_of(v).numpy for v in b.graph.inputs}
    embed_values(model, {n: v.astype(types[n]) for n, v in values.items()})
    return Predictor(model_bytes(model))(**feeds)["y"]


def operators(b):
    return [(n.op_type, dtype_of(n.outputs[0]).name) for n in b.graph]


def test_all_but_the_softmax_is_half():
    b = graph(lambda b, x, w: b.Softmax(b.Relu(b.MatMul(x, w)), axis=-1))
    halving = ConvertToHalf(weights=("w",))
    assert halving.run(b.graph)
    assert operators(b) == [
        ("Cast", "float16"), ("MatMul", "float16"), ("Relu", "float16"), ("Cast", "float32"),
        ("Softmax", "float32"),
    ]  # fmt: skip
    assert dtype_of(b.graph.inputs[1]) == float16
    assert dtype_of(b.graph.inputs[0]) == float32
    assert dict(halving.halved) == {"MatMul": 1, "Relu": 1}
    assert [op for op, _ in halving.left] == ["Softmax"]
    assert dict(count_missing_kernels(b.graph, CPU)) == {"MatMul": 1, "Relu": 1}
    want = np.exp(np.maximum(X @ W, 0))
    found = run(b, {"w": W}, x=X)
    np.testing.assert_allclose(found, want / want.sum(1, keepdims=True), atol=2e-3)


def test_half_inputs_and_outputs_have_their_names():
    b = graph(lambda b, x, w: b.Softmax(b.MatMul(x, w), axis=-1))
    ConvertToHalf(weights=("w",), half_io=True).run(b.graph)
    assert [(v.name, dtype_of(v).name) for v in (b.graph.inputs[0], b.graph.outputs[0])] == [
        ("x", "float16"), ("y", "float16"),
    ]  # fmt: skip
    assert run(b, {"w": W}, x=X.astype(np.float16)).dtype == np.float16
    b = graph(lambda b, x, w: b.MatMul(x, w))
    ConvertToHalf(weights=("w",), half_io=True).run(b.graph)
    assert operators(b) == [("MatMul", "float16")]
    assert b.graph.outputs[0].name == "y"


def test_a_weight_that_is_read_in_both_is_stored_once():
    b = graph(lambda b, x, w: b.Add(b.MatMul(x, w), b.ReduceSum(b.Exp(w), [1], keepdims=0)))
    ConvertToHalf(weights=("w",)).run(b.graph)
    assert dtype_of(b.graph.inputs[1]) == float16
    want = X @ W + np.exp(W).sum(1)
    np.testing.assert_allclose(run(b, {"w": W}, x=X), want, rtol=1e-2, atol=1e-2)


def test_a_weight_that_only_float32_reads_stays():
    b = graph(lambda b, x, w: b.Add(x, b.ReduceSum(b.Exp(w), [1], keepdims=0)))
    ConvertToHalf(weights=("w",)).run(b.graph)
    assert dtype_of(b.graph.inputs[1]) == float32


@pytest.mark.parametrize(
    ("number", "is_half"), [(2.0, True), (1e-12, False), (1e6, False), (-np.inf, True), (0.0, True)]
)
def test_lone_numbers_keep_their_digits(number, is_half):
    b = graph(lambda b, x, w: b.Max(b.MatMul(x, w), np.float32(number)))
    halving = ConvertToHalf(weights=("w",))
    halving.run(b.graph)
    assert ("Max" in halving.halved) == is_half
    np.testing.assert_allclose(
        run(b, {"w": W}, x=X), np.maximum(X @ W, np.float32(number)), atol=1e-2
    )  # fmt: skip


def test_graphs_inside_nodes_read_what_they_did():
    """A branch that reads a value of the graph around it reads float32 as before."""
    b = Builder()
    x = b.input("x", (2, 3), float32)
    w = b.input("w", (3, 3), float32)
    h = b.MatMul(x, w)

    def branch(name, sign):
        inner = Builder.inside(b, name)
        inner.output(inner.Mul(h, np.float32(sign)), f"{name}/y")
        return inner.graph

    positive = b.Greater(b.ReduceSum(h, [0, 1], keepdims=0), np.float32(0))
    made = b.If(positive, then_branch=branch("then", 2.0), else_branch=branch("else", 3.0))
    b.output(made, "y")
    halving = ConvertToHalf(weights=("w",))
    halving.run(b.graph)
    assert ("If", "has graphs inside") in halving.left
    hidden = X @ W
    want = hidden * (2.0 if hidden.sum() > 0 else 3.0)
    np.testing.assert_allclose(run(b, {"w": W}, x=X), want, atol=2e-2)


def test_shapes_and_largest_are_asked_of_halves():
    b = graph(lambda b, x, w: b.ArgMax(b.MatMul(x, w), axis=1))
    ConvertToHalf(weights=("w",)).run(b.graph)
    assert operators(b)[-2:] == [("MatMul", "float16"), ("ArgMax", "int64")]
    np.testing.assert_array_equal(run(b, {"w": W}, x=X).ravel(), (X @ W).argmax(1))


def test_nothing_real_is_nothing_to_do():
    b = Builder()
    x = b.input("x", (2,), int64)
    b.output(b.Add(x, x), "y")
    assert not ConvertToHalf(weights=()).run(b.graph)
    assert operators(b) == [("Add", "int64")]


def test_gaps_are_rounded():
    """Casts that the runtime puts around nodes round nothing between two of them; ours do."""
    b = graph(lambda b, x, w: b.Sub(b.Add(x, np.float32(1000.0)), np.float32(1000.0)),
              with_weight=False)  # fmt: skip
    ConvertToHalf(weights=()).run(b.graph)
    assert RoundMissingKernels(CPU).run(b.graph)
    found = run(b, {}, x=X)
    half = X.astype(np.float16)
    np.testing.assert_array_equal(found, (half + np.float16(1000)) - np.float16(1000))
    assert not np.array_equal(found, half)


def values(rng):
    return {
        "w": rng.normal(size=(4, 3, 3, 3)), "c": rng.normal(size=4), "gamma": rng.normal(size=4),
        "beta": rng.normal(size=4), "mean": rng.normal(size=4), "var": rng.uniform(0.5, 2, 4),
    }  # fmt: skip


@pytest.mark.parametrize("has_bias", [True, False])
def test_a_normalization_is_folded(has_bias):
    held = {n: v.astype(np.float32) for n, v in values(np.random.default_rng(2)).items()}
    if not has_bias:
        del held["c"]

    def build():
        b = Builder()
        x = b.input("x", (1, 3, 5, 5), float32)
        v = {n: b.input(n, a.shape, float32) for n, a in held.items()}
        h = b.Conv(x, v["w"], v.get("c"))
        y = b.BatchNormalization(h, v["gamma"], v["beta"], v["mean"], v["var"], epsilon=1e-3)
        b.output(y, "y")
        return b

    x = np.random.default_rng(3).normal(size=(1, 3, 5, 5)).astype(np.float32)
    want = run(build(), held, x=x)
    b, folded = build(), dict(held)
    assert FoldBatchNorm(folded).run(b.graph)
    assert operators(b) == [("Conv", "float32")]
    assert set(folded) == {"w", "c" if has_bias else "beta"}
    assert [v.name for v in b.graph.inputs] == ["x", *folded]
    np.testing.assert_allclose(run(b, folded, x=x), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shared", ["w", "gamma", "hidden"])
def test_what_something_else_reads_is_not_folded(shared):
    held = {n: v.astype(np.float32) for n, v in values(np.random.default_rng(2)).items()}
    b = Builder()
    x = b.input("x", (1, 3, 5, 5), float32)
    v = {n: b.input(n, a.shape, float32) for n, a in held.items()}
    h = b.Conv(x, v["w"], v["c"])
    y = b.BatchNormalization(h, v["gamma"], v["beta"], v["mean"], v["var"])
    other = {**v, "hidden": h}[shared]
    b.output(b.Add(y, b.ReduceSum(other, list(range(len(other.shape))), keepdims=0)), "y")
    before = {n: a.copy() for n, a in held.items()}
    assert not FoldBatchNorm(held).run(b.graph)
    assert all(np.array_equal(held[n], before[n]) for n in before)
    assert isinstance(b.graph, ir.Graph)
