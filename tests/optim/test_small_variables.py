"""Small variables that move together: to the bit as each does alone."""

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.optim import small_variables
from flow2onnx.optim.named import OPTIMIZERS

BLOCKS = 10
OLD = {
    "SGD": lambda rate: flow.optimizer.SGD(rate, momentum=0.9),
    "SGDW": lambda rate: flow.optimizer.SGDW(
        rate, weight_decay=0.1, weight_decay_excludes=["bias"], momentum=0.5
    ),
    "Adam": lambda rate: flow.optimizer.Adam(rate, do_bias_correction=True),
    "AdamW": lambda rate: flow.optimizer.AdamW(rate, weight_decay=0.01),
    "RMSProp": lambda rate: flow.optimizer.RMSProp(rate, centered=True),
    "LARS": lambda rate: flow.optimizer.LARS(rate),
    "LAMB": lambda rate: flow.optimizer.LAMB(rate),
}


@pytest.fixture(autouse=True)
def far(monkeypatch):
    """Variables of all blocks move together, however much memory is between their gradients."""
    monkeypatch.setattr(small_variables, "_REACH", 1.0)


@pytest.fixture
def alone(monkeypatch):
    """Afterwards each variable moves alone."""
    return lambda: monkeypatch.setattr(small_variables, "_FEWEST", 1 << 30)


def trained(optimizer):
    """The operators of a step, and all state after three of them."""
    flow.clear_default_session()

    @flow.global_function(type="train")
    def job(x: tp.Numpy.Placeholder((4, 6))) -> tp.Numpy:
        for i in range(BLOCKS):
            x = flow.layers.dense(x, 6, activation=flow.math.tanh, name=f"d{i}")
        loss = flow.math.reduce_mean(flow.math.square(x - 0.3))
        optimizer().minimize(loss)
        return loss

    for seed in range(3):
        job(np.random.default_rng(seed).random((4, 6), np.float32))
    kinds = [node.op_type for node in job.session.compile("job").model.graph]
    return kinds, job.session.snapshot(list(job.session.variables))


def check(optimizer, alone, joins):
    kinds, together = trained(optimizer)
    alone()
    _, apart = trained(optimizer)
    assert together.keys() == apart.keys()
    for name, value in apart.items():
        np.testing.assert_array_equal(together[name], value, err_msg=name)
    assert ("Split" in kinds) == joins


@pytest.mark.parametrize("name", OLD)
def test_optimizers_of_oneflow(name, alone):
    rate = flow.optimizer.PiecewiseConstantScheduler([], [0.01])
    check(lambda: OLD[name](rate), alone, name not in ("LARS", "LAMB"))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_by_name(name, alone):
    joins = OPTIMIZERS[name].is_elementwise
    check(lambda: flow.optimizer.named(name, 0.01, ema=0.9, clip_norm=1.0), alone, joins)


def test_groups_of_other_decay_stay_apart(alone):
    check(
        lambda: flow.optimizer.named(
            "adamw", 0.01, groups={"*-bias": {"weight_decay": 0.0}, "d0-weight": {"frozen": True}}
        ),
        alone,
        True,
    )


@pytest.mark.parametrize(("limit", "value"), [("_WHOLE", 80), ("_MOST", 30), ("_MOST_NAMES", 8)])
def test_limits(limit, value, alone, monkeypatch):
    monkeypatch.setattr(small_variables, limit, value)
    check(lambda: flow.optimizer.named("adamw", 0.01), alone, True)


def test_what_gradients_are_made_from_does_not_wait_for_others(alone, monkeypatch):
    monkeypatch.setattr(small_variables, "_REACH", 1 / 48)
    check(lambda: flow.optimizer.named("adamw", 0.01), alone, False)


def test_more_variables_than_shapes_are_inferred_for(monkeypatch):
    monkeypatch.setattr(f"{__name__}.BLOCKS", 150)
    kinds, _ = trained(lambda: flow.optimizer.named("adamw", 0.01))
    assert kinds.count("Sqrt") < 20
