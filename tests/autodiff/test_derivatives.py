"""Forward mode and second order: every rule, Jacobians, and what is constant."""

import numpy as np
import pytest

from flow2onnx.autodiff import hessian_products, jacobians, rule_names, tangents
from flow2onnx.autodiff.registry import expansion_names
from flow2onnx.dtypes import bool_, float64
from flow2onnx.graph import Builder
from tests.autodiff import derivatives
from tests.autodiff.cases import CASES
from tests.autodiff.graphs import open_graph

FIRST = {case.op_type: case.id for case in reversed(CASES)}


def marked(case):
    """A case, quick if it is the first of its operator."""
    marks = [] if FIRST[case.op_type] == case.id else [pytest.mark.slow]
    return pytest.param(case, id=case.id, marks=marks)


@pytest.mark.parametrize("case", [marked(case) for case in CASES])
def test_forward_mode_and_second_order(case):
    found = derivatives.outcome(case)
    assert found.is_right, found
    assert found.forward is not None or found.reason


def test_the_page_has_every_operator_with_a_gradient():
    rows = derivatives.PAGE.read_text("utf-8").splitlines()
    shown = {row.split("|")[1].strip() for row in rows if row.startswith("| ")} - {"operator"}
    assert shown == {case.op_type for case in CASES}
    assert shown >= {*rule_names(), *expansion_names()} - {"QuantizeLinear"}


def opened(make, shapes):
    """The results of `make(b, *inputs)` as a function of float64 arrays."""
    b = Builder()
    inputs = [b.input(f"x{i}", s, float64) for i, s in enumerate(shapes)]
    for i, value in enumerate(make(b, *inputs)):
        b.output(value, f"y{i}")
    return open_graph(b)


def test_jacobian_row_by_row():
    def make(b, x, w):
        y = b.Tanh(b.MatMul(x, w))
        found = jacobians(b, y, [x, w])
        return found[x], found[w]

    x, w = np.random.default_rng(1).normal(size=(2, 3, 3))
    by_x, by_w = opened(make, [(3, 3), (3, 3)])(x, w)
    slope = 1 - np.tanh(x @ w) ** 2
    eye = np.eye(3)
    np.testing.assert_allclose(by_x, np.einsum("ij,ik,lj->ijkl", slope, eye, w), atol=1e-12)
    np.testing.assert_allclose(by_w, np.einsum("ij,ik,jl->ijkl", slope, x, eye), atol=1e-12)


def test_jacobian_of_what_is_a_number_and_of_what_is_passed_on():
    def make(b, x):
        total = b.ReduceSum(b.Exp(x), keepdims=0)
        same = b.Identity(x)
        return jacobians(b, total, [x])[x], jacobians(b, same, [x])[x]

    x = np.random.default_rng(2).normal(size=(2, 2))
    by_total, by_same = opened(make, [(2, 2)])(x)
    np.testing.assert_allclose(by_total, np.exp(x))
    np.testing.assert_array_equal(by_same, np.eye(4).reshape(2, 2, 2, 2))


def test_two_values_that_share_a_gradient():
    def make(b, x, y, t, u):
        z = b.Add(x, y)
        square = b.Mul(z, z)
        ones = b.const(np.ones(3))
        along = {x: t, y: u}
        _, products = hessian_products(b, {square: ones}, along)
        return tangents(b, along, [z])[z], products[x], products[y]

    x, y, t, u = np.random.default_rng(3).normal(size=(4, 3))
    dz, hx, hy = opened(make, [(3,)] * 4)(x, y, t, u)
    np.testing.assert_allclose(dz, t + u)
    np.testing.assert_allclose(hx, 2 * (t + u))
    np.testing.assert_allclose(hy, 2 * (t + u))


def test_what_is_flat_is_absent():
    b = Builder()
    x, y = b.input("x", (3,), float64), b.input("y", (3,), float64)
    assert tangents(b, {y: y}, [b.Exp(x)]) == {}
    assert jacobians(b, b.Exp(x), [y]) == {}
    line = b.Mul(x, 3.0)
    first, second = hessian_products(b, {line: b.const(np.ones(3))}, {x: y})
    assert set(first) == {x}
    assert x not in second


def test_second_order_through_a_branch():
    def make(b, x, t):
        condition = b.Greater(b.ReduceSum(x, keepdims=0), 0.0)
        branches = {}
        for name, slope in (("then_branch", "Exp"), ("else_branch", "Sin")):
            inner = Builder.inside(b, name)
            inner.graph.outputs.append(inner.emit(slope, (x,))[0])
            branches[name] = inner.graph
        y = b.emit("If", (b.Cast(condition, to=bool_),), branches, 1)[0]
        forward = tangents(b, {x: t}, [y])[y]
        first, second = hessian_products(b, {y: b.const(np.ones(3))}, {x: t})
        return forward, first[x], second[x]

    run = opened(make, [(3,), (3,)])
    t = np.asarray([1.0, -2.0, 0.5])
    for x in (np.asarray([0.3, 0.2, 0.1]), np.asarray([-0.3, 0.2, -0.1])):
        slope, bend = (np.exp, np.exp) if x.sum() > 0 else (np.cos, lambda v: -np.sin(v))
        forward, first, second = run(x, t)
        np.testing.assert_allclose(forward, slope(x) * t)
        np.testing.assert_allclose(first, slope(x))
        np.testing.assert_allclose(second, bend(x) * t)
