"""Texts and functions where layers and optimizers take objects, and what is no argument at all."""

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.errors import ArgumentError, DTypeError, FlowError, VariableError
from flow2onnx.trace.initializers import Initializer
from tests.api.support import raises

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(4, 3)


def predicted(body):
    flow.clear_default_session()

    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        return body(x)

    return job(X)


def dense(x, **settings):
    return flow.layers.dense(x, 5, name="d", **settings)


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("relu", flow.nn.relu),
        ("GELU", flow.math.gelu),
        ("silu", flow.nn.swish),
        ("softmax", flow.nn.softmax),
        ("linear", None),
        (lambda v: v * 2 + 1, lambda v: v * 2 + 1),
    ],
)
def test_activations_by_name(text, function):
    kernel = "random_uniform(minval=-1.0, maxval=1.0)"
    got = predicted(lambda x: dense(x, kernel_initializer=kernel, activation=text))
    plain = predicted(lambda x: dense(x, kernel_initializer=kernel))

    def applied(v: tp.Numpy.Placeholder(plain.shape)) -> tp.Numpy:
        return v if function is None else function(v)

    flow.clear_default_session()
    np.testing.assert_allclose(got, flow.global_function()(applied)(plain), rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("xavier_uniform", flow.xavier_uniform_initializer()),
        ("he_normal", flow.variance_scaling_initializer(2.0, "fan_in", "truncated_normal")),
        ("constant(value=0.5)", flow.constant_initializer(0.5)),
        ("ones", flow.ones_initializer()),
        ("truncated_normal(stddev=0.1)", flow.truncated_normal(0.1)),
    ],
)
def test_initializers_by_name(text, made):
    assert isinstance(made, Initializer)
    got = predicted(lambda x: dense(x, kernel_initializer=text))
    assert np.array_equal(got, predicted(lambda x: dense(x, kernel_initializer=made)))


