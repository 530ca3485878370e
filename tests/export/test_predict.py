"""A predict job as one model file."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from flow2onnx_runtime import Predictor
from safetensors.numpy import load_file

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.engine.session import current_session
from flow2onnx.errors import ArgumentError, BundleError, CallError, JobError, UnsupportedError
from flow2onnx.export import describe, export, files, verify_model
from tests.export.jobs import BATCH, batch, define, predict

WEIGHTS = {"hidden-weight", "hidden-bias", "output-weight", "output-bias"}


def test_weights_inside_have_the_present_values(tmp_path):
    train_job, predict_job = define()
    for i in range(3):
        train_job(*batch(i))
    report = predict_job.export(tmp_path / "mlp.onnx")
    assert report.ok, str(report)
    model = onnx.load(tmp_path / "mlp.onnx")
    held = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    assert set(held) >= WEIGHTS
    for name in WEIGHTS:
        np.testing.assert_array_equal(held[name], current_session().read(name))
    images, _ = batch(7)
    found = ort.InferenceSession(tmp_path / "mlp.onnx").run(["out/0"], {"images": images})[0]
    np.testing.assert_allclose(found, predict_job(images), rtol=1e-5, atol=1e-6)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mlp.onnx"]


def test_export_starts_the_session(tmp_path):
    _, predict_job = define()
    assert predict_job.export(tmp_path / "m.onnx").ok
    images, _ = batch()
    found = Predictor(tmp_path / "m.onnx")(images)["out/0"]
    np.testing.assert_allclose(found, predict_job(images), rtol=1e-5, atol=1e-6)


def test_weights_beside(tmp_path):
    _, predict_job = define()
    assert predict_job.export(tmp_path / "m.onnx", weights="safetensors").ok
    held = load_file(tmp_path / "m.safetensors")
    assert set(held) == WEIGHTS
    np.testing.assert_array_equal(held["hidden-weight"], current_session().read("hidden-weight"))
    images, _ = batch()
    found = ort.InferenceSession(tmp_path / "m.onnx").run(None, {"images": images})[0]
    np.testing.assert_allclose(found, predict_job(images), rtol=1e-5, atol=1e-6)
    onnx.checker.check_model(str(tmp_path / "m.onnx"), full_check=True)
    assert describe(tmp_path / "m.onnx")["external"] == {
        "m.safetensors": (tmp_path / "m.safetensors").stat().st_size
    }
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "m.safetensors"]


def test_external_weights(tmp_path):
    """The file that the ONNX world knows, at offsets that can be mapped."""
    _, predict_job = define()
    report = predict_job.export(tmp_path / "m.onnx", weights="external", dynamic_batch=True)
    assert report.ok, str(report)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]
    facts = describe(tmp_path / "m.onnx")
    assert facts["external"] == {"m.onnx.data": (tmp_path / "m.onnx.data").stat().st_size}
    assert verify_model(tmp_path / "m.onnx").ok
    held = {t.name: onnx.numpy_helper.to_array(t)
            for t in onnx.load(tmp_path / "m.onnx").graph.initializer}  # fmt: skip
    for name in WEIGHTS:
        np.testing.assert_array_equal(held[name], current_session().read(name))
    images, _ = batch()
    found = ort.InferenceSession(tmp_path / "m.onnx").run(None, {"images": images})[0]
    np.testing.assert_allclose(found, predict_job(images), rtol=1e-5, atol=1e-6)


def test_external_weights_begin_at_pages(tmp_path):
    def body(x):
        init = flow.random_normal_initializer()
        a = flow.get_variable("a", (3,), initializer=init)
        return flow.matmul(x + a, flow.get_variable("b", (3, 2000), initializer=init))

    assert predict((2, 3), body).export(tmp_path / "m.onnx", weights="external").ok
    model = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    places = {t.name: {e.key: e.value for e in t.external_data} for t in model.graph.initializer}
    assert (places["a"]["offset"], places["a"]["length"]) == ("0", "12")
    assert (places["b"]["offset"], places["b"]["length"]) == ("4096", "24000")


def test_weights_too_large_for_a_message_go_beside(tmp_path, monkeypatch):
    _, predict_job = define()
    monkeypatch.setattr(files, "INSIDE_LIMIT", 100)
    assert predict_job.export(tmp_path / "m.onnx").ok
    assert (tmp_path / "m.safetensors").exists()


def test_a_job_without_variables(tmp_path):
    job = predict((2, 3), lambda x: flow.math.relu(x) + 1.0)
    for weights in ("inside", "safetensors"):
        assert job.export(tmp_path / "m.onnx", weights=weights).ok
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def test_an_earlier_file_is_replaced(tmp_path):
    train_job, predict_job = define()
    images, labels = batch()
    for _ in range(2):
        train_job(images, labels)
        assert predict_job.export(tmp_path / "m.onnx", weights="safetensors").ok
        found = Predictor(tmp_path / "m.onnx")(images)["out/0"]
        np.testing.assert_allclose(found, predict_job(images), rtol=1e-5, atol=1e-6)


def test_metadata_tells_where_it_comes_from(tmp_path):
    _, predict_job = define()
    predict_job.export(tmp_path / "m.onnx", metadata={"data": "digits"})
    facts = describe(tmp_path / "m.onnx")
    assert facts["producer"] == f"flow2onnx {flow.__version__}"
    assert facts["metadata"] == {
        "data": "digits",
        "flow2onnx.job": "predict_job",
        "flow2onnx.kind": "predict",
        "flow2onnx.release": "0.4.0",
        "flow2onnx.generation": "c",
        "flow2onnx.inputs": f"images float32 [{BATCH}, 1, 3, 3]",
        "flow2onnx.outputs": f"out/0 float32 [{BATCH}, 4]",
    }


def test_equal_jobs_make_equal_files(tmp_path):
    _, predict_job = define()
    for name in ("a.onnx", "b.onnx"):
        predict_job.export(tmp_path / name, verify=False)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


@pytest.mark.parametrize("opset", [18, 20, 21, 22, 26])
def test_opset(tmp_path, opset):
    _, predict_job = define()
    report = predict_job.export(tmp_path / "m.onnx", opset=opset)
    assert report.ok, str(report)
    facts = describe(tmp_path / "m.onnx")
    assert (facts["opset"], facts["ir_version"]) == (opset, 10)


def test_a_fixed_batch_of_another_size(tmp_path):
    _, predict_job = define()
    assert predict_job.export(tmp_path / "m.onnx", batch=2).ok
    images, _ = batch()
    found = Predictor(tmp_path / "m.onnx")(images[:2])["out/0"]
    np.testing.assert_allclose(found, predict_job(images)[:2], rtol=1e-5, atol=1e-6)


def test_watches_are_not_exported(tmp_path):
    seen = []

    def body(x):
        y = flow.math.relu(x)
        flow.watch(y * 2.0, seen.append)
        return y

    job = predict((2, 3), body)
    assert job.export(tmp_path / "m.onnx").ok
    facts = describe(tmp_path / "m.onnx")
    assert [o["name"] for o in facts["outputs"]] == ["out/0"]
    assert facts["nodes"] == {"Relu": 1}
    assert not seen


def test_without_verification(tmp_path):
    _, predict_job = define()
    report = predict_job.export(tmp_path / "m.onnx", verify=False)
    assert [row.check for row in report.rows] == ["written", "verification"]
    assert report.ok


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    _, predict_job = define()

    def fail(*args, **kwargs):
        raise OSError(28, "No space left on device")

    for name in ("replace_file", "replace_bytes"):
        monkeypatch.setattr(files, name, fail)
    for weights in ("inside", "external"):
        with pytest.raises(BundleError, match="No space left"):
            predict_job.export(tmp_path / "m.onnx", weights=weights)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"opset": 17}, ArgumentError, "18 to 2[678]"),
        ({"opset": 99}, ArgumentError, "18 to 2[678]"),
        ({"opset": "21"}, ArgumentError, "opset '21'"),
        ({"weights": "outside"}, ArgumentError, "one of inside, safetensors, external"),
        ({"metadata": {"a": 1}}, ArgumentError, "is not text"),
        ({"metadata": {"flow2onnx.job": "x"}}, ArgumentError, "taken"),
        ({"predict": "predict_job"}, ArgumentError, "for train jobs"),
        ({"batch": 0}, ArgumentError, "at least 1"),
        ({"dynamic_bach": True}, CallError, "did you mean dynamic_batch?"),
        ({"strength": 3}, CallError, "unexpected keyword argument 'strength'"),
        ({"batch": 3, "dynamic_batch": True}, ArgumentError, "fixes one"),
    ],
)
def test_wrong_options(tmp_path, options, error, words):
    _, predict_job = define()
    with pytest.raises(error, match=words):
        predict_job.export(tmp_path / "m.onnx", **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("path", "error", "words"),
    [
        ("m", ArgumentError, r"m\.onnx"),
        ("missing/m.onnx", BundleError, "folder"),
        ("", ArgumentError, "no path"),
        ("a\0b.onnx", ArgumentError, "no path"),
        (3, ArgumentError, "no path"),
    ],
)
def test_wrong_paths(tmp_path, monkeypatch, path, error, words):
    monkeypatch.chdir(tmp_path)
    _, predict_job = define()
    with pytest.raises(error, match=words):
        predict_job.export(path)


@pytest.mark.parametrize("weights", ["inside", "safetensors"])
def test_a_folder_in_the_way(tmp_path, weights):
    (tmp_path / "m.onnx").mkdir()
    _, predict_job = define()
    with pytest.raises(BundleError, match=r"m\.onnx"):
        predict_job.export(tmp_path / "m.onnx", weights=weights)
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def test_what_is_no_job(tmp_path):
    with pytest.raises(ArgumentError, match="is no job"):
        export(len, tmp_path / "m.onnx")


def test_a_replaced_job(tmp_path):
    _, old = define()
    define()
    with pytest.raises(JobError, match="replaced"):
        old.export(tmp_path / "m.onnx")


def test_a_job_that_assigns(tmp_path):
    train_job, _ = define()

    @flow.global_function(type="predict")
    def counting(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        total = flow.get_variable("total", (2,), initializer=flow.zeros_initializer())
        flow.assign(total, total + x)
        return total

    with pytest.raises(UnsupportedError, match="assigns total"):
        counting.export(tmp_path / "m.onnx")
    with pytest.raises(UnsupportedError, match="assigns total"):
        train_job.export(tmp_path / "b", predict="counting")
