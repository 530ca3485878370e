"""Definition, tracing, call: what happens when."""

import threading

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.engine.session import Session, current_session
from flow2onnx.errors import ArgumentError, ContextError, JobError
from tests.api.support import doubling_job, f32, raises, variable


def test_body_runs_once_and_at_the_first_call():
    seen = []

    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        seen.append((x.shape, x.dtype, x.is_dynamic))
        return x * 2

    assert seen == []
    for _ in range(3):
        np.testing.assert_array_equal(job(f32(1, 2)), [2, 4])
    assert seen == [((2,), flow.float32, False)]


def test_all_jobs_are_traced_in_order_of_definition_at_the_first_call():
    order = []

    @flow.global_function()
    def first() -> tp.Numpy:
        order.append("first")
        return flow.constant(1.0, flow.float)

    @flow.global_function()
    def second() -> tp.Numpy:
        order.append("second")
        return flow.constant(2.0, flow.float)

    second()
    assert order == ["first", "second"]


def test_error_of_a_job_comes_up_at_the_first_call_of_another():
    double = doubling_job()

    @flow.global_function()
    def broken(x: tp.Numpy.Placeholder((2, 3))) -> tp.Numpy:
        return flow.matmul(x, x)  # inner dimensions differ

    for _ in range(2):  # and at the next one, as the session did not start
        with raises(flow.errors.ShapeError, AssertionError, job="broken", at="# inner dimensions"):
            double(f32(1, 2))
    assert not current_session().is_running


def test_python_error_in_a_body_is_not_dressed_up():
    @flow.global_function()
    def job() -> tp.Numpy:
        return undefined_name  # noqa: F821

    with pytest.raises(NameError, match="undefined_name"):
        job()


def test_a_job_may_be_corrected_after_a_failed_start():
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        return 5

    with pytest.raises(JobError, match=r"type\(ret\)"):
        job(f32(1, 2))

    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        return x

    np.testing.assert_array_equal(job(f32(1, 2)), [1, 2])


def test_definition_after_start_is_refused():
    doubling_job()(f32(1, 2))
    with raises(ContextError, NotImplementedError, "no avaliable function found", job="late"):

        @flow.global_function()
        def late() -> tp.Numpy:
            return flow.constant(1.0, flow.float)


def test_definition_inside_a_body_is_refused():
    @flow.global_function()
    def outer() -> tp.Numpy:
        doubling_job()
        return flow.constant(1.0, flow.float)

    with raises(ContextError, AssertionError, "inside job outer", job="double"):
        outer()


def test_call_inside_a_body_is_refused():
    double = doubling_job()

    @flow.global_function()
    def outer() -> tp.Numpy:
        return double(f32(1, 2))  # nested call

    with raises(
        ContextError,
        NotImplementedError,
        "job double is called inside job outer",
        at="# nested call",
        job="outer",
    ):
        outer()


def test_variables_cannot_be_read_inside_a_body():
    @flow.global_function()
    def job() -> tp.Numpy:
        flow.get_all_variables()  # too early
        return flow.constant(1.0, flow.float)

    with raises(ContextError, NotImplementedError, at="# too early", job="job"):
        job()


def test_session_settings_are_refused_inside_a_body():
    @flow.global_function()
    def job() -> tp.Numpy:
        flow.config.gpu_device_num(1)  # too late
        return flow.constant(1.0, flow.float)

    with raises(ContextError, NotImplementedError, at="# too late", job="job"):
        job()


def test_clear_forgets_jobs_and_variables():
    @flow.global_function()
    def job() -> tp.Numpy:
        return variable("w", value=3.0)

    before = current_session()
    job()
    flow.clear_default_session()
    assert current_session() is not before
    with raises(JobError, AssertionError, "session that was cleared", at="job()"):
        job()
    with raises(JobError, AssertionError, "no job function is defined", at="get_all"):
        flow.get_all_variables()

    @flow.global_function()
    def job() -> tp.Numpy:
        return variable("w", (3,), value=4.0)

    np.testing.assert_array_equal(job(), [4, 4, 4])
    assert list(flow.get_all_variables()) == ["w"]


def test_clear_before_any_call():
    doubling_job()
    flow.clear_default_session()
    np.testing.assert_array_equal(doubling_job()(f32(1, 2)), [2, 4])


