"""A graph on the rows of one process: put together, its values are those of the whole batch."""

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.compile import Target
from flow2onnx.compile.variants import compile_for_ranks
from flow2onnx.dtypes import bool_, float32, int64
from flow2onnx.errors import ShapeError, UnsupportedError
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_bytes, model_of
from flow2onnx.passes.row_shares import row_shares
from flow2onnx.passes.share_rows import share_rows

RANKS, ROWS = 2, 8
RNG = np.random.default_rng(1)
X = RNG.normal(size=(ROWS, 3, 4)).astype(np.float32)
I = RNG.integers(0, 4, (ROWS,)).astype(np.int64)  # noqa: E741 - rows of numbers
W = RNG.normal(size=(4, 5)).astype(np.float32)
IMAGES = RNG.normal(size=(ROWS, 2, 6, 6)).astype(np.float32)


def flat(b, x):
    return b.Reshape(x, [ROWS, 12])


def one_of(b, x):
    return b.Squeeze(b.Slice(x, [0], [1], [1]), [1])


# What a graph makes of its inputs x, i, w and images.
CASES = {
    "elementwise": lambda b, x, i, w, m: b.Relu(b.Add(b.Mul(x, x), b.ReduceSum(w))),
    "sides of a broadcast": lambda b, x, i, w, m: b.Add(
        one_of(b, x), b.ReduceSum(w, [1], keepdims=0)
    ),
    "a constant of the batch": lambda b, x, i, w, m: b.Add(
        x, b.const(np.full((ROWS, 1, 1), 2.0), float32)
    ),
    "a choice": lambda b, x, i, w, m: b.Where(
        b.Greater(x, 0.0), x, b.const(np.zeros((ROWS, 3, 4)), float32)
    ),
    "a type": lambda b, x, i, w, m: b.Cast(b.Greater(x, 0.0), to=float32),
    "a product": lambda b, x, i, w, m: b.MatMul(x, w),
    "a product turned": lambda b, x, i, w, m: b.MatMul(
        b.Transpose(w, perm=[1, 0]), b.Transpose(x, perm=[0, 2, 1])
    ),
    "Gemm": lambda b, x, i, w, m: b.Gemm(one_of(b, x), w, b.const(np.ones(5, np.float32))),
    "Gemm of rows": lambda b, x, i, w, m: b.Gemm(one_of(b, x), one_of(b, x), transA=1),
    "rows against rows": lambda b, x, i, w, m: b.MatMul(
        b.Transpose(one_of(b, x), perm=[1, 0]), one_of(b, x)
    ),
    "pairs in a sample": lambda b, x, i, w, m: b.MatMul(x, b.Transpose(x, perm=[0, 2, 1])),
    "flattened": lambda b, x, i, w, m: flat(b, x),
    "and back": lambda b, x, i, w, m: b.Reshape(flat(b, x), [ROWS, 4, 3]),
    "samples joined": lambda b, x, i, w, m: b.Reshape(x, [ROWS * 3, 4]),
    "one row of all": lambda b, x, i, w, m: b.Reshape(one_of(b, x), [1, ROWS, 4]),
    "Flatten": lambda b, x, i, w, m: b.Flatten(x),
    "a mean": lambda b, x, i, w, m: b.ReduceMean(x, keepdims=0),
    "a mean, and linear": lambda b, x, i, w, m: b.Add(
        b.Mul(b.ReduceMean(x, [0, 2]), 3.0), b.ReduceSum(w)
    ),
    "a sum": lambda b, x, i, w, m: b.ReduceSum(x, [0]),
    "sums, and linear": lambda b, x, i, w, m: b.Neg(
        b.Div(b.Sub(b.ReduceSum(x), b.ReduceSumSquare(x)), 7.0)
    ),
    "sums of samples": lambda b, x, i, w, m: b.ReduceSum(x, [1], keepdims=0),
    "the largest": lambda b, x, i, w, m: b.ReduceMax(x, [1, 2]),
    "softmax": lambda b, x, i, w, m: b.LogSoftmax(x, axis=-1),
    "the place of the largest": lambda b, x, i, w, m: b.ArgMax(x, axis=1, keepdims=0),
    "LayerNormalization": lambda b, x, i, w, m: b.LayerNormalization(
        x, b.const(np.ones(4, np.float32)), axis=2
    ),
    "Conv": lambda b, x, i, w, m: b.Conv(m, b.const(np.ones((3, 2, 3, 3), np.float32))),
    "a pool": lambda b, x, i, w, m: b.MaxPool(m, kernel_shape=[2, 2], strides=[2, 2]),
    "Resize": lambda b, x, i, w, m: b.Resize(m, None, None, [ROWS, 2, 12, 12]),
    "turned": lambda b, x, i, w, m: b.Transpose(x, perm=[2, 0, 1]),
    "an axis more": lambda b, x, i, w, m: b.Unsqueeze(x, [0, 2]),
    "an axis less": lambda b, x, i, w, m: one_of(b, x),
    "a part": lambda b, x, i, w, m: b.Slice(x, [1], [3], [2]),
    "a border": lambda b, x, i, w, m: b.Pad(x, [0, 1, 0, 0, 0, 2]),
    "side by side": lambda b, x, i, w, m: b.Concat(
        x, b.const(np.zeros((ROWS, 1, 4)), float32), axis=1
    ),
    "apart": lambda b, x, i, w, m: b.several("Split", x, [1, 3], outputs=2, axis=2)[1],
    "spread": lambda b, x, i, w, m: b.Expand(b.Unsqueeze(one_of(b, x), [1]), [ROWS, 6, 4]),
    "repeated": lambda b, x, i, w, m: b.Tile(x, [1, 2, 1]),
    "looked up": lambda b, x, i, w, m: b.Gather(w, i, axis=0),
    "picked": lambda b, x, i, w, m: b.Gather(x, [0, 2], axis=1),
    "picked by row": lambda b, x, i, w, m: b.GatherElements(
        one_of(b, x), b.Unsqueeze(i, [1]), axis=1
    ),
    "picked by place": lambda b, x, i, w, m: b.GatherND(w, b.Unsqueeze(i, [1])),
    "picked in a sample": lambda b, x, i, w, m: b.GatherND(
        one_of(b, x), b.Unsqueeze(i, [1]), batch_dims=1
    ),
    "one of several": lambda b, x, i, w, m: b.OneHot(i, b.const(4, int64), b.const([0.0, 1.0])),
    "the same for all": lambda b, x, i, w, m: b.Exp(w),
}
MIXED = {
    "rows less their mean": lambda b, x, i, w, m: b.Sub(x, b.ReduceMean(x, [0])),
    "a root of a mean": lambda b, x, i, w, m: b.Sqrt(b.ReduceMean(b.Mul(x, x))),
    "a sum and a number": lambda b, x, i, w, m: b.Add(b.ReduceSum(x), 1.0),
    "a mean and a sum": lambda b, x, i, w, m: b.Add(b.ReduceSum(x), b.ReduceMean(x)),
    "a quotient of means": lambda b, x, i, w, m: b.Div(1.0, b.ReduceMean(x)),
    "the largest of all": lambda b, x, i, w, m: b.ReduceMax(x),
    "softmax over rows": lambda b, x, i, w, m: b.Softmax(x, axis=0),
    "rows in order": lambda b, x, i, w, m: b.CumSum(x, b.const(0, int64)),
    "rows in reverse": lambda b, x, i, w, m: b.Slice(x, [-1], [-100], [0], [-1]),
    "some rows": lambda b, x, i, w, m: b.Slice(x, [0], [4], [0]),
    "rows joined with others": lambda b, x, i, w, m: b.Concat(x, x, axis=0),
    "rows with a ramp": lambda b, x, i, w, m: b.Add(i, b.const(np.arange(ROWS), int64)),
    "rows gathered": lambda b, x, i, w, m: b.Gather(x, [3, 1], axis=0),
    "rows by rows": lambda b, x, i, w, m: b.Gather(x, i, axis=0),
    "every pair": lambda b, x, i, w, m: b.MatMul(
        one_of(b, x), b.Transpose(one_of(b, x), perm=[1, 0])
    ),
    "rows repeated": lambda b, x, i, w, m: b.Tile(x, [2, 1, 1]),
    "a border of rows": lambda b, x, i, w, m: b.Pad(x, [1, 0, 0, 0, 0, 0]),
    "batches beside each other": lambda b, x, i, w, m: b.Reshape(x, [3, ROWS, 4]),
    "places that hold": lambda b, x, i, w, m: b.NonZero(b.Cast(x, to=bool_)),
    "sizes": lambda b, x, i, w, m: b.Shape(x),
}


