"""Predict models in float16 and int8, beside themselves in float32."""

import json

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from flow2onnx_runtime import Predictor

import flow2onnx as flow
import flow2onnx.export.comparison as comparison_module
import flow2onnx.export.quantizer as quantizer_module
import flow2onnx.typing as tp
from flow2onnx.errors import (
    ArgumentError,
    BundleError,
    DTypeError,
    FlowError,
    ProviderError,
    ShapeError,
)
from flow2onnx.export import describe, files, verify_model
from tests.export.jobs import BATCH, CLASSES, batch, define, predict

REDUCED = ("fp16", "int8", "int8-dynamic")
SLOW = pytest.mark.slow


@pytest.fixture(autouse=True)
def no_long_timing(monkeypatch):
    """Nothing here looks at how long a run takes."""
    monkeypatch.setattr(comparison_module, "_BLOCK_SECONDS", 1e-4)


def clusters(count, seed):
    """Images around the one of their class, and the classes."""
    centres = np.random.default_rng(0).normal(size=(CLASSES, 1, 3, 3)) * 2
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, count).astype(np.int32)
    noise = rng.normal(size=(count, 1, 3, 3)) * 0.3
    return (centres[labels] + noise).astype(np.float32), labels


def conv_net(images):
    init = flow.random_normal_initializer(stddev=0.3)
    x = flow.layers.conv2d(
        images, 64, 3, padding="SAME", activation=flow.nn.relu, kernel_initializer=init, name="conv"
    )
    x = flow.reshape(x, [images.shape[0], -1])
    x = flow.layers.dense(x, 64, activation=flow.nn.relu, kernel_initializer=init, name="hidden")
    return flow.layers.dense(x, CLASSES, kernel_initializer=init, name="output")


@pytest.fixture
def trained():
    """A predict job that tells the clusters apart."""
    train_job, predict_job = define(conv_net, momentum=0.0)
    for step in range(40):
        train_job(*clusters(BATCH, step + 10))
    return predict_job


def data(precision):
    images, labels = clusters(100, 3)
    more = {"calibration": clusters(64, 4)[0]} if precision == "int8" else {}
    return {"precision": precision, "samples": images, "labels": labels, **more}


@pytest.mark.parametrize("precision", REDUCED)
def test_accuracy_stays(tmp_path, trained, precision):
    assert trained.export(tmp_path / "full.onnx", dynamic_batch=True).ok
    report = trained.export(tmp_path / "m.onnx", dynamic_batch=True, **data(precision))
    assert report.ok, str(report)
    found = report.comparison
    assert (found.precision, found.data) == (precision, "100 rows of the samples")
    assert found.answers.float32_accuracy > 0.97
    assert found.answers.drop <= 0.005
    (row,) = [r for r in report.rows if r.check == "accuracy"]
    assert row.ok
    assert "0.50% allowed" in row.detail
    full = (tmp_path / "full.onnx").stat().st_size
    assert found.bytes == (tmp_path / "m.onnx").stat().st_size
    assert found.bytes < full * (0.6 if precision == "fp16" else 0.5)
    assert abs(found.float32_bytes - full) < 100  # another note in the metadata
    assert found.timing.ms > 0
    assert found.timing.float32_ms > 0
    assert found.reduced["Conv"] == 1
    images, labels = clusters(30, 8)
    session = ort.InferenceSession(tmp_path / "m.onnx")
    for count in (1, 30):
        answers = session.run(["out/0"], {"images": images[:count]})[0]
        assert np.mean(answers.argmax(1) == labels[:count]) > 0.9
    facts = describe(tmp_path / "m.onnx")
    assert facts["inputs"] == [{"name": "images", "dtype": "float32", "shape": ["batch", 1, 3, 3]}]
    assert facts["outputs"] == [{"name": "out/0", "dtype": "float32", "shape": ["batch", CLASSES]}]
    assert (facts["opset"], facts["ir_version"], facts["domains"]) == (21, 10, {"ai.onnx": 21})
    assert facts["metadata"]["flow2onnx.precision"] == precision
    assert facts["metadata"]["flow2onnx.job"] == "predict_job"
    assert facts["producer"].startswith("flow2onnx ")


