"""Groups, clipping and bad input of optimizers by name."""

import numpy as np
import pytest
from flow2onnx_runtime import Trainer

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.errors import ArgumentError
from flow2onnx.optim.groups import read_group
from tests.imported import models

X = np.float32([[1, 2], [3, -1]])


def job_with(*arguments, **options):
    """A train job of the sum of x a + b + x c, all of which begin at 1."""

    @flow.global_function(type="train")
    def job(x: tp.Numpy.Placeholder((2, 2))) -> tp.Numpy:
        one = flow.ones_initializer()
        a, c = (flow.get_variable(n, (2,), initializer=one) for n in ("net-a", "net-c"))
        bias = flow.get_variable("net-bias", (2,), initializer=one)
        loss = flow.math.reduce_sum(x * a + bias + x * c)
        flow.optimizer.named(*arguments, **options).minimize(loss)
        return loss

    return job


def values():
    return {n: v.numpy().copy() for n, v in flow.get_all_variables().items()}


G = X.sum(0)  # the gradient of a and c


def test_groups_have_their_own_rate_decay_and_optimizer():
    job = job_with(
        "sgd(weight_decay=0.1)", 0.1,
        groups={"*-bias": {"lr": 0.01, "weight_decay": 0.0}, "*-a": {"optimizer": "lion(lr=0.5)"}},
    )  # fmt: skip
    job(X)
    found = values()
    np.testing.assert_allclose(found["net-c"], 1 - 0.1 * (G + 0.1), rtol=1e-6)
    np.testing.assert_allclose(found["net-bias"], 1 - 0.01 * np.full(2, 2.0), rtol=1e-6)
    np.testing.assert_allclose(found["net-a"], 1 - 0.5 * np.sign(G), rtol=1e-6)


def test_a_frozen_group_stays():
    job_with("adam", 0.1, groups={("*-a", "*-bias"): {"frozen": True}})(X)
    found = values()
    np.testing.assert_array_equal(found["net-a"], [1, 1])
    np.testing.assert_array_equal(found["net-bias"], [1, 1])
    assert (found["net-c"] != 1).all()
    assert "net-a-m" not in found


def test_a_schedule_begins_at_the_rate_of_each_group():
    job = job_with(
        "sgd", 0.2, schedule="linear(total_steps=2)", groups={"*-a": {"lr": 0.1}}, clip_norm=1e9
    )
    for _ in range(3):
        job(X)
    found = values()
    np.testing.assert_allclose(found["net-c"], 1 - 0.3 * G, rtol=1e-5)
    np.testing.assert_allclose(found["net-a"], 1 - 0.15 * G, rtol=1e-5)


def test_a_rate_given_at_run_time_keeps_the_shares_of_groups(tmp_path):
    job = job_with("sgd", 0.2, groups={"*-a": {"lr": 0.1}})
    job.export(tmp_path / "b", on_device=True)
    trainer = Trainer(tmp_path / "b")
    trainer.learning_rate = 0.02
    trainer.step(X)
    found = trainer.state_dict()
    np.testing.assert_allclose(found["net-c"], 1 - 0.02 * G, rtol=1e-5)
    np.testing.assert_allclose(found["net-a"], 1 - 0.01 * G, rtol=1e-5)


def test_the_norm_that_is_clipped_is_that_of_all_groups():
    job_with("sgd", 1.0, groups={"*-a": {"lr": 0.1}}, clip_norm=0.5)(X)
    norm = np.sqrt(2 * (G**2).sum() + 8)
    found = values()
    np.testing.assert_allclose(found["net-c"], 1 - G * 0.5 / norm, rtol=1e-5)
    np.testing.assert_allclose(found["net-a"], 1 - 0.1 * G * 0.5 / norm, rtol=1e-5)


def test_values_are_clipped_before_the_norm():
    job_with("sgd(lr=1.0, clip_value=1.5)")(X)
    np.testing.assert_allclose(values()["net-c"], 1 - np.clip(G, -1.5, 1.5), rtol=1e-6)
    flow.clear_default_session()
    job_with("sgd(lr=1.0, clip_value=1.5, clip_norm=1.0)")(X)
    clipped = np.clip(G, -1.5, 1.5)
    norm = np.sqrt(2 * (clipped**2).sum() + 2 * 1.5**2)
    np.testing.assert_allclose(values()["net-c"], 1 - clipped / norm, rtol=1e-5)


def test_muon_is_for_matrices_and_its_groups_for_others():
    made = flow.make_trainable(
        models.perceptron(4), "cross_entropy",
        flow.optimizer.named("muon(lr=0.02)", groups={"fc2.weight": {"optimizer": "adamw"}}),
    )  # fmt: skip
    slots = {s.removeprefix("fc") for s in made.trainer().state_dict() if s.startswith("fc")}
    assert "1.weight-momentum_buffer" in slots
    assert {"1.bias-m", "1.bias-v", "2.weight-m", "2.weight-v"} <= slots
    assert "2.weight-momentum_buffer" not in slots


def test_a_schedule_object_is_taken():
    rate = flow.optimizer.PiecewiseConstantScheduler([0], [1.0, 0.0])
    job = job_with("sgd", rate)
    job(X)
    job(X)
    np.testing.assert_allclose(values()["net-c"], 1 - G, rtol=1e-6)


def test_text_of_a_group():
    assert read_group("*.bias norm*: weight_decay=0, lr=1e-4") == (
        ("*.bias", "norm*"), {"weight_decay": 0, "lr": 1e-4},
    )  # fmt: skip
    assert read_group("a:0: frozen=True") == (("a:0",), {"frozen": True})


