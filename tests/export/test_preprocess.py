"""Preprocessing in the model: raw images in, the job's answers out."""

import numpy as np
import pytest
from flow2onnx_runtime import Predictor

import flow2onnx as flow
import flow2onnx.export.comparison as comparison_module
import flow2onnx.typing as tp
from flow2onnx.errors import ArgumentError, DTypeError
from flow2onnx.export import Preprocess, describe, export_triton, verify_model
from flow2onnx.export.preprocess import parse_preprocess
from tests.export.jobs import predict

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


@pytest.fixture(autouse=True)
def no_long_timing(monkeypatch):
    monkeypatch.setattr(comparison_module, "_BLOCK_SECONDS", 1e-4)


def net(x):
    init = flow.random_normal_initializer()
    y = flow.layers.conv2d(x, 16, 3, padding="SAME", kernel_initializer=init, name="conv",
                           activation=flow.nn.relu)  # fmt: skip
    return flow.math.reduce_mean(y, axis=[2, 3])


def photos(count=4, channels=3):
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (count, 5, 6, channels)).astype(np.uint8)


def prepared(raw):
    """The full preprocessing by numpy: BGR in rows, to RGB in planes."""
    x = raw[..., ::-1].transpose(0, 3, 1, 2).astype(np.float32) / 255
    return (x - np.reshape(MEAN, (3, 1, 1))) / np.reshape(STD, (3, 1, 1))


FULL = {"scale": 1 / 255, "mean": MEAN, "std": STD, "layout": "NHWC->NCHW", "order": "BGR->RGB"}


@pytest.fixture
def job():
    return predict((4, 3, 5, 6), net)


@pytest.mark.parametrize("dynamic", [False, True])
def test_the_whole(tmp_path, job, dynamic):
    report = job.export(
        tmp_path / "m.onnx", preprocess=Preprocess(**FULL), dynamic_batch=dynamic
    )  # fmt: skip
    assert report.ok, str(report)
    facts = describe(tmp_path / "m.onnx")
    rows = "batch" if dynamic else 4
    assert facts["inputs"] == [{"name": "x", "dtype": "uint8", "shape": [rows, 5, 6, 3]}]
    assert facts["metadata"]["flow2onnx.inputs"] == f"x uint8 [{rows}, 5, 6, 3]"
    assert "NHWC->NCHW" in facts["metadata"]["flow2onnx.preprocess.x"]
    found = Predictor(tmp_path / "m.onnx")(photos())["out/0"]
    np.testing.assert_allclose(found, job(prepared(photos()).astype(np.float32)), rtol=1e-4)
    if dynamic:
        assert Predictor(tmp_path / "m.onnx")(photos(9))["out/0"].shape == (9, 16)


@pytest.mark.parametrize("precision", ["fp16", "int8", "int8-dynamic"])
@pytest.mark.parametrize("weights", ["inside", "safetensors", "external"])
def test_with_reduced_precision(tmp_path, job, precision, weights):
    """Samples and calibration are raw images, and what prepares them stays in float32."""
    more = {"calibration": photos(20)} if precision == "int8" else {}
    report = job.export(
        tmp_path / "m.onnx", preprocess=FULL, dynamic_batch=True, precision=precision,
        samples=photos(8), max_drop=1.0, weights=weights, **more,
    )  # fmt: skip
    assert report.ok, str(report)
    want = job(prepared(photos()).astype(np.float32))
    found = Predictor(tmp_path / "m.onnx")(photos())["out/0"]
    assert np.abs(found - want).max() < 0.03 * np.abs(want).max()
    assert not {"Mul", "Sub", "Div", "Transpose", "Gather"} & set(report.comparison.reduced)
    assert verify_model(tmp_path / "m.onnx").ok


def test_half_inputs_stay_bytes(tmp_path, job):
    report = job.export(
        tmp_path / "m.onnx", preprocess=FULL, precision="fp16", half_io=True, samples=photos()
    )  # fmt: skip
    assert report.ok, str(report)
    facts = describe(tmp_path / "m.onnx")
    assert facts["inputs"][0]["dtype"] == "uint8"
    assert facts["outputs"][0]["dtype"] == "float16"


@pytest.mark.parametrize(
    ("way", "raw", "meant"),
    [
        ({"dtype": "uint8"}, np.uint8([[1, 2, 255]]), [[1, 2, 255]]),
        ({"scale": 2.0}, np.uint8([[1, 2, 3]]), [[2, 4, 6]]),
        ({"mean": 1.0, "std": 2}, np.uint8([[1, 2, 3]]), [[0, 0.5, 1]]),
        ({"dtype": "float32", "scale": 0.5}, np.float32([[1, 2, 3]]), [[0.5, 1, 1.5]]),
        ({"dtype": "float16"}, np.float16([[1, 2, 3]]), [[1, 2, 3]]),
        ({"dtype": "int8", "mean": [1]}, None, None),
    ],
)
def test_numbers_without_images(tmp_path, way, raw, meant):
    job = predict((1, 3), lambda x: x * 1.0)
    if raw is None:
        with pytest.raises(ArgumentError, match="is no batch of images"):
            job.export(tmp_path / "m.onnx", preprocess=way)
        return
    assert job.export(tmp_path / "m.onnx", preprocess=way).ok
    np.testing.assert_allclose(Predictor(tmp_path / "m.onnx")(raw)["out/0"], meant)


