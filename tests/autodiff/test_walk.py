"""The reverse walk: sums, paths, overrides."""

import numpy as np
import pytest

from flow2onnx.autodiff import NOT_DIFFERENTIABLE, gradients, has_rule, rule_names
from flow2onnx.dtypes import float32, float64, int64
from flow2onnx.graph import Builder
from flow2onnx.graph.types import dims
from flow2onnx.lowering.broadcasts import unbroadcast
from flow2onnx.trace.job import Region
from tests.autodiff.graphs import open_graph


@pytest.fixture
def b():
    return Builder()


def values(b, found, wanted, *arrays):
    """The gradients of the values `wanted`, for the inputs of the graph."""
    for i, v in enumerate(wanted):
        b.output(found[v], f"d{i}")
    return open_graph(b)(*(np.asarray(a, np.float32) for a in arrays))


def seed(b, value, content=1.0):
    return b.const(np.full(dims(value), content, np.float32))


def test_a_value_used_several_times_gets_the_sum(b):
    x = b.input("x", (3,), float32)
    y = b.Add(b.Mul(x, x), b.Add(x, b.Mul(x, 3.0)))
    (dx,) = values(b, gradients(b, {y: seed(b, y)}, [x]), [x], [1, 2, 3])
    np.testing.assert_allclose(dx, 2 * np.asarray([1, 2, 3]) + 4)


def test_several_losses_add_up_with_their_seeds(b):
    x = b.input("x", (2, 3), float32)
    first, second = b.Mul(x, 2.0), b.ReduceSum(x, [1], keepdims=0)
    seeds = {first: b.const(np.float32([[1, 2, 3], [4, 5, 6]])), second: seed(b, second, 10)}
    (dx,) = values(b, gradients(b, seeds, [x]), [x], np.zeros((2, 3)))
    np.testing.assert_allclose(dx, 10 + 2 * np.asarray([[1, 2, 3], [4, 5, 6]]))


@pytest.mark.parametrize("swaps", [False, True])
def test_a_sigmoid_that_others_read_too(b, swaps):
    x = b.input("x", (3,), float32)
    gate = b.Sigmoid(x)
    y = b.Add(b.Mul(gate, x) if swaps else b.Mul(x, gate), b.Mul(gate, 3.0))
    (dx,) = values(b, gradients(b, {y: seed(b, y)}, [x]), [x], [-2, 0.5, 4])
    points = np.asarray([-2, 0.5, 4])
    s = 1 / (1 + np.exp(-points))
    np.testing.assert_allclose(dx, s + (points + 3) * s * (1 - s), rtol=1e-6)


def test_a_loss_on_the_way_to_another(b):
    x = b.input("x", (3,), float32)
    inner = b.Mul(x, 2.0)
    outer = b.Mul(inner, 5.0)
    found = gradients(b, {inner: seed(b, inner), outer: seed(b, outer)}, [x])
    dinner, dx = values(b, found, [inner, x], [1, 1, 1])
    np.testing.assert_allclose(dinner, [6, 6, 6])
    np.testing.assert_allclose(dx, [12, 12, 12])


def test_what_no_loss_depends_on_is_absent(b):
    x, other = b.input("x", (3,), float32), b.input("other", (3,), float32)
    b.Exp(other)
    y = b.Exp(x)
    found = gradients(b, {y: seed(b, y)}, [x, other])
    assert x in found
    assert other not in found


def test_values_on_the_way_have_gradients_too(b):
    x = b.input("x", (2,), float32)
    h = b.Mul(x, 3.0)
    y = b.Mul(h, 4.0)
    dh, dx = values(b, gradients(b, {y: seed(b, y)}, [x]), [h, x], [0, 0])
    np.testing.assert_allclose(dh, [4, 4])
    np.testing.assert_allclose(dx, [12, 12])


def test_nothing_is_computed_off_the_way(b):
    x, data = b.input("x", (2,), float32), b.input("data", (2,), float32)
    y = b.Mul(x, b.HardSigmoid(data))  # HardSigmoid has no rule, and needs none
    found = gradients(b, {y: seed(b, y)}, [x])
    assert data not in found
    (dx,) = values(b, found, [x], [1, 1], [0, 3])
    np.testing.assert_allclose(dx, [0.5, 1])


def test_whole_numbers_end_the_way(b):
    x = b.input("x", (3,), float32)
    y = b.Cast(b.ArgMax(x, axis=0), to=float32)
    assert x not in gradients(b, {y: seed(b, y)}, [x])


def test_a_way_around_what_is_not_differentiable(b):
    x = b.input("x", (3,), float32)
    y = b.Where(b.Greater(x, 0.0), b.Mul(x, 2.0), b.Neg(x))
    (dx,) = values(b, gradients(b, {y: seed(b, y)}, [x]), [x], [-1, 1, 2])
    np.testing.assert_allclose(dx, [-1, 2, 2])