@pytest.mark.parametrize("precision", REDUCED)
@pytest.mark.parametrize("weights", ["safetensors", pytest.param("external", marks=SLOW)])
def test_with_weights_beside(tmp_path, trained, precision, weights):
    options = data(precision) | {"weights": weights, "metadata": {"data": "clusters"}}
    report = trained.export(tmp_path / "m.onnx", dynamic_batch=True, **options)
    assert report.ok, str(report)
    beside = {"safetensors": "m.safetensors", "external": "m.onnx.data"}[weights]
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["m.onnx", beside])
    assert list(describe(tmp_path / "m.onnx")["external"]) == [beside]
    assert describe(tmp_path / "m.onnx")["metadata"]["data"] == "clusters"
    assert verify_model(tmp_path / "m.onnx").ok
    images, labels = clusters(30, 8)
    answers = Predictor(tmp_path / "m.onnx")(images)["out/0"].argmax(1)
    assert np.mean(answers == labels) > 0.9


@pytest.mark.parametrize("precision", REDUCED)
def test_a_fixed_batch_is_filled_up(tmp_path, trained, precision):
    report = trained.export(tmp_path / "m.onnx", **data(precision))
    assert report.ok, str(report)
    assert report.comparison.answers.count == 100
    assert report.comparison.timing.batch == BATCH


@pytest.mark.parametrize("opset", [18, pytest.param(26, marks=SLOW)])
@pytest.mark.parametrize("precision", REDUCED)
def test_opsets(tmp_path, trained, precision, opset):
    report = trained.export(tmp_path / "m.onnx", opset=opset, **data(precision))
    assert report.ok, str(report)
    facts = describe(tmp_path / "m.onnx")
    assert (facts["opset"], facts["ir_version"]) == (opset, 10)


def test_half_weights_are_stored_half(tmp_path, trained):
    report = trained.export(tmp_path / "m.onnx", **data("fp16"))
    held = {t.name: t.data_type for t in onnx.load(tmp_path / "m.onnx").graph.initializer}
    names = [f"{layer}-{kind}" for layer in ("conv", "hidden", "output")
             for kind in ("weight", "bias")]  # fmt: skip
    assert {held[n] for n in names} == {onnx.TensorProto.FLOAT16}
    (row,) = [r for r in report.rows if r.check == "float16"]
    assert "the CPU computes" in row.detail
    assert "Conv ×1" in row.detail
    (left,) = report.comparison.left
    assert (left.operator, left.count) == ("Softmax", 1)
    assert "lose digits" in left.reason


def test_half_inputs_and_outputs(tmp_path, trained):
    report = trained.export(tmp_path / "m.onnx", half_io=True, dynamic_batch=True, **data("fp16"))
    assert report.ok, str(report)
    facts = describe(tmp_path / "m.onnx")
    assert facts["inputs"][0]["dtype"] == facts["outputs"][0]["dtype"] == "float16"
    assert (facts["inputs"][0]["name"], facts["outputs"][0]["name"]) == ("images", "out/0")
    images, labels = clusters(30, 8)
    answers = Predictor(tmp_path / "m.onnx")(images.astype(np.float16))["out/0"]
    assert answers.dtype == np.float16
    assert np.mean(answers.argmax(1) == labels) > 0.9


@pytest.mark.parametrize("method", ["minmax", "entropy", "percentile"])
def test_ways_to_find_ranges(tmp_path, trained, method, capsys):
    report = trained.export(tmp_path / "m.onnx", method=method, dynamic_batch=True, **data("int8"))
    assert report.ok, str(report)
    assert capsys.readouterr().out == ""


