"""Bundles: manifests, trainers, predictors, saved states, and everything that can be wrong."""

import dataclasses
import json
import os
import random
import shutil
import signal
import threading

import numpy as np
import pytest

from flow2onnx_runtime import (
    BundleError,
    FeedError,
    FileEntry,
    Manifest,
    NonFiniteError,
    Options,
    Predictor,
    StateError,
    StateSpec,
    TensorSpec,
    Trainer,
    load_safetensors,
    save_safetensors,
)
from flow2onnx_runtime.digest import NO_DIGEST, sign

OPTIONS = Options(intra_op_threads=1)
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def batch(seed):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((4, 3), np.float32), rng.standard_normal((4, 1), np.float32)


def train(trainer, steps, first=0):
    return [float(trainer.step(*batch(first + i))["loss"]) for i in range(steps)]


def prediction(state, x=X):
    return x @ state["w"] + state["b"]


def assert_same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name])


def test_training_resumes_bit_for_bit(bundle, tmp_path):
    whole, first = Trainer(bundle, OPTIONS), Trainer(bundle, OPTIONS)
    losses = train(whole, 9)
    assert train(first, 4) == losses[:4]
    first.save(tmp_path / "state.safetensors")
    second = Trainer(bundle, OPTIONS)
    second.load(tmp_path / "state.safetensors")
    assert second.steps == 4
    assert train(second, 5, first=4) == losses[4:]
    assert_same(second.state_dict(), whole.state_dict())
    assert whole.steps == 9
    assert losses[-1] != losses[0]


def test_arrays_by_position_and_by_name(bundle):
    trainer = Trainer(bundle, OPTIONS)
    x, y = batch(0)
    expected = trainer.evaluate(x, y)
    assert trainer.evaluate(y=y, x=x) == trainer.evaluate(x, y=y) == expected
    assert [feed.name for feed in trainer.feeds] == ["x", "y"]
    with pytest.raises(FeedError, match="takes 2 arrays"):
        trainer.step(x)


def test_evaluation_changes_nothing(bundle):
    trainer = Trainer(bundle, OPTIONS)
    before = trainer.state_dict()
    assert trainer.evaluate(*batch(0)) == trainer.step(*batch(0))
    trainer.load_state_dict(before)
    trainer.evaluate(*batch(0))
    assert_same(trainer.state_dict(), before)
    assert trainer.steps == 0


@pytest.mark.parametrize("job", [None, "predict_job", "baked_job"])
def test_prediction_follows_training(bundle, job):
    trainer = Trainer(bundle, OPTIONS)
    for start in (0, 3, 5):
        found = trainer.predict(X, job=job)["z"]
        np.testing.assert_allclose(found, prediction(trainer.state_dict()), rtol=1e-5)
        np.testing.assert_array_equal(trainer.predict(x=X, job=job)["z"], found)
        train(trainer, 2, first=start)
    trainer.load_state_dict({n: v + 1 for n, v in trainer.state_dict().items()})
    found = trainer.predict(X, job=job)["z"]
    np.testing.assert_allclose(found, prediction(trainer.state_dict()), rtol=1e-5)


def test_prediction_follows_single_values(bundle):
    trainer = Trainer(bundle, OPTIONS)
    trainer.predict(X, job="baked_job")
    trainer.state.write("w", 2 * trainer.state.read("w"))
    found = trainer.predict(X, job="baked_job")["z"]
    np.testing.assert_allclose(found, prediction(trainer.state_dict()), rtol=1e-5)


@pytest.mark.parametrize("job", [None, "baked_job"])
def test_predictors_of_a_bundle(bundle, job):
    predictor = Predictor(bundle, OPTIONS, job=job)
    np.testing.assert_allclose(
        predictor(X)["z"], prediction(Trainer(bundle, OPTIONS).state_dict()), rtol=1e-6
    )


