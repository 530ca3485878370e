"""Where OneFlow's meaning is not what one would guess, and what a row of the table cannot say."""

import numpy as np
import pytest

import flow2onnx as flow
from flow2onnx.errors import FlowError, VariableError
from flow2onnx.trace.initializers import TruncatedNormal
from tests.ops.jobs import define, predict, run, watched_gradients


def floats(*content):
    return np.asarray(content, np.float32)


def gradient(call, *arrays, seed=None):
    """The gradients of the sum of `call`'s output, all inputs varied."""
    (y,) = predict(call, *arrays)
    seeds = [np.ones_like(y) if seed is None else seed]
    found = watched_gradients(call, arrays, range(len(arrays)), seeds)
    return [found[f"in{i}"] for i in range(len(arrays))]


def test_a_number_over_zero_is_zero():
    (y,) = predict(lambda x: 3 / x, floats(0, 2, -4))
    np.testing.assert_array_equal(y, floats(0, 1.5, -0.75))
    (dx,) = gradient(lambda x: 3 / x, floats(0, 2, -4))
    np.testing.assert_allclose(dx, [0, -0.75, -3 / 16], rtol=1e-6)


def test_division_by_the_number_zero_is_multiplication_by_zero():
    (y,) = predict(lambda x: x / 0, floats(1, -2))
    np.testing.assert_array_equal(y, [0, 0])


def test_reciprocal_no_nan_at_zero():
    (y,) = predict(lambda x: flow.math.reciprocal_no_nan(x), floats(0, 0.5))
    np.testing.assert_array_equal(y, [0, 2])


def test_numbers_take_the_element_type_of_the_blob():
    (y,) = predict(lambda i: i * 2.9, np.arange(4, dtype=np.int32))
    np.testing.assert_array_equal(y, np.arange(4, dtype=np.int32) * 2)


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_a_tie_gives_all_to_the_second(name):
    call = getattr(flow.math, name)
    low, high = floats(1, 2, 5), floats(1, 2, 6)
    x, y = (high, low) if name == "maximum" else (low, high)
    dx, dy = gradient(lambda x, y: call(x, y), x, y)
    np.testing.assert_array_equal(dx, [0, 0, 1])
    np.testing.assert_array_equal(dy, [1, 1, 0])


def test_abs_passes_the_gradient_at_zero():
    (dx,) = gradient(lambda x: flow.math.abs(x), floats(-2, 0, 3))
    np.testing.assert_array_equal(dx, [-1, 1, 1])


def test_relu_stops_the_gradient_at_zero():
    (dx,) = gradient(lambda x: flow.math.relu(x), floats(-2, 0, 3))
    np.testing.assert_array_equal(dx, [0, 0, 1])


@pytest.mark.parametrize("name", ["reduce_max", "reduce_min"])
def test_ties_of_a_reduction_share(name):
    (dx,) = gradient(lambda x: getattr(flow.math, name)(x, axis=1), floats([2, 2], [1, 1]))
    np.testing.assert_array_equal(dx, [[0.5, 0.5], [0.5, 0.5]])


def test_round_goes_to_even():
    (y,) = predict(lambda x: flow.math.round(x), floats(-1.5, -0.5, 0.5, 1.5, 2.5))
    np.testing.assert_array_equal(y, [-2, 0, 0, 2, 2])


def test_mod_has_the_sign_of_the_divisor():
    x, y = floats(5, -5, 5, -5), floats(3, 3, -3, -3)
    for dtype in (np.float32, np.int32):
        (found,) = predict(lambda x, y: x % y, x.astype(dtype), y.astype(dtype))
        np.testing.assert_array_equal(found, np.mod(x, y).astype(dtype))


def test_truths_are_int8():
    for call in (lambda x, y: x == y, lambda x, y: x != y, lambda x, y: x < 1, lambda x, y: y >= x):
        (found,) = predict(call, floats(0, 1), floats(1, 1))
        assert found.dtype == np.int8


def test_any_number_but_zero_is_true():
    i = np.asarray([0, 1, -3], np.int8)
    (found,) = predict(lambda i, x: flow.where(i, x, x * 10), i, floats(1, 1, 1))
    np.testing.assert_array_equal(found, [10, 1, 1])


def test_small_arguments_keep_their_digits():
    (y,) = predict(lambda x: flow.math.expm1(x), floats(1e-6, -1e-7))
    np.testing.assert_allclose(y, [1e-6, -1e-7], rtol=1e-5)


def test_large_logits_have_finite_losses():
    logits, labels = floats([200, -200]), np.asarray([1], np.int32)
    (y,) = predict(
        lambda z, x: flow.nn.sparse_softmax_cross_entropy_with_logits(z, x), labels, logits
    )
    np.testing.assert_allclose(y, [400])
    (y,) = predict(
        lambda z, x: flow.nn.sigmoid_cross_entropy_with_logits(z, x), floats([0, 1]), logits
    )
    np.testing.assert_allclose(y, [[200, 200]])


