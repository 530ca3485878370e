"""A predict job as a version in a repository, read with Triton's own message class."""

import asyncio
import json
import os
import subprocess
import sys

import numpy as np
import onnx
import pytest
from flow2onnx_runtime import Predictor, load_safetensors
from flow2onnx_runtime.model_config import read_config
from flow2onnx_runtime.providers import PROVIDERS
from flow2onnx_serve.metrics import Metrics
from flow2onnx_serve.repository import Repository
from flow2onnx_serve.settings import Settings
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

import flow2onnx as flow
import flow2onnx.export.comparison as comparison_module
import flow2onnx.export.triton as triton_module
import flow2onnx.export.triton_config as triton_config
import flow2onnx.typing as tp
from flow2onnx.errors import ArgumentError, BundleError, UnsupportedError
from flow2onnx.export import Check, Report, export_triton
from tests.export.jobs import CLASSES, batch, define, predict


@pytest.fixture(autouse=True)
def no_long_timing(monkeypatch):
    monkeypatch.setattr(comparison_module, "_BLOCK_SECONDS", 1e-4)


def config(folder):
    return text_format.Parse((folder / "config.pbtxt").read_text(), ModelConfig())


def files(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_the_first_version(tmp_path):
    _, predict_job = define()
    report = export_triton(
        predict_job, tmp_path / "repo", name="digits", labels=list("abcd"), max_batch=16,
        delay=0.002, instances=2, metadata={"who": "we"},
    )  # fmt: skip
    assert report.ok, str(report)
    folder = tmp_path / "repo" / "digits"
    assert report.subject == str(folder / "1")
    assert files(folder) == ["1/check.safetensors", "1/model.onnx", "config.pbtxt", "labels.txt"]
    found = config(folder)
    assert (found.name, found.backend, found.max_batch_size) == ("digits", "onnxruntime", 16)
    assert [(i.name, i.data_type, list(i.dims)) for i in found.input] == [("images", 11, [1, 3, 3])]
    out = found.output[0]
    assert (out.name, list(out.dims), out.label_filename) == ("out/0", [CLASSES], "labels.txt")
    assert found.dynamic_batching.max_queue_delay_microseconds == 2000
    assert found.version_policy.latest.num_versions == 1
    assert found.instance_group[0].count == 2
    assert [w.batch_size for w in found.model_warmup] == [1, 16]
    assert list(found.model_warmup[0].inputs["images"].dims) == [1, 3, 3]
    assert not found.HasField("optimization")
    assert (folder / "labels.txt").read_text() == "a\nb\nc\nd\n"
    stored, _ = load_safetensors(folder / "1" / "check.safetensors")
    found = Predictor(folder / "1" / "model.onnx")(stored["feeds/images"])["out/0"]
    np.testing.assert_allclose(found, stored["results/out/0"], rtol=1e-5, atol=1e-6)


def test_the_next_version_leaves_what_an_operator_wrote(tmp_path):
    train_job, predict_job = define()
    export_triton(predict_job, tmp_path)
    folder = tmp_path / "predict_job"
    text = (folder / "config.pbtxt").read_text() + "# tuned by hand\n"
    (folder / "config.pbtxt").write_text(text)
    train_job(*batch(0))
    report = export_triton(predict_job, tmp_path, weights="safetensors")
    assert report.ok, str(report)
    assert Check("config.pbtxt", True, "kept as it was; it fits") in report.rows
    assert (folder / "config.pbtxt").read_text() == text
    assert files(folder / "2") == ["check.safetensors", "model.onnx", "model.safetensors"]
    images, _ = batch(3)
    old, new = (Predictor(folder / n / "model.onnx")(images)["out/0"] for n in "12")
    assert not np.array_equal(old, new)
    np.testing.assert_allclose(new, predict_job(images), rtol=1e-5, atol=1e-6)
    (folder / "9").mkdir()
    (folder / "9" / "model.onnx").write_bytes(b"")
    assert export_triton(predict_job, tmp_path).subject == str(folder / "10")


def test_a_fixed_batch(tmp_path):
    _, predict_job = define()
    assert export_triton(predict_job, tmp_path, batch=3).ok
    found = config(tmp_path / "predict_job")
    assert (found.max_batch_size, found.HasField("dynamic_batching")) == (0, False)
    assert list(found.input[0].dims) == [3, 1, 3, 3]
    assert list(found.model_warmup[0].inputs["images"].dims) == [3, 1, 3, 3]


def served(path, *arrays):
    """The answer of this project's server, without a network."""

    async def main():
        repository = Repository(Settings(path), Metrics())
        try:
            await repository.refresh(at_once=True)
            return (await repository.find("predict_job", "").batcher.submit(list(arrays), 30))[0]
        finally:
            repository.close()

    return asyncio.run(main())


def tensorrt_job(configure=lambda config: None):
    asked = flow.function_config()
    asked.use_tensorrt(True)
    configure(asked)

    @flow.global_function("predict", function_config=asked)
    def job(x: tp.Numpy.Placeholder((2, 64))) -> tp.Numpy:
        init = flow.random_normal_initializer()
        return flow.matmul(x, flow.get_variable("w", (64, 32), initializer=init))

    return job


def accelerator(folder):
    optimization = config(folder).optimization
    (found,) = optimization.execution_accelerators.gpu_execution_accelerator
    return found.name, dict(found.parameters)


def row(report, check):
    (found,) = [r for r in report.rows if r.check == check]
    return found


def test_tensorrt_if_the_job_asks_for_it(tmp_path):
    """Writing the files needs no TensorRT."""

    def configure(asked):
        asked.tensorrt.use_fp16(True)
        asked.runtime.provider_option("tensorrt", "trt_max_workspace_size", "1000000")
        asked.runtime.provider_option("tensorrt", "trt_builder_optimization_level", "5")
        asked.runtime.provider_option("tensorrt", "trt_context_memory_sharing_enable", "True")

    report = export_triton(tensorrt_job(configure), tmp_path)
    assert report.ok, str(report)
    assert accelerator(tmp_path / "job") == (
        "tensorrt",
        {
            "precision_mode": "FP16",
            "max_workspace_size_bytes": "1000000",
            "trt_builder_optimization_level": "5",
            "trt_context_memory_sharing_enable": "True",
        },
    )
    assert "TensorRT" not in {r.check for r in report.rows}
    assert "TensorrtExecutionProvider" in row(report, "session of the job").detail


def test_triton_is_told_options_that_tensorrt_has():
    told = {*triton_config._SAME, *triton_config._RENAMED, *triton_config._PRECISIONS}
    assert told <= set(PROVIDERS["tensorrt"].options)


def test_what_triton_cannot_be_told_of_tensorrt(tmp_path):
    def configure(asked):
        asked.tensorrt.use_fp16(True)
        asked.tensorrt.use_int8(True)
        asked.tensorrt.int8_calibration("table")
        asked.runtime.provider_option("tensorrt", "trt_engine_hw_compatible", "True")

    report = export_triton(tensorrt_job(configure), tmp_path)
    name, told = accelerator(tmp_path / "job")
    assert (name, told["precision_mode"]) == ("tensorrt", "INT8")
    assert told["int8_calibration_table_name"] == "table"
    detail = row(report, "TensorRT").detail
    assert "trt_engine_hw_compatible, trt_fp16_enable" in detail
    assert "left out of config.pbtxt" in detail


@pytest.mark.parametrize(("precision", "mode"), [("fp16", "FP16"), ("int8", "INT8")])
def test_tensorrt_in_the_precision_of_the_model(tmp_path, precision, mode):
    x = np.random.default_rng(0).normal(size=(8, 64)).astype(np.float32)
    more = {"calibration": x} if precision == "int8" else {"samples": x}
    report = export_triton(
        tensorrt_job(), tmp_path, precision=precision, max_drop=1.0, **more
    )  # fmt: skip
    assert report.ok, str(report)
    assert report.comparison.precision == precision
    assert accelerator(tmp_path / "job") == ("tensorrt", {"precision_mode": mode})
    if precision == "int8":  # TensorRT takes no other zero point
        model = onnx.load(tmp_path / "job" / "1" / "model.onnx")
        zeros = [onnx.numpy_helper.to_array(t) for t in model.graph.initializer
                 if t.name.endswith("_zero_point")]  # fmt: skip
        assert zeros
        assert not any(z.any() for z in zeros)


def test_one_number_a_row(tmp_path):
    """Triton has no empty dims: one number for each row is a reshaped [1]."""
    job = predict((4,), lambda x: x * 2.0)
    report = export_triton(job, tmp_path)
    assert report.ok, str(report)
    found = config(tmp_path / "predict_job")
    assert found.max_batch_size == 32
    for port in (found.input[0], found.output[0]):
        assert list(port.dims) == [1]
        assert port.HasField("reshape")
        assert list(port.reshape.shape) == []
    assert [list(w.inputs["x"].dims) for w in found.model_warmup] == [[1], [1]]
    again = read_config(tmp_path / "predict_job" / "config.pbtxt")
    assert [p.shape for p in (*again.inputs, *again.outputs)] == [(-1,), (-1,)]
    assert again.warmups == ({"x": (1,)}, {"x": (32,)})
    assert export_triton(job, tmp_path).subject.endswith("2")


def test_without_a_batch_requests_are_not_combined(tmp_path):
    table = tp.Numpy.Placeholder((4, 3), batch_axis=None)
    job = predict((4, 3), lambda x, y: flow.matmul(x, y, transpose_b=True), table)
    report = export_triton(job, tmp_path)
    assert report.ok, str(report)
    found = config(tmp_path / "predict_job")
    assert found.max_batch_size == 0
    assert not found.HasField("dynamic_batching")
    assert [list(i.dims) for i in found.input] == [[-1, 3], [4, 3]]
    assert "not combined" in row(report, "batching").detail


def test_a_number_alone_is_nothing_for_triton(tmp_path):
    job = predict((4, 3), lambda x, y: x * y, tp.Numpy.Placeholder((), batch_axis=None))
    report = export_triton(job, tmp_path)
    assert report.ok, str(report)
    assert config(tmp_path / "predict_job").max_batch_size == 0
    assert "y has no axes, which Triton refuses" in row(report, "scalars").detail


@pytest.mark.parametrize(
    ("precision", "weights"),
    [
        pytest.param(precision, weights, marks=[pytest.mark.slow] * (i != j % 3))
        for j, precision in enumerate(["fp32", "fp16", "int8", "int8-dynamic"])
        for i, weights in enumerate(["inside", "safetensors", "external"])
    ],
)
def test_precisions_and_weights(tmp_path, weights, precision):
    _, predict_job = define()
    images, _ = batch()
    more = {"calibration": images} if precision == "int8" else {}
    more |= {"samples": images, "max_drop": 1.0} if precision != "fp32" else {}
    report = export_triton(
        predict_job, tmp_path, weights=weights, precision=precision, **more
    )  # fmt: skip
    assert report.ok, str(report)
    assert (report.comparison is None) == (precision == "fp32")
    found = served(tmp_path, images)
    want = Predictor(tmp_path / "predict_job" / "1" / "model.onnx")(images)["out/0"]
    np.testing.assert_allclose(found, want, rtol=1e-3, atol=1e-3)


def test_what_cannot_be_exported(tmp_path):
    train_job, predict_job = define()
    for arguments, text in [
        ({"name": "../x"}, "cannot name a model"),
        ({"max_batch": 0}, "max_batch=0"),
        ({"labels": ["a"]}, "1 labels for outputs"),
    ]:
        with pytest.raises(ArgumentError, match=text):
            export_triton(predict_job, tmp_path / "repo", **arguments)
    with pytest.raises(ArgumentError, match="is a train job"):
        export_triton(train_job, tmp_path / "repo")
    (tmp_path / "file").write_text("")
    with pytest.raises(BundleError, match="cannot be made"):
        export_triton(predict_job, tmp_path / "file" / "repo")
    assert not (tmp_path / "repo").exists() or files(tmp_path / "repo") == []


def test_a_config_that_does_not_fit(tmp_path):
    _, predict_job = define()
    export_triton(predict_job, tmp_path)
    path = tmp_path / "predict_job" / "config.pbtxt"
    text = path.read_text()
    for old, new, wrong in [
        ("dims: [4]", "dims: [5]", "other outputs than the job has: out/0"),
        ("FP32", "FP64", "other inputs"),
        ('"images"', '"pictures"', "pictures"),
    ]:
        path.write_text(text.replace(old, new))
        with pytest.raises(BundleError, match=wrong):
            export_triton(predict_job, tmp_path)
    path.write_text(text)
    with pytest.raises(BundleError, match="the batch is fixed"):
        export_triton(predict_job, tmp_path, batch=2)
    assert sorted(p.name for p in path.parent.iterdir()) == ["1", "config.pbtxt"]


def test_a_graph_that_forbids_an_open_batch(tmp_path):
    job = predict((4, 3), lambda x: flow.reshape(x, (2, 6)))
    with pytest.raises(UnsupportedError):
        export_triton(job, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_fails_its_verification_is_not_published(tmp_path, monkeypatch):
    real = triton_module.export

    def failing(*arguments, **options):
        report = real(*arguments, **options)
        return Report(report.subject, (*report.rows, Check("reference", False, "differs")))

    monkeypatch.setattr(triton_module, "export", failing)
    _, predict_job = define()
    report = export_triton(predict_job, tmp_path)
    assert not report.ok
    assert report.rows[-1].check == "published"
    assert list(tmp_path.iterdir()) == []


SCRIPT = """
import oneflow as flow, oneflow.typing as tp
@flow.global_function()
def job(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
    return flow.layers.dense(x, 2, kernel_initializer=flow.random_uniform_initializer(), name="fc")
"""


def test_the_command(tmp_path):
    (tmp_path / "net.py").write_text(SCRIPT)
    (tmp_path / "classes").write_text("no\nyes\n")

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "flow2onnx", "export", "net.py:job", *arguments], text=True,
            cwd=tmp_path, capture_output=True, timeout=60, env=os.environ | {
                "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )  # fmt: skip

    done = run(
        "--triton", "repo", "--labels", "classes", "--max-batch", "4", "--name", "n", "--json"
    )
    assert done.returncode == 0, done.stderr
    names = [os.path.basename(p) for p in json.loads(done.stdout)["files"]]
    assert names == ["check.safetensors", "model.onnx"]
    assert config(tmp_path / "repo" / "n").max_batch_size == 4
    assert "--name is for --triton" in run("-o", "x.onnx", "--name", "n").stderr