def test_predictors_of_a_file_and_of_bytes(bundle, baked_model):
    path = bundle / "baked.onnx"
    for model in (path, str(path), baked_model):
        assert Predictor(model, OPTIONS)(x=X)["z"].shape == (2, 1)
    with pytest.raises(FeedError, match=r"baked.onnx has no input q|baked.onnx takes"):
        Predictor(path, OPTIONS)(q=X)


def test_threads_share_a_predictor_and_a_trainer(bundle):
    trainer = Trainer(bundle, OPTIONS)
    predictor, expected, wrong = Predictor(bundle, OPTIONS), prediction(trainer.state_dict()), []

    def work(number):
        for i in range(50):
            trainer.step(*batch(number * 50 + i))
            trainer.predict(X)
            if not np.allclose(predictor(X)["z"], expected):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert trainer.steps == 200


def test_a_loss_that_is_not_finite(bundle):
    trainer = Trainer(bundle, OPTIONS, finite_losses=True)
    train(trainer, 2)
    before = trainer.state_dict()
    x, y = batch(0)
    with pytest.raises(NonFiniteError, match=r"batch 3 is not finite at step 2.*\n.*train_job"):
        trainer.step(x, np.full_like(y, np.nan))
    assert_same(trainer.state_dict(), before)
    assert trainer.steps == 2
    assert np.isnan(Trainer(bundle, OPTIONS).step(x, np.full_like(y, np.nan))["loss"])


def test_weights_of_the_bundle_come_before_init(bundle):
    trainer = Trainer(bundle, OPTIONS)
    train(trainer, 3)
    save_safetensors(bundle / "weights.safetensors", trainer.state_dict())
    rewrite(bundle, weights="weights.safetensors", add=["weights.safetensors"])
    assert_same(Trainer(bundle, OPTIONS).state_dict(), trainer.state_dict())


def test_a_state_that_does_not_fit(bundle):
    trainer = Trainer(bundle, OPTIONS)
    before = trainer.state_dict()
    with pytest.raises(StateError, match="lacks w, m"):
        trainer.load_state_dict({"b": before["b"], "steps": before["steps"]})
    assert_same(trainer.state_dict(), before)


def test_saved_states_that_are_refused(bundle, tmp_path):
    trainer = Trainer(bundle, OPTIONS)
    train(trainer, 2)
    path = tmp_path / "s"
    trainer.save(path)
    values, metadata = load_safetensors(path)
    before = trainer.state_dict()
    cases = (
        (values, {}, "format is None, this trainer needs 'flow2onnx-state'"),
        (values, metadata | {"version": "1"}, "version is '1'"),
        (values, metadata | {"job": "other"}, "job is 'other'"),
        (values, metadata | {"state_id": "0"}, "state_id is '0'"),
        (values, metadata | {"steps": "-1"}, "steps is '-1'"),
        (values, metadata | {"steps": "3"}, "steps is 3, steps 2"),
        ({k: v for k, v in values.items() if k != "m"}, metadata, "lacks m; has .* nothing"),
        (values | {"q": values["b"]}, metadata, "lacks nothing; has .* q"),
        (values | {"b": values["m"]}, metadata, "b is float32 .*says float32"),
    )
    for tensors, head, says in cases:
        save_safetensors(path, tensors, head, signs=True)
        with pytest.raises(BundleError, match=says):
            trainer.load(path)
        assert_same(trainer.state_dict(), before)


def rewrite(bundle, add=(), **changes):
    manifest = Manifest.read(bundle, verify=False)
    names = [*manifest.files, *add]
    files = {name: FileEntry.of(bundle / name) for name in names}
    dataclasses.replace(manifest, files=files, **changes).write(bundle)


def test_a_manifest_is_read_as_written(bundle):
    manifest = Manifest.read(bundle)
    assert (manifest.job, manifest.counter, manifest.losses) == ("train_job", "steps", ("loss",))
    again = bundle.parent / "again"
    shutil.copytree(bundle, again)
    manifest.write(again)
    assert Manifest.read(again) == manifest
    assert (again / "manifest.json").read_bytes() == (bundle / "manifest.json").read_bytes()


