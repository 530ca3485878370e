"""`flow2onnx export` for serving: precision, samples, preprocessing, what the report shows."""

import json
from pathlib import Path

import numpy as np
import pytest
from flow2onnx_runtime import Predictor

import flow2onnx.export.comparison as comparison_module
from flow2onnx.export import describe

SCRIPT = """
import oneflow as flow
import oneflow.typing as tp

@flow.global_function()
def predict_job(images: tp.Numpy.Placeholder((4, 1, 4, 4))) -> tp.Numpy:
    start = flow.random_uniform_initializer(-1.0, 1.0)
    x = flow.layers.conv2d(images, 32, 3, padding="SAME", kernel_initializer=start, name="conv")
    x = flow.reshape(x, [images.shape[0], -1])
    return flow.layers.dense(x, 3, kernel_initializer=start, name="fc")

def configured():
    config = flow.function_config()
    config.use_tensorrt(True)
    return config

@flow.global_function(function_config=configured())
def on_tensorrt(images: tp.Numpy.Placeholder((4, 1, 4, 4))) -> tp.Numpy:
    return images * 2.0
"""


@pytest.fixture
def job(script, monkeypatch):
    monkeypatch.setattr(comparison_module, "_BLOCK_SECONDS", 1e-4)
    plain = SCRIPT[: SCRIPT.index("def configured")]
    path = script(plain)
    images = np.random.default_rng(0).random((20, 1, 4, 4)).astype(np.float32)
    np.savez("some.npz", images=images)
    np.save("only.npy", images)
    raw = np.random.default_rng(0).integers(0, 256, (20, 4, 4, 1)).astype(np.uint8)
    np.savez("raw.npz", images=raw)
    return f"{path}:predict_job"


def test_int8(flow2onnx, job):
    assert flow2onnx("export", job, "-o", "full.onnx", "--dynamic-batch").exit_code == 0
    labels = Predictor("full.onnx")(np.load("only.npy"))["out/0"].argmax(1)
    np.save("labels.npy", labels)
    result = flow2onnx(
        "export", job, "-o", "net.onnx", "--dynamic-batch", "--precision", "int8",
        "--calibration", "some.npz", "--samples", "only.npy", "--sample-labels", "labels.npy",
        "--max-drop", "0.2", "--method", "entropy", "--details",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    for text in ("float32", "latency", "same answers", "accuracy", "100.00%", "operators reduced",
                 "20.00% allowed", "on 20 rows of the samples", "net.onnx: passed"):  # fmt: skip
        assert text in " ".join(result.stdout.split()), text
    assert describe("net.onnx")["metadata"]["flow2onnx.precision"] == "int8"


def test_all_of_it_as_json(flow2onnx, job):
    result = flow2onnx(
        "export", job, "-o", "net.onnx", "--precision", "fp16", "--half-io", "--weights",
        "external", "--tolerance", "1.0", "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert set(found["files"]) == {"net.onnx", "net.onnx.data"}
    comparison = found["comparison"]
    assert comparison["precision"] == "fp16"
    assert comparison["data"] == "4 rows of random numbers"
    assert set(comparison) >= {"differences", "answers", "bytes", "float32_bytes", "timing",
                               "reduced", "left"}  # fmt: skip
    assert [r["ok"] for r in found["rows"] if r["check"] == "difference"] == [True]
    assert describe("net.onnx")["inputs"][0]["dtype"] == "float16"


def test_a_drop_makes_the_exit_code(flow2onnx, job):
    np.save("labels.npy", np.zeros(20, np.int64))
    result = flow2onnx("export", job, "-o", "net.onnx", "--precision", "int8-dynamic",
                       "--tolerance", "0", "--samples", "some.npz")  # fmt: skip
    assert result.exit_code == 1
    assert "FAILED verification" in result.stdout


def test_preprocessing(flow2onnx, job):
    result = flow2onnx(
        "export", job, "-o", "net.onnx", "--dynamic-batch", "--precision", "int8",
        "--calibration", "raw.npz", "--max-drop", "1",
        "--preprocess", "images:dtype=uint8;layout=NHWC->NCHW;scale=1/255",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert describe("net.onnx")["inputs"] == [
        {"name": "images", "dtype": "uint8", "shape": ["batch", 4, 4, 1]}
    ]
    assert flow2onnx("verify", "net.onnx").exit_code == 0
    twice = flow2onnx("export", job, "-o", "net.onnx", "--preprocess", "scale=2",
                      "--preprocess", "scale=3")  # fmt: skip
    assert twice.exit_code == 2
    assert "name a different input each time" in twice.stderr


def test_in_a_repository(flow2onnx, job):
    np.save("labels.npy", np.zeros(20, np.int64))
    Path("names.txt").write_text("a\nb\nc\n")
    result = flow2onnx(
        "export", job, "--triton", "repo", "--precision", "fp16", "--samples", "some.npz",
        "--sample-labels", "labels.npy", "--labels", "names.txt",
        "--preprocess", "dtype=float32;scale=0.5", "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["comparison"]["answers"]["accuracy"] is not None
    assert "labels.txt" in Path("repo/predict_job/config.pbtxt").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--precision", "int8"], "needs calibration="),
        (["--precision", "int7"], "Invalid value for '--precision'"),
        (["--precision", "int8", "--calibration", "none.npz"], "none.npz cannot be read"),
        (["--precision", "int8", "--calibration", "text.npy"], "text.npy cannot be read"),
        (["--precision", "int8", "--calibration", "raw.npz"], "images is float32, got uint8"),
        (["--preprocess", "scale"], "write KEY=VALUE"),
        (["--preprocess", "x:scale=2"], "'x', which is no input"),
    ],
)
def test_what_is_wrong(flow2onnx, job, arguments, words):
    Path("text.npy").write_text("no array")
    result = flow2onnx("export", job, "-o", "net.onnx", *arguments)
    assert result.exit_code == 2 if "Invalid" in words else result.exit_code != 0
    assert words in " ".join(result.stderr.split())


def test_a_job_for_tensorrt_without_it(flow2onnx, script):
    path = script(SCRIPT)
    result = flow2onnx("export", f"{path}:on_tensorrt", "-o", "net.onnx", "--json")
    assert result.exit_code == 0, result.output
    rows = {r["check"]: r for r in json.loads(result.stdout)["rows"]}
    assert "TensorrtExecutionProvider" in rows["session of the job"]["detail"]
    assert rows["session of the job"]["ok"] is None
    x = np.ones((4, 1, 4, 4), np.float32)
    np.testing.assert_array_equal(Predictor("net.onnx")(x)["out/0"], x * 2)