def test_later_job_of_the_same_name_replaces_the_earlier():
    first = doubling_job()

    @flow.global_function()
    def double(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        return x * 3

    np.testing.assert_array_equal(double(f32(1, 2)), [3, 6])
    with raises(JobError, AssertionError, "was replaced", at="first(", job="double"):
        first(f32(1, 2))


def test_job_keeps_what_the_function_says_of_itself():
    def mine(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        """Double."""
        return x * 2

    mine.__oneflow_mark__ = 7
    job = flow.global_function()(mine)
    assert (job.__name__, job.__doc__, job.__oneflow_mark__) == ("mine", "Double.", 7)
    assert "predict" in repr(job)
    assert "mine" in repr(job)


def test_methods_and_closures_are_jobs():
    class Model:
        factor = 3.0

        def job(self, x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
            return x * self.factor

    job = flow.global_function()(Model().job)
    np.testing.assert_array_equal(job(f32(1, 2)), [3, 6])


def test_configuration_is_copied_when_the_function_is_decorated():
    config = flow.function_config()

    @flow.global_function(type="predict", function_config=config)
    def job() -> tp.Numpy:
        return flow.get_variable("w", (1,))

    config.default_initializer_conf({"constant_conf": {"value": 1.0}})
    with pytest.raises(flow.errors.VariableError, match="no initializer"):
        job()


def test_one_configuration_serves_a_train_and_a_predict_job():
    config = flow.function_config()

    @flow.global_function("train", config)
    def train() -> tp.Numpy:
        assert flow.current_global_function_desc().IsTrainable()
        loss = variable() * 1.0
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.5])).minimize(loss)
        return loss

    @flow.global_function("predict", config)
    def predict() -> tp.Numpy:
        assert not flow.current_global_function_desc().IsTrainable()
        return variable()

    train()
    np.testing.assert_array_equal(predict(), [0.75, 0.75])


@pytest.mark.parametrize("wrong", ["training", None, 1, doubling_job])
def test_type_is_train_or_predict(wrong):
    with raises(ArgumentError, AssertionError, "type is", at="flow.global_function(wrong)"):
        flow.global_function(wrong)


def test_decorators_without_parentheses_are_refused():
    def body():
        pass

    with raises(ArgumentError, AssertionError, "flow.function takes", at="flow.function(body)"):
        flow.function(body)
    with raises(ArgumentError, AssertionError, "function_config is", at='("train", body)'):
        flow.global_function("train", body)
    with raises(ArgumentError, AssertionError, "a job is a function", at="()(3)"):
        flow.global_function()(3)


def test_threads_have_the_same_default_session(monkeypatch):
    from flow2onnx.engine import session as module

    monkeypatch.setattr(module._default, "session", Session())
    token = module.SESSION.set(None)
    try:
        double, results = doubling_job(), []
        thread = threading.Thread(target=lambda: results.append(double(f32(1, 2))))
        thread.start()
        thread.join()
        np.testing.assert_array_equal(results[0], [2, 4])
        flow.clear_default_session()
        assert not module._default.session.is_running
    finally:
        module.SESSION.reset(token)


def test_threads_may_call_jobs_at_the_same_time():
    @flow.global_function(type="train")
    def count(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        w = variable("w", (2,), value=0.0)
        loss = w * 2.0
        flow.optimizer.SGD(
            flow.optimizer.PiecewiseConstantScheduler([], [1.0]), momentum=0
        ).minimize(loss)
        return x + 0 * w

    failures = []

    def call(k):
        for i in range(25):
            given = f32(k, i)
            if not np.array_equal(count(given), given):
                failures.append((k, i))

    threads = [threading.Thread(target=call, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    np.testing.assert_allclose(flow.get_all_variables()["w"].numpy(), [-100, -100])


def test_eager_habits_outside_a_job_are_refused():
    with raises(ContextError, NotImplementedError, "only inside a job", at="flow.math.relu"):
        flow.math.relu(f32(1))
    with raises(ContextError, NotImplementedError, at="flow.get_variable"):
        flow.get_variable("w", (1,))
    with raises(ContextError, NotImplementedError, at="namespace"), flow.scope.namespace("a"):
        pass
    with raises(ContextError, NotImplementedError, at="current_global"):
        flow.current_global_function_desc()


def test_blob_of_another_job_is_refused():
    kept = []

    @flow.global_function()
    def first(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        kept.append(x)
        return x

    @flow.global_function()
    def second(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        return flow.concat([x, kept[0]], 0)  # a stranger

    with raises(JobError, AssertionError, "made in another job", at="# a stranger", job="second"):
        first(f32(1, 2))


def test_returned_blob_of_another_job_is_refused():
    kept = []

    @flow.global_function()
    def first(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        kept.append(x)
        return x

    @flow.global_function()
    def second(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        return kept[0]

    with raises(JobError, AssertionError, "made in another job", job="second"):
        first(f32(1, 2))


def test_job_description_inside_a_body():
    config = flow.function_config()
    config.default_data_type(flow.float32)
    seen = []

    @flow.global_function("predict", config)
    def job() -> tp.Numpy:
        """Doc."""
        desc = flow.current_global_function_desc()
        seen.append((desc.IsTrainable(), desc.job_func.__doc__))
        assert desc.job_config_proto.default_data_type is flow.float32
        return flow.constant(1.0, flow.float)

    job()
    assert seen == [(False, "Doc.")]


def test_sync_without_anything_to_wait_for():
    flow.sync_default_session()
    doubling_job()(f32(1, 2))
    flow.sync_default_session()
