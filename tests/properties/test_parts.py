"""Laws of parts and orders: what numpy says of any shape, axis and slice, a job says too."""

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

import flow2onnx as flow
from tests.ops.jobs import predict

RUNS = settings(max_examples=20, deadline=None, print_blob=True)
shapes = hnp.array_shapes(min_dims=1, max_dims=4, max_side=4)


def filled(shape, seed=0):
    return np.random.default_rng(seed).permutation(int(np.prod(shape))).reshape(shape) * 0.5


def axis_in(shape):
    return st.integers(-len(shape), len(shape) - 1)


@st.composite
def slices(draw):
    """A shape and non-empty slices of its leading axes."""
    shape = draw(shapes)
    count = draw(st.integers(0, len(shape)))
    parts = [draw(st.slices(d).filter(lambda s, d=d: len(range(d)[s]))) for d in shape[:count]]
    return shape, [(s.start, s.stop, s.step) for s in parts], tuple(parts)


@RUNS
@given(chosen=slices())
def test_a_slice_updated_is_what_it_was_updated_with(chosen):
    shape, tuples, parts = chosen
    x = filled(shape)
    update = -1 - filled(x[parts].shape)
    y, back = predict(
        lambda x, u: [
            updated := flow.slice_update(x, u, tuples),
            flow.slice_v2(updated, tuples),
        ],
        x,
        update,
    )
    wanted = x.copy()
    wanted[parts] = update
    np.testing.assert_array_equal(y, wanted)
    np.testing.assert_array_equal(back, update)


@RUNS
@given(data=st.data(), shape=shapes)
def test_padding_is_undone(data, shape):
    pairs = [data.draw(st.tuples(st.integers(0, 3), st.integers(0, 3))) for _ in shape]
    x = filled(shape)
    y, back = predict(lambda x: [padded := flow.pad(x, pairs, 9), flow.pad_grad(padded, pairs)], x)
    np.testing.assert_array_equal(y, np.pad(x, pairs, constant_values=9))
    np.testing.assert_array_equal(back, x)


@RUNS
@given(data=st.data(), shape=shapes, is_descending=st.booleans())
def test_orders_agree(data, shape, is_descending):
    axis = data.draw(axis_in(shape))
    k = data.draw(st.integers(1, 5))
    direction = "DESCENDING" if is_descending else "ASCENDING"
    x = filled(shape)
    values, places, top = predict(
        lambda x: [
            flow.sort(x, axis, direction),
            flow.argsort(x, axis, direction),
            flow.math.top_k(x, axis, k),
        ],
        x,
    )
    sign = -1 if is_descending else 1
    np.testing.assert_array_equal(values, sign * np.sort(sign * x, axis))
    np.testing.assert_array_equal(places, np.argsort(sign * x, axis))
    wanted = np.argsort(-x, axis)
    np.testing.assert_array_equal(top, wanted.take(range(min(k, shape[axis])), axis))


@RUNS
@given(data=st.data(), shape=shapes)
def test_reversing_twice_changes_nothing(data, shape):
    axes = data.draw(st.lists(axis_in(shape), max_size=3))
    x = filled(shape)
    once, twice = predict(
        lambda x: [y := flow.reverse(x, axes), flow.identity(flow.reverse(y, axes))], x
    )
    np.testing.assert_array_equal(once, np.flip(x, {a % len(shape) for a in axes}))
    np.testing.assert_array_equal(twice, x)


@RUNS
@given(data=st.data(), shape=hnp.array_shapes(min_dims=2, max_dims=4, max_side=4))
def test_triangle(data, shape):
    diagonal = data.draw(st.integers(-5, 5))
    x = filled(shape) + 1
    (y,) = predict(lambda x: flow.math.tril(x, diagonal, -1), x)
    inside = np.tri(*shape[-2:], diagonal, dtype=bool)
    np.testing.assert_array_equal(y, np.where(inside, x, -1))


@RUNS
@given(data=st.data(), side=hnp.array_shapes(min_dims=1, max_dims=2, max_side=4))
def test_diagonals(data, side):
    low, high = (-3, 3) if len(side) == 1 else (1 - side[0], side[1] - 1)
    diagonal = data.draw(st.integers(low, high))
    x = filled(side)
    (y,) = predict(lambda x: flow.diag(x, diagonal), x)
    np.testing.assert_array_equal(y, np.diag(x, diagonal))


@RUNS
@given(data=st.data(), shape=shapes)
def test_segments_add_up(data, shape):
    axis = data.draw(axis_in(shape))
    count = data.draw(st.integers(1, 4))
    first = axis % len(shape)
    depth = data.draw(st.integers(1, len(shape) - first))
    ids = np.random.default_rng(1).integers(0, count, shape[first : first + depth])
    x = filled(shape)
    y, like = predict(
        lambda x, i, z: [
            flow.math.unsorted_segment_sum(x, i, count, axis),
            flow.math.unsorted_segment_sum_like(x, i, z, first),
        ],
        x,
        ids,
        np.zeros((*shape[:first], count, *shape[first + depth :])),
    )
    kept = tuple(range(first, first + depth))
    np.testing.assert_allclose(y.sum(first), x.sum(kept))
    np.testing.assert_array_equal(y, like)


@RUNS
@given(chosen=hnp.mutually_broadcastable_shapes(num_shapes=3, min_dims=1, max_dims=3, max_side=4))
def test_broadcasting(chosen):
    arrays = [filled(s) for s in chosen.input_shapes]
    y, like, expanded = predict(
        lambda x, *others: [
            both := flow.broadcast_to_compatible_with(x, others),
            flow.identity(flow.broadcast_like(x, both)),
            flow.identity(flow.expand(x, list(chosen.result_shape))),
        ],
        *arrays,
    )
    wanted = np.broadcast_to(arrays[0], chosen.result_shape)
    for found in (y, like, expanded):
        np.testing.assert_array_equal(found, wanted)


@RUNS
@given(values=hnp.arrays(np.int32, st.integers(1, 12), elements=st.integers(-3, 3)))
def test_unique_rebuilds_what_it_was_given(values):
    y, places, counts, total = predict(flow.experimental.unique_with_counts, values)
    np.testing.assert_array_equal(y[places], values)
    assert total.item() == len(set(values.tolist()))
    assert counts.sum() == values.size
    assert y.shape == counts.shape == values.shape
