"""Bundles on the Hugging Face hub, by the real client and a local server."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from flow2onnx_runtime import Trainer, load_safetensors

from tests.integrations.hub_server import Hub
from tests.integrations.page import ROOT, data, needs

pytestmark = [pytest.mark.slow, needs("huggingface_hub")]


@pytest.fixture
def hub():
    server = Hub()
    yield server
    server.close()


@pytest.fixture
def asked(hub, folder):
    """A function that runs a program in a process whose hub is the local server."""

    def run(program):
        paths = os.pathsep.join([str(ROOT), str(ROOT / "runtime" / "python")])
        places = {"HF_ENDPOINT": hub.url, "HF_HOME": str(folder / "home"), "HF_TOKEN": "hf_local",
                  "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1",
                  "HF_HUB_DISABLE_PROGRESS_BARS": "1", "NO_PROXY": "127.0.0.1",
                  "PYTHONPATH": paths}  # fmt: skip
        return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                              cwd=folder, env={**os.environ, **places})  # fmt: skip

    return run


PUSH = """
from flow2onnx.integrations.hub import push
from flow2onnx_runtime import Trainer
trainer = Trainer("bundle")
trainer.load("state.safetensors")
print(push("bundle", "somebody/digits", state=trainer, license="apache-2.0", tags=["digits"]))
"""
PULL = """
from flow2onnx.integrations.hub import pull
print(pull("somebody/digits", "there"))
"""


def trained():
    rows = data()
    trainer = Trainer("bundle")
    trainer.fit((rows["x"], rows["labels"]), 2, batch_size=16)
    trainer.save("state.safetensors")
    return trainer


def test_a_bundle_goes_there_and_back(asked, hub, folder):
    trainer = trained()
    done = asked(PUSH)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("/commit/0123456789abcdef0123456789abcdef01234567")
    files = hub.repositories["somebody/digits"]
    assert {"README.md", "config.json", "manifest.json", "model.safetensors", "step.onnx",
            "state.safetensors"} <= files.keys()  # fmt: skip
    card = files["README.md"].decode()
    assert card.startswith("---\n")
    assert "library_name: flow2onnx" in card
    assert "license: apache-2.0" in card
    assert json.loads(files["config.json"])["feeds"]["x"]["dtype"] == "float32"
    (folder / "w.safetensors").write_bytes(files["model.safetensors"])
    weights, _ = load_safetensors(folder / "w.safetensors")
    state = trainer.state_dict()
    assert weights.keys() == {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"}
    for name, array in weights.items():
        np.testing.assert_array_equal(array, state[name])

    done = asked(PULL)
    assert done.returncode == 0, done.stderr
    again = Trainer(done.stdout.strip())
    again.load(folder / "there" / "state.safetensors")
    rows = data()
    (wanted,), (found,) = (t.predict(rows["held_x"]).values() for t in (trainer, again))
    np.testing.assert_array_equal(found, wanted)


def test_a_second_push_removes_what_the_first_left(asked, hub):
    trained()
    assert asked(PUSH).returncode == 0
    hub.repositories["somebody/digits"] |= {"predict-old.onnx": b"x", "notes.txt": b"y"}
    done = asked(PUSH.replace("state=trainer, ", ""))
    assert done.returncode == 0, done.stderr
    files = hub.repositories["somebody/digits"]
    assert "predict-old.onnx" not in files
    assert "state.safetensors" not in files
    assert files["notes.txt"] == b"y"


def test_what_was_changed_on_the_way_is_refused(asked, hub):
    trained()
    assert asked(PUSH).returncode == 0
    files = hub.repositories["somebody/digits"]
    files["step.onnx"] = files["step.onnx"][:-1] + b"?"
    done = asked(PULL)
    assert "BundleError" in done.stderr
    assert "step.onnx" in done.stderr


def test_a_repository_without_a_bundle_is_refused(asked, hub):
    hub.repositories["somebody/digits"] = {"README.md": b"nothing"}
    done = asked(PULL)
    assert "holds no bundle" in done.stderr


def test_the_page_as_pasted(asked, hub):
    trained()
    text = (ROOT / "docs" / "integrations.md").read_text("utf-8")
    block = text.partition("## Hugging Face hub")[2].partition("```python\n")[2].partition("```")[0]
    first = "from flow2onnx_runtime import Trainer\ntrainer = Trainer('bundle')\n"
    done = asked(f"{first}{block}\nassert again.steps == trainer.steps")
    assert done.returncode == 0, done.stderr


def test_nothing_is_sent_of_a_damaged_bundle(asked, hub, folder):
    trained()
    (folder / "bundle" / "step.onnx").write_bytes(b"?")
    done = asked(PUSH.replace('trainer = Trainer("bundle")\ntrainer.load("state.safetensors")', "")
                 .replace("state=trainer, ", ""))  # fmt: skip
    assert "BundleError" in done.stderr
    assert not hub.commits
    assert not hub.repositories
