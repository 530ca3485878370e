"""Every example runs as its own text says, and the accuracies of the front page hold."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from flow2onnx.data.mnist import load_mnist

ROOT = Path(__file__).parents[1]
EXAMPLES = {p.stem for p in (ROOT / "examples").glob("*.py")}
# modules of the examples that are no example themselves
SHARED = {"training"}
IN_THE_GALLERY = pytest.mark.slow  # `make docs`, a step of CI, runs them for its pages


def run(*arguments, cwd=ROOT):
    """The output of a Python process at the root of the repository."""
    paths = [str(ROOT), str(ROOT / "runtime" / "python"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(paths)),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture(autouse=True, scope="module")
def digits_file(tmp_path_factory):
    """The digits as MNIST's file, which spares every process the import of scikit-learn."""
    arrays = {}
    for part, (images, labels) in zip(("train", "test"), load_mnist(1, 1), strict=True):
        pixels = np.rint(255 * images.reshape(-1, 28, 28))
        arrays |= {f"x_{part}": pixels.astype(np.uint8), f"y_{part}": labels.ravel()}
    path = tmp_path_factory.mktemp("digits") / "mnist.npz"
    np.savez(path, **arrays)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLOW2ONNX_MNIST", str(path))
        yield


def number(pattern, text):
    found = re.search(pattern, text)
    assert found, text
    return float(found.group(1))


def test_generation_a():
    assert number(r"test accuracy: ([\d.]+)%", run("-m", "examples.generation_a")) >= 95


@pytest.mark.parametrize(
    "name", ["generation_b", pytest.param("generation_c", marks=IN_THE_GALLERY)]
)
def test_callback_comes_last(name):
    out = run("-m", f"examples.{name}")
    losses = [float(x) for x in re.findall(r"^[\d.]+$", out, re.MULTILINE)]
    assert number(r"last loss: ([\d.]+)", out) < losses[0] / 4


def test_generation_b_named():
    # one pass over fourteen batches, of which the first is shown
    out = run("-m", "examples.generation_b_named")
    (shown,) = re.findall(r"^[\d.]+$", out, re.MULTILINE)
    assert 2 < float(shown) < 8


def test_mlp_and_its_export(tmp_path):
    out = run("-m", "examples.mlp_digits", "--out", tmp_path)
    assert number(r"test accuracy\D+([\d.]+)%", out) >= 95
    assert (tmp_path / "mlp_loss.png").read_bytes().startswith(b"\x89PNG")
    # the script refuses to run beside the compiler, so it is told that there is none
    blind = (
        "import importlib.util, runpy, sys; sys.argv[1:] = {!r}; find = importlib.util.find_spec; "
        "importlib.util.find_spec = lambda n, *a: None if n in ('flow2onnx', 'onnx', 'onnx_ir') "
        "else find(n, *a); runpy.run_path('examples/use_export.py', run_name='__main__'); "
        "assert not [m for m in sys.modules if m.split('.')[0] in ('flow2onnx', 'onnx', 'onnx_ir')]"
    ).format([str(tmp_path / name) for name in ("mlp.onnx", "mlp_bundle", "digits.npz")])
    used = run("-c", blind)
    assert number(r"accuracy of \S+: ([\d.]+)%", used) >= 95
    assert "from step 420 to 423" in used


@pytest.mark.slow
def test_lenet(tmp_path):
    out = run("-m", "examples.lenet_digits", "--out", tmp_path)
    assert number(r"test accuracy\D+([\d.]+)%", out) >= 97
    assert (tmp_path / "lenet_loss.png").read_bytes().startswith(b"\x89PNG")


@IN_THE_GALLERY
def test_federated():
    out = run("-m", "examples.federated", "--rounds", "6")
    together = number(r"accuracy of the average: ([\d.]+)%", out)
    assert together >= 93
    assert together > number(r"accuracy of the first device alone: ([\d.]+)%", out)


def test_use_export_refuses_to_run_beside_the_compiler(tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "use_export.py", "a", "b", "c"],
        env=dict(os.environ, PYTHONPATH=os.pathsep.join([str(ROOT), str(ROOT / "runtime/python")])),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "flow2onnx is installed here" in done.stderr


def test_the_digits_are_real(monkeypatch):
    monkeypatch.delenv("FLOW2ONNX_MNIST")
    (images, labels), (tests, _) = load_mnist(100)
    assert images.shape == (14, 100, 1, 28, 28)
    assert tests.shape == (3, 100, 1, 28, 28)
    assert np.bincount(labels.ravel(), minlength=10).min() > 100


def test_every_example_is_tested():
    tested = set(
        re.findall(r"(?:examples\.|\"|examples/)(\w+?)(?:\.py)?[\"']", Path(__file__).read_text())
    )
    assert tested >= EXAMPLES - SHARED


@pytest.mark.slow
def test_finetune(tmp_path):
    """Torch pretrains and exports; the compiler prepares; the runtime alone trains on."""
    pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    model, bundle, tuned = (tmp_path / name for name in ("digits.onnx", "bundle", "tuned"))
    run("-m", "examples.finetune.pretrain", model)
    out = run("-m", "examples.finetune.prepare", model, bundle)
    assert re.search(r"features\.0\.weight +frozen", out)
    assert re.search(r"head\.weight +trained", out)
    out = run(
        "-c",
        "import importlib.abc, runpy, sys\n"
        "class Absent(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name.partition('.')[0] in ('flow2onnx', 'onnx', 'onnx_ir', 'torch'):\n"
        "            raise ImportError(name + ' is not for the device')\n"
        "sys.meta_path.insert(0, Absent())\n"
        f"sys.argv = {['finetune.py', *map(str, (bundle, model.with_suffix('.npz'), tuned))]!r}\n"
        "runpy.run_path('examples/finetune/finetune.py', run_name='__main__')",
    )
    assert number(r"before: ([\d.]+)%", out) < 20
    after = number(r"after: ([\d.]+)%", out)
    assert after >= 90
    assert number(r"file: ([\d.]+)%", out) == after