def built(make):
    """The graph, and those of its inputs that have rows, with their axis."""
    b = Builder()
    inputs = [
        b.input("x", X.shape, float32), b.input("i", I.shape, int64),
        b.input("w", W.shape, float32), b.input("m", IMAGES.shape, float32),
    ]  # fmt: skip
    y = make(b, *inputs)
    b.output(y, "y")
    return b, {inputs[0]: 0, inputs[1]: 0, inputs[3]: 0}, b.graph.outputs[0]


def run(b, arrays):
    session = ort.InferenceSession(model_bytes(model_of(b.graph)))
    return session.run(None, dict(zip("xiwm", arrays, strict=True)))[0]


def put_together(share, parts):
    if share is None:
        np.testing.assert_array_equal(*parts)
        return parts[0]
    if share.kind == "rows":
        return np.concatenate(parts, share.axis)
    return sum(parts) / (RANKS if share.kind == "mean" else 1)


@pytest.mark.parametrize("name", CASES)
def test_parts_make_the_whole(name):
    whole = run(built(CASES[name])[0], (X, I, W, IMAGES))
    b, split, y = built(CASES[name])
    share = share_rows(b, split, RANKS).get(y)
    assert share is None or share.kind != "mixed"
    parts = [
        run(b, (x, i, W, m))
        for x, i, m in zip(*(np.split(a, RANKS) for a in (X, I, IMAGES)), strict=True)
    ]
    np.testing.assert_allclose(put_together(share, parts), whole, rtol=1e-5, atol=1e-6)
    assert tuple(y.shape) == parts[0].shape


