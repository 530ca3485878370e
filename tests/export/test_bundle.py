"""A train job as a folder that the runtime trains on."""

import json

import numpy as np
import onnxruntime as ort
import pytest
from flow2onnx_runtime import Predictor, Trainer
from safetensors.numpy import load_file

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.compile.opsets import newest_opset
from flow2onnx.engine.session import SESSION, Session, current_session
from flow2onnx.errors import ArgumentError, BundleError, JobError, UnsupportedError
from flow2onnx.export import bundle, describe
from models import mlp
from tests.export.jobs import BATCH, batch, define

FILES = ["init.onnx", "manifest.json", "step.onnx", "weights.safetensors"]


def test_training_goes_on_bit_for_bit(tmp_path):
    train_job, predict_job = define()
    for i in range(3):
        train_job(*batch(i))
    report = train_job.export(tmp_path / "b", predict=predict_job)
    assert report.ok, str(report)
    assert sorted(p.name for p in (tmp_path / "b").iterdir()) == sorted([*FILES, "predict.onnx"])
    trainer = Trainer(tmp_path / "b")
    assert trainer.steps == 3
    for i in range(3, 8):
        np.testing.assert_array_equal(trainer.step(*batch(i))["out/0"], train_job(*batch(i)))
    for name, value in trainer.state_dict().items():
        np.testing.assert_array_equal(value, current_session().read(name))
    images, _ = batch(9)
    found = trainer.predict(images)["out/0"]
    np.testing.assert_allclose(found, predict_job(images), rtol=1e-5, atol=1e-6)


def test_seed_mlp_goes_on_bit_for_bit(tmp_path, monkeypatch):
    own = Session()
    for job in (mlp.train_job, mlp.predict_job):
        own.define(job.spec)
        monkeypatch.setattr(job, "session", own)
    token = SESSION.set(own)
    try:
        rng = np.random.default_rng(0)
        images = rng.random((4, 100, 1, 28, 28), dtype=np.float32)
        labels = rng.integers(0, 10, (4, 100)).astype(np.int32)
        mlp.train_job(images[0], labels[0])
        assert mlp.train_job.export(tmp_path / "b", predict="predict_job").ok
        trainer = Trainer(tmp_path / "b")
        for x, y in zip(images[1:], labels[1:], strict=True):
            np.testing.assert_array_equal(trainer.step(x, y)["out/0"], mlp.train_job(x, y))
        found = trainer.predict(images[0])["out/0"]
        np.testing.assert_allclose(found, mlp.predict_job(images[0]), rtol=1e-4, atol=1e-5)
    finally:
        own.close()
        SESSION.reset(token)


def test_init_gives_the_first_state(tmp_path):
    train_job, _ = define()
    train_job.export(tmp_path / "b")
    held = load_file(tmp_path / "b" / "weights.safetensors")
    session = ort.InferenceSession(tmp_path / "b" / "init.onnx")
    made = dict(zip([o.name for o in session.get_outputs()], session.run(None, {}), strict=True))
    assert made.keys() == held.keys()
    for name, value in made.items():
        np.testing.assert_array_equal(value, held[name])


def test_manifest(tmp_path):
    train_job, predict_job = define()
    train_job.export(tmp_path / "b", predict=[predict_job], metadata={"data": "digits"})
    facts = json.loads((tmp_path / "b" / "manifest.json").read_text())
    assert facts["producer"] == f"flow2onnx {flow.__version__}"
    assert (facts["job"], facts["opset"], facts["losses"]) == ("train_job", 21, ["out/0"])
    assert [f["name"] for f in facts["feeds"]] == ["images", "labels"]
    state = {s["name"]: (s["role"], s["trainable"]) for s in facts["state"]}
    assert state["hidden-weight"] == ("variable", True)
    assert state["hidden-weight-momentum"] == ("slot", True)
    assert state["System-Train-TrainStep-train_job"] == ("counter", True)
    assert facts["predict"][0]["holds"] == [
        "hidden-weight", "hidden-bias", "output-weight", "output-bias",
    ]  # fmt: skip
    assert facts["metadata"]["data"] == "digits"


def test_predict_model_runs_by_itself(tmp_path):
    train_job, predict_job = define()
    train_job(*batch())
    train_job.export(tmp_path / "b", predict=predict_job)
    images, _ = batch(1)
    want = predict_job(images)
    alone = ort.InferenceSession(tmp_path / "b" / "predict.onnx").run(None, {"images": images})[0]
    np.testing.assert_allclose(alone, want, rtol=1e-5, atol=1e-6)
    found = Predictor(tmp_path / "b")(images)["out/0"]
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


def test_several_predict_jobs(tmp_path):
    train_job, _ = define()

    @flow.global_function(type="predict")
    def hidden(x: tp.Numpy.Placeholder((2, 9))) -> tp.Numpy:
        w = flow.get_variable(
            "hidden-weight", (8, 9), initializer=flow.random_normal_initializer(stddev=0.3)
        )
        extra = flow.get_variable("extra", (8,), initializer=flow.ones_initializer())
        return flow.matmul(x, w, transpose_b=True) + extra

    report = train_job.export(tmp_path / "b", predict=["predict_job", hidden])
    assert report.ok, str(report)
    trainer = Trainer(tmp_path / "b")
    x = np.ones((2, 9), np.float32)
    trainer.step(*batch())
    train_job(*batch())
    found = trainer.predict(x, job="hidden")["out/0"]
    np.testing.assert_allclose(found, hidden(x), rtol=1e-5, atol=1e-6)
    state = {s.name: s.trainable for s in trainer.manifest.state}
    assert state["extra"] is False
    assert (tmp_path / "b" / "predict-hidden.onnx").exists()


