"""Optimizers and their parts made wrongly: outside a job too, errors name the user's line."""

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.errors import ArgumentError, DTypeError, FlowError, JobError, VariableError

o = flow.optimizer
CASES = {
    "SGD": lambda: o.SGD("0.1"),
    "Adam": lambda: o.Adam(rate(), momentum=0.9),
    "PiecewiseConstantScheduler": lambda: o.PiecewiseConstantScheduler([1], [0.1]),
    "CosineScheduler": lambda: o.CosineScheduler(0.1, 0),
    "PiecewiseScalingScheduler": lambda: o.PiecewiseScalingScheduler(0.1, [1, 2], [0.1]),
    "PolynomialScheduler": lambda: o.PolynomialScheduler(0.1, 9, warmup=3),
    "warmup.linear": lambda: o.warmup.linear(-1, 0.1),
    "loss_scale.static_loss_scale": lambda: o.loss_scale.static_loss_scale(0.0),
    "AdamW": lambda: o.AdamW(
        rate(), weight_decay=0.1, weight_decay_includes="a", weight_decay_excludes="b"
    ),
}  # fmt: skip


def rate():
    return o.PiecewiseConstantScheduler([], [0.1])


@pytest.mark.parametrize("name", CASES)
def test_outside_a_job(name):
    with pytest.raises(ArgumentError) as info:
        CASES[name]()
    assert info.value.source.startswith("tests/ops/test_optimizer_errors.py")
    assert name in str(info.value)
    assert info.value.job is None


def test_unknown_arguments():
    with pytest.raises(ArgumentError, match=r"momentum.*\n.*it takes lr_scheduler, beta1"):
        o.Adam(rate(), momentum=0.9)


def train(body, config=None):
    flow.clear_default_session()

    @flow.global_function(type="train", function_config=config)
    def job(x: tp.Numpy.Placeholder((2, 2))) -> tp.Numpy:
        return body(x)

    return job(np.ones((2, 2), np.float32))


def weight():
    return flow.get_variable("w", (2, 2), initializer=flow.ones_initializer())


BAD = {
    "no blob": (lambda x: 3.0, ArgumentError, "a loss is a blob"),
    "no real number": (lambda x: flow.cast(x, flow.int32), DTypeError, "of real numbers"),
}


@pytest.mark.parametrize("name", BAD)
def test_minimize(name):
    make, kind, text = BAD[name]

    def body(x):
        o.SGD(rate()).minimize(make(x))
        return x

    with pytest.raises(kind, match=text) as info:
        train(body)
    assert info.value.hint
    assert info.value.source.startswith("tests/ops/test_optimizer_errors.py")


@pytest.mark.parametrize("shape", [2, (2, 0)])
def test_shapes_of_variables(shape):
    with pytest.raises(VariableError, match="dimension") as info:
        train(lambda x: x * flow.get_variable("w", shape, initializer=flow.ones_initializer()))
    assert info.value.hint


def test_two_ways_to_train_in_one_job():
    def body(x):
        y = flow.math.reduce_mean(x * weight())
        o.SGD(rate()).minimize(y)
        return y

    config = flow.function_config()
    config.train.primary_lr(0.1)
    train(body, config)
    config.train.model_update_conf({"naive_conf": {}})
    with pytest.raises(JobError, match="model update conf and optimizer conf") as info:
        train(body, config)
    assert isinstance(info.value, FlowError)
    assert "add_loss" in info.value.hint
