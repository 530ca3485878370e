"""Gradients through what has a size known at run time only, against central differences."""

import numpy as np
import pytest

from flow2onnx.autodiff import gradients
from flow2onnx.dtypes import float32, float64, int64
from flow2onnx.errors import GradientError, UnknownShapeError
from flow2onnx.graph import Builder
from flow2onnx.graph.types import bounds_of, dims, is_static, sizes_of
from flow2onnx.lowering.broadcasts import unbroadcast
from tests.autodiff.graphs import open_graph, slope

TABLE = (4, 6)


def rows(b, x, mask):
    """The rows of a table that a mask chooses: how many is known at run time only."""
    return b.Gather(x, found(b, mask), axis=0)


def found(b, mask):
    return b.Reshape(b.NonZero(b.Greater(mask, 0.0)), [-1])


def places(b, mask):
    """Coordinates (row, row + 1) of a table for each row that a mask chooses."""
    row = b.Unsqueeze(found(b, mask), [1])
    return b.Concat(row, b.Add(row, 1), axis=1)


def sliced(b, x, mask):
    count = b.Reshape(b.ReduceSum(b.Cast(mask, to=int64), keepdims=0), [1])
    return b.Slice(x, [0], count, [0])


def halves(b, x, mask):
    y = rows(b, x, mask)
    return b.several("Split", y, [2, 4], axis=1, outputs=2)[1]


def scattered(b, x, mask):
    places = b.Unsqueeze(found(b, mask), [1])
    return b.ScatterND(x, places, b.Exp(rows(b, x, mask)), reduction="add")


def scattered_elements(b, x, mask):
    y = rows(b, x, mask)
    return b.ScatterElements(x, b.Expand(b.Unsqueeze(found(b, mask), [1]), b.Shape(y)), b.Sin(y))


CHAINS = {
    "gather rows": rows,
    "gather_nd": lambda b, x, m: b.GatherND(x, places(b, m)),
    "gather_elements": lambda b, x, m: b.GatherElements(
        x, b.Expand(b.Unsqueeze(found(b, m), [1]), [1, 6]), axis=0
    ),
    "gather of what was gathered": lambda b, x, m: b.Gather(rows(b, x, m), [-1, 2, 2], axis=1),
    "slice to a number": sliced,
    "slice, backwards": lambda b, x, m: b.Slice(rows(b, x, m), [-1], [-99], [0], [-1]),
    "slice beside": lambda b, x, m: b.Slice(rows(b, x, m), [1], [4], [1], [2]),
    "slice, fixed ends": lambda b, x, m: b.Slice(rows(b, x, m), [1], [4], [1]),
    "reshape": lambda b, x, m: b.Reshape(rows(b, x, m), [-1, 3]),
    "flat": lambda b, x, m: b.Flatten(rows(b, x, m), axis=0),
    "unsqueeze": lambda b, x, m: b.Squeeze(b.Unsqueeze(rows(b, x, m), [1]), [1]),
    "transpose": lambda b, x, m: b.Transpose(rows(b, x, m), perm=[1, 0]),
    "concat": lambda b, x, m: b.Concat(rows(b, x, m), x, b.Exp(rows(b, x, m)), axis=0),
    "split": halves,
    "pad": lambda b, x, m: b.Pad(rows(b, x, m), [1, 0, 2, 1]),
    "pad by a number": lambda b, x, m: b.Pad(
        x, b.Concat(b.const([1, 0, 0]), b.Shape(found(b, m)), axis=0)
    ),
    "tile": lambda b, x, m: b.Tile(rows(b, x, m), [2, 1]),
    "elementwise": lambda b, x, m: b.Mul(b.Tanh(rows(b, x, m)), b.Add(rows(b, x, m), 0.5)),
    "broadcast along": lambda b, x, m: b.Mul(rows(b, x, m), b.Gather(x, [1], axis=0)),
    "broadcast over": lambda b, x, m: b.Add(
        b.ReduceSum(rows(b, x, m), [1], keepdims=1), b.Gather(x, np.int64(2), axis=0)
    ),
    "broadcast, or not": lambda b, x, m: b.Mul(
        rows(b, x, m), b.Slice(x, [0], b.Shape(found(b, m)), [0])
    ),
    "where": lambda b, x, m: b.Where(
        b.Greater(rows(b, x, m), 0.1), rows(b, x, m), b.Gather(x, [0], axis=0)
    ),
    "sum over it": lambda b, x, m: b.ReduceSum(b.Exp(rows(b, x, m)), [0], keepdims=0),
    "sum over all": lambda b, x, m: b.ReduceSum(b.Exp(rows(b, x, m)), keepdims=0),
    "sum beside": lambda b, x, m: b.ReduceSum(b.Exp(rows(b, x, m)), [1], keepdims=1),
    "sum of squares": lambda b, x, m: b.ReduceSumSquare(rows(b, x, m), [0], keepdims=0),
    "mean beside": lambda b, x, m: b.ReduceMean(b.Exp(rows(b, x, m)), [1], keepdims=0),
    "largest beside": lambda b, x, m: b.ReduceMax(rows(b, x, m), [1], keepdims=0),
    "softmax": lambda b, x, m: b.Softmax(rows(b, x, m), axis=1),
    "matmul": lambda b, x, m: b.MatMul(rows(b, x, m), b.Transpose(x, perm=[1, 0])),
    "matmul of three": lambda b, x, m: b.MatMul(
        b.Unsqueeze(rows(b, x, m), [1]), b.Transpose(x, perm=[1, 0])
    ),
    "matmul over it": lambda b, x, m: b.MatMul(
        b.Transpose(rows(b, x, m), perm=[1, 0]), b.Exp(rows(b, x, m))
    ),
    "gemm": lambda b, x, m: b.Gemm(rows(b, x, m), x, transB=1),
    "expand": lambda b, x, m: b.Expand(
        b.Gather(x, [3], axis=0), b.Concat(b.Shape(found(b, m)), b.const([6]), axis=0)
    ),
    "scatter": scattered,
    "scatter elements": scattered_elements,
    "floor": lambda b, x, m: b.Add(b.Floor(rows(b, x, m)), rows(b, x, m)),
    "relu": lambda b, x, m: b.Relu(rows(b, x, m)),
}
MASKS = [[1, 0, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]]


