"""Laws of losses, products and choices over any shape, with bad arguments refused."""

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import flow2onnx as flow
from flow2onnx.errors import ArgumentError, ShapeError
from tests.ops.jobs import predict, watched_gradients

RUNS = settings(max_examples=20, deadline=None, print_blob=True)
shapes = hnp.array_shapes(min_dims=1, max_dims=3, max_side=4)
nn = flow.nn


def filled(shape, seed=0, low=-2.0, high=2.0):
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


LOSSES = {
    "L1Loss": lambda x, y: np.abs(x - y),
    "MSELoss": lambda x, y: (x - y) ** 2,
    "BCELoss": lambda x, y: -(y * np.log(x) + (1 - y) * np.log(1 - x)),
    "BCEWithLogitsLoss": lambda x, y: (1 - y) * x + np.log1p(np.exp(-x)),
    "KLDivLoss": lambda x, y: y * (np.log(y) - x),
}
REDUCTIONS = {
    "none": lambda x: x,
    "mean": lambda x: x.mean().reshape(1),
    "sum": lambda x: x.sum().reshape(1),
}


@pytest.mark.parametrize("name", LOSSES)
@RUNS
@given(shape=shapes, reduction=st.sampled_from(list(REDUCTIONS)))
def test_losses(name, shape, reduction):
    x, y = (filled(shape, i, 0.05, 0.95) for i in range(2))
    (found,) = predict(lambda x, y: getattr(nn, name)(x, y, reduction=reduction), x, y)
    wanted = REDUCTIONS[reduction](LOSSES[name](x.astype(np.float64), y.astype(np.float64)))
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, 2e-5, 1e-5)


@pytest.mark.parametrize("name", ["BCELoss", "BCEWithLogitsLoss"])
@RUNS
@given(shape=shapes, reduction=st.sampled_from(list(REDUCTIONS)))
def test_weighted_losses(name, shape, reduction):
    x, y, w = (filled(shape, i, 0.05, 0.95) for i in range(3))
    (found,) = predict(lambda x, y, w: getattr(nn, name)(x, y, w, reduction=reduction), x, y, w)
    wanted = REDUCTIONS[reduction](w * LOSSES[name](x.astype(np.float64), y))
    np.testing.assert_allclose(found, wanted, 2e-5, 1e-5)


@pytest.mark.parametrize("name", LOSSES)
@RUNS
@given(shape=shapes, other=shapes)
def test_losses_do_not_broadcast(name, shape, other):
    if shape == other:
        return
    with pytest.raises(ShapeError, match="shapes differ"):
        predict(getattr(nn, name), filled(shape), filled(other))


def test_losses_know_three_reductions():
    with pytest.raises(ArgumentError, match="'none', 'mean' or 'sum'"):
        predict(lambda x: nn.MSELoss(x, x, reduction="max"), filled((2,)))


@RUNS
@given(
    lead=st.lists(st.integers(1, 3), max_size=2),
    sides=st.tuples(*[st.integers(1, 4)] * 3),
    turns=st.tuples(st.booleans(), st.booleans()),
    alpha=st.sampled_from([1.0, 0.5, -2.0]),
    is_shared=st.booleans(),
)
def test_products(lead, sides, turns, alpha, is_shared):
    """One matrix for all, or one for each; either may be transposed, which the gradients undo."""
    n, k, m = sides
    turn_a, turn_b = turns[0] and not (is_shared and lead), turns[1]
    a = filled((*lead, k, n) if turn_a else (*lead, n, k))
    first = [] if is_shared else lead
    b = filled((*first, m, k) if turn_b else (*first, k, m), 1)
    left, right = np.swapaxes(a, -1, -2) if turn_a else a, np.swapaxes(b, -1, -2) if turn_b else b
    wanted = alpha * (left @ right)

    def body(a, b):
        return flow.matmul(a, b, transpose_a=turn_a, transpose_b=turn_b, alpha=alpha)

    (found,) = predict(body, a, b)
    np.testing.assert_allclose(found, wanted, 2e-5, 1e-5)
    seed = filled(wanted.shape, 2)
    slopes = watched_gradients(body, [a, b], [0, 1], [seed])
    # the product is linear in each factor
    total = float((wanted * seed).sum())
    for i, factor in enumerate((a, b)):
        np.testing.assert_allclose((slopes[f"in{i}"] * factor).sum(), total, 1e-3, 1e-3)


@RUNS
@given(data=st.data(), shape=shapes)
def test_one_hot_is_undone_by_argmax(data, shape):
    depth = data.draw(st.integers(2, 5))
    axis = data.draw(st.integers(-len(shape) - 1, len(shape)))
    x = np.random.default_rng(0).integers(0, depth, shape).astype(np.int32)
    (back,) = predict(
        lambda x: flow.math.argmax(
            flow.one_hot(x, depth, 2.0, -1.0, axis=axis, dtype=flow.float32), axis=axis
        ),
        x,
    )
    np.testing.assert_array_equal(back, x)


@RUNS
@given(shape=shapes, axes=st.sets(st.integers(0, 2), max_size=2))
def test_squeeze_undoes_expand_dims(shape, axes):
    def body(x):
        for axis in sorted(axes):
            x = flow.expand_dims(x, min(axis, len(x.shape)))
        return x

    x = filled(shape)
    (found,) = predict(lambda x: flow.squeeze(body(x)), x)
    wanted = x.squeeze()
    np.testing.assert_array_equal(found, wanted.reshape(wanted.shape or (1,)))


@RUNS
@given(data=st.data(), shape=hnp.array_shapes(min_dims=2, max_dims=4, max_side=4))
def test_normalised_samples_have_no_mean_and_one_deviation(data, shape):
    axis = data.draw(st.integers(1, len(shape) - 1))
    name = data.draw(st.sampled_from([axis, axis - len(shape)]))
    x = filled(shape)
    (y,) = predict(lambda x: nn.layer_norm(x, begin_norm_axis=name, epsilon=1e-5), x)
    axes = tuple(range(axis, len(shape)))
    deviation = np.sqrt(x.var(axes, keepdims=True) + 1e-5)
    np.testing.assert_allclose(y, (x - x.mean(axes, keepdims=True)) / deviation, 1e-3, 1e-3)


@RUNS
@given(shape=shapes, low=st.floats(-1, 0.5), width=st.floats(0, 1))
def test_clipping_twice_changes_nothing(shape, low, width):
    x = filled(shape)
    once, again = predict(
        lambda x: [
            flow.clip(x, low, low + width),
            flow.clip(flow.clip(x, low, low + width), low, low + width),
        ],
        x,
    )
    np.testing.assert_array_equal(once, again)
    np.testing.assert_allclose(once, x.clip(low, low + width), 1e-6, 1e-6)
