"""Scopes: names, placement, logical views."""

import functools
import inspect
import logging

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.engine.session import current_session
from flow2onnx.errors import ArgumentError
from tests.api.support import f32, raises, variable


def test_namespaces_prefix_variables():
    @flow.global_function()
    def job() -> tp.Numpy:
        with flow.scope.namespace("s1"):
            a = variable("w", value=1.0)
            with flow.scope.namespace("s2"):
                b = variable("w", value=2.0)
                c = flow.layers.dense(flow.reshape(b, [1, 2]), 2, name="d")
        return flow.concat([a, b, variable("w", value=3.0), flow.reshape(c, [2])], 0)

    assert job().tolist() == [1, 1, 2, 2, 3, 3, 0, 0]
    assert list(flow.get_all_variables()) == ["s1-w", "s1-s2-w", "s1-s2-d-weight", "s1-s2-d-bias",
                                              "w"]  # fmt: skip


def test_namespace_ends_with_an_exception():
    @flow.global_function()
    def job() -> tp.Numpy:
        try:
            with flow.scope.namespace("s"):
                raise KeyError
        except KeyError:
            return variable("w")

    job()
    assert list(flow.get_all_variables()) == ["w"]


@pytest.mark.parametrize("name", ["", None, 3])
def test_wrong_namespace(name):
    @flow.global_function()
    def job() -> tp.Numpy:
        with flow.scope.namespace(name):  # here
            return variable("w")

    with raises(ArgumentError, AssertionError, "a namespace is a name", at="# here", job="job"):
        job()


@pytest.mark.parametrize(
    "ids", ["0:0", "0:0-3", ["0:0", "0:1"], ("0:0-3", "1:0-3"), "@0:1", ["@0:0-1"]]
)
def test_placement_forms(ids):
    scope = flow.scope.placement("cpu", ids)

    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        with scope, flow.scope.placement("cpu", ids, hierarchy=None):
            return x * 2

    assert job(f32(1, 2)).tolist() == [2, 4]
    assert current_session().device == "cpu"


@pytest.mark.parametrize("ids", ["", "0", "0:", ":0", "0:a", "0:0-", "a:0", [], ["0:0", 1], 0,
                                 None, "0:0,0:1", " 0:0"])  # fmt: skip
def test_wrong_devices(ids):
    with raises(ArgumentError, AssertionError, "names no device", at="placement("):
        flow.scope.placement("cpu", ids)


@pytest.mark.parametrize("tag", ["tpu", "GPU", "", None])
def test_wrong_tag(tag):
    with raises(ArgumentError, ValueError, "not one of cpu, gpu, cuda", at="placement("):
        flow.scope.placement(tag, "0:0")


def test_gpu_without_one_runs_on_the_cpu_and_says_so(caplog):
    from flow2onnx.engine import placement

    if placement.best_device() == "gpu":
        pytest.skip("this machine has a usable GPU")
    placement.provider_of.cache_clear()

    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        with flow.scope.placement("gpu", "0:0"):
            return x * 2

    with caplog.at_level(logging.WARNING, logger="flow2onnx.execute"):
        assert job(f32(1, 2)).tolist() == [2, 4]
    assert "CPU build" in caplog.text


PARAMETERS = [
    inspect.Parameter(
        "x", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=tp.Numpy.Placeholder((2,))
    )
]


class TestDevice:
    """The device of a session, where there is a choice."""

    @staticmethod
    def device(monkeypatch, best, *bodies, config=None):
        from flow2onnx.engine import options, placement

        monkeypatch.setattr(placement, "best_device", lambda: best)
        monkeypatch.setattr(
            options, "provider_of", lambda device, placement=None: "CPUExecutionProvider"
        )
        for i, body in enumerate(bodies):

            def job(x, scope=body):
                with scope() if scope else flow.scope.consistent_view():
                    return x * 2

            job = functools.partial(job, scope=body)
            job.__name__ = f"job{i}"
            job.__signature__ = inspect.Signature(PARAMETERS, return_annotation=tp.Numpy)
            kind = flow.function_config() if config is None else config
            last = flow.global_function("predict", kind)(job)
        last(f32(1, 2))
        return current_session().device

    @staticmethod
    def cpu():
        return flow.scope.placement("cpu", "0:0")

    @staticmethod
    def gpu():
        return flow.scope.placement("gpu", "0:0")

    def test_best_by_default(self, monkeypatch):
        assert self.device(monkeypatch, "gpu", None) == "gpu"

    def test_cpu_when_all_jobs_say_so(self, monkeypatch):
        assert self.device(monkeypatch, "gpu", self.cpu, self.cpu) == "cpu"

    def test_gpu_when_one_job_says_so(self, monkeypatch):
        assert self.device(monkeypatch, "cpu", self.cpu, self.gpu, None) == "gpu"

    def test_configured_number_of_gpus(self, monkeypatch):
        flow.config.gpu_device_num(0)
        assert self.device(monkeypatch, "gpu", None) == "cpu"

    def test_configured_scope(self, monkeypatch):
        config = flow.function_config()
        config.default_placement_scope(flow.scope.placement("cpu", "0:0"))
        assert self.device(monkeypatch, "gpu", None, config=config) == "cpu"


def test_retired_names_warn_and_work():
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        with pytest.warns(DeprecationWarning, match=r"flow\.fixed_placement is flow\.scope\.pl"):
            scope = flow.fixed_placement("cpu", "0:0")
        with pytest.warns(DeprecationWarning, match=r"since 0\.1\.3"):
            prior = flow.device_prior_placement("cpu", "0:0")
        with pytest.warns(DeprecationWarning, match="mirrored_view"):
            view = flow.distribute.mirrored_strategy()
        with scope, prior, view:
            return x * 2

    assert job(f32(1, 2)).tolist() == [2, 4]


class TestViews:
    @staticmethod
    def seen(decorator):
        found = []

        def note():
            pair = flow.scope.mirrored_view_enabled(), flow.scope.consistent_view_enabled()
            found.append(pair)

        @decorator
        def job():
            note()
            with flow.scope.mirrored_view():
                note()
                with flow.scope.consistent_view():
                    note()
                note()
            note()
            return flow.constant(1.0, flow.float)

        job()
        assert flow.scope.mirrored_view_enabled() is False
        return ["m" if m else "c" for m, c in found if m != c]

    def test_consistent_by_default(self):
        assert self.seen(flow.global_function()) == ["c", "m", "c", "m", "c"]

    def test_mirrored_in_early_generations(self):
        assert self.seen(flow.function()) == ["m", "m", "c", "m", "m"]

    @pytest.mark.parametrize("setter", ["default_logical_view", "default_distribute_strategy"])
    def test_configured(self, setter):
        config = flow.function_config()
        getattr(config, setter)(flow.scope.mirrored_view())
        assert self.seen(flow.global_function("predict", config))[0] == "m"
        flow.clear_default_session()
        getattr(config, setter)(flow.scope.consistent_view())
        assert self.seen(flow.function(config))[0] == "c"

    def test_mirrored_results_on_one_device(self):
        config = flow.function_config()
        config.default_logical_view(flow.scope.mirrored_view())

        @flow.global_function("predict", config)
        def job(x: tp.ListNumpy.Placeholder((2,))) -> tp.ListNumpy:
            return flow.identity(x)

        (out,) = job([f32(1, 2)])
        np.testing.assert_array_equal(out, [1, 2])
