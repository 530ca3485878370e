"""Gradients of weights that many products read: one product, with the same numbers."""

from collections import Counter

import numpy as np
import pytest

from flow2onnx.autodiff import gradients
from flow2onnx.dtypes import float32
from flow2onnx.graph import Builder
from flow2onnx.passes.dead_code import DeadCodeElimination
from tests.autodiff.graphs import open_graph

ROWS = [np.random.default_rng(i).standard_normal((2, 3)).astype(np.float32) for i in range(5)]
W = np.random.default_rng(9).standard_normal((3, 4)).astype(np.float32)
BIAS = np.arange(4, dtype=np.float32)


def differentiate(make, *values):
    """The gradients of sum(make(b, …)) in each value, and the operators that compute them."""
    b = Builder()
    inputs = [b.input(f"x{i}", v.shape, float32) for i, v in enumerate(values)]
    total = b.ReduceSum(make(b, *inputs), keepdims=0)
    found = gradients(b, {total: b.const(np.float32(1))}, inputs)
    for i, value in enumerate(inputs):
        b.output(found[value], f"d{i}")
    DeadCodeElimination().run(b.graph)
    return open_graph(b)(*values), Counter(n.op_type for n in b.graph)


def _sum(b, values):
    total = values[0]
    for value in values[1:]:
        total = b.Add(total, value)
    return total


def squares(b, values):
    return _sum(b, [b.ReduceSum(b.Mul(v, v), keepdims=0) for v in values])


def dense(b, w, bias):
    return squares(b, [b.Add(b.Gemm(b.const(x), w), bias) for x in ROWS])


def test_a_weight_and_a_bias_of_many_products_have_one_product_each():
    (dw, db), operators = differentiate(dense, W, BIAS)
    slopes = [2 * (x @ W + BIAS) for x in ROWS]
    np.testing.assert_allclose(dw, sum(x.T @ g for x, g in zip(ROWS, slopes, strict=True)),
                               rtol=1e-5)  # fmt: skip
    np.testing.assert_allclose(db, sum(g.sum(0) for g in slopes), rtol=1e-5)
    assert operators["Gemm"] == len(ROWS) + 1
    assert operators["Concat"] == 3  # of rows, and of gradients for both
    assert operators["MatMul"] == 1  # the sum of all rows


def test_a_state_that_the_weight_makes_too():
    def make(b, w):
        h = b.const(ROWS[0])
        for _ in range(4):
            h = b.Tanh(b.Gemm(h, w))
        return b.ReduceSum(h, keepdims=0)

    square = W[:, :3]
    (found,), operators = differentiate(make, square)
    assert operators["Gemm"] == 4 + 3 + 1
    states = [ROWS[0].astype(np.float64)]
    for _ in range(4):
        states.append(np.tanh(states[-1] @ square))
    wanted, g = 0, np.ones_like(states[-1])
    for before, after in zip(states[-2::-1], states[:0:-1], strict=True):
        inner = g * (1 - after**2)
        wanted, g = wanted + before.T @ inner, inner @ square.T
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("factors", "products"), [
    ((1.0, 1.0, 1.0), 3),  # too few
    ((2.0, 2.0, 2.0, 2.0), 1),
    ((2.0, 1.0, 1.0, 1.0, 1.0), 2),
])  # fmt: skip
def test_products_with_other_factors_stay_apart(factors, products):
    count = len(factors)

    def make(b, w):
        return squares(b, [b.Gemm(b.const(x), w, alpha=f)
                           for x, f in zip(ROWS[:count], factors, strict=True)])  # fmt: skip

    (found,), operators = differentiate(make, W)
    slopes = [2 * f * f * x.T @ (x @ W) for x, f in zip(ROWS[:count], factors, strict=True)]
    np.testing.assert_allclose(found, sum(slopes), rtol=1e-5)
    assert operators["Gemm"] == count + products


def test_many_rows_are_not_copied():
    rows = [np.ones((257, 3), np.float32)] * 4

    def make(b, w):
        return squares(b, [b.Gemm(b.Mul(b.const(x), float(i + 1)), w) for i, x in enumerate(rows)])

    (found,), operators = differentiate(make, W)
    np.testing.assert_allclose(found, sum(2 * (i * r).T @ (i * r @ W) for i, r in
                                          enumerate(rows, 1)), rtol=1e-4)  # fmt: skip
    assert operators["Gemm"] == 8


def test_one_part_of_each_kind_stays():
    (dw, _), operators = differentiate(
        lambda b, w, bias: squares(b, [b.Gemm(b.const(ROWS[0]), w, bias), b.Mul(w, 3.0)]), W, BIAS
    )
    np.testing.assert_allclose(dw, 2 * ROWS[0].T @ (ROWS[0] @ W + BIAS) + 18 * W, rtol=1e-5)
    assert operators["Concat"] == 0
