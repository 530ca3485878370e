"""Jobs that are defined again while the session runs, as in a notebook."""

import importlib
import sys

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.errors import ContextError, JobError, ShapeError, VariableError

X = np.arange(8, dtype=np.float32).reshape(2, 4)


def optimizer():
    rate = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
    return flow.optimizer.SGD(rate, momentum=0.9)


def dense(x, width, name):
    init = flow.random_uniform_initializer(0.1, 0.5)
    return flow.layers.dense(x, width, use_bias=False, kernel_initializer=init, name=name)


def train_job(width=3, name="w", scale=1.0):
    @flow.global_function(type="train")
    def train(x: tp.Numpy.Placeholder((2, 4))) -> tp.Numpy:
        loss = flow.math.square(dense(x, width, name)) * scale
        optimizer().minimize(loss)
        return loss

    return train


def predict_job(width=3):
    @flow.global_function()
    def predict(x: tp.Numpy.Placeholder((2, 4))) -> tp.Numpy:
        return dense(x, width, "w")

    return predict


def values():
    return {name: v.numpy() for name, v in flow.get_all_variables().items()}


def test_values_stay(caplog):
    train_job()(X)
    before = values()
    again = train_job(scale=2.0)
    assert not caplog.records
    after = values()
    assert before.keys() == after.keys()
    for name in before:
        np.testing.assert_array_equal(before[name], after[name])
    np.testing.assert_allclose(again(X), 2 * np.square(X @ before["w-weight"].T), rtol=1e-5)
    assert not np.array_equal(values()["w-weight-momentum"], before["w-weight-momentum"])


def test_training_goes_on_as_if_nothing_happened():
    once = train_job()
    for _ in range(4):
        once(X)
    straight = values()
    flow.clear_default_session()
    job = train_job()
    for _ in range(2):
        job(X)
    job = train_job()
    for _ in range(2):
        job(X)
    for name, value in values().items():
        np.testing.assert_array_equal(value, straight[name], err_msg=name)


def test_another_shape_begins_anew_and_is_told(caplog):
    train_job()(X)
    train_job(width=5)(X)
    (record,) = caplog.records
    text = record.getMessage()
    assert text.startswith("w-weight is float32 (5, 4) now, it was float32 (3, 4), and begins anew")
    assert "Uniform" in text
    assert "\n" not in text
    assert values()["w-weight"].shape == (5, 4)
    assert values()["w-weight-momentum"].shape == (5, 4)


def test_what_no_job_has_any_more_is_gone():
    train_job()(X)
    train_job(name="other")(X)
    assert {"other-weight", "other-weight-momentum"} < set(values())
    assert "w-weight" not in values()


def test_a_job_that_fails_to_trace_can_be_mended():
    train_job()(X)
    before = values()["w-weight"]

    @flow.global_function(type="train")
    def train(x: tp.Numpy.Placeholder((2, 4))) -> tp.Numpy:
        return flow.matmul(x, x)

    with pytest.raises(ShapeError, match="matmul"):
        train(X)
    job = train_job()
    job(X)
    assert not np.array_equal(values()["w-weight"], before)


def test_an_error_of_the_body_leaves_other_jobs():
    predict = predict_job()
    train_job()(X)
    before = predict(X)

    @flow.global_function(type="train")
    def train(x: tp.Numpy.Placeholder((2, 4))) -> tp.Numpy:
        return undefined_name  # noqa: F821

    with pytest.raises(NameError):
        train(X)
    np.testing.assert_array_equal(predict(X), before)


def test_jobs_that_share_what_changed():
    predict, train = predict_job(), train_job()
    train(X)
    wide = train_job(width=5)
    wide(X)
    with pytest.raises(VariableError, match=r"w-weight.* has shape") as caught:
        predict(X)
    assert "define predict again" in str(caught.value)
    wide(X)
    assert predict_job(width=5)(X).shape == (2, 5)


def test_a_helper_that_changed_is_read_again():
    width = [3]

    @flow.global_function()
    def predict(x: tp.Numpy.Placeholder((2, 4))) -> tp.Numpy:
        return dense(x, width[0], "w")

    train_job()(X)
    width[0] = 5
    train_job(width=5)(X)
    assert predict(X).shape == (2, 5)


def test_the_job_before_says_that_it_was_replaced():
    old = train_job()
    old(X)
    train_job(scale=2.0)
    with pytest.raises(JobError, match="replaced by a later job"):
        old(X)


def test_the_first_generation():
    def define(factor):
        @flow.function(flow.FunctionConfig())
        def job(x=flow.FixedTensorDef((2, 4))):  # noqa: B008
            w = flow.get_variable("v", (1,), initializer=flow.ones_initializer())
            return x * w * factor

        return job

    np.testing.assert_allclose(define(2.0)(X).get().ndarray(), 2 * X)
    np.testing.assert_allclose(define(3.0)(X).get().ndarray(), 3 * X)


def test_the_second_generation():
    def define(factor):
        with pytest.warns(DeprecationWarning, match="function_config"):

            @flow.global_function(flow.FunctionConfig())
            def job(x=flow.FixedTensorDef((2, 4))):  # noqa: B008
                return x * factor

        return job

    np.testing.assert_allclose(define(2.0)(X).get().numpy(), 2 * X)
    np.testing.assert_allclose(define(3.0)(X).get().numpy(), 3 * X)


def test_a_module_that_is_loaded_again(tmp_path, monkeypatch):
    text = """
import flow2onnx as flow
import flow2onnx.typing as tp

@flow.global_function()
def job(x: tp.Numpy.Placeholder((2, 4))) -> tp.Numpy:
    return x * {factor}
"""
    path = tmp_path / "reloaded_jobs.py"
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    path.write_text(text.format(factor=2.0))
    module = importlib.import_module("reloaded_jobs")
    try:
        np.testing.assert_allclose(module.job(X), 2 * X)
        path.write_text(text.format(factor=30.0))
        np.testing.assert_allclose(importlib.reload(module).job(X), 30 * X)
    finally:
        del sys.modules["reloaded_jobs"]


def test_a_new_job_where_a_program_is_written_while_it_runs(monkeypatch):
    train_job()(X)
    with pytest.raises(ContextError, match="no avaliable function found"):
        predict_job()
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    np.testing.assert_allclose(predict_job()(X), X @ values()["w-weight"].T, rtol=1e-5)


def test_calls_under_way_end_before():
    results = []

    def define(factor):
        @flow.global_function()
        def job(x: tp.Numpy.Placeholder((2, 4))) -> tp.Callback[tp.Numpy]:
            return x * factor

        return job

    define(2.0)(X)(results.append)
    define(3.0)(X)(results.append)
    flow.sync_default_session()
    np.testing.assert_allclose(results, [2 * X, 3 * X])