def trained(optimizer, steps=3, **settings):
    flow.clear_default_session()

    @flow.global_function(type="train")
    def job(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        loss = dense(x, kernel_initializer="ones", **settings)
        optimizer().minimize(loss)
        return loss

    for _ in range(steps):
        job(X)
    return flow.get_all_variables()["d-weight"].numpy()


def test_regularizers_by_name():
    def sgd():
        return flow.optimizer.SGD(0.1)

    made = flow.regularizers.l2(0.3)
    got = trained(sgd, kernel_regularizer="l2(l2=0.3)")
    assert np.array_equal(got, trained(sgd, kernel_regularizer=made))
    assert not np.array_equal(got, trained(sgd))


def halved(step):
    return 0.1 * 0.5**step


SCHEDULE = flow.optimizer.ExponentialScheduler(0.1, 1, 0.5)


@pytest.mark.parametrize(
    ("rate", "same"),
    [
        (0.1, flow.optimizer.PiecewiseConstantScheduler([], [0.1])),
        (lambda: 0.1, flow.optimizer.PiecewiseConstantScheduler([], [0.1])),
        (halved, SCHEDULE),
        (lambda step: flow.where(step < 2, 0.1, 0.01),
         flow.optimizer.PiecewiseConstantScheduler([1], [0.1, 0.01])),
        (lambda: SCHEDULE, SCHEDULE),
    ],
)  # fmt: skip
def test_rates(rate, same):
    wanted = trained(lambda: flow.optimizer.Adam(same))
    np.testing.assert_allclose(trained(lambda: flow.optimizer.Adam(rate)), wanted, rtol=1e-6)
    named = trained(lambda: flow.optimizer.named("sgd", rate))
    np.testing.assert_allclose(named, trained(lambda: flow.optimizer.named("sgd", same)), rtol=1e-6)


def minimized(x, **settings):
    loss = dense(x, kernel_initializer="ones")
    flow.optimizer.SGD(0.1, **settings).minimize(loss)
    return loss


@pytest.mark.parametrize("one", [lambda: "d-bias", lambda: ["d-bias"], lambda: bias()])
def test_one_variable_is_named_by_text_or_as_it_is(one):
    flow.clear_default_session()

    @flow.global_function(type="train")
    def job(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        loss = dense(x, kernel_initializer="ones")
        flow.optimizer.SGD(0.1, variables=one()).minimize(loss)
        return loss

    job(X)
    found = flow.get_all_variables()
    assert np.array_equal(found["d-weight"].numpy(), np.ones((5, 3)))
    assert found["d-bias"].numpy().all()


def bias():
    return flow.get_variable("d-bias", (5,))


BAD = [
    (lambda x: dense(x, activation="rleu"), ArgumentError, "did you mean relu"),
    (lambda x: dense(x, activation=3), ArgumentError, "activation is 3"),
    (lambda x: dense(x, activation=lambda v: 1), ArgumentError, "activation gave 1"),
    (lambda x: dense(x, kernel_initializer=0.1), ArgumentError, "initializer is a float"),
    (lambda x: dense(x, kernel_initializer="xaver"), ArgumentError, "did you mean xavier"),
    (lambda x: dense(x, kernel_initializer="ones(1)"), ArgumentError, "not understood"),
    (lambda x: dense(x, kernel_regularizer=1.0), ArgumentError, "regularizer is a float"),
    (lambda x: flow.reshape(x, ["a"]), ArgumentError, "wrong type"),
    (lambda x: flow.math.reduce_sum(x, axis=1.5), ArgumentError, "wrong type"),
    (lambda x: flow.layers.dense(x, None), FlowError, "dense"),
    (lambda x: flow.layers.conv2d(x, 3, "3"), FlowError, "conv2d"),
    (lambda x: flow.nn.relu("x"), ArgumentError, "nn.relu: x is a blob"),
    (lambda x: flow.clip("x", 0, 1), ArgumentError, "clip: values is a blob"),
    (lambda x: flow.cast(x, "flaot32"), DTypeError, "did you mean float32"),
    (lambda x: flow.cast(x, int), DTypeError, "flow.float32"),
    (lambda x: flow.cast(x, np.bool_), DTypeError, "flow.int8"),
    (lambda x: flow.optimizer.SGD(-0.1), ArgumentError, "-0.1"),
    (lambda x: flow.optimizer.SGD(float("nan")), ArgumentError, "nan"),
    (lambda x: flow.optimizer.SGD("0.1"), ArgumentError, "a function of the step"),
    (lambda x: flow.optimizer.named("sgd", -1), ArgumentError, "-1"),
    (lambda x: flow.optimizer.CosineScheduler(-1, 5), ArgumentError, "-1"),
    (lambda x: flow.optimizer.PiecewiseConstantScheduler([1], [1, -1]), ArgumentError, "-1"),
    (lambda x: flow.optimizer.PiecewiseScalingScheduler(1, [1], [-2]), ArgumentError, "-2"),
    (lambda x: flow.optimizer.PolynomialScheduler(1, 5, -0.1), ArgumentError, "-0.1"),
    (lambda x: flow.optimizer.CosineScheduler(1, 5, -0.1), ArgumentError, "alpha"),
    (lambda x: flow.optimizer.LinearCosineScheduler(1, 5, beta=-0.1), ArgumentError, "beta"),
    (lambda x: flow.optimizer.ExponentialScheduler(1, 5, -0.1), ArgumentError, "decay_rate"),
    (lambda x: flow.optimizer.SGD(0.1, momentum=-0.9), ArgumentError, "momentum is -0.9"),
    (lambda x: flow.optimizer.SGD(0.1, momentum="0.9"), ArgumentError, "momentum is '0.9'"),
    (lambda x: flow.optimizer.Adam(0.1, beta1=2.0), ArgumentError, "below 1"),
    (lambda x: flow.optimizer.Adam(0.1, epsilon=-1), ArgumentError, "epsilon is -1"),
    (lambda x: flow.optimizer.RMSProp(0.1, decay_rate=1.5), ArgumentError, "from 0 to 1"),
    (lambda x: flow.optimizer.LARS(0.1, lars_coefficient=None), ArgumentError, "lars_coeff"),
    (lambda x: flow.optimizer.AdamW(0.1, weight_decay=-1), ArgumentError, "weight_decay is -1"),
    (lambda x: flow.optimizer.SGD(0.1, grad_clipping=1.0), ArgumentError, "by_global_norm"),
    (lambda x: flow.optimizer.grad_clipping.by_global_norm(True), ArgumentError, "clip_norm"),
    (lambda x: minimized(x, variables=["d-wieght"]), ArgumentError, "did you mean d-weight"),
    (lambda x: minimized(x, variables=["w"]), ArgumentError, "it has d-weight, d-bias"),
    (lambda x: minimized(x, variables=[3]), ArgumentError, "variables holds 3"),
]


@pytest.mark.parametrize(("body", "kind", "text"), BAD, ids=range(len(BAD)))
def test_what_is_no_argument(body, kind, text):
    with pytest.raises(kind, match=text) as caught:
        predicted(body)
    assert "test_named_settings.py:" in str(caught.value)


def test_errors_of_the_users_function_stay():
    with pytest.raises(ZeroDivisionError):
        predicted(lambda x: dense(x, activation=lambda v: 1 / 0))


def test_a_computed_rate_has_to_be_one():
    with raises(ArgumentError, ValueError, "'fast'", job="job"):
        trained(lambda: flow.optimizer.SGD(lambda step: "fast"))


def test_element_types_by_name_and_as_numpys():
    assert predicted(lambda x: flow.cast(x, "float64")).dtype == np.float64
    assert predicted(lambda x: flow.cast(x, np.int32)).dtype == np.int32
    assert predicted(lambda x: flow.ones((2,), np.dtype("float16"))).dtype == np.float16


def test_a_repeated_variable_names_the_other_place():
    def body(x):
        return dense(x) + dense(x)

    with pytest.raises(VariableError, match=r"it was made at .*test_named_settings.py:\d+"):
        predicted(body)


def test_a_variable_of_another_job_names_that_job():
    flow.clear_default_session()

    @flow.global_function()
    def first() -> tp.Numpy:
        return flow.get_variable("w", (2,), initializer="ones")

    @flow.global_function()
    def second() -> tp.Numpy:
        return flow.get_variable("w", (3,), initializer="ones")

    with pytest.raises(VariableError, match=r"in job first, .*test_named_settings.py:\d+"):
        second()


def test_two_optimizers_train_their_own_variables():
    """A pair of adversaries in one job: each loss moves the variables of its own optimizer."""
    x = np.array([1, 2, 3, 4], np.float32)

    def variable(name, value):
        return flow.get_variable(name, (1,), initializer=f"constant(value={value})")

    @flow.global_function(type="train")
    def job(x: tp.Numpy.Placeholder((4,))) -> tp.Bundle[tp.Numpy]:
        g, d = variable("g", 0.5), variable("d", 2.0)
        score = d * g * x
        flow.optimizer.SGD(0.1, momentum=0, variables=["d"]).minimize((score - 1) ** 2)
        flow.optimizer.SGD(halved, momentum=0, variables=["g"]).minimize((score + 3) ** 2 * 0.1)
        return [g, d]

    g, d = 0.5, 2.0
    for step in range(4):
        np.testing.assert_allclose(np.concatenate(job(x)), [g, d], rtol=1e-5)
        score = d * g * x
        d_grad, g_grad = (2 * (score - 1) * g * x).mean(), (0.2 * (score + 3) * d * x).mean()
        g, d = g - 0.1 * 0.5**step * g_grad, d - 0.1 * d_grad


def test_optimizers_of_the_same_variables_are_said(caplog):
    @flow.global_function(type="train")
    def job(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        loss = dense(x)
        flow.optimizer.SGD(0.1).minimize(loss)
        flow.optimizer.SGD(0.1).minimize(loss * 2)
        return loss

    job(X)
    assert "the losses add up" in caplog.text


def test_a_warmup_of_no_steps_changes_nothing():
    plain = trained(lambda: flow.optimizer.SGD(flow.optimizer.CosineScheduler(0.1, 9)))
    for warmup in (flow.optimizer.warmup.linear(0, 0.1), flow.optimizer.warmup.constant(0, 0.1)):
        rate = flow.optimizer.CosineScheduler(0.1, 9, warmup=warmup)
        assert np.array_equal(trained(lambda rate=rate: flow.optimizer.SGD(rate)), plain)


@pytest.mark.parametrize("cycle", [False, True])
def test_a_cyclic_polynomial_takes_step_one_at_step_zero(cycle):
    rate = flow.optimizer.PolynomialScheduler(0.1, 3, end_learning_rate=0.01, cycle=cycle)
    start = trained(lambda: flow.optimizer.SGD(0.1), steps=0)
    moved = start - trained(lambda: flow.optimizer.SGD(rate, momentum=0), steps=1)
    first = start - trained(lambda: flow.optimizer.SGD(1.0, momentum=0), steps=1)
    wanted = 0.09 * (1 - 1 / 3) + 0.01 if cycle else 0.1
    np.testing.assert_allclose(moved, wanted * first, rtol=1e-5)
