"""An old script and an old checkpoint directory: trained on, exported, verified."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from flow2onnx_runtime import Predictor

from flow2onnx.data.mnist import load_mnist

SCRIPT = Path(__file__).parents[2] / "examples" / "old_program" / "train.py"
LAYERS = {"hidden": (64, 784), "output": (10, 64)}
FIRST = re.compile(r"step 0 loss ([\d.]+)")
LAST = re.compile(r"step 13 loss ([\d.]+)")
WARNINGS = pytest.mark.filterwarnings("ignore:flow.global_function:DeprecationWarning")


def old_values():
    """Weights and momenta that a perceptron of the script might hold after a few steps."""
    random = np.random.default_rng(5)
    values = {}
    for layer, shape in LAYERS.items():
        weight = (random.standard_normal(shape) * 0.05).astype("<f4")
        bias = np.zeros(shape[0], "<f4")
        for kind, value in (("weight", weight), ("bias", bias)):
            values[f"{layer}-{kind}"] = value
            values[f"{layer}-{kind}-momentum"] = np.zeros_like(value)
    values["System-Train-TrainStep-train_job"] = np.array([20], "<i8")
    return values


def write_as_oneflow(folder, values, *, has_meta):
    """The directory as OneFlow lays it out; releases before 0.3 wrote no `meta`."""
    for name, value in values.items():
        home = folder / name
        home.mkdir(parents=True)
        value.tofile(home / "out")
        if has_meta:
            dims = " ".join(f"dim: {d}" for d in value.shape)
            kind = "kInt64" if value.dtype.kind == "i" else "kFloat"
            (home / "meta").write_text(f"shape {{ {dims} }} data_type: {kind}")
    (folder / "snapshot_done").touch()


def first_loss(values):
    """The mean loss of the first batch, computed by hand."""
    (images, labels), _ = load_mnist(100)
    hidden = images[0].reshape(100, -1) @ values["hidden-weight"].T + values["hidden-bias"]
    logits = np.maximum(hidden, 0) @ values["output-weight"].T + values["output-bias"]
    logits -= logits.max(1, keepdims=True)
    chosen = logits[np.arange(100), labels[0]] - np.log(np.exp(logits).sum(1))
    return -chosen.mean()


@WARNINGS
@pytest.mark.parametrize("has_meta", [False, True])
def test_training_continues_from_an_old_checkpoint(flow2onnx, folder, has_meta):
    values = old_values()
    write_as_oneflow(folder / "old", values, has_meta=has_meta)
    result = flow2onnx("run", SCRIPT, "--load", "old", "--save", "new")
    assert result.exit_code == 0, result.output
    assert float(FIRST.search(result.stdout).group(1)) == pytest.approx(
        first_loss(values), rel=1e-4
    )
    assert float(LAST.search(result.stdout).group(1)) < first_loss(values) / 2
    step = np.fromfile(folder / "new" / "System-Train-TrainStep-train_job" / "out", "<i8")
    assert step.tolist() == [34]
    assert {p.name for p in (folder / "new").iterdir()} == {*values, "snapshot_done"}


@WARNINGS
def test_the_predict_model_of_a_continued_training(flow2onnx, folder):
    write_as_oneflow(folder / "old", old_values(), has_meta=False)
    assert flow2onnx("run", SCRIPT, "--load", "old", "--save", "new").exit_code == 0
    exported = flow2onnx(
        "export",
        f"{SCRIPT}:predict_job",
        "-o",
        "mlp.onnx",
        "--checkpoint",
        "new",
        "--dynamic-batch",
    )
    assert exported.exit_code == 0, exported.output
    verified = flow2onnx("verify", "mlp.onnx", "--json")
    assert verified.exit_code == 0, verified.output
    assert json.loads(verified.stdout)["ok"]

    new = {
        f"{layer}-{kind}": np.fromfile(folder / "new" / f"{layer}-{kind}" / "out", "<f4")
        for layer in LAYERS
        for kind in ("weight", "bias")
    }
    images = load_mnist(100)[1][0][0]
    hidden = images.reshape(100, -1) @ new["hidden-weight"].reshape(64, 784).T + new["hidden-bias"]
    logits = np.maximum(hidden, 0) @ new["output-weight"].reshape(10, 64).T + new["output-bias"]
    wanted = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    for rows in (100, 7):
        (found,) = Predictor(folder / "mlp.onnx")(images[:rows]).values()
        np.testing.assert_allclose(found, wanted[:rows], rtol=1e-3, atol=1e-5)