def test_weights_are_quantized_by_channel(tmp_path, trained):
    trained.export(tmp_path / "m.onnx", **data("int8"))
    held = {t.name: onnx.numpy_helper.to_array(t)
            for t in onnx.load(tmp_path / "m.onnx").graph.initializer}  # fmt: skip
    assert held["conv-weight_quantized"].dtype == np.int8
    # eight bits would saturate on x86 processors without VNNI
    assert 60 <= abs(held["conv-weight_quantized"].astype(int)).max() <= 64
    assert held["conv-weight_scale"].shape == (64,)
    assert not held["conv-weight_zero_point"].any()


def test_answers_are_not_rounded(tmp_path, trained):
    """The last product goes to the softmax as it is: eight bits would decide near ties."""
    trained.export(tmp_path / "m.onnx", **data("int8"))
    nodes = onnx.load(tmp_path / "m.onnx").graph.node
    makers = {o: n.op_type for n in nodes for o in n.output}
    (softmax,) = [n for n in nodes if n.op_type == "Softmax"]
    assert makers[softmax.input[0]] == "Gemm"


def test_a_result_is_not_rounded(tmp_path):
    def body(x):
        w = flow.get_variable("w", (16, 16), initializer=flow.random_normal_initializer())
        return flow.matmul(x, w)

    job = predict((4, 16), body)
    x = np.random.default_rng(0).normal(size=(4, 16)).astype(np.float32)
    values(job, tmp_path / "m.onnx", x, precision="int8", calibration=x, max_drop=1.0)
    last = onnx.load(tmp_path / "m.onnx").graph.node[-1]
    assert last.op_type in ("Gemm", "MatMul")
    assert list(last.output) == ["out/0"]


def test_calibration_is_the_sample_unless_there_are_samples(tmp_path, trained):
    images, labels = clusters(50, 4)
    report = trained.export(
        tmp_path / "m.onnx", precision="int8", calibration=images, labels=labels
    )  # fmt: skip
    assert report.comparison.data == "50 rows of the calibration set"
    assert report.comparison.answers.accuracy > 0.9
    report = trained.export(tmp_path / "m.onnx", precision="fp16")
    assert report.comparison.data == f"{BATCH} rows of random numbers"


def test_forms_of_samples(tmp_path, trained):
    images, _ = clusters(20, 4)
    forms = [
        images,
        {"images": images},
        [images[:7], images[7:]],
        iter([{"images": images[:7]}, (images[7:],)]),
        ({"images": images[i : i + 1]} for i in range(20)),
    ]
    differences = []
    for given in forms:
        report = trained.export(
            tmp_path / "m.onnx", precision="int8", calibration=given, samples=images, verify=False
        )  # fmt: skip
        assert report.comparison.data == "20 rows of the samples"
        differences.append(report.comparison.differences)
    assert all(d == differences[0] for d in differences)


def test_a_drop_above_the_allowed_fails(tmp_path, trained):
    images, labels = clusters(100, 3)
    # one row a long way out gives the others no room
    calibration = np.concatenate([images[:20], images[:1] * 1e5])
    report = trained.export(
        tmp_path / "m.onnx", precision="int8", calibration=calibration, samples=images,
        labels=labels,
    )  # fmt: skip
    assert not report.ok
    (row,) = [r for r in report.rows if r.check == "accuracy"]
    assert row.ok is False
    assert "a drop of" in row.detail
    assert report.comparison.answers.drop > 0.005
    with pytest.raises(BundleError, match="a drop of"):
        report.raise_if_failed()
    lenient = trained.export(
        tmp_path / "m.onnx", precision="int8", calibration=calibration, samples=images,
        labels=labels, max_drop=1.0,
    )  # fmt: skip
    assert lenient.ok


