"""Blobs whose size is known at the call only: their upper bounds, and training through them."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.errors import JobError, UnknownShapeError
from tests.ops.jobs import define, predict, run

X = np.asarray([[0, 1.5, 0], [2, 0, -1]], np.float32)
NOTHING = np.zeros_like(X)
RATE = 0.5


def rate():
    return flow.optimizer.PiecewiseConstantScheduler([], [RATE])


def trained(body, arrays, start, watches=False, **how):
    """The losses of one step of SGD, and the variable ``w`` behind it."""
    flow.clear_default_session()

    def job(*blobs):
        w = flow.get_variable("w", start.shape, initializer=flow.zeros_initializer())
        loss = body(w, *blobs)
        flow.optimizer.SGD(rate(), momentum=0, **how).minimize(loss)
        if watches:
            flow.watch_diff(w, lambda g: None)
        return loss

    step = define(job, arrays, "train")
    flow.load_variables({"w": start})
    losses = run(step, *arrays)
    return losses, flow.get_all_variables()["w"].numpy()


def found(w, x):
    return flow.gather_nd(w * x, flow.argwhere(x))


def found_rows(w, x):
    """The rows of w that the first column of x chooses."""
    chosen = flow.argwhere(flow.slice(x, [0, 0], [2, 1]))
    return flow.gather(w, flow.squeeze(flow.slice(chosen, [None, 0], [None, 1]), [1]))


DIVIDED_LATER = [
    {},
    {"watches": True},
    {"loss_scale_factor": 8.0},
    {"grad_clipping": flow.optimizer.grad_clipping.by_global_norm(1e6)},
    {"loss_scale_policy": flow.optimizer.loss_scale.dynamic_loss_scale(8.0)},
]


@pytest.mark.parametrize("how", DIVIDED_LATER, ids=lambda how: "".join(how) or "plain")
@pytest.mark.parametrize("x", [X, NOTHING, np.ones_like(X)], ids=["some", "none", "all"])
def test_a_loss_is_divided_by_its_length_at_the_call(x, how):
    (loss,), w = trained(found, [x], np.full((2, 3), 2, np.float32), **how)
    length = max(np.count_nonzero(x), 1)
    np.testing.assert_allclose(loss, 2 * x[x != 0])
    np.testing.assert_allclose(w, 2 - RATE * x / length, rtol=1e-6)


@pytest.mark.parametrize("how", DIVIDED_LATER, ids=lambda how: "".join(how) or "plain")
@pytest.mark.parametrize("first", [[1, 0], [0, 0], [1, 1]])
def test_a_loss_is_divided_by_its_rows_alone(first, how):
    """OneFlow: of a dynamic loss the size of the first dimension counts."""
    x, start = np.asarray(first, np.float32)[:, None], np.ones((2, 3), np.float32)
    (loss,), w = trained(found_rows, [x], start, **how)
    rows = sum(first)
    assert loss.shape == (rows, 3)
    np.testing.assert_allclose(w, 1 - RATE * np.repeat(x, 3, 1) / max(rows, 1), rtol=1e-6)


def test_a_falling_rate_is_divided_too():
    flow.clear_default_session()

    def job(x):
        w = flow.get_variable("w", (2, 3), initializer=flow.ones_initializer())
        scheduler = flow.optimizer.PiecewiseConstantScheduler([0], [0.5, 0.25])
        loss = found(w, x)
        flow.optimizer.SGD(scheduler, momentum=0).minimize(loss)
        return loss

    step, w = define(job, [X], "train"), np.ones((2, 3), np.float32)
    for rate_then in (0.5, 0.25, 0.25):
        (loss,) = run(step, X)
        np.testing.assert_allclose(loss, (w * X)[X != 0], rtol=1e-6)
        w = w - rate_then * X / 3


@pytest.mark.parametrize("count", [1, 3])
def test_smaller_arrays_of_a_list(count):
    """The loss of a ListNumpy input is dynamic as well: its rows count, not its elements."""
    flow.clear_default_session()

    @flow.global_function(type="train")
    def job(x: tp.ListNumpy.Placeholder((4, 2))) -> tp.ListNumpy:
        w = flow.get_variable("w", (2,), initializer=flow.zeros_initializer())
        loss = x * w
        flow.optimizer.SGD(rate(), momentum=0).minimize(loss)
        return loss

    x = np.arange(1, 1 + 2 * count, dtype=np.float32).reshape(count, 2)
    job([x])
    found = flow.get_all_variables()["w"].numpy()
    np.testing.assert_allclose(found, -RATE * x.sum(0) / count, rtol=1e-6)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    x=hnp.arrays(np.float32, (3, 4), elements=st.sampled_from([0.0, 1.0, -2.0, 0.5])),
)
def test_a_mask_and_a_gather_train_alike(x):
    """The sum over what is found is the sum over all where nothing else counts."""
    start = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)

    def gathered(w, x):
        return flow.math.reduce_sum(flow.math.square(found(w, x)))

    def masked(w, x):
        return flow.math.reduce_sum(flow.math.square(w * x))

    (one,), w = trained(gathered, [x], start)
    (other,), v = trained(masked, [x], start)
    np.testing.assert_allclose(one, other, rtol=1e-5)
    np.testing.assert_allclose(w, v, rtol=1e-5)
    assert np.isfinite(w).all()


def test_shapes_are_upper_bounds():
    def body(x):
        places = flow.argwhere(x)
        values = flow.gather_nd(x, places)
        wanted = {
            places: (6, 2),
            flow.nonzero(x): (2, 6),
            values: (6,),
            flow.math.relu(values): (6,),
            flow.reshape(values, (-1, 1)): (6, 1),
            flow.concat([values, values], axis=0): (12,),
            flow.expand_dims(values, 1): (6, 1),
            flow.stack([values, values], axis=1): (6, 2),
            flow.transpose(places, perm=[1, 0]): (2, 6),
            flow.ones_like(values): (6,),
            flow.broadcast_like(flow.constant(1.0, flow.float32, (1,)), values): (6,),
            flow.slice(places, [None, 0], [None, 1]): (6, 1),
            flow.slice_v2(places, [(None, 4, None)]): (4, 2),
            flow.slice_v2(places, [(None, None, -1)]): (6, 2),
            flow.matmul(flow.cast(places, flow.float32), x): (6, 3),
            flow.flatten(places): (12,),
            flow.math.reduce_sum(places, axis=1): (6,),
            values + values: (6,),
        }  # fmt: skip
        for blob, shape in wanted.items():
            assert (blob.shape, blob.is_dynamic) == (shape, True), blob
            assert str(shape) in repr(blob)
        return list(wanted)

    outputs = predict(body, X)
    values = X[X != 0]
    places = np.argwhere(X)
    wanted = [
        places, places.T, values, np.maximum(values, 0), values[:, None],
        np.concatenate([values, values]), values[:, None], np.stack([values, values], 1), places.T,
        np.ones(3), np.ones(3), places[:, :1], places[:4], places[::-1], places @ X,
        places.ravel(), places.sum(1), 2 * values,
    ]  # fmt: skip
    for found, value in zip(outputs, wanted, strict=True):
        np.testing.assert_array_equal(found, value)


@pytest.mark.parametrize("x", [X, NOTHING])
def test_slices_count_from_the_end_that_there_is(x):
    def body(x):
        places = flow.argwhere(x)
        return [
            flow.slice_v2(places, [(-2, None, None), (-1, None, None)]),
            flow.slice(places, [-2, 0], [1, 2]),
            flow.slice(places, [1, 0], [-1, -1]),
        ]

    places = np.argwhere(x)
    for y, wanted in zip(
        predict(body, x), [places[-2:, -1:], places[-2:-1], places[1:]], strict=True
    ):
        np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("x", [X, NOTHING, np.ones_like(X)])
def test_a_static_shape_is_the_upper_bound_with_zeros(x):
    flow.clear_default_session()

    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2, 3))) -> tp.Numpy:
        y = flow.cast_to_static_shape(flow.gather_nd(x, flow.argwhere(x)))
        assert (y.shape, y.is_dynamic) == ((6,), False)
        return y

    values = x[x != 0]
    np.testing.assert_array_equal(job(x), np.pad(values, (0, 6 - values.size)))


def test_a_static_loss_is_divided_by_its_upper_bound():
    (_,), w = trained(
        lambda w, x: flow.cast_to_static_shape(found(w, x)), [X], np.ones((2, 3), np.float32)
    )
    np.testing.assert_allclose(w, 1 - RATE * X / 6, rtol=1e-6)


def test_losses_are_all_dynamic_or_none():
    def job(x):
        w = flow.get_variable("w", (2, 3), initializer=flow.ones_initializer())
        flow.optimizer.SGD(rate()).minimize([found(w, x), flow.reshape(w, (6,))])

    with pytest.raises(JobError, match=r"dynamic float32\(6,\).*float32\(6,\)"):
        run(define(job, [X], "train"), X)


def test_a_convolution_needs_a_static_shape():
    def body(w, x):
        rows = flow.gather(w, flow.squeeze(flow.argwhere(x), [1]))
        return flow.nn.conv2d(rows, flow.ones((1, 1, 2, 2)), 1, "VALID")

    with pytest.raises(UnknownShapeError, match=r"nn\.conv2d") as e:
        trained(body, [np.ones(2, np.float32)], np.ones((2, 1, 3, 3), np.float32))
    assert "test_dynamic_shapes.py" in e.value.source
    assert "flow.cast_to_static_shape" in e.value.hint


@pytest.mark.parametrize("x", [[0, 1], [0, 0]])
def test_a_convolution_of_what_was_filled_up(x):
    def body(w, x):
        rows = flow.gather(w, flow.squeeze(flow.argwhere(x), [1]))
        rows = flow.cast_to_static_shape(rows)
        return flow.nn.conv2d(rows, flow.ones((1, 1, 2, 2)), 1, "VALID")

    (y,), w = trained(body, [np.asarray(x, np.float32)], np.ones((2, 1, 2, 2), np.float32))
    np.testing.assert_array_equal(y.ravel(), [4 * sum(x), 0])
    np.testing.assert_allclose(w[:, 0, 0, 0], 1 - RATE * np.asarray(x) / 2)
