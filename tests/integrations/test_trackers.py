"""Trackers and searches, each against its real package."""

import json
import struct

import numpy as np
import pytest
from flow2onnx_runtime import Trainer

from tests.integrations.page import data, needs, run_section

pytestmark = pytest.mark.slow


@pytest.fixture
def mlflow(folder, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    yield mlflow
    mlflow.set_tracking_uri(None)


@needs("mlflow", "onnx")
def test_mlflow(mlflow):
    names = run_section("MLflow")
    (run,) = mlflow.search_runs(output_format="list")
    metrics = mlflow.MlflowClient().get_metric_history(run.info.run_id, "val_loss")
    history = sorted((m.step, m.value) for m in metrics)
    assert len(history) == 3
    assert run.info.status == "FINISHED"
    loaded = mlflow.pyfunc.load_model(names["info"].model_uri)
    (found,) = loaded.predict({"x": names["held_x"]}).values()
    (wanted,) = names["trainer"].predict(names["held_x"]).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    signature = names["info"].signature
    assert [(i.name, i.shape, i.type) for i in signature.inputs] == [
        ("x", (-1, 4), np.dtype("float32"))
    ]
    with pytest.raises(mlflow.MlflowException):
        loaded.predict({"x": names["held_x"].astype(np.float32)[:, :3]})


@needs("mlflow")
def test_a_run_of_its_own_ends_with_the_training(mlflow):
    from flow2onnx.integrations.mlflow import MlflowLog

    rows = data()
    Trainer("bundle").fit((rows["x"], rows["labels"]), 1, callbacks=MlflowLog(run_name="own"))
    assert mlflow.active_run() is None

    def fail(loop):
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        Trainer("bundle").fit((rows["x"], rows["labels"]), 1, callbacks=[MlflowLog(), fail])
    states = [run.info.status for run in mlflow.search_runs(output_format="list")]
    assert sorted(states) == ["FAILED", "FINISHED"]


@needs("mlflow")
def test_a_resumed_training_goes_on_in_its_run(mlflow):
    from flow2onnx.integrations.mlflow import MlflowLog

    rows, given = data(), dict(checkpoint="run", resume=True, batch_size=16)
    for epochs in (1, 3):
        Trainer("bundle").fit((rows["x"], rows["labels"]), epochs, callbacks=MlflowLog(), **given)
    (run,) = mlflow.search_runs(output_format="list")
    assert len(mlflow.MlflowClient().get_metric_history(run.info.run_id, "loss")) == 3


def logged(content, block=32768):
    """The records of a run's file: a head of 7 bytes, then the log format of LevelDB."""
    place, parts = 7, []
    while place + 7 <= len(content):
        if block - place % block < 7:  # no head fits in what is left of the block
            place += block - place % block
            continue
        size, kind = struct.unpack_from("<HB", content, place + 4)
        place += 7
        parts.append(content[place : place + size])
        place += size
        if kind in (1, 4):  # whole, or the last part
            yield b"".join(parts)
            parts = []


@needs("wandb")
def test_weights_and_biases(folder, monkeypatch):
    monkeypatch.setenv("WANDB_DIR", str(folder))
    monkeypatch.setenv("WANDB_SILENT", "true")
    run_section("Weights & Biases")
    from wandb.proto import wandb_internal_pb2

    (path,) = folder.rglob("run-*.wandb")
    rows = []
    for content in logged(path.read_bytes()):
        record = wandb_internal_pb2.Record.FromString(content)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            rows.append({i.key or i.nested_key[0]: json.loads(i.value_json) for i in items})
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    assert all(np.isfinite(row["val_loss"]) for row in rows)


@needs("tensorboard")
def test_tensorboard(folder):
    names = run_section("TensorBoard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder / "logs"))
    found.Reload()
    assert {"loss", "val_loss"} <= set(found.Tags()["scalars"])
    steps = [event.step for event in found.Scalars("val_loss")]
    assert steps == sorted(set(steps))
    assert steps[-1] == names["trainer"].steps


@needs("optuna")
def test_optuna(folder):
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    names = run_section("Optuna")
    study = names["study"]
    assert len(study.trials) == 5
    best = study.best_trial
    assert sorted(best.intermediate_values) == [1, 2, 3, 4]
    assert best.value == best.intermediate_values[4]
    sizes = names["train"](optuna.trial.FixedTrial({"batch_size": 8}), ())
    assert sizes.last["step"] == 4 * 13


@needs("optuna")
def test_hopeless_trials_end_early():
    import optuna

    from flow2onnx.integrations.optuna import objective

    rows = data()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    pruner = optuna.pruners.ThresholdPruner(upper=0.0)  # no loss is that small
    study = optuna.create_study(pruner=pruner)
    given = (rows["x"], rows["labels"])
    study.optimize(objective(lambda t, pruning: Trainer("bundle").fit(given, 5, None, pruning)), 2)
    assert [t.state.name for t in study.trials] == ["PRUNED", "PRUNED"]
    assert [len(t.intermediate_values) for t in study.trials] == [1, 1]
    with pytest.raises(ValueError, match="no row has 'nothing'"):
        study.optimize(objective(lambda t, p: Trainer("bundle").fit(given, 1), "nothing"), 1)
    with pytest.raises(ValueError, match="return what fit"):
        study.optimize(objective(lambda t, p: None), 1)


@needs("dvc")
def test_dvc_reads_its_files(folder):
    import subprocess
    import sys

    names = run_section("DVC")
    for words in (["git", "init", "-q"], [sys.executable, "-m", "dvc", "init", "-q"]):
        subprocess.run(words, check=True)
    shown = subprocess.run([sys.executable, "-m", "dvc", "metrics", "show", "--json"],
                           check=True, capture_output=True, text=True)  # fmt: skip
    text = json.dumps(json.loads(shown.stdout))
    assert '"val": {"loss"' in text
    assert str(names["trainer"].steps) in text
    plots = subprocess.run([sys.executable, "-m", "dvc", "plots", "show", "--json"],
                           check=True, capture_output=True, text=True)  # fmt: skip
    assert "loss.tsv" in plots.stdout