def test_without_labels_the_answers_are_compared(tmp_path, trained):
    images, _ = clusters(100, 3)
    report = trained.export(tmp_path / "m.onnx", precision="fp16", samples=images)
    (row,) = [r for r in report.rows if r.check == "accuracy"]
    assert row.ok is True
    assert "are those of float32" in row.detail
    poor = np.concatenate([images[:20], images[:1] * 1e5])
    report = trained.export(
        tmp_path / "m.onnx", precision="int8", calibration=poor, samples=images
    )  # fmt: skip
    (row,) = [r for r in report.rows if r.check == "accuracy"]
    assert row.ok is None
    assert "labels=" in row.detail


def test_tolerance(tmp_path, trained):
    images, _ = clusters(100, 3)
    for tolerance, passes in ((0.5, True), (0.0, False)):
        report = trained.export(
            tmp_path / "m.onnx", precision="fp16", samples=images, tolerance=tolerance
        )  # fmt: skip
        (row,) = [r for r in report.rows if r.check == "difference"]
        assert row.ok is passes
        assert report.ok is passes


def test_the_report_is_text_and_data(tmp_path, trained):
    report = trained.export(tmp_path / "m.onnx", **data("fp16"))
    for text in ("float32", "latency", "same answers", "accuracy", "left in float32", "max abs"):
        assert text in str(report)
    plain = json.loads(report.to_json())["comparison"]
    assert plain["precision"] == "fp16"
    assert plain["answers"]["count"] == 100
    assert plain["left"][0]["operator"] == "Softmax"


def test_equal_exports_are_equal_files(tmp_path, trained):
    for precision in REDUCED:
        contents = []
        for name in ("a.onnx", "b.onnx"):
            trained.export(tmp_path / name, verify=False, **data(precision))
            contents.append((tmp_path / name).read_bytes())
        assert contents[0] == contents[1], precision


def values(job, path, x, **options):
    """The results of a job's export in a precision and of the job."""
    report = job.export(path, samples=x, **options)
    assert report.ok, str(report)
    return Predictor(path)(x)["out/0"], job(x), report


def test_a_table_is_looked_up_in_half(tmp_path):
    def body(ids):
        table = flow.get_variable("table", (50, 32), initializer=flow.random_normal_initializer())
        return flow.gather(table, ids)

    job = predict((4,), body, dtype=flow.int32)
    ids = np.array([0, 7, 49, 7], np.int32)
    found, want, report = values(job, tmp_path / "m.onnx", ids, precision="fp16")
    assert report.comparison.bytes < 0.7 * report.comparison.float32_bytes
    np.testing.assert_allclose(found, want, rtol=1e-3, atol=1e-4)


def test_a_table_that_a_product_reads_too(tmp_path):
    """The quantizer turns round what products read, which must not reach the table."""

    def body(ids):
        table = flow.get_variable("table", (32, 16), initializer=flow.random_normal_initializer())
        return flow.matmul(flow.gather(table, ids), table, transpose_b=True)

    job = predict((4,), body, dtype=flow.int32)
    ids = np.array([0, 7, 31, 7], np.int32)
    for precision in ("int8", "int8-dynamic"):
        more = {"calibration": ids} if precision == "int8" else {}
        found, want, _ = values(job, tmp_path / "m.onnx", ids, precision=precision, **more)
        assert np.abs(found - want).max() < 0.05 * np.abs(want).max(), precision


def test_masks_have_no_part_in_ranges(tmp_path):
    """With -10000 among them, eight bits would hold no other score."""

    def body(x):
        w = flow.get_variable("w", (16, 16), initializer=flow.random_normal_initializer())
        scores = flow.matmul(x, w)
        mask = flow.constant_like(scores, 0.0) + flow.math.reduce_max(x) * 0.0
        hidden = np.zeros((1, 16), np.float32)
        hidden[0, 8:] = -10000.0
        table = flow.get_variable(
            "mask", (1, 16), initializer=flow.constant_initializer(-10000.0), trainable=False
        )
        return flow.nn.softmax(scores + mask + table)

    job = predict((4, 16), body)
    x = np.random.default_rng(0).normal(size=(4, 16)).astype(np.float32)
    found, want, report = values(
        job, tmp_path / "m.onnx", x, precision="int8", calibration=x, max_drop=1.0
    )  # fmt: skip
    assert np.abs(found - want).max() < 0.1
    assert any("before a softmax" in left.reason for left in report.comparison.left)


