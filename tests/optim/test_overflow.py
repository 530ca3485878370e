"""Loss scales under mixed precision: a step that overflows changes nothing but the scale."""

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.passes import upcast_missing_kernels
from tests.api.support import rate

SCALE = "System-Train-LossScale-job"
GOOD = "System-Train-GoodSteps-job"
STEP = "System-Train-TrainStep-job"
OPTIMIZERS = {
    "SGD": flow.optimizer.SGD,
    "Adam": flow.optimizer.Adam,
    "LAMB": flow.optimizer.LAMB,
    "RMSProp": flow.optimizer.RMSProp,
}


@pytest.fixture(params=["float16", "bfloat16", "float32"])
def configuration(request, monkeypatch):
    """Each precision, with values rounded as on a device that computes in it."""
    monkeypatch.setattr(upcast_missing_kernels, "casts_itself", lambda *_: False)
    config = flow.function_config()
    if request.param != "float32":
        config.enable_auto_mixed_precision(True)
        config.runtime.mixed_precision_dtype(request.param)
    return config


def defined(config, kind="Adam", period=2):
    """A train job with weights, biases, slots, and a scale that starts at 1024."""

    @flow.global_function(type="train", function_config=config)
    def job(x: tp.Numpy.Placeholder((2, 4))) -> tp.Numpy:
        start = flow.random_normal_initializer(stddev=0.5)
        h = flow.layers.dense(x, 8, activation=flow.math.tanh, kernel_initializer=start, name="a")
        y = flow.layers.dense(h, 3, kernel_initializer=start, name="b")
        loss = flow.math.reduce_mean(y * y)
        OPTIMIZERS[kind](
            rate(0.01),
            loss_scale_policy=flow.optimizer.loss_scale.dynamic_loss_scale(1024.0, period, 2.0),
        ).minimize(loss)
        return loss

    return job


def state():
    return {name: v.numpy().copy() for name, v in flow.get_all_variables().items()}


GOOD_INPUT = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_an_overflow_changes_nothing_and_halves_the_scale(configuration, kind):
    job = defined(configuration, kind)
    job(GOOD_INPUT)
    before = state()
    job(np.full((2, 4), np.inf, np.float32))
    after = state()
    assert after[SCALE] == before[SCALE] / 2 == 512
    assert after[GOOD] == 0
    assert before[STEP] == after[STEP] == 1
    rest = set(before) - {SCALE, GOOD}
    assert len(rest) > 5 or kind == "SGD"
    for name in rest:
        np.testing.assert_array_equal(after[name], before[name], err_msg=name)
    job(GOOD_INPUT)
    assert state()[STEP] == 2
    assert not np.array_equal(state()["a-weight"], before["a-weight"])


def test_good_steps_double_the_scale(configuration):
    job = defined(configuration, period=2)
    scales = []
    for _ in range(5):
        job(GOOD_INPUT)
        scales.append(state()[SCALE].item())
    assert scales == [1024, 2048, 2048, 4096, 4096]


def test_a_scale_too_large_for_float16_finds_its_size(monkeypatch):
    monkeypatch.setattr(upcast_missing_kernels, "casts_itself", lambda *_: False)
    config = flow.function_config()
    config.enable_auto_mixed_precision(True)

    @flow.global_function(type="train", function_config=config)
    def job(x: tp.Numpy.Placeholder((2, 4))) -> tp.Numpy:
        w = flow.get_variable("w", (4, 3), initializer=flow.constant_initializer(0.5))
        loss = flow.math.reduce_sum(flow.matmul(x, w))
        policy = flow.optimizer.loss_scale.dynamic_loss_scale(2.0**30)
        flow.optimizer.SGD(rate(0.1), momentum=0, loss_scale_policy=policy).minimize(loss)
        return loss

    x = np.ones((2, 4), np.float32)
    for _ in range(16):
        job(x)
    assert state()[SCALE] == 2.0**14  # a gradient of twice that is the largest that fits
    np.testing.assert_array_equal(state()["w"], 0.5)
    job(x)
    np.testing.assert_allclose(state()["w"], 0.3, rtol=1e-6)