def test_a_loss_that_is_no_result_is_shown(tmp_path):
    @flow.global_function(type="train")
    def train(x: tp.Numpy.Placeholder((4, 3))) -> None:
        w = flow.get_variable("w", (3, 2), initializer=flow.ones_initializer())
        loss = flow.math.square(flow.matmul(x, w))
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(loss)

    assert train.export(tmp_path / "b").ok
    trainer = Trainer(tmp_path / "b", finite_losses=True)
    assert trainer.manifest.losses == ("loss/0",)
    assert trainer.step(np.ones((4, 3), np.float32))["loss/0"].shape == (4, 2)


def test_another_batch(tmp_path):
    train_job, predict_job = define()
    assert train_job.export(tmp_path / "b", predict=predict_job, batch=2).ok
    images, labels = batch()
    trainer = Trainer(tmp_path / "b")
    assert trainer.step(images[:2], labels[:2])["out/0"].shape == (2,)
    assert trainer.predict(images[:2])["out/0"].shape == (2, 4)


def test_an_earlier_bundle_is_replaced(tmp_path):
    train_job, predict_job = define()
    train_job.export(tmp_path / "b", predict=predict_job)
    train_job(*batch())
    train_job.export(tmp_path / "b")
    assert sorted(p.name for p in (tmp_path / "b").iterdir()) == FILES
    assert Trainer(tmp_path / "b").steps == 1


def test_an_empty_folder_is_filled(tmp_path):
    (tmp_path / "b").mkdir()
    assert define()[0].export(tmp_path / "b").ok


@pytest.mark.skipif(newest_opset() < 23, reason="the installed onnxruntime takes no opset 23")
def test_opset_without_random_kernels(tmp_path):
    train_job, _ = define()
    with pytest.raises(UnsupportedError, match="opset=21"):
        train_job.export(tmp_path / "b", opset=23)
    assert not list(tmp_path.iterdir())
    assert train_job.export(tmp_path / "b", opset=19).ok
    assert describe(tmp_path / "b")["opset"] == 19


def test_folders_that_are_not_ours_are_kept(tmp_path):
    train_job, _ = define()
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("x")
    with pytest.raises(BundleError, match="no bundle"):
        train_job.export(foreign)
    train_job.export(tmp_path / "b", verify=False)
    (tmp_path / "b" / "notes.txt").write_text("x")
    with pytest.raises(BundleError, match=r"notes\.txt.*would be lost"):
        train_job.export(tmp_path / "b")
    assert (foreign / "thesis.tex").exists()
    assert (tmp_path / "b" / "notes.txt").exists()


def test_a_failure_keeps_the_earlier_bundle(tmp_path, monkeypatch):
    train_job, _ = define()
    train_job.export(tmp_path / "b", verify=False)
    before = (tmp_path / "b" / "manifest.json").read_bytes()

    def fail(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bundle, "_manifest", fail)
    with pytest.raises(BundleError, match="No space left"):
        train_job.export(tmp_path / "b")
    assert (tmp_path / "b" / "manifest.json").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["b"]


def test_wrong_options(tmp_path):
    train_job, predict_job = define()
    (tmp_path / "file").write_text("x")
    for error, words, path, options in [
        (ArgumentError, "becomes a folder", "m.onnx", {}),
        (JobError, "the session has train_job, predict_job", "b", {"predict": "predict"}),
        (ArgumentError, "is a train job", "b", {"predict": train_job}),
        (ArgumentError, "twice", "b", {"predict": [predict_job, "predict_job"]}),
        (ArgumentError, "no job", "b", {"predict": 3}),
        (ArgumentError, "weights is for predict jobs", "b", {"weights": "x"}),
        (BundleError, "is a file", "file", {}),
        (BundleError, "folder", "missing/b", {}),
    ]:
        with pytest.raises(error, match=words):
            train_job.export(tmp_path / path, **options)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_job_of_another_session(tmp_path):
    train_job, _ = define()
    token = SESSION.set(Session())
    _, stranger = define()
    SESSION.reset(token)
    with pytest.raises(ArgumentError, match="another session"):
        train_job.export(tmp_path / "b", predict=stranger)


def test_dropout_is_in_the_step_alone(tmp_path):
    train_job, predict_job = define(with_dropout=True)
    report = train_job.export(tmp_path / "b", predict=predict_job)
    assert report.ok, str(report)
    facts = describe(tmp_path / "b")["models"]
    assert "Dropout" in facts["step.onnx"]["nodes"]
    assert "Dropout" not in facts["predict.onnx"]["nodes"]
    assert any("Dropout ×1" in row.detail for row in report.rows if "randomness" in row.check)
    assert BATCH == 6


def test_an_option_of_the_other_kind_may_have_its_default(tmp_path):
    train_job, predict_job = define()
    train_job.export(tmp_path / "b", verify=False, weights="inside", dynamic_batch=False)
    predict_job.export(tmp_path / "m.onnx", verify=False, predict=None, on_device=False)