def test_normalizations_are_folded_into_convolutions(tmp_path):
    def body(x):
        y = flow.layers.conv2d(x, 8, 3, padding="SAME", name="conv", use_bias=False,
                               kernel_initializer=flow.random_normal_initializer())  # fmt: skip
        y = flow.layers.batch_normalization(y, axis=1, training=False, name="bn")
        y = flow.layers.conv2d(y, 8, 3, padding="SAME", name="conv2",
                               kernel_initializer=flow.random_normal_initializer())  # fmt: skip
        return flow.layers.batch_normalization(y, axis=1, training=False, name="bn2")

    job = predict((2, 3, 6, 6), body)
    flow.load_variables(
        {f"bn{i}-{name}": np.random.default_rng(0).uniform(0.5, 2.0, 8).astype(np.float32)
         for i in ("", "2") for name in ("gamma", "beta", "moving_mean", "moving_variance")}
    )  # fmt: skip
    x = np.random.default_rng(1).normal(size=(2, 3, 6, 6)).astype(np.float32)
    found, want, report = values(
        job, tmp_path / "m.onnx", x, precision="int8", calibration=x, max_drop=1.0
    )  # fmt: skip
    assert report.comparison.reduced == {"Conv": 2}
    assert report.comparison.left == ()
    assert np.abs(found - want).max() < 0.03 * np.abs(want).max()


def test_weights_that_half_cannot_hold_stay(tmp_path):
    def body(x):
        w = flow.get_variable("w", (3, 3), initializer=flow.constant_initializer(1e6))
        return flow.math.relu(flow.matmul(x, w) * 1e-6)

    job = predict((2, 3), body)
    x = np.ones((2, 3), np.float32)
    found, want, report = values(job, tmp_path / "m.onnx", x, precision="fp16")
    np.testing.assert_allclose(found, want, rtol=1e-3)
    reasons = {left.operator: left.reason for left in report.comparison.left}
    assert all("cannot hold" in reason for reason in reasons.values())
    assert set(reasons) == {"Gemm", "Mul"}
    assert report.comparison.reduced == {"Relu": 1}


def test_values_that_half_cannot_hold_fail(tmp_path):
    job = predict((2, 3), lambda x: flow.math.relu(x * 1000.0))
    x = np.full((2, 3), 100.0, np.float32)
    report = job.export(tmp_path / "m.onnx", precision="fp16", samples=x)
    assert not report.ok
    (row,) = [r for r in report.rows if r.check == "finite"]
    assert "out/0" in row.detail
    assert report.comparison.differences[0].max_abs == np.inf
    json.loads(report.to_json())


def test_large_weights_go_beside_by_themselves(tmp_path, trained, monkeypatch):
    monkeypatch.setattr(files, "INSIDE_LIMIT", 100)
    report = trained.export(tmp_path / "m.onnx", **data("int8"))
    assert report.ok, str(report)
    assert (tmp_path / "m.safetensors").exists()


WRONG = [
    ({"precision": "fp8"}, ArgumentError, "fp32, fp16, int8, int8-dynamic"),
    ({"precision": "int8"}, ArgumentError, "needs calibration"),
    ({"precision": "fp16", "calibration": 0}, ArgumentError, "samples="),
    ({"method": "best", "precision": "int8", "calibration": 0}, ArgumentError, "entropy"),
    ({"half_io": True}, ArgumentError, "half_io is for"),
    ({"samples": 0}, ArgumentError, "reduced precision"),
    ({"precision": "fp16", "labels": [1]}, ArgumentError, "without samples"),
    ({"precision": "fp16", "max_drop": 2}, ArgumentError, "max_drop is 2"),
    ({"precision": "fp16", "max_drop": True}, ArgumentError, "max_drop is True"),
    ({"precision": "fp16", "tolerance": -1.0}, ArgumentError, "tolerance is -1"),
    ({"precision": "fp16", "tolerance": "1"}, ArgumentError, "tolerance is '1'"),
    ({"precision": "int8", "calibration": 3, "opset": 13}, ArgumentError, "opset 13"),
    ({"precision": "int8-dynamic", "opset": 11}, ArgumentError, "opset 11"),
]