def test_identity_n_keeps_the_order():
    found = predict(lambda x, y: flow.identity_n([y, x]), floats(1), floats(2))
    assert [float(f[0]) for f in found] == [2, 1]


def test_dropout_in_a_train_job():
    x = np.ones((64, 64), np.float32)
    call = define_dropout(x, name="drop", seed=3)
    first, second = run(call, x)[0], run(call, x)[0]
    assert set(np.unique(first)) <= {np.float32(0), np.float32(1 / 0.75)}
    assert abs((first == 0).mean() - 0.25) < 0.05
    assert (first != second).any()


def define_dropout(x, **options):
    def body(blob):
        y = flow.nn.dropout(blob, 0.25, **options)
        v = flow.get_variable("v", (1,), initializer=flow.ones_initializer())
        rate = flow.optimizer.PiecewiseConstantScheduler([], [0.0])
        flow.optimizer.SGD(rate, momentum=0).minimize(flow.math.reduce_sum(y * v))
        return y

    return define(body, [x], "train")


def test_dropout_passes_what_it_kept():
    x = np.ones((32, 32), np.float32)
    seen = {}

    def body():
        v = flow.get_variable("v", x.shape, initializer=flow.ones_initializer())
        y = flow.nn.dropout(v, 0.5)
        rate = flow.optimizer.PiecewiseConstantScheduler([], [1.0])
        flow.optimizer.SGD(rate, momentum=0).minimize(flow.math.reduce_sum(y))
        return y

    seen["y"] = run(define(body, [], "train"))[0]
    after = flow.get_all_variables()["v"].numpy()
    np.testing.assert_allclose(x - after, seen["y"])


def test_watch_diff_between_relu_and_max_pool():
    seen = []

    def body(x):
        v = flow.get_variable("v", x.shape, initializer=flow.ones_initializer())
        h = flow.math.relu(x * v)
        flow.watch_diff(h, lambda g: seen.append(g.numpy()))
        y = flow.nn.max_pool2d(h, 2, 2, "VALID")
        rate = flow.optimizer.PiecewiseConstantScheduler([], [0.0])
        flow.optimizer.SGD(rate, momentum=0).minimize(flow.math.reduce_sum(y))
        return y

    x = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)
    run(define(body, [x], "train"), x)
    np.testing.assert_array_equal(seen, [[[[[0, 0], [0, 1]]]]])


# --- what makes or writes variables -----------------------------------------------------------


def test_assign_shows_from_the_next_call_on():
    def body(x):
        v = flow.get_variable("v", (2,), initializer=flow.zeros_initializer(), trainable=False)
        flow.assign(v, v + x)
        return flow.identity(v)

    x = floats(1, 2)
    job = define(body, [x])
    assert [list(run(job, x)[0]) for _ in range(3)] == [[0, 0], [1, 2], [2, 4]]


def test_assign_twice_is_an_error():
    def body(x):
        v = flow.get_variable("v", (2,), initializer=flow.zeros_initializer())
        flow.assign(v, x)
        flow.assign(v, x)
        return x

    x = floats(1, 2)
    with pytest.raises(VariableError, match="written twice"):
        run(define(body, [x]), x)


def test_assign_of_another_shape_is_an_error():
    def body(x):
        v = flow.get_variable("v", (3,), initializer=flow.zeros_initializer())
        flow.assign(v, x)
        return x

    x = floats(1, 2)
    with pytest.raises(VariableError, match="v"):
        run(define(body, [x]), x)


def test_get_variable_of_one_name_is_one_variable():
    def body():
        v, w = (flow.get_variable("v", (2,), initializer=flow.ones_initializer()) for _ in "ab")
        assert v is w
        return v + w

    np.testing.assert_array_equal(run(define(body, []))[0], [2, 2])
    assert set(flow.get_all_variables()) == {"v"}


def test_layers_do_not_share_by_default_names():
    x = floats([1, 2])

    def body(x):
        return flow.layers.dense(flow.layers.dense(x, 3), 3)

    with pytest.raises(FlowError, match="already exists"):
        run(define(body, [x]), x)


@pytest.mark.parametrize("losses", [lambda v: v * 3, lambda v: [v * 2, v]], ids=["one", "two"])
def test_add_loss_takes_one_or_several(losses):
    config = flow.function_config()
    config.train.primary_lr(0.5)
    config.train.model_update_conf({"naive_conf": {}})

    @flow.global_function("train", config)
    def job():
        v = flow.get_variable("v", (2,), initializer=flow.zeros_initializer())
        flow.losses.add_loss(losses(v))

    job()
    # the mean over the two elements of one loss: a rate of 0.5 times 3 / 2
    np.testing.assert_allclose(flow.get_all_variables()["v"].numpy(), [-0.75, -0.75])


def test_truncated_normal_is_an_initializer():
    assert flow.truncated_normal(0.1) == TruncatedNormal(0.0, 0.1)

    def body():
        return flow.identity(
            flow.get_variable("v", (1000,), initializer=flow.truncated_normal(0.1))
        )

    (v,) = run(define(body, []))
    assert np.abs(v).max() <= 0.2
    assert 0.07 < v.std() < 0.1
