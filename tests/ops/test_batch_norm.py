"""Batch normalization: by the batch in train jobs, by the moving statistics elsewhere."""

import numpy as np
import pytest

import flow2onnx as flow
from flow2onnx.dtypes import by_numpy
from flow2onnx.errors import ArgumentError, FlowError
from tests.ops.jobs import define, predict, run

EPSILON, MOMENTUM = 1e-3, 0.9
AXES = [pytest.param((3, 4, 5, 6), a, id=f"rank-4-{a}") for a in (1, 3, -1, 2)]
AXES += [pytest.param((6, 4), a, id=f"rank-2-{a}") for a in (1, -1)]
AXES += [pytest.param((2, 3, 2, 3, 2), 1, id="rank-5"), pytest.param((5, 3, 1), 1, id="one")]


def values():
    return {name: blob.numpy() for name, blob in flow.get_all_variables().items()}


def spread(v, x, axis):
    return v.reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])


def statistics(x, axis):
    others = tuple(i for i in range(x.ndim) if i != axis % x.ndim)
    return x.mean(others), x.var(others)


def normal(x, mean, variance, axis):
    return (x - spread(mean, x, axis)) / np.sqrt(spread(variance, x, axis) + EPSILON)


def train_job(x, seed, axis, rate=1.0, **options):
    """A train job whose input is a variable too, so that its gradient shows in its change."""
    kind = by_numpy(x.dtype)

    def body(blob, dy):
        shift = flow.get_variable("shift", x.shape, kind, flow.zeros_initializer(dtype=kind))
        y = flow.layers.batch_normalization(
            blob + shift, axis=axis, momentum=MOMENTUM, name="bn", **options
        )
        scheduler = flow.optimizer.PiecewiseConstantScheduler([], [rate])
        flow.optimizer.SGD(scheduler, momentum=0).minimize(flow.math.reduce_sum(y * dy))
        return y

    return define(body, [x, seed], "train")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("shape", "axis"), AXES)
def test_training(shape, axis, dtype):
    rng = np.random.default_rng(5)
    x, dy = (rng.normal(1, 2, shape).astype(dtype) for _ in "xy")
    channels = shape[axis]
    gamma, beta = rng.normal(1, 0.3, (2, channels)).astype(dtype)
    job = train_job(x, dy, axis)
    tolerance = 3e-4 if dtype == "float32" else 1e-7
    start = {"bn-gamma": gamma, "bn-beta": beta, "shift": np.zeros_like(x)}
    flow.load_variables(start, ignore_mismatch=True)
    mean, variance = np.zeros(channels), np.ones(channels)
    wide, seed = x.astype(np.float64), dy.astype(np.float64)
    batch_mean, batch_variance = statistics(wide, axis)
    others = tuple(i for i in range(x.ndim) if i != axis % x.ndim)
    for _ in range(3):
        flow.load_variables(start, ignore_mismatch=True)
        (y,) = run(job, x, dy)
        after = values()
        n = normal(wide, batch_mean, batch_variance, axis)
        wanted = n * spread(gamma, x, axis) + spread(beta, x, axis)
        np.testing.assert_allclose(y, wanted, tolerance, tolerance)
        mean = MOMENTUM * mean + (1 - MOMENTUM) * batch_mean
        variance = MOMENTUM * variance + (1 - MOMENTUM) * batch_variance
        np.testing.assert_allclose(after["bn-moving_mean"], mean, tolerance, tolerance)
        np.testing.assert_allclose(after["bn-moving_variance"], variance, tolerance, tolerance)
        np.testing.assert_allclose(beta - after["bn-beta"], seed.sum(others), tolerance, tolerance)
        slope = (seed * n).sum(others)
        np.testing.assert_allclose(gamma - after["bn-gamma"], slope, tolerance, tolerance)
        level = spread(seed.mean(others), x, axis)
        tilt = spread((seed * n).mean(others), x, axis)
        rate = spread(gamma / np.sqrt(batch_variance + EPSILON), x, axis)
        np.testing.assert_allclose(
            -after["shift"], rate * (seed - level - n * tilt), tolerance, tolerance
        )