@pytest.mark.parametrize(("options", "error", "words"), WRONG, ids=lambda v: str(v)[:30])
def test_wrong_options(tmp_path, options, error, words):
    _, predict_job = define()
    with pytest.raises(error) as caught:
        predict_job.export(tmp_path / "m.onnx", **options)
    assert words in str(caught.value)
    assert caught.value.hint
    assert not list(tmp_path.iterdir())


IMAGES = np.zeros((2, 1, 3, 3), np.float32)
BAD_DATA = [
    (5, ArgumentError, "is 5"),
    ("some.npz", ArgumentError, "is 'some.npz'"),
    ([], ArgumentError, "is empty"),
    (IMAGES[:0], ArgumentError, "images is empty"),
    ({"image": IMAGES}, ArgumentError, "'image' is no input"),
    ({}, ArgumentError, "'images' is missing"),
    ([(IMAGES, IMAGES)], ArgumentError, "has 2 arrays, the model 1 inputs: images"),
    (IMAGES[0], ShapeError, "got [1, 3, 3]"),
    (IMAGES[:, :, :2], ShapeError, "got [2, 1, 2, 3]"),
    (IMAGES.astype(np.int64), DTypeError, "astype('float32')"),
    (IMAGES + np.nan, ArgumentError, "NaN or infinity"),
    ([IMAGES, IMAGES + np.inf], ArgumentError, "NaN or infinity"),
]


@pytest.mark.parametrize("name", ["calibration", "samples"])
@pytest.mark.parametrize(("given", "error", "words"), BAD_DATA, ids=range(len(BAD_DATA)))
def test_bad_data(tmp_path, name, given, error, words):
    _, predict_job = define()
    precision = {"calibration": "int8", "samples": "int8-dynamic"}[name]
    with pytest.raises(error) as caught:
        predict_job.export(tmp_path / "m.onnx", precision=precision, **{name: given})
    assert isinstance(caught.value, FlowError)
    assert words in str(caught.value)
    assert name in str(caught.value)
    assert caught.value.hint
    assert not list(tmp_path.iterdir())


def test_inputs_with_different_numbers_of_rows(tmp_path):
    job = predict((4, 3), lambda x, y: x + y, tp.Numpy.Placeholder((4, 3)))
    x = np.zeros((4, 3), np.float32)
    with pytest.raises(ShapeError, match="different numbers of rows"):
        job.export(
            tmp_path / "m.onnx", precision="fp16", samples={"x": x, "y": x[:2]}, dynamic_batch=True
        )  # fmt: skip


def test_inputs_without_rows(tmp_path):
    """An input that has no batch comes whole in each batch of samples."""
    table = tp.Numpy.Placeholder((5, 3), batch_axis=None)
    job = predict((4, 3), lambda x, y: flow.matmul(x, y, transpose_b=True), table)
    x, y = np.ones((4, 3), np.float32), np.ones((5, 3), np.float32)
    report = job.export(tmp_path / "m.onnx", precision="fp16", samples=[{"x": x, "y": y}] * 2)
    assert report.comparison.data == "8 rows of the samples"
    with pytest.raises(ShapeError, match=r"y has shape \[5, 3\]"):
        job.export(tmp_path / "m.onnx", precision="fp16", samples={"x": x, "y": y[:4]})


