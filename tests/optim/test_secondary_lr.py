"""`train.secondary_lr`: the rate of biases, where the release followed it."""
# ruff: noqa: B008 - a default that is a call is how the first generation declares inputs

import logging

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp


def configured(update, secondary):
    config = flow.function_config()
    config.train.primary_lr(0.5)
    config.train.model_update_conf(update)
    if secondary is not None:
        config.train.secondary_lr(secondary)
    return config


def loss_of(x):
    """A loss whose gradient is 1 in each element of a weight and of a bias."""
    w = flow.get_variable("w", (2,), initializer=flow.zeros_initializer())
    c = flow.get_variable("c", (2,), initializer=flow.zeros_initializer(), model_name="bias")
    return flow.math.reduce_sum(w * x + c)


def moved(job, steps=1):
    for _ in range(steps):
        job(np.ones(2, np.float32)).get()
    found = flow.get_all_variables()
    return found["w"].numpy()[0], found["c"].numpy()[0]


def first_generation(update, secondary):
    @flow.function(configured(update, secondary))
    def job(x=flow.FixedTensorDef((2,), dtype=flow.float)):
        loss = loss_of(x)
        flow.losses.add_loss(loss)
        return loss

    return job


@pytest.mark.parametrize(
    ("update", "w", "c"),
    [
        ({"naive_conf": {}}, -1.0, -0.5),
        ({"momentum_conf": {"beta": 0.5}}, -0.5 - 0.75, -0.25 - 0.375),
    ],
)
def test_biases_have_their_own_rate_in_the_first_generation(update, w, c):
    np.testing.assert_allclose(moved(first_generation(update, 0.25), steps=2), (w, c), rtol=1e-6)


def test_without_it_biases_move_like_all():
    np.testing.assert_allclose(moved(first_generation({"naive_conf": {}}, None)), (-0.5, -0.5))


def test_the_decay_is_that_of_the_primary_rate():
    decay = {"piecewise_scaling_conf": {"boundaries": [0], "scales": [1.0, 0.1]}}
    update = {"naive_conf": {}, "learning_rate_decay": decay}
    found = moved(first_generation(update, 0.25), steps=2)
    np.testing.assert_allclose(found, (-0.55, -0.275), rtol=1e-6)


def test_the_last_generation_ignores_it_and_says_so(caplog):
    caplog.set_level(logging.WARNING, "flow2onnx.optim")

    @flow.global_function(type="train", function_config=configured({"naive_conf": {}}, 0.25))
    def job(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        loss = loss_of(x)
        flow.losses.add_loss(loss)
        return loss

    job(np.ones(2, np.float32))
    found = flow.get_all_variables()
    assert found["w"].numpy()[0] == found["c"].numpy()[0] == -0.5
    texts = [r.message for r in caplog.records if "secondary_lr" in r.message]
    assert len(texts) == 1
    assert "OneFlow 0.4" in texts[0]