def test_unknown_fields_are_ignored(bundle):
    edit(bundle, lambda m: m.update(later={"a": 1}))
    edit(bundle, lambda m: m["state"][0].update(later=1))
    assert Manifest.read(bundle).job == "train_job"


def test_the_state_id_is_of_names_shapes_and_dtypes(bundle):
    manifest = Manifest.read(bundle)
    turned = dataclasses.replace(manifest, state=manifest.state[::-1], producer="later")
    assert turned.state_id == manifest.state_id
    wider = dataclasses.replace(manifest, state=(*manifest.state, StateSpec("q", (1,), "float32")))
    assert wider.state_id != manifest.state_id


def edit(bundle, change):
    """Change the manifest, and make its digest that of the change."""
    path = bundle / "manifest.json"
    value = json.loads(path.read_text())
    change(value)
    text = json.dumps(value | {"digest": NO_DIGEST}, indent=1).encode() + b"\n"
    path.write_bytes(sign(text, text.index(b"0" * 64)))


def drop(*keys):
    def change(manifest):
        *path, last = keys
        for key in path:
            manifest = manifest[key]
        del manifest[last]

    return change


def put(value, *keys):
    def change(manifest):
        *path, last = keys
        for key in path:
            manifest = manifest[key]
        manifest[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (put("other", "format"), "manifest.json: format is 'other', not 'flow2onnx-bundle'"),
        (put(3, "version"), "version is 3; this runtime reads version 2"),
        (put("1", "version"), "version is text, not a whole number"),
        (put(True, "version"), "version is True"),
        (drop("job"), "manifest.json: job is missing"),
        (put("", "job"), "job is empty"),
        (put(0, "opset"), "opset is 0"),
        (put([], "files"), "files is a list, not an object"),
        (drop("files", "step.onnx"), "step is step.onnx, which is not in files"),
        (drop("files", "step.onnx", "size"), "files.'step.onnx'.: size is missing"),
        (put("../x", "step"), "which is not in files"),
        (put({"size": 1, "sha256": "0"}, "files", "../x"), "not a plain file name"),
        (put({"size": 1, "sha256": "0"}, "files", "C:x"), "not a plain file name"),
        (put("none.safetensors", "weights"), "weights is none.safetensors"),
        (put("x", "state"), "state is text, not a list"),
        (put(3, "state", 0), r"state\[0\]: is a number, not an object"),
        (drop("state", 1, "role"), r"state\[1\]: role is missing"),
        (put("king", "state", 1, "role"), "b has role king"),
        (put("counter", "state", 0, "role"), "one counter at most"),
        (put(1, "state", 1, "trainable"), "trainable is a number, not true or false"),
        (put(["N"], "state", 1, "shape"), "no symbolic dimensions"),
        (put([-1], "state", 1, "shape"), "shape holds -1"),
        (put([2**53], "state", 1, "shape"), "shape holds 9007199254740992"),
        (put(2**53, "files", "step.onnx", "size"), "size is 9007199254740992"),
        (put("\ud800", "job"), "manifest.json: not valid JSON: .*can't encode"),
        (put("\udfff", "state", 1, "name"), "manifest.json: not valid JSON: .*can't encode"),
        (put("w", "state", 1, "name"), "state names w twice"),
        (put("float8", "feeds", 0, "dtype"), "feeds: x has the unknown dtype float8"),
        (put(["acc"], "losses"), "losses names acc"),
        (put([1], "losses"), "losses is not a list of names"),
        (put(["q"], "predict", 0, "reads"), "predict job predict_job uses q"),
        (put("predict_job", "predict", 1, "job"), "predict names a job twice"),
        (put({"a": 1}, "metadata"), "metadata holds values that are not text"),
        (put([5, 3], "feeds", 0, "shape"), "step.onnx: its inputs are"),
        (put("cost", "results", 0, "name"), "losses names loss"),
        (put([2, 1], "state", 0, "shape"), "init.onnx: w is float32 .3, 1., the manifest says"),
        (drop("state", 2), "init.onnx: lacks nothing; has beyond the job's state m"),
    ],
)
def test_wrong_manifests_are_named(bundle, change, says):
    edit(bundle, change)
    with pytest.raises(BundleError, match=says):
        Trainer(bundle, OPTIONS)


