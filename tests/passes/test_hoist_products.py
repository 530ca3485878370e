"""Products of a loop before the loop: the same values, in any order of steps and layers."""

from collections import Counter

import numpy as np
import onnxruntime as ort
import pytest

from flow2onnx.dtypes import float32, int64
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_bytes, model_of
from flow2onnx.passes.hoist_products import HoistProducts, hoist_products

STEPS, ROWS, WIDTH, UNITS = 5, 2, 3, 4
X = np.random.default_rng(5).standard_normal((STEPS, ROWS, WIDTH)).astype(np.float32)


def values_of(b):
    """The results of a graph for X."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(model_bytes(model_of(b.graph)), options)
    return session.run(None, {"x": X})


def hoisted(make, kept=()):
    """The operators of a graph after the pass, which has kept its values."""
    b = Builder()
    x = b.input("x", X.shape, float32)
    steps = [b.Squeeze(v, [0]) for v in b.several("Split", x, axis=0, num_outputs=STEPS,
                                                   outputs=STEPS)]  # fmt: skip
    for i, value in enumerate(make(b, steps)):
        b.output(value, f"y{i}")
    wanted = values_of(b)
    hoist_products(b, kept)
    assert [id(n) for n in b.nodes] == [id(n) for n in b.graph]
    for got, want in zip(values_of(b), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    return Counter(n.op_type for n in b.graph)


def weight(b, *shape):
    """A constant, another one at each place of the graph."""
    draw = np.random.default_rng([len(b.nodes), len(b.graph.initializers), *shape])
    return b.const(draw.standard_normal(shape).astype(np.float32) / 2)


def joined(b, steps, *, order=(0, 1), extra=None, transposed=False):
    """tanh([x, h] W + b) from step to step, the columns in another order."""
    wide = WIDTH + UNITS + (0 if extra is None else extra)
    w = weight(b, *((UNITS, wide) if transposed else (wide, UNITS)))
    bias, h, found = weight(b, UNITS), weight(b, ROWS, UNITS), []
    side = [] if extra is None else [weight(b, ROWS, extra)]
    for x in steps:
        parts = [(x, h)[i] for i in order]
        rows = b.Concat(*parts[:1], *side, *parts[1:], axis=1)
        h = b.Tanh(b.Add(b.Gemm(rows, w, transB=int(transposed)), bias))
        found.append(h)
    return found


def apart(b, steps):
    """A product of the input and one of the state, each with its bias."""
    w, u, h, found = weight(b, UNITS, WIDTH), weight(b, UNITS, UNITS), weight(b, ROWS, UNITS), []
    for x in steps:
        own = b.Gemm(x, w, b.const(np.ones(UNITS, np.float32)), transB=1)
        h = b.Tanh(b.Add(own, b.Gemm(h, u, transB=1)))
        found.append(h)
    return found


def stacked(b, steps, feeds_back=False):
    """Two layers step by step; the first may read what the second made in the step before."""
    lower, upper = weight(b, WIDTH + UNITS, UNITS), weight(b, 2 * UNITS, UNITS)
    h = g = weight(b, ROWS, UNITS)
    for x in steps:
        h = b.Tanh(b.MatMul(b.Concat(x, g if feeds_back else h, axis=1), lower))
        g = b.Tanh(b.MatMul(b.Concat(h, g, axis=1), upper))
    return [h, g]


def linear(b, steps):
    """A state without an activation, so that a product reads a product."""
    w, h = weight(b, WIDTH + UNITS, UNITS), weight(b, ROWS, UNITS)
    for x in steps:
        h = b.MatMul(b.Concat(x, h, axis=1), w)
    return [h]


@pytest.mark.parametrize(("make", "products"), [
    (joined, STEPS + 1),
    (lambda b, s: joined(b, s, order=(1, 0)), STEPS + 1),
    (lambda b, s: joined(b, s, extra=2), STEPS + 2),
    (lambda b, s: joined(b, s, order=(1, 0), extra=2, transposed=True), STEPS + 2),
    (apart, STEPS + 1),
    (stacked, 2 * STEPS + 2),
    (lambda b, s: stacked(b, s, feeds_back=True), 2 * STEPS + 1),
    (linear, STEPS + 1),
    (lambda b, s: [b.Neg(b.MatMul(x, w)) for w in [weight(b, WIDTH, UNITS)] for x in s], 1),
    (lambda b, s: joined(b, s[:3]), 3),  # too few
], ids=["joined", "turned", "constant part", "transposed", "apart", "stacked", "fed back", "linear",
        "no state", "few"])  # fmt: skip
def test_values_stay_and_products_are_fewer(make, products):
    after = hoisted(make)
    assert after["Gemm"] + after["MatMul"] == products


def test_two_groups_that_would_wait_for_each_other():
    def make(b, steps):
        w, u = weight(b, WIDTH, WIDTH), weight(b, WIDTH, WIDTH)
        ys = [b.Tanh(b.MatMul(x, w)) for x in steps[:3]]
        zs = [b.Tanh(b.MatMul(x, u)) for x in (*steps[:3], ys[0])]
        ys.append(b.MatMul(zs[1], w))
        return [*ys, *zs]

    after = hoisted(make)
    assert after["Gemm"] + after["MatMul"] == 1 + 4


def test_what_others_refer_to_stays():
    b = Builder()
    x, w = b.input("x", (ROWS, WIDTH), float32), weight(b, WIDTH, UNITS)
    made = [b.MatMul(b.Mul(x, float(i)), w) for i in range(4)]
    assert not HoistProducts(made[:1]).run(b.graph)
    assert not HoistProducts((), [made[0].producer()]).run(b.graph)
    assert HoistProducts().run(b.graph)


def test_large_products_and_whole_numbers_stay():
    b = Builder()
    large, w = b.input("large", (257, WIDTH), float32), weight(b, WIDTH, UNITS)
    whole = b.input("whole", (2, 2), int64)
    for i in range(4):
        b.MatMul(b.Mul(large, float(i)), w)
        b.MatMul(b.Mul(whole, i), whole)
    assert not HoistProducts().run(b.graph)


def _random_graph(b, steps, rng):
    """Products with few weights of anything that is there, joined or alone, some with a bias."""
    square, wide = weight(b, WIDTH, WIDTH), weight(b, 2 * WIDTH, WIDTH)
    bias, pool = weight(b, WIDTH), list(steps)
    for _ in range(24):
        picked = [pool[i] for i in rng.integers(max(len(pool) - 9, 0), len(pool), 2)]
        kind = rng.integers(4)
        if kind == 0:
            made = b.MatMul(picked[0], square)
        elif kind == 1:
            made = b.Gemm(b.Concat(*picked, axis=1), wide)
        elif kind == 2:
            made = b.Add(bias, b.Gemm(picked[0], square, transB=1))
        else:
            made = b.Gemm(b.Concat(*picked, axis=-1), wide, bias)
        pool.append(b.Tanh(made) if rng.integers(3) else made)
    return pool[-10:]


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs_keep_their_values(seed):
    rng = np.random.default_rng(seed)
    hoisted(lambda b, steps: _random_graph(b, steps, rng))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 300))
def test_more_random_graphs_keep_their_values(seed):
    test_random_graphs_keep_their_values(seed)
