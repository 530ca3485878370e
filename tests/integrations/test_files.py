"""What integrations do without their packages: DVC's files, and what to install."""

import json
import subprocess
import sys

import numpy as np
import pytest
from flow2onnx_runtime import Trainer

from flow2onnx.errors import FlowError
from flow2onnx.integrations import dvc, models, packages
from tests.integrations.page import data, run_section


def test_files_for_dvc(folder):
    names = run_section("DVC")
    history = names["trainer"].fit(
        (names["x"], names["labels"]), 2, callbacks=dvc.DVCLog("again"), batch_size=16
    )
    metrics = json.loads((folder / "again" / "metrics.json").read_text())
    assert metrics["train"]["loss"] == history.last["loss"]
    assert metrics["step"] == history.last["step"]
    lines = (folder / "again/plots/metrics/train/loss.tsv").read_text().splitlines()
    assert lines[0] == "step\tloss"
    assert [float(line.split("\t")[1]) for line in lines[1:]] == history["loss"]
    first = json.loads((folder / "dvclive" / "metrics.json").read_text())
    assert first["val"].keys() == {"loss"}
    assert "plots/metrics" in (folder / "dvclive" / "dvc.yaml").read_text()


@pytest.mark.parametrize("name", ["../../out", "/etc/x", "a\nb", "val_../x"])
def test_names_of_losses_stay_in_the_folder(name):
    path = dvc._path(name)
    assert path.split("/")[0] in ("train", "val")
    assert len(path.split("/")) == 2
    assert ".." not in path.split("/")
    assert "\n" not in path


def test_a_file_in_the_way(folder):
    (folder / "taken").write_text("")
    rows = data()
    with pytest.raises(FlowError, match="is no folder"):
        Trainer("bundle").fit((rows["x"], rows["labels"]), callbacks=dvc.DVCLog("taken"))


def test_a_missing_package_says_what_to_install():
    with pytest.raises(
        FlowError, match=r"(?s)no_such_package\.sub cannot.*pip install no_such_package"
    ):
        packages.package("no_such_package.sub")
    with pytest.raises(FlowError, match="pip install else"):
        packages.package("no_such_package", "else")


@pytest.mark.parametrize(
    ("module", "use", "name"),
    [("sklearn", "", "scikit-learn"), ("mlflow", "m.MlflowLog()", "mlflow"),
     ("wandb", "m.WandbLog()", "wandb"), ("optuna", "m.Pruning(None)", "optuna"),
     ("hub", "m.pull('a/b')", "huggingface_hub"), ("gradio", "m.page('bundle')", "gradio"),
     ("flower", "m.client_app(None)", "flwr")],
)  # fmt: skip
@pytest.mark.slow
def test_each_module_says_what_to_install(module, use, name):
    """In a process in which none of the packages can be found."""
    program = f"""
import sys
for taken in ("sklearn", "mlflow", "wandb", "optuna", "huggingface_hub", "gradio", "flwr"):
    sys.modules[taken] = None
from flow2onnx_runtime import OptionsError
try:
    import flow2onnx.integrations.{module} as m
    {use or "pass"}
except OptionsError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert f"pip install '{name}" in done.stdout or f"pip install {name}" in done.stdout, done


def test_a_predictor_outlives_its_export(folder):
    trainer = Trainer("bundle")
    rows = data()["held_x"]
    predictor = models.open_predictor(trainer)
    (wanted,) = trainer.predict(rows).values()
    (found,) = predictor.many(rows).values()
    np.testing.assert_array_equal(found, wanted)
    with models.model_file("bundle") as path:
        assert path.is_file()
        with pytest.raises(FlowError, match="has no job"), models.model_file(path, "x"):
            pass
    assert not path.exists()
