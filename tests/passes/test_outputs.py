"""Passes keep what a graph computes: random small graphs before and after."""

import hypothesis.strategies as st
import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given, settings

from flow2onnx.dtypes import bool_, float32, int8
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_bytes, model_of
from flow2onnx.graph.types import dims, dtype_of
from flow2onnx.passes.pipeline import PIPELINE, run_passes

SIZE = 3
UNARY = ("Neg", "Relu", "Tanh", "Abs", "Identity")
BINARY = ("Add", "Mul", "Sub", "Max")


def grow(b, draw):
    """A random graph over square matrices, vectors and truths, with what passes look for."""
    matrices = [b.input(f"m{i}", (SIZE, SIZE), float32) for i in range(3)]
    vectors = [b.input(f"v{i}", (SIZE,), float32) for i in range(2)]
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(
            st.sampled_from(["unary", "binary", "gemm", "bias", "truth", "update", "vector"])
        )
        x = draw(st.sampled_from(matrices))
        y = draw(st.sampled_from(matrices))
        v = draw(st.sampled_from(vectors))
        if kind == "unary":
            matrices.append(b.emit(draw(st.sampled_from(UNARY)), (x,))[0])
        elif kind == "binary":
            matrices.append(b.emit(draw(st.sampled_from(BINARY)), (x, y))[0])
        elif kind == "gemm":
            flips = {k: draw(st.integers(0, 1)) for k in ("transA", "transB")}
            matrices.append(b.Gemm(x, y, alpha=draw(st.sampled_from([1.0, -0.5])), **flips))
        elif kind == "bias":
            matrices.append(b.Add(b.Gemm(x, y), v))
        elif kind == "update":
            matrices.append(b.Add(x, b.Gemm(y, y, transA=1)))
        elif kind == "truth":
            truth = b.Cast(b.Cast(b.Greater(x, y), to=int8), to=bool_)
            matrices.append(b.Where(truth, x, b.Cast(y, to=float32)))
        else:
            vectors.append(b.ReduceMean(x, [0], keepdims=0))
    made = [*matrices[3:], *vectors[2:]]
    chosen = draw(st.lists(st.sampled_from(made), min_size=1, max_size=4, unique=True))
    for i, value in enumerate(chosen):
        b.output(value, f"out{i}")


def run(b, arrays):
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    content = model_bytes(model_of(b.graph))
    session = ort.InferenceSession(content, options, ["CPUExecutionProvider"])
    return session.run(None, arrays)


def described(graph):
    return [(v.name, dims(v), dtype_of(v)) for v in (*graph.inputs, *graph.outputs)]


@pytest.mark.parametrize("kind", [*dict.fromkeys(PIPELINE), None], ids=lambda k: k and k.__name__)
@settings(max_examples=25, deadline=None, print_blob=True)
@given(data=st.data())
def test_outputs_stay(kind, data):
    b = Builder()
    grow(b, data.draw)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**16)))
    arrays = {v.name: rng.uniform(-1, 1, dims(v)).astype(np.float32) for v in b.graph.inputs}
    before, described_before = run(b, arrays), described(b.graph)
    if kind is None:
        run_passes(b.graph)
    else:
        kind().run(b.graph)
    assert described(b.graph) == described_before
    for was, now in zip(before, run(b, arrays), strict=True):
        np.testing.assert_allclose(now, was, rtol=1e-5, atol=1e-5)