def test_no_operator_is_both(b):
    assert not set(NOT_DIFFERENTIABLE) & set(rule_names())
    assert has_rule("Conv")
    assert not has_rule("ArgMax")


def test_gradients_carry_the_line_of_their_node(b):
    x = b.input("x", (3,), float32)
    with b.under("layer", "train.py:12"):
        y = b.Exp(x)
    start = len(b.nodes)
    gradients(b, {y: seed(b, y)}, [x])
    assert {n.meta["source"] for n in b.nodes[start:]} == {"train.py:12"}
    assert all(n.name.startswith("grad/layer/Exp") for n in b.nodes[start:])


def region(b, x, vjp, *, parts=2):
    """A region of `parts` nodes on x; returns its output and the overrides."""
    start, y = len(b.nodes), x
    for _ in range(parts):
        y = b.Mul(y, 3.0)
    override = Region((x,), (y,), vjp)
    return y, dict.fromkeys(b.nodes[start:], override)


def test_an_override_replaces_the_rules_of_its_nodes(b):
    x = b.input("x", (2,), float32)
    seen = []

    def vjp(b, inputs, outputs, g):
        seen.append((inputs, outputs))
        return (b.Mul(g, 100.0),)

    y, overrides = region(b, x, vjp)
    z = b.Mul(y, 2.0)
    (dx,) = values(b, gradients(b, {z: seed(b, z)}, [x], overrides), [x], [1, 1])
    assert seen == [((x,), (y,))]
    np.testing.assert_allclose(dx, [200, 200])


def test_an_override_adds_to_other_ways(b):
    x = b.input("x", (2,), float32)
    y, overrides = region(b, x, lambda b, x, y, g: (b.Mul(g, 100.0),), parts=3)
    z = b.Add(y, x)
    (dx,) = values(b, gradients(b, {z: seed(b, z)}, [x], overrides), [x], [1, 1])
    np.testing.assert_allclose(dx, [101, 101])


def test_an_override_may_pass_nothing(b):
    x = b.input("x", (2,), float32)
    y, overrides = region(b, x, lambda b, x, y, g: (None,))
    assert x not in gradients(b, {y: seed(b, y)}, [x], overrides)


def test_an_override_off_the_way_is_not_asked(b):
    x, data = b.input("x", (2,), float32), b.input("data", (2,), float32)
    y, overrides = region(b, data, lambda *_: pytest.fail("asked"))
    z = b.Mul(x, y)
    assert data not in gradients(b, {z: seed(b, z)}, [x], overrides)


@pytest.mark.parametrize("wrong", ["shape", "element type"])
def test_a_wrong_gradient_is_caught(b, wrong):
    x = b.input("x", (2,), float32)

    def vjp(b, inputs, outputs, g):
        return (b.Reshape(g, [1, 2]) if wrong == "shape" else b.Cast(g, to=float64),)

    y, overrides = region(b, x, vjp)
    with pytest.raises(AssertionError, match="Mul"):
        gradients(b, {y: seed(b, y)}, [x], overrides)


@pytest.mark.parametrize(
    ("have", "want"),
    [
        ((2, 3), (2, 3)),
        ((2, 3), (3,)),
        ((2, 3), (1,)),
        ((2, 3), ()),
        ((2, 3), (2, 1)),
        ((2, 3), (1, 1)),
        ((4, 2, 3), (2, 1)),
        ((1, 1), ()),
        ((2, 1), (1, 1)),
        ((), ()),
    ],
)
def test_unbroadcast_sums_over_what_was_repeated(b, have, want):
    g, like = b.input("g", have, float32), b.input("like", want, float32)
    b.output(unbroadcast(b, g, like), "summed")
    array = np.arange(int(np.prod(have)), dtype=np.float32).reshape(have)
    lead = len(have) - len(want)
    wanted = array.sum(tuple(range(lead)))
    stretched = tuple(i for i, d in enumerate(want) if d == 1 and wanted.shape[i] != 1)
    wanted = wanted.sum(stretched, keepdims=True).reshape(want)
    (found,) = open_graph(b)(array, np.zeros(want, np.float32))
    np.testing.assert_array_equal(found, wanted)


def test_unbroadcast_of_the_same_shape_is_nothing(b):
    g = b.input("g", (2, 3), float32)
    assert unbroadcast(b, g, g) is g
    assert b.nodes == []


def test_integers_stay_out(b):
    i = b.input("i", (3,), int64)
    y = b.Mul(i, 2)
    z = b.Cast(y, to=float32)
    found = gradients(b, {z: seed(b, z)}, [])
    assert set(found) == {z}
