"""`flow2onnx train`: files, options, results, and one vocabulary with Trainer.fit."""

import csv
import inspect
import json

import numpy as np
import onnxruntime as ort
import pytest
from flow2onnx_runtime import Trainer

import flow2onnx as flow
from flow2onnx.cli.commands.train import train as command
from tests.imported import models

RNG = np.random.default_rng(4)
X = RNG.standard_normal((40, 4)).astype(np.float32)
Y = (X.sum(1) > 0).astype(np.int64)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("train") / "bundle"
    made = flow.make_trainable(models.perceptron(), "cross_entropy", "adam", lr=0.05, ema=0.5)
    made.save(folder, verify=False)
    return folder


@pytest.fixture
def data(folder):
    np.savez(folder / "train.npz", x=X, labels=Y)
    return "train.npz"


def test_options_are_those_of_fit():
    fit = set(inspect.signature(Trainer.fit).parameters)
    of_programs = {"self", "batches", "callbacks", "steps", "prefetch", "progress"}
    own = {
        "bundle", "data", "start", "lr", "monitor", "early_stopping", "best", "reduce_on_plateau",
        "patience", "csv", "tensorboard", "save", "exported", "provider", "as_json",
    }  # fmt: skip
    names = {p.name for p in command.params}
    assert names - own - {"traceback"} == fit - of_programs
    for name, parameter in inspect.signature(Trainer.fit).parameters.items():
        option = next((p for p in command.params if p.name == name), None)
        if option is not None and parameter.default not in (None, (), False, parameter.empty):
            assert option.default == parameter.default, name


def test_a_bundle_is_trained(flow2onnx, bundle, data, folder):
    result = flow2onnx(
        "train", str(bundle), "--data", data, "--epochs", "3", "--validation", data,
        "--metrics", "accuracy", "--batch-size", "16", "--csv", "log.csv", "--save",
        "state.safetensors", "--export", "model", "--best", "best.safetensors",
        "--tensorboard", "logs", "--early-stopping", "2", "--reduce-on-plateau", "0.5",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    trainer, other = Trainer(bundle), Trainer(bundle)
    history = other.fit((X, Y), 3, (X, Y), metrics="accuracy", batch_size=16)
    with (folder / "log.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["val_accuracy"]) for row in rows] == history["val_accuracy"]
    trainer.load("state.safetensors")
    expected = other.state_dict()
    for name, value in trainer.state_dict().items():
        if "Rate" not in name:  # which the callback has set
            np.testing.assert_array_equal(value, expected[name], err_msg=name)
    session = ort.InferenceSession(folder / "model" / "predict.onnx")
    found = session.run(None, {"x": X})[0]
    np.testing.assert_array_equal(found, trainer.predict(X)["scores"])
    assert (folder / "best.safetensors").exists()
    assert len(list((folder / "logs").iterdir())) == 1
    assert "9 steps" in result.output
    assert "val_accuracy" in result.output


def test_arrays_in_files_of_their_own(flow2onnx, bundle, folder):
    np.save("x.npy", X)
    np.savez("y.npz", target=Y)
    result = flow2onnx(
        "train", str(bundle), "--data", "x=x.npy", "--data", "y.npz", "--columns", "labels=target",
        "--no-shuffle", "--json", "--lr", "0.5",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    other = Trainer(bundle)
    other.learning_rate = 0.5
    history = other.fit((X, Y), shuffle=False)
    assert [row["loss"] for row in told["epochs"]] == history["loss"]
    assert told["step"] == 2


def test_it_goes_on_from_a_checkpoint(flow2onnx, bundle, data):
    given = ["train", str(bundle), "--data", data, "--checkpoint", "run", "--json"]
    assert flow2onnx(*given, "--epochs", "1").exit_code == 0
    told = json.loads(flow2onnx(*given, "--epochs", "3", "--resume").stdout)
    assert [row["loss"] for row in told["epochs"]] == Trainer(bundle).fit((X, Y), 3)["loss"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "nowhere.npz"], "--data nowhere.npz cannot be read"),
        (["--data", "x.npy"], "say which it is: x=x.npy"),
        (["--data", "x=train.npz"], "holds several arrays"),
        (["--data", "x=x.npy"], "has no labels"),
        (["--data", "train.npz", "--metrics", "accuracy"], "give validation="),
        (["--data", "train.npz", "--metrics", "acc"], "there are accuracy"),
        (["--data", "train.npz", "--predict", "nobody"], "it has predict, eval"),
        (["--data", "train.npz", "--resume"], "say where: checkpoint="),
        (["--data", "train.npz", "--accumulate", "2"], "accumulate=True"),
        (["--data", "train.npz", "--columns", "x"], "write INPUT=ARRAY"),
    ],
)
def test_errors_are_shown(options, message, flow2onnx, bundle, data):
    np.save("x.npy", X)
    result = flow2onnx("train", str(bundle), *options)
    assert result.exit_code in (1, 2)
    assert message in result.output.replace("\n", " ")
