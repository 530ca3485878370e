"""Exports of jobs that run elsewhere: the providers they ask for are not here."""

import numpy as np
import pytest
from flow2onnx_runtime import Predictor, usable_providers

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.engine.session import current_session
from flow2onnx.errors import ProviderError

pytestmark = pytest.mark.skipif(
    "TensorrtExecutionProvider" in usable_providers(), reason="TensorRT is here"
)


def define(wants_tensorrt):
    asked = flow.function_config()
    asked.use_tensorrt(wants_tensorrt)

    @flow.global_function("predict", function_config=asked)
    def job(x: tp.Numpy.Placeholder((2, 4))) -> tp.Numpy:
        init = flow.random_normal_initializer()
        return flow.matmul(x, flow.get_variable("w", (4, 3), initializer=init))

    return job


X = np.arange(8, dtype=np.float32).reshape(2, 4)


def test_an_export_needs_no_device_but_the_cpu(tmp_path):
    first = define(False)(X)
    flow.clear_default_session()
    job = define(True)
    report = job.export(tmp_path / "m.onnx")
    assert report.ok, str(report)
    (row,) = [r for r in report.rows if r.check == "session of the job"]
    assert row.ok is None
    assert "TensorrtExecutionProvider" in row.detail
    np.testing.assert_allclose(Predictor(tmp_path / "m.onnx")(X)["out/0"], first, rtol=1e-6)


def test_values_can_be_loaded_and_exported(tmp_path):
    job = define(True)
    assert "TensorrtExecutionProvider" in current_session().start_for_values()
    flow.load_variables({"w": np.ones((4, 3), np.float32)})
    assert job.export(tmp_path / "m.onnx").ok
    np.testing.assert_array_equal(Predictor(tmp_path / "m.onnx")(X)["out/0"][:, 0], [6, 22])


def test_calls_still_need_it(tmp_path):
    job = define(True)
    job.export(tmp_path / "m.onnx")
    with pytest.raises(ProviderError, match="TensorrtExecutionProvider"):
        job(X)
    assert job.export(tmp_path / "again.onnx").ok


def test_a_session_that_can_be_opened_is(tmp_path):
    job = define(False)
    assert current_session().start_for_values() is None
    assert "session of the job" not in {r.check for r in job.export(tmp_path / "m.onnx").rows}
    assert job(X).shape == (2, 3)