def test_changed_files_are_refused(bundle):
    for name in ("init.onnx", "step.onnx", "predict.onnx"):
        content = (bundle / name).read_bytes()
        (bundle / name).write_bytes(content[:-1] + b"\x16")
        with pytest.raises(
            BundleError, match=rf"{name}: has .* bytes .*\n.*was changed or cut off"
        ):
            Trainer(bundle, OPTIONS)
        (bundle / name).unlink()
        with pytest.raises(BundleError, match=rf"{name}: cannot be read"):
            Trainer(bundle, OPTIONS)
        (bundle / name).write_bytes(content)
    Trainer(bundle, OPTIONS)


def test_no_bundle(tmp_path):
    with pytest.raises(
        BundleError, match=r"manifest.json: cannot be read.*\n.*a bundle is a folder"
    ):
        Trainer(tmp_path, OPTIONS)


def test_damaged_manifests_never_crash(bundle):
    path, random_ = bundle / "manifest.json", random.Random(5)
    content = path.read_bytes()
    for size in random_.sample(range(len(content) - 1), 100):
        path.write_bytes(content[:size])
        with pytest.raises(BundleError):
            Manifest.read(bundle)
    for _ in range(300):
        damaged = bytearray(content)
        damaged[random_.randrange(len(damaged))] = random_.randrange(256)
        path.write_bytes(damaged)
        try:
            Manifest.read(bundle)
        except BundleError:
            continue


def test_models_that_contradict_the_manifest(bundle):
    shutil.copy(bundle / "baked.onnx", bundle / "init.onnx")
    rewrite(bundle)
    with pytest.raises(BundleError, match=r"init.onnx has inputs"):
        Trainer(bundle, OPTIONS)
    spec = TensorSpec("x", ("N", 3), "float32")
    assert spec in Manifest.read(bundle).predict[0].feeds


def test_predict_jobs_that_are_not_there(bundle):
    with pytest.raises(BundleError, match=r"no predict job q\n.*predict_job, baked_job"):
        Predictor(bundle, OPTIONS, job="q")
    rewrite(bundle, predict=())
    with pytest.raises(BundleError, match="holds no predict model"):
        Trainer(bundle, OPTIONS).predict(X)


def test_a_bundle_without_counter_still_counts(bundle, tmp_path, onnx_model):
    manifest = Manifest.read(bundle)
    state = tuple(dataclasses.replace(s, role="slot") for s in manifest.state)
    rewrite(bundle, state=state)
    trainer = Trainer(bundle, OPTIONS)
    train(trainer, 3)
    trainer.save(tmp_path / "s")
    again = Trainer(bundle, OPTIONS)
    again.load(tmp_path / "s")
    assert trainer.steps == again.steps == 3


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_finds_a_loaded_state_with_its_steps(bundle, tmp_path, monkeypatch):
    manifest = Manifest.read(bundle)
    rewrite(bundle, state=tuple(dataclasses.replace(s, role="slot") for s in manifest.state))
    trainer, again = Trainer(bundle, OPTIONS), Trainer(bundle, OPTIONS)
    train(trainer, 3)
    trainer.save(tmp_path / "s")
    from_dict = again.state.from_dict

    def interrupted(values):
        from_dict(values)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(again.state, "from_dict", interrupted)
    with pytest.raises(KeyboardInterrupt):
        again.load(tmp_path / "s")
    assert again.steps == 3
    assert_same(again.state_dict(), trainer.state_dict())