def test_gradient_of_every_input_by_differences():
    rng = np.random.default_rng(6)
    x, dy = rng.normal(0, 1, (2, 4, 3)), rng.normal(0, 1, (2, 4, 3))
    job = train_job(x, dy, 1)
    flow.load_variables({"shift": np.zeros_like(x)})
    run(job, x, dy)
    gradient = -values()["shift"]
    direction, step = rng.normal(0, 1, x.shape), 1e-6

    def total(moved):
        return float((normal(moved, *statistics(moved, 1), 1) * dy).sum())

    slope = (total(x + step * direction) - total(x - step * direction)) / (2 * step)
    np.testing.assert_allclose((gradient * direction).sum(), slope, 1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize(("shape", "axis"), AXES)
def test_predicting(shape, axis, dtype):
    x = np.random.default_rng(7).normal(0, 1, shape).astype(dtype)
    job = define(
        lambda blob: flow.layers.batch_normalization(blob, axis=axis, momentum=MOMENTUM), [x]
    )
    rng, kept = np.random.default_rng(8), "float64" if dtype == "float64" else "float32"
    names = ["gamma", "beta", "moving_mean", "moving_variance"]
    owned = {f"BatchNorm-{n}": rng.uniform(0.5, 2, shape[axis]).astype(kept) for n in names}
    flow.load_variables(owned, ignore_mismatch=False)
    (y,) = run(job, x)
    gamma, beta, mean, variance = owned.values()
    wanted = normal(x.astype(np.float64), mean, variance, axis) * spread(gamma, x, axis)
    tolerance = {"float16": 4e-3, "float32": 2e-5, "float64": 1e-9}[dtype]
    assert y.dtype == dtype
    np.testing.assert_allclose(y, wanted + spread(beta, x, axis), tolerance, tolerance)
    for name, v in owned.items():
        np.testing.assert_array_equal(values()[name], v)


def test_a_train_job_and_a_predict_job_share_everything():
    x = np.random.default_rng(9).normal(3, 2, (8, 4)).astype(np.float32)
    train = train_job(x, np.ones_like(x), 1, rate=0.0)

    @flow.global_function()
    def check(x: flow.typing.Numpy.Placeholder((8, 4))) -> flow.typing.Numpy:
        return flow.layers.batch_normalization(x, 1, MOMENTUM, name="bn")

    for _ in range(3):
        run(train, x, np.ones_like(x))
    now = values()
    wanted = normal(x, now["bn-moving_mean"], now["bn-moving_variance"], 1)
    np.testing.assert_allclose(check(x), wanted, 2e-5, 2e-5)


@pytest.mark.parametrize("option", ["training", "trainable"])
def test_moving_statistics_serve_where_told(option):
    x = np.random.default_rng(10).normal(3, 2, (8, 4)).astype(np.float32)
    job = train_job(x, np.ones_like(x), 1, **{option: False})
    (y,) = run(job, x, np.ones_like(x))
    np.testing.assert_allclose(y, x / np.sqrt(1 + EPSILON), 1e-5)
    after = values()
    np.testing.assert_array_equal(after["bn-moving_mean"], np.zeros(4))
    np.testing.assert_array_equal(after["bn-moving_variance"], np.ones(4))
    np.testing.assert_array_equal(after["bn-beta"] != 0, [option == "training"] * 4)


def test_half_precision_keeps_single_precision_variables():
    x = np.random.default_rng(11).normal(3, 2, (8, 4, 2)).astype(np.float16)
    job = train_job(x, np.ones_like(x), 1)
    (y,) = run(job, x, np.ones_like(x))
    assert y.dtype == np.float16
    mean, variance = statistics(x.astype(np.float64), 1)
    np.testing.assert_allclose(y, normal(x.astype(np.float64), mean, variance, 1), 4e-3, 4e-3)
    assert {v.dtype.name for n, v in values().items() if n.startswith("bn-")} == {"float32"}


def test_without_center_and_scale():
    x = np.random.default_rng(12).normal(3, 2, (8, 4)).astype(np.float32)
    job = train_job(x, np.ones_like(x), 1, center=False, scale=False)
    (y,) = run(job, x, np.ones_like(x))
    np.testing.assert_allclose(y, normal(x, *statistics(x, 1), 1), 1e-4, 1e-4)
    assert {n for n in values() if n.startswith("bn")} == {"bn-moving_mean", "bn-moving_variance"}


def test_variables_by_their_full_names():
    x = np.ones((2, 3), np.float32)

    def body(blob):
        with flow.scope.namespace("outer"):
            return flow.layers.batch_normalization(
                blob, gamma_name="g", beta_name="b", moving_mean_name="m", moving_variance_name="v"
            )

    predict(body, x)
    # names given in full stand below the namespaces of the user, as everything does
    assert set(values()) == {"outer-g", "outer-b", "outer-m", "outer-v"}


def test_a_second_layer_of_the_same_name_is_an_error():
    def body(x):
        return flow.layers.batch_normalization(flow.layers.batch_normalization(x))

    with pytest.raises(FlowError, match="already exists"):
        predict(body, np.ones((2, 3), np.float32))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: flow.layers.batch_normalization(x, axis=2),
        lambda x: flow.layers.batch_normalization(flow.reshape(x, (6,)), axis=0),
    ],
)
def test_bad_arguments(call):
    with pytest.raises(ArgumentError, match="batch_normalization"):
        predict(call, np.ones((2, 3), np.float32))


@pytest.mark.parametrize("kind", ["train", "predict"])
@pytest.mark.parametrize("name", ["batch_normalization_relu", "batch_normalization_add_relu"])
def test_with_relu(name, kind):
    x = np.random.default_rng(13).normal(0, 1, (6, 4)).astype(np.float32)
    layer = getattr(flow.layers, name)
    options = {"addend": None} if "add" in name else {}

    def body(blob):
        y = layer(blob, axis=1, **options)
        if kind == "train":
            scheduler = flow.optimizer.PiecewiseConstantScheduler([], [0.0])
            flow.optimizer.SGD(scheduler, momentum=0).minimize(flow.math.reduce_sum(y))
        return y

    (y,) = run(define(body, [x], kind), x)
    given = statistics(x, 1) if kind == "train" else (np.zeros(4), np.ones(4))
    np.testing.assert_allclose(y, np.maximum(normal(x, *given, 1), 0), 1e-4, 1e-4)


def test_with_addend():
    x, a = np.random.default_rng(14).normal(0, 1, (2, 6, 4)).astype(np.float32)
    (y,) = predict(lambda x, a: flow.layers.batch_normalization_add_relu(x, a, axis=1), x, a)
    np.testing.assert_allclose(y, np.maximum(x / np.sqrt(1 + EPSILON) + a, 0), 1e-5, 1e-5)