def chained(chain, dtype=float64):
    """The value and the gradient of a chain as functions of the table and the mask."""
    b = Builder()
    x, mask = b.input("x", TABLE, dtype), b.input("mask", (4,), float32)
    y = CHAINS[chain](b, x, mask)
    loss = b.ReduceSum(b.Mul(y, y), keepdims=0)
    grads = gradients(b, {loss: b.const(np.ones((), dtype.numpy))}, [x])
    b.output(loss, "loss")
    b.output(grads[x], "dx")
    return open_graph(b)


@pytest.mark.parametrize("chain", CHAINS)
def test_gradient(chain):
    run = chained(chain)
    assert run is not None, "every kernel is there in float64"
    random = np.random.default_rng(5)
    for mask in np.asarray(MASKS, np.float32):
        x, direction = random.normal(size=(2, *TABLE))
        _, dx = run(x, mask)
        assert dx.shape == TABLE
        near = slope(lambda p, m=mask: run(p, m)[:1], [x], [direction], [np.ones(())], 1e-5)
        assert (dx * direction).sum() == pytest.approx(near, rel=1e-6, abs=1e-6), mask


def test_static_forms_are_as_before():
    b = Builder()
    x, y = b.input("x", (3, 1), float32), b.input("y", (3, 4), float32)
    unbroadcast(b, y, x)
    assert [n.op_type for n in b.nodes] == ["ReduceSum"]
    assert is_static(b.nodes[0].outputs[0])


def test_sizes_keep_their_names():
    """Values of the same size by the standard's rules are known to have it."""
    b = Builder()
    x, mask = b.input("x", TABLE, float32), b.input("mask", (4,), float32)
    y = rows(b, x, mask)
    z = b.Mul(b.Exp(y), y)
    assert sizes_of(y) == sizes_of(z) == (sizes_of(y)[0], 6)
    assert isinstance(sizes_of(y)[0], str)
    assert sizes_of(b.Expand(b.const([1.0]), list(sizes_of(y)))) == sizes_of(y)


@pytest.mark.parametrize(
    ("make", "bounds"),
    [
        (lambda b, y, _: y, (4, 6)),
        (lambda b, y, m: b.Concat(y, y, axis=0), (8, 6)),
        (lambda b, y, m: b.Reshape(y, [-1]), (24,)),
        (lambda b, y, m: b.Reshape(y, [0, -1, 2]), (4, 3, 2)),
        (lambda b, y, m: b.Reshape(y, [-1, 5]), (4, 5)),
        (lambda b, y, m: b.NonZero(y), (2, 24)),
        (lambda b, y, m: b.Slice(y, [1], [3], [0]), (2, 6)),
        (lambda b, y, m: b.Slice(y, b.Shape(found(b, m)), [9], [0]), (4, 6)),
        (lambda b, y, m: b.Pad(y, [1, 0, 1, 0]), (6, 6)),
        (lambda b, y, m: b.Tile(y, [3, 1]), (12, 6)),
        (lambda b, y, m: b.Compress(y, b.Greater(m, 0.0), axis=0), (4, 6)),
        (lambda b, y, m: b.Compress(y, b.Greater(m, 0.0)), (24,)),
        (lambda b, y, m: b.emit("Unique", (y,), {}, 1)[0], (24,)),
        (lambda b, y, m: b.emit("Unique", (y,), {"axis": 0}, 1)[0], (4, 6)),
        (lambda b, y, m: b.Add(y, b.Exp(y)), (4, 6)),
        (lambda b, y, m: b.Transpose(y, perm=[1, 0]), (6, 4)),
        (lambda b, y, m: b.MatMul(y, b.const(np.zeros((6, 7), np.float32))), (4, 7)),
        (lambda b, y, m: b.Expand(b.const([1.0]), list(sizes_of(y))), (4, 6)),
    ],
)
def test_bounds(make, bounds):
    b = Builder()
    x, mask = b.input("x", TABLE, float32), b.input("mask", (4,), float32)
    assert bounds_of(make(b, rows(b, x, mask), mask)) == bounds


def test_no_bound():
    b = Builder()
    count = b.input("count", (1,), int64)
    y = b.Expand(b.const([1.0]), count)
    with pytest.raises(UnknownShapeError, match="how large") as e:
        bounds_of(y)
    assert e.value.hint
    with pytest.raises(UnknownShapeError, match="only at run time"):
        dims(y)


def test_what_needs_sizes_says_so_at_the_users_line():
    b = Builder()
    x, mask = b.input("x", (1, 2, 5, 5), float32), b.input("mask", (4,), float32)
    with b.under("conv", "train.py:41"):
        chosen = rows(b, b.const(np.ones((4, 2, 2, 2), np.float32)), mask)
        y = b.Conv(x, b.Transpose(chosen, perm=[1, 2, 0, 3]))
    with pytest.raises(GradientError, match="Conv has no gradient here") as e:
        gradients(b, {y: y}, [x])
    assert e.value.source == "train.py:41"
    assert "flow.cast_to_static_shape" in e.value.hint
