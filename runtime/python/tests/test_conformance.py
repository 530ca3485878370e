"""The recorded traces of the conformance bundles, reproduced."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from flow2onnx_runtime import BundleError, Options, Trainer, kernels, load_safetensors

FOLDER = Path(__file__).parents[2] / "conformance"
BUNDLES = ["lenet", "mixed", "mlp", "named", "transformer"]
OPTIONS = Options(intra_op_threads=1)


def trace_of(name):
    if name == "named" and not kernels().supports("Cos", 21, {"T": "float64"}):
        pytest.skip("its schedule takes Cos in float64, of which this onnxruntime has no kernel")
    trace = json.loads((FOLDER / name / "trace.json").read_text())
    assert (trace["format"], trace["version"]) == ("flow2onnx-trace", 1)
    return trace["actions"], trace["tolerance"]


def close(found, wanted, tolerance, where):
    found = np.asarray(found, np.float64).ravel()[: len(wanted)]
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance, err_msg=where)


class Runner:
    """Does the actions of a trace and compares what comes of them."""

    def __init__(self, name, options, saved):
        self.trainer = Trainer(FOLDER / name / "bundle", options)
        self.feeds, _ = load_safetensors(FOLDER / name / "feeds.safetensors")
        self.saved = saved

    def run(self, actions, tolerance):
        for number, action in enumerate(actions):
            results = getattr(self, action["do"])(action) or {}
            assert results.keys() == action.get("results", {}).keys()
            for name, values in action.get("results", {}).items():
                where = f"action {number}, {action['do']}: {name}"
                close(results[name], values, tolerance, where)

    def batch(self, action, wanted):
        return {f.name: self.feeds[f.name][action["batch"]] for f in wanted}

    def step(self, action):
        return self.trainer.step(**self.batch(action, self.trainer.feeds))

    def evaluate(self, action):
        return self.trainer.evaluate(**self.batch(action, self.trainer.feeds))

    def accumulate(self, action):
        return self.trainer.accumulate(**self.batch(action, self.trainer.feeds))

    def predict(self, action):
        return self.trainer.predict(**self.batch(action, self.trainer.manifest.predict[0].feeds))

    def update(self, action):
        self.trainer.update()

    def rate(self, action):
        self.trainer.learning_rate = action["value"]

    def freeze(self, action):
        self.trainer.freeze(*action["names"])

    def save(self, action):
        self.trainer.save(self.saved)

    def load(self, action):
        self.trainer.load(self.saved)


@pytest.mark.parametrize("optimization", ["all", "disable"])
@pytest.mark.parametrize("name", BUNDLES)
def test_trace(name, optimization, tmp_path):
    actions, tolerance = trace_of(name)
    options = Options(intra_op_threads=1, optimization=optimization)
    runner = Runner(name, options, tmp_path / "between.safetensors")
    runner.run(actions, tolerance)
    final, metadata = load_safetensors(FOLDER / name / "state.safetensors")
    assert metadata["steps"] == str(runner.trainer.steps)
    found = runner.trainer.state_dict()
    assert found.keys() == final.keys()
    for key, values in final.items():
        close(found[key], values.ravel().astype(np.float64), tolerance, key)


@pytest.mark.parametrize("name", BUNDLES)
def test_the_recorded_state_is_one_to_go_on_from(name):
    actions, _ = trace_of(name)
    trainer = Trainer(FOLDER / name / "bundle", OPTIONS)
    trainer.load(FOLDER / name / "state.safetensors")
    assert 0 < trainer.steps <= sum(a["do"] in ("step", "update") for a in actions) <= 100


def test_training_learns_something():
    for name in BUNDLES:
        steps = [a["results"] for a in trace_of(name)[0] if a["do"] == "step"]
        first, last = (np.mean(next(iter(steps[i].values()))) for i in (0, -1))
        assert last < first / 4, name


def test_every_bundle_is_run():
    assert sorted(p.parent.name for p in FOLDER.glob("*/trace.json")) == BUNDLES


def test_all_is_small():
    size = sum(p.stat().st_size for p in FOLDER.rglob("*") if p.is_file())
    assert size < 2_000_000


@pytest.mark.parametrize("name", BUNDLES)
def test_a_bundle_with_one_bit_changed_is_refused(name, tmp_path):
    notes = {"README.md", "required_operators.config"}
    for file in sorted({p.name for p in (FOLDER / name / "bundle").iterdir()} - notes):
        copy = tmp_path / file.replace(".", "_")
        shutil.copytree(FOLDER / name / "bundle", copy)
        content = bytearray((copy / file).read_bytes())
        content[len(content) // 2] ^= 1
        (copy / file).write_bytes(content)
        with pytest.raises(BundleError):
            Trainer(copy, OPTIONS)