@pytest.mark.parametrize(
    ("labels", "words"),
    [([1, 2], "2 labels for 6 answers"), ([0.5] * 6, "labels are float64"), (["a"] * 6, "labels")],
)
def test_bad_labels(tmp_path, labels, words):
    _, predict_job = define()
    images, _ = batch()
    with pytest.raises(ArgumentError, match=words):
        predict_job.export(tmp_path / "m.onnx", precision="fp16", samples=images, labels=labels)
    assert not list(tmp_path.iterdir())


def test_labels_of_what_has_no_classes(tmp_path):
    job = predict((4, 1), lambda x: x * 2.0)
    x = np.ones((4, 1), np.float32)
    with pytest.raises(ArgumentError, match="choose classes"):
        job.export(tmp_path / "m.onnx", precision="fp16", samples=x, labels=[0] * 4)
    report = job.export(tmp_path / "m.onnx", precision="fp16", samples=x)
    assert report.comparison.answers is None


def test_train_jobs_keep_their_precision(tmp_path):
    train_job, _ = define()
    with pytest.raises(ArgumentError, match="precision is for predict jobs"):
        train_job.export(tmp_path / "b", precision="fp16")
    with pytest.raises(ArgumentError, match="preprocess is for predict jobs"):
        train_job.export(tmp_path / "b", preprocess={"scale": 2.0})
    assert not list(tmp_path.iterdir())


def test_a_quantizer_that_is_not_there(tmp_path, monkeypatch, trained):
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime.quantization", None)
    with pytest.raises(ProviderError, match="quantizer cannot be imported") as caught:
        trained.export(tmp_path / "m.onnx", **data("int8"))
    assert "pip install" in caught.value.hint


def test_a_quantizer_that_fails(tmp_path, monkeypatch, trained):
    import onnxruntime.quantization

    def fail(*args, **kwargs):
        raise ValueError("no idea\nmore")

    monkeypatch.setattr(onnxruntime.quantization, "quantize_static", fail)
    with pytest.raises(BundleError, match="cannot quantize m: no idea") as caught:
        trained.export(tmp_path / "m.onnx", **data("int8"))
    assert "fp16" in caught.value.hint
    assert not list(tmp_path.iterdir())


def test_ranges_that_are_not_finite(tmp_path, monkeypatch, trained):
    monkeypatch.setattr(
        quantizer_module, "float_initializers", lambda path: [("x_scale", np.array([np.inf]))]
    )
    with pytest.raises(BundleError, match="values of x on the calibration set are not finite"):
        trained.export(tmp_path / "m.onnx", **data("int8"))


@pytest.mark.slow
def test_lenet_on_the_digits(tmp_path):
    """More than 97 % of the digits held back are known, in every precision."""
    from flow2onnx.api.job import define as defined
    from models import lenet

    train_job, predict_job = defined(lenet.train_job.spec), defined(lenet.predict_job.spec)
    (images, labels), (test_images, test_labels) = flow.data.load_mnist(lenet.BATCH)
    order = np.random.default_rng(0)
    for _ in range(12):
        for i in order.permutation(len(images)):
            train_job(images[i], labels[i])
    samples, truth = test_images.reshape(-1, 1, 28, 28), test_labels.reshape(-1)
    sizes = {}
    for precision in REDUCED:
        path = tmp_path / f"{precision}.onnx"
        more = {"calibration": images[:2].reshape(-1, 1, 28, 28)} if precision == "int8" else {}
        report = predict_job.export(
            path, dynamic_batch=True, precision=precision, samples=samples, labels=truth, **more
        )  # fmt: skip
        assert report.ok, str(report)
        answers = report.comparison.answers
        assert answers.float32_accuracy > 0.97
        assert answers.drop <= 0.005, precision
        found = Predictor(path).many(samples)["out/0"].argmax(1)
        assert np.mean(found == truth) == pytest.approx(answers.accuracy)
        sizes[precision] = path.stat().st_size / report.comparison.float32_bytes
    assert sizes["fp16"] < 0.51
    assert sizes["int8"] < 0.26
    assert sizes["int8-dynamic"] < 0.26
