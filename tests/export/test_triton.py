"""A predict job as a version in a repository, read with Triton's own message class."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from flow2onnx_runtime import Predictor, load_safetensors
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

import flow2onnx as flow
import flow2onnx.export.triton as triton_module
from flow2onnx.errors import ArgumentError, BundleError, UnsupportedError
from flow2onnx.export import Check, Report, export_triton
from tests.export.jobs import CLASSES, batch, define, predict


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


def test_tensorrt_if_the_job_asks_for_it():
    asked = flow.function_config()
    asked.use_tensorrt(True)
    asked.tensorrt.use_fp16(True)

    @flow.global_function("predict", function_config=asked)
    def job(x: flow.typing.Numpy.Placeholder((2, 3))) -> flow.typing.Numpy:
        return flow.math.relu(x)

    # exporting would start the session, which needs the provider
    tensor = {"name": "x", "dtype": "float32", "shape": ["batch", 3]}
    found = triton_module.config_text(job, "job", {"inputs": [tensor], "outputs": [tensor]})
    accelerators = text_format.Parse(found, ModelConfig()).optimization.execution_accelerators
    found = accelerators.gpu_execution_accelerator[0]
    assert (found.name, dict(found.parameters)) == ("tensorrt", {"precision_mode": "FP16"})


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