@pytest.mark.parametrize("name", MIXED)
def test_mixed_rows_are_told(name):
    b, split, y = built(MIXED[name])
    share = row_shares(b.nodes, split)[y]
    assert share.kind == "mixed"
    assert share.node in b.nodes


def test_what_depends_on_mixed_rows_is_mixed():
    b, split, y = built(lambda b, x, i, w, m: b.Add(x, b.ReduceMax(x)))
    share = row_shares(b.nodes, split)[y]
    assert (share.kind, share.node.op_type) == ("mixed", "ReduceMax")


def compiled(loss_of, rows=8):
    flow.clear_default_session()

    @flow.global_function(type="train")
    def job(x: tp.Numpy.Placeholder((rows, 4))) -> tp.Numpy:
        w = flow.get_variable("w", (4, 3), initializer=flow.ones_initializer())
        loss = loss_of(flow.matmul(x, w))
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(loss)
        return loss

    return compile_for_ranks(job.spec, None, Target(ranks=2), 1)


def test_a_loss_over_mixed_rows_is_refused_at_its_line():
    def loss_of(y):
        return flow.math.sqrt(flow.math.reduce_mean(flow.math.square(y)))  # this line

    with pytest.raises(UnsupportedError, match="2 processes share the rows") as caught:
        compiled(loss_of)
    text = Path(__file__).read_text().splitlines()
    (line,) = [i for i, t in enumerate(text, 1) if t.endswith("  # this line")]
    assert caught.value.source.endswith(f"test_share_rows.py:{line}")
    assert "Sqrt" in str(caught.value)


def test_rows_that_cannot_be_shared_are_refused():
    with pytest.raises(ShapeError, match="7 rows, which 2 ranks cannot share"):
        compiled(lambda y: y, rows=7)


def test_halves_send_and_receive_the_same():
    job = compiled(lambda y: y)
    feeds = [v.name for v in job.update.model.graph.inputs if v.name not in job.variables]
    assert list(job.sent) == feeds == list(job.update.feeds)
    assert job.split == {"x": 0}
    assert not [n for n in (*job.model.graph, *job.update.model.graph) if n.domain]
