"""Schedules by name: rates as torch gives them, or transformers' formulas in numpy."""

import math
from pathlib import Path

import numpy as np
import pytest
from flow2onnx_runtime import Options, open_session

import flow2onnx as flow
from flow2onnx.dtypes import int64
from flow2onnx.errors import ArgumentError
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_bytes, model_of
from flow2onnx.optim.named_schedules import SCHEDULES as TABLE
from tests.optim.torch_cases import LENGTH, RATE, SCHEDULES

RECORDED = np.load(Path(__file__).with_name("torch_optimizers.npz"))


def rates(schedule, steps):
    """The rates at steps, computed by a model on the runtime."""
    b = Builder()
    b.output(schedule.rate(b, b.input("step", (1,), int64)), "rate")
    session = open_session(model_bytes(model_of(b.graph)), Options())
    return np.array([session.run(None, {"step": np.int64([k])})[0][0] for k in steps])


@pytest.mark.parametrize("case", SCHEDULES)
def test_rates_are_torchs(case):
    found = rates(flow.optimizer.schedule(SCHEDULES[case][0], RATE), range(LENGTH))
    np.testing.assert_allclose(found, RECORDED[f"schedule/{case}"], rtol=1e-6, atol=1e-9)


# transformers' get_*_schedule_with_warmup, as factors of the rate at step k.
WARMED = {
    "constant(warmup_steps=5)": lambda k: min(1, k / 5),
    "linear(total_steps=30, warmup_steps=5)": lambda k: (
        k / 5 if k < 5 else max(0, (30 - k) / (30 - 5))
    ),
    "cosine(total_steps=30, warmup_steps=5)": lambda k: (
        k / 5 if k < 5 else 0.5 * (1 + math.cos(math.pi * min(1, (k - 5) / 25)))
    ),
    "polynomial(total_steps=30, warmup_steps=5, power=3.0, end_lr=0.03)": lambda k: (
        k / 5 if k < 5 else 0.9 * (1 - min(1, (k - 5) / 25)) ** 3 + 0.1
    ),
    "inverse_sqrt(warmup_steps=5)": lambda k: k / 5 if k < 5 else 1 / math.sqrt(k / 5),
    "inverse_sqrt(warmup_steps=5, timescale=20)": lambda k: (
        k / 5 if k < 5 else 1 / math.sqrt((k + 15) / 20)
    ),
    "inverse_sqrt": lambda k: 1 / math.sqrt((k + 10_000) / 10_000),
    "step(step_size=4, gamma=0.5, warmup_steps=5)": lambda k: (
        k / 5 if k < 5 else 0.5 ** ((k - 5) // 4)
    ),
    "cosine_restarts(period=10, warmup_steps=5)": lambda k: (
        k / 5 if k < 5 else 0.5 * (1 + math.cos(math.pi * ((k - 5) % 10) / 10))
    ),
}


@pytest.mark.parametrize("text", WARMED)
def test_rates_after_a_warm_up(text):
    found = rates(flow.optimizer.schedule(text, RATE), range(LENGTH))
    expected = [RATE * WARMED[text](k) for k in range(LENGTH)]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def test_every_schedule_has_a_reference():
    texts = [*(s[0] for s in SCHEDULES.values()), *WARMED]
    assert {text.partition("(")[0] for text in texts} == set(TABLE)


def test_restarts_are_exact_at_late_boundaries():
    schedule = flow.optimizer.schedule("cosine_restarts(period=10, multiplier=10)", 1.0)
    starts = [10, 110, 1110, 11110, 111110]
    np.testing.assert_array_equal(rates(schedule, starts), np.ones(5))
    assert (rates(schedule, [s - 1 for s in starts]) < 0.03).all()


@pytest.mark.parametrize("text", ["one_cycle(total_steps=20)", "cosine(total_steps=20)",
                                  "linear(total_steps=20, end_lr=0.1)"])  # fmt: skip
def test_rates_stay_at_the_end(text):
    found = rates(flow.optimizer.schedule(text, 1.0), [20, 21, 1000])
    assert found[0] == pytest.approx(found[2])
    assert found[1] == found[2]


WRONG = [
    ("cosine", "schedule cosine needs total_steps"),
    ("one_cycle(pct_start=0.2)", "schedule one_cycle needs total_steps"),
    ("cosine_restart(period=3)", "did you mean cosine_restarts"),
    ("warm", "there is no schedule 'warm'"),
    ("cosine(total_step=3)", "did you mean total_steps"),
    ("cosine(total_steps=0)", "total_steps is 0"),
    ("cosine(total_steps=10.0)", "total_steps is 10.0"),
    ("cosine(total_steps=10, min_lr=-1)", "min_lr is -1"),
    ("linear(total_steps=10, warmup_steps=10)", "the total counts the warm-up too"),
    ("linear(total_steps=10, warmup_steps=-1)", "warmup_steps is -1"),
    ("step(step_size=0)", "step_size is 0"),
    ("step(step_size=3, gamma=-0.5)", "gamma is -0.5"),
    ("multi_step(milestones=[])", "milestones is []"),
    ("multi_step(milestones=[5, 3])", "milestones is [5, 3]"),
    ("exponential", "schedule exponential needs gamma"),
    ("one_cycle(total_steps=20, pct_start=1.5)", "pct_start is 1.5"),
    ("one_cycle(total_steps=20, pct_start=0.6, three_phase=True)", "at most 0.5"),
    ("one_cycle(total_steps=2)", "no cycle"),
    ("one_cycle(total_steps=20, anneal='sine')", "'cos' or 'linear'"),
    ("one_cycle(total_steps=20, three_phase=1)", "three_phase is 1"),
    ("cosine(total_steps", "not understood"),
    ("cosine(base_lr=0.1, total_steps=3)", "no setting 'base_lr'"),
]


@pytest.mark.parametrize(("text", "message"), WRONG, ids=[w[0] for w in WRONG])
def test_wrong_schedules(text, message):
    with pytest.raises(ArgumentError) as caught:
        flow.optimizer.schedule(text, 0.1)
    assert message in str(caught.value)


@pytest.mark.parametrize("lr", [-0.1, float("nan"), float("inf"), True, "0.1", None])
def test_wrong_rates(lr):
    with pytest.raises(ArgumentError, match="lr is"):
        flow.optimizer.schedule("cosine(total_steps=10)", lr)