@pytest.mark.parametrize(
    "text", ["*.bias", "", ": lr=1", "a: lr", "a: lr=b", "a: **{}", "a: lr=1)("]
)
def test_text_that_is_no_group(text):
    with pytest.raises(ArgumentError, match="is not understood"):
        read_group(text)


WRONG = [
    (("sdg",), {}, "did you mean sgd"),
    (("adam(beta=0.9)",), {}, "did you mean beta"),
    (("adam(lr=-0.1)",), {}, "lr is -0.1"),
    (("adam", -0.1), {}, "lr is -0.1"),
    (("adam", float("nan")), {}, "lr is nan"),
    (("adam", True), {}, "lr is True"),
    (("adam(lr=0.1)", 0.1), {}, "learning rate is given twice"),
    (("adam(beta1=1.0)",), {}, "beta1 is 1.0"),
    (("adam(eps=-1)",), {}, "eps is -1"),
    (("adam(amsgrad=1)",), {}, "amsgrad is 1"),
    (("adamw(weight_decay=-0.1)",), {}, "weight_decay is -0.1"),
    (("sgd(nesterov=True)",), {}, "it needs a momentum above 0"),
    (("sgd(momentum=0.9, dampening=0.1, nesterov=True)",), {}, "a dampening of 0"),
    (("muon(ns_steps=0)",), {}, "ns_steps is 0"),
    (("muon(adjust_lr='none')",), {}, "it is 'original' or"),
    (("adagrad(lr_decay='fast')",), {}, "lr_decay is 'fast'"),
    (("sgd",), {"clip_norm": 0}, "clip_norm is a positive number"),
    (("sgd",), {"clip_norm": float("nan")}, "clip_norm is a positive number"),
    (("sgd",), {"clip_value": -1}, "clip_value is a positive number"),
    (("sgd(clip_norm=1)",), {"clip_norm": 1}, "clip_norm is given twice"),
    (("sgd",), {"schedule": 3}, "schedule is 3"),
    (("sgd",), {"schedule": "cosine"}, "schedule cosine needs total_steps"),
    (("sgd",), {"groups": ["*-a"]}, "groups is ['*-a']"),
    (("sgd",), {"groups": {"*-a": {}}}, "'*-a' has {}"),
    (("sgd",), {"groups": {3: {"lr": 1}}}, "3 is no pattern"),
    (("sgd",), {"groups": {"*-a": {"lrs": 1}}}, "did you mean lr"),
    (("sgd",), {"groups": {"*-a": {"lr": -1}}}, "'*-a' has lr -1"),
    (("sgd",), {"groups": {"*-a": {"weight_decay": -1}}}, "'*-a' has weight_decay -1"),
    (("sgd",), {"groups": {"*-a": {"frozen": 1}}}, "frozen is 1"),
    (("sgd",), {"groups": {"*-a": {"frozen": True, "lr": 1}}}, "frozen and has other settings"),
    (("sgd",), {"groups": {"*-a": {"optimizer": 3}}}, "optimizer is 3"),
    (("sgd",), {"groups": {"*-a": {"optimizer": "adm"}}}, "did you mean adam"),
    (("sgd",), {"groups": {"*-a": {"optimizer": "adam(clip_norm=1)"}}}, "no setting 'clip_norm'"),
    (("sgd", 0.0), {"groups": {"*-a": {"lr": 1}}}, "beside a rate of 0"),
    (("sgd",), {"groups": {"*-d": {"lr": 1}}}, "'*-d' matches nothing"),
    (("sgd",), {"groups": {("*-a", "*-z"): {"lr": 1}}}, "'*-z' matches nothing"),
    (("sgd",), {"groups": {"*-a": {"lr": 1}, "net-*": {"lr": 2}}}, "net-a is in two of them"),
]


@pytest.mark.parametrize(("arguments", "options", "message"), WRONG, ids=[w[2] for w in WRONG])
def test_wrong_optimizers(arguments, options, message):
    with pytest.raises(ArgumentError) as caught:
        job_with(*arguments, **options)(X)
    assert message in str(caught.value)


def test_two_schedules():
    rate = flow.optimizer.CosineScheduler(0.1, 10)
    with pytest.raises(ArgumentError, match="lr is a schedule already"):
        flow.optimizer.named("sgd", rate, schedule="cosine(total_steps=3)")
    with pytest.raises(ArgumentError, match="lr beside a schedule"):
        flow.optimizer.named("sgd", 0.1, schedule=rate)
    listed = flow.optimizer.PiecewiseConstantScheduler([3], [0.1, 0.2])
    with pytest.raises(ArgumentError, match="PiecewiseConstantScheduler lists its rates"):
        flow.optimizer.named("sgd", listed, groups={"a": {"lr": 0.1}})


def test_averages_of_a_job_equal_torchs_formula():
    job = job_with("adam", 0.1, ema=0.75)
    job(X)
    average = values()["net-a"]
    np.testing.assert_array_equal(values()["net-a-ema"], average)
    for _ in range(3):
        job(X)
        average = 0.75 * average + 0.25 * values()["net-a"]
    np.testing.assert_allclose(values()["net-a-ema"], average, rtol=1e-6)


def test_the_runtime_sees_a_plateau():
    with pytest.raises(ArgumentError, match=r"callbacks=\[ReduceOnPlateau"):
        flow.optimizer.named("sgd", 0.1, schedule="reduce_on_plateau(patience=3)")
