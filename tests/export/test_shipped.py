"""The whole way: export, an environment with nothing but the runtime, training that is killed."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import flow2onnx as flow
from flow2onnx.engine.session import SESSION, Session
from models import lenet

ROOT = Path(__file__).parents[2]
EPOCHS, KILLS, SEED = 15, 50, 7
_SAVE = 0.04  # seconds that a save takes, about

# Trains from the saved state on, saving after every step; says so before each save.
SCRIPT = """
import importlib.util, os, sys
import numpy as np
from flow2onnx_runtime import Options, Trainer
for package in ("flow2onnx", "onnx", "onnx_ir", "sklearn"):
    assert importlib.util.find_spec(package) is None, package
bundle, digits, saved, epochs = sys.argv[1:]
data = np.load(digits)
images, labels = data["images"], data["labels"]
trainer = Trainer(bundle, Options(intra_op_threads=1))
if os.path.exists(saved):
    trainer.load(saved)
total = int(epochs) * len(images)
order = np.concatenate(
    [np.random.default_rng(e).permutation(len(images)) for e in range(int(epochs))]
)
while trainer.steps < total:
    i = order[trainer.steps]
    trainer.step(images[i], labels[i])
    print("saving", trainer.steps, flush=True)
    trainer.save(saved)
tests, answers = data["tests"], data["answers"]
found = [trainer.predict(x)["out/0"].argmax(1) for x in tests]
print("accuracy", np.mean(np.stack(found) == answers), flush=True)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """A Python with the runtime and onnxruntime, and nothing else of ours."""
    folder = tmp_path_factory.mktemp("device")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    python = folder / "venv" / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, f"{copied(folder)}[cpu]"], check=True, cwd=folder)
    return python


def copied(folder):
    """The runtime's sources in a place of their own: building leaves files among them."""
    leftovers = shutil.ignore_patterns("build", "*.egg-info", ".*_cache", "__pycache__")
    return shutil.copytree(ROOT / "runtime" / "python", folder / "python", ignore=leftovers)


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """The bundle of the documentation's LeNet, dropout included, and the digits."""
    folder = tmp_path_factory.mktemp("shipped")
    own = Session()
    patch = pytest.MonkeyPatch()
    for job in (lenet.train_job, lenet.predict_job):
        own.define(job.spec)
        patch.setattr(job, "session", own)
    token = SESSION.set(own)
    try:
        lenet.train_job.export(folder / "b", predict="predict_job", on_device=True, verify=False)
    finally:
        own.close()
        SESSION.reset(token)
        patch.undo()
    (images, labels), (tests, answers) = flow.data.load_mnist(100)
    np.savez(folder / "digits.npz", images=images, labels=labels, tests=tests, answers=answers)
    return folder


def start(python, shipped, saved, epochs):
    """The training as a process; its environment shows it nothing of this repository."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.Popen(
        [str(python), "-c", SCRIPT, str(shipped / "b"), str(shipped / "digits.npz"), str(saved),
         str(epochs)],
        stdout=subprocess.PIPE, text=True, env=environment, cwd=shipped,
    )  # fmt: skip


def finish(process):
    out, _ = process.communicate(timeout=600)
    assert process.returncode == 0, out
    return float(out.split()[-1])


@pytest.mark.slow
def test_killed_training_ends_where_an_undisturbed_one_does(python, shipped, tmp_path):
    assert finish(start(python, shipped, tmp_path / "whole", EPOCHS)) >= 0.97
    rng, resumed, torn = random.Random(SEED), [], 0
    saved = tmp_path / "killed"
    for _ in range(KILLS):
        with start(python, shipped, saved, EPOCHS) as process:
            for _ in range(rng.randint(1, 4)):
                line = process.stdout.readline()
            assert line.startswith("saving"), line
            resumed.append(int(line.split()[1]))
            time.sleep(rng.uniform(0, _SAVE))
            process.send_signal(signal.SIGKILL)
        torn += any(path.suffix == ".tmp" for path in tmp_path.iterdir())
    assert torn > 0, "no kill came in the middle of a save"
    finish(start(python, shipped, saved, EPOCHS))
    assert saved.read_bytes() == (tmp_path / "whole").read_bytes()
    assert resumed == sorted(resumed)
    leftovers = [p.name for p in tmp_path.iterdir() if p.name not in ("whole", "killed")]
    assert not leftovers


@pytest.mark.slow
def test_the_wheel_is_small(tmp_path):
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"]
    subprocess.run([*pip, str(tmp_path / "dist"), str(copied(tmp_path))], check=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    assert wheel.stat().st_size < 320_000  # all is Python, JavaScript and one table of kernels