def test_nothing_to_do(tmp_path):
    job = predict((1, 3), lambda x: x * 1.0)
    assert job.export(tmp_path / "m.onnx", preprocess={"dtype": "float32"}).ok
    assert describe(tmp_path / "m.onnx")["nodes"] == {"Mul": 1}


def test_one_of_two_inputs(tmp_path):
    job = predict((4, 3, 2, 2), lambda x, y: x + y, tp.Numpy.Placeholder((4, 3, 2, 2)))
    way = Preprocess(layout="NHWC->NCHW", scale=0.5)
    with pytest.raises(ArgumentError, match="one preprocessing for 2 inputs"):
        job.export(tmp_path / "m.onnx", preprocess=way)
    assert job.export(tmp_path / "m.onnx", preprocess={"y": way}, dynamic_batch=True).ok
    shapes = {v["name"]: v["shape"] for v in describe(tmp_path / "m.onnx")["inputs"]}
    assert shapes == {"x": ["batch", 3, 2, 2], "y": ["batch", 2, 2, 3]}
    x = np.ones((4, 3, 2, 2), np.float32)
    found = Predictor(tmp_path / "m.onnx")(x, np.full((4, 2, 2, 3), 4, np.uint8))["out/0"]
    np.testing.assert_array_equal(found, np.full((4, 3, 2, 2), 3.0))


def test_in_a_repository(tmp_path, job):
    report = export_triton(job, tmp_path, preprocess=FULL, labels=None)
    assert report.ok, str(report)
    text = (tmp_path / "predict_job" / "config.pbtxt").read_text()
    assert "TYPE_UINT8" in text
    assert "dims: [5, 6, 3]" in text


WRONG = [
    (5, ArgumentError, "preprocess is 5"),
    ({}, ArgumentError, "preprocess is {}"),
    ({"z": Preprocess()}, ArgumentError, "'z', which is no input"),
    ({"x": {"sale": 1.0}}, ArgumentError, "no 'sale'"),
    ({"x": 3}, ArgumentError, "preprocess is 3"),
    ({"layout": "NCWH"}, ArgumentError, "layout is 'NCWH'"),
    ({"layout": "NHWC->NCHW->NHWC"}, ArgumentError, "layout is"),
    ({"order": "GBR->RGB"}, ArgumentError, "order is"),
    ({"dtype": "complex"}, ArgumentError, "dtype is 'complex'"),
    ({"std": 0.0}, ArgumentError, "std is 0.0"),
    ({"scale": float("nan")}, ArgumentError, "scale is nan"),
    ({"mean": "0.5"}, ArgumentError, "mean is '0.5'"),
    ({"mean": [], "layout": "NCHW"}, ArgumentError, "mean is []"),
    ({"mean": [1.0, 2.0], "layout": "NCHW"}, ArgumentError, "the images have 3 channels"),
    ({"mean": MEAN}, ArgumentError, "which axis has the channels"),
    ({"order": "BGR->RGB"}, ArgumentError, "which axis has the channels"),
]


@pytest.mark.parametrize(("way", "error", "words"), WRONG, ids=lambda v: str(v)[:30])
def test_wrong_preprocessings(tmp_path, job, way, error, words):
    with pytest.raises(error) as caught:
        job.export(tmp_path / "m.onnx", preprocess=way)
    assert words in str(caught.value)
    assert caught.value.hint
    assert not list(tmp_path.iterdir())


def test_what_is_no_image(tmp_path):
    job = predict((4, 6), lambda x: x * 2.0)
    with pytest.raises(ArgumentError, match=r"\[4, 6\] is no batch of images") as caught:
        job.export(tmp_path / "m.onnx", preprocess={"layout": "NHWC->NCHW"})
    assert "preprocess of x" in str(caught.value)


def test_the_order_of_one_channel(tmp_path):
    grey = predict((4, 1, 2, 2), lambda x: x * 2.0)
    with pytest.raises(ArgumentError, match="for 3 channels, the images have 1"):
        grey.export(tmp_path / "m.onnx", preprocess={"layout": "NCHW", "order": "BGR->RGB"})


def test_inputs_that_are_no_real_numbers(tmp_path):
    job = predict((4,), lambda x: x + 1, dtype=flow.int32)
    with pytest.raises(DTypeError, match="the job's input is int32"):
        job.export(tmp_path / "m.onnx", preprocess={"scale": 2.0})


def test_as_text():
    text = "x:dtype=uint8;layout=NHWC->NCHW;scale=1/255;mean=0.5,0.25,1e-1;std=2;order=BGR->RGB"
    way = Preprocess("uint8", 1 / 255, [0.5, 0.25, 0.1], 2.0, "NHWC->NCHW", "BGR->RGB")
    assert parse_preprocess(text) == ("x", way)
    assert parse_preprocess("scale=2") == (None, Preprocess(scale=2.0))
    assert str(Preprocess(scale=2.0, std=3.0)) == "uint8, x * 2 / 3"
    for wrong, words in [("scale", "write KEY=VALUE"), ("scale=1/0", "is no number"),
                         ("mean=a,b", "is no number"), ("x:colour=1", "no 'colour'")]:  # fmt: skip
        with pytest.raises(ArgumentError, match=words):
            parse_preprocess(wrong)
