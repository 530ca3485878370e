"""`flow2onnx export`, `info` and `verify`: from a script to files, and what they tell of them."""

import json
import logging

import numpy as np
import pytest
from flow2onnx_runtime import Predictor, Trainer

from flow2onnx.cli.commands.export import export as export_command
from flow2onnx.cli.commands.verify import verify as verify_command
from flow2onnx.export import Check, Report

SCRIPT = """
import sys
import oneflow as flow
import oneflow.typing as tp

WIDTH = int(sys.argv[1]) if len(sys.argv) > 1 else 3
print("imported", __name__, flush=True)

def network(x):
    print("tracing", x.shape)
    start = flow.random_uniform_initializer()
    return flow.layers.dense(x, 2, kernel_initializer=start, name="fc")

@flow.global_function(type="train")
def train_job(x: tp.Numpy.Placeholder((4, WIDTH))) -> tp.Numpy:
    loss = flow.math.square(network(x))
    rate = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
    flow.optimizer.SGD(rate, momentum=0.9).minimize(loss)
    return loss

@flow.global_function()
def predict_job(x: tp.Numpy.Placeholder((4, WIDTH))) -> tp.Numpy:
    return network(x)

if __name__ == "__main__":
    raise AssertionError("exporting does not run this")
"""


@pytest.fixture
def train(script):
    return script(SCRIPT)


def data(result):
    assert result.exit_code in (0, 1), result.output
    return json.loads(result.stdout)


def test_a_predict_job(flow2onnx, train):
    result = flow2onnx("export", f"{train}:predict_job", "-o", "net.onnx", "--dynamic-batch")
    assert result.exit_code == 0, result.output
    assert "net.onnx: passed" in result.stdout
    assert " reference" in result.stdout
    assert "imported train\n" in result.stderr
    assert Predictor("net.onnx")(np.ones((7, 3), np.float32))["out/0"].shape == (7, 2)


def test_a_train_job(flow2onnx, train, folder):
    result = flow2onnx(
        "export", f"{train}:train_job", "--predict", "predict_job", "-o", "net", "--json"
    )
    report = data(result)
    assert (result.exit_code, report["ok"], report["job"]) == (0, True, "train_job")
    assert set(report["files"]) == {str(p.relative_to(folder)) for p in (folder / "net").iterdir()}
    assert {row["check"] for row in report["rows"]} > {"trainer", "step.onnx: reference"}
    trainer = Trainer("net")
    losses = [trainer.step(np.ones((4, 3), np.float32))["out/0"].mean() for _ in range(9)]
    assert losses[-1] < losses[0]


def test_options_reach_the_files(flow2onnx, train, folder):
    result = flow2onnx(
        "export", f"{train}:predict_job", "-o", "net.onnx", "--weights", "safetensors",
        "--opset", 20, "--batch", 9, "--metadata", "owner=me=you", "--api", "0.2.0",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    facts = data(flow2onnx("info", "net.onnx", "--json"))
    assert facts["opset"] == 20
    assert list(facts["external"]) == ["net.safetensors"]
    assert facts["inputs"][0]["shape"] == [9, 3]
    assert facts["metadata"]["owner"] == "me=you"
    assert facts["metadata"]["flow2onnx.release"] == "0.2.0"
    assert "net.safetensors" in result.stdout


def test_only_what_was_written_is_listed(flow2onnx, train, folder):
    (folder / "net.safetensors").write_bytes(b"from before")
    report = data(flow2onnx("export", f"{train}:predict_job", "-o", "net.onnx", "--json"))
    assert list(report["files"]) == ["net.onnx"]


def test_the_script_has_arguments(flow2onnx, train):
    result = flow2onnx("export", f"{train}:predict_job", "-o", "net.onnx", "--", "5")
    assert result.exit_code == 0, result.output
    assert data(flow2onnx("info", "net.onnx", "--json"))["inputs"][0]["shape"] == [4, 5]


def test_a_module(flow2onnx, script):
    script("", "nets/__init__.py")
    script(SCRIPT.replace("(sys.argv) > 1", "('')"), "nets/small.py")
    result = flow2onnx("export", "nets.small:predict_job", "-o", "net.onnx", "--no-verify")
    assert result.exit_code == 0, result.output
    assert "imported nets.small" in result.stderr
    assert "not asked for" in result.stdout


def test_the_only_job_needs_no_name(flow2onnx, script):
    text = SCRIPT.partition("@flow.global_function()")[0]
    assert data(flow2onnx("export", script(text), "-o", "net", "--json"))["job"] == "train_job"


# --- checkpoints ----------------------------------------------------------------------------------

SAVE = 'import train\nimport oneflow as flow\nflow.checkpoint.save("saved")\n'


def test_values_of_a_checkpoint(flow2onnx, script, train):
    assert flow2onnx("run", "--seed", 7, script(SAVE, "save.py")).exit_code == 0
    plain = flow2onnx("export", f"{train}:predict_job", "-o", "plain.onnx")
    loaded = flow2onnx(
        "export", f"{train}:predict_job", "-o", "loaded.onnx", "--checkpoint", "saved"
    )
    assert (plain.exit_code, loaded.exit_code) == (0, 0)
    x = np.eye(4, 3, dtype=np.float32)
    kernel = np.fromfile("saved/fc-weight/out", np.float32).reshape(2, 3)
    np.testing.assert_allclose(Predictor("loaded.onnx")(x)["out/0"][:3], kernel.T, rtol=1e-6)
    assert not np.allclose(Predictor("plain.onnx")(x)["out/0"][:3], kernel.T)
    shown = flow2onnx("info", "saved")
    assert "saved  checkpoint" in shown.stdout
    assert " fc-weight " in shown.stdout


def test_a_checkpoint_of_another_model(flow2onnx, script, train):
    flow2onnx("run", script(SAVE, "save.py"))
    script(SCRIPT.replace('"fc"', '"other"'))
    result = flow2onnx("export", f"{train}:predict_job", "-o", "net.onnx", "--checkpoint", "saved")
    assert result.exit_code == 1
    assert "CheckpointError" in result.stderr
    assert "fc-weight" in result.stderr


def test_a_checkpoint_without_some_variables(flow2onnx, script, train, caplog):
    text = SAVE.replace('("saved")', '("saved", {"fc-bias": flow.get_all_variables()["fc-bias"]})')
    flow2onnx("run", script(text, "save.py"))
    with caplog.at_level(logging.WARNING, "flow2onnx"):
        result = flow2onnx(
            "export", f"{train}:predict_job", "-o", "net.onnx", "--checkpoint", "saved"
        )
    assert result.exit_code == 0, result.output
    assert "saved does not hold fc-weight" in caplog.text


def test_a_variable_is_no_checkpoint(flow2onnx, script, train):
    flow2onnx("run", script(SAVE, "save.py"))
    result = flow2onnx(
        "export", f"{train}:predict_job", "-o", "net.onnx", "--checkpoint", "saved/fc-bias"
    )
    assert result.exit_code == 1
    assert result.stderr.endswith(
        "CheckpointError: saved/fc-bias is one variable, not a checkpoint\n  give saved\n"
    )


# --- what is asked for wrongly --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("train.py:pred_job", "train.py: no job is named pred_job\n  did you mean "
         "train.py:predict_job? its jobs are train_job, predict_job"),
        ("train.py:network", "train.py: no job is named network\n  its jobs are "
         "train_job, predict_job"),
        ("train.py", "train.py: a job must be named\n  its jobs are train_job, predict_job"),
        ("empty.py:job", "empty.py: no job is named job\n  importing it defines no job"),
        ("trane.py:train_job", "trane.py does not exist\n  did you mean train.py?"),
        ("nets.small:train_job", "nets.small is neither a script nor a module\n"),
    ],
)  # fmt: skip
def test_a_job_that_is_not_there(flow2onnx, script, train, target, message):
    script("", "empty.py")
    result = flow2onnx("export", target, "-o", "net.onnx")
    assert result.exit_code == 1
    assert f"ScriptError: {message}" in result.stderr
    assert result.stdout == ""


def test_a_module_that_lacks_another(flow2onnx, script):
    script("import not_installed", "needs.py")
    result = flow2onnx("export", "needs:job", "-o", "net.onnx")
    assert isinstance(result.exception, ModuleNotFoundError)
    assert result.exception.name == "not_installed"


def test_an_error_of_the_script(flow2onnx, script):
    result = flow2onnx("export", script("import oneflow\nraise KeyError('mine')"), "-o", "x.onnx")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == "KeyError: 'mine'"


def test_a_file_for_a_train_job(flow2onnx, train):
    result = flow2onnx("export", f"{train}:train_job", "-o", "net.onnx")
    assert result.exit_code == 1
    assert "ArgumentError: net.onnx: train_job is a train job" in result.stderr


def test_metadata_without_a_value(flow2onnx, train):
    result = flow2onnx("export", f"{train}:train_job", "-o", "net", "--metadata", "owner")
    assert result.exit_code == 2
    assert "owner: write KEY=VALUE" in result.stderr


def test_a_verification_that_fails(flow2onnx, train, monkeypatch):
    failed = Report("net.onnx", (Check("reference", False, "out/0 differs"),))
    monkeypatch.setitem(_globals(export_command), "export_job", lambda *a, **k: failed)
    monkeypatch.setitem(_globals(verify_command), "verify_model", lambda *a, **k: failed)
    for arguments in (["export", f"{train}:predict_job", "-o", "."], ["verify", "net.onnx"]):
        result = flow2onnx(*arguments)
        assert result.exit_code == 1
        assert "FAIL" in result.stdout
        assert "net.onnx: FAILED verification" in result.stdout


def _globals(command):
    return command.callback.__globals__


# --- info and verify ------------------------------------------------------------------------------


def test_info_and_verify_of_a_bundle(flow2onnx, train):
    flow2onnx("export", f"{train}:train_job", "--predict", "predict_job", "-o", "net")
    shown = flow2onnx("info", "net")
    assert shown.exit_code == 0
    for text in ("net  bundle", "train_job", "step.onnx", "fc-weight-momentum", "slot", "counter"):
        assert text in shown.stdout
    facts = data(flow2onnx("info", "net", "--json"))
    assert (facts["kind"], facts["parameters"]["count"]) == ("bundle", 8)
    report = data(flow2onnx("verify", "net", "--full", "--json"))
    assert report["ok"] is True
    assert "net: passed" in flow2onnx("verify", "net", "--provider", "cpu").stdout


def test_info_of_a_model(flow2onnx, train):
    flow2onnx("export", f"{train}:predict_job", "-o", "net.onnx", "--weights", "safetensors")
    shown = flow2onnx("info", "net.onnx").stdout
    assert "net.onnx  model" in shown
    assert "weights in net.safetensors" in shown
    assert "4 × 3" in shown
    assert "net.safetensors  weights" in flow2onnx("info", "net.safetensors").stdout


@pytest.mark.parametrize("command", ["info", "verify"])
def test_nothing_to_look_at(flow2onnx, folder, command):
    (folder / "bad.onnx").write_bytes(b"no model")
    for name in ("missing.onnx", "bad.onnx"):
        result = flow2onnx(command, name)
        assert result.exit_code == 1
        assert result.stderr.startswith(f"BundleError: {name}")


def test_json_is_all_that_stdout_holds(process, train):
    done = process("export", f"{train}:predict_job", "-o", "net.onnx", "--json")
    assert (done.returncode, json.loads(done.stdout)["ok"]) == (0, True)
    assert "tracing (4, 3)" in done.stderr


def test_a_verification_is_one_line_unless_more_is_asked_for(flow2onnx, train):
    brief = flow2onnx("export", f"{train}:predict_job", "-o", "net.onnx").stdout
    assert "checker" not in brief
    assert brief.splitlines()[-1].startswith("net.onnx: passed 5 checks, 1 output within ")
    assert len(flow2onnx("verify", "net.onnx").stdout.splitlines()) == 1
    assert "checker" in flow2onnx("verify", "net.onnx", "--details").stdout


@pytest.mark.parametrize(
    ("job", "options", "texts"),
    [
        ("predict_job", ["--on-device", "out"],
         ("--on-device is for train jobs", "export train_job with --predict predict_job")),
        ("predict_job", ["-o", "out", "--ort"], ("--ort is for train jobs",)),
        ("train_job", ["-o", "out", "--precision", "int8-dynamic"],
         ("--precision is for predict jobs", "export predict_job by itself",
          "enable_quantization_aware_training")),
        ("train_job", ["-o", "out", "--dynamic-batch"], ("a step has a fixed batch",)),
    ],
)  # fmt: skip
def test_an_option_of_the_other_kind_of_job(flow2onnx, train, job, options, texts):
    result = flow2onnx("export", f"{train}:{job}", *options)
    assert result.exit_code == 1
    shown = " ".join(result.stderr.split())
    assert all(text in shown for text in texts), shown


def test_an_empty_folder_is_called_so(flow2onnx, folder):
    (folder / "empty").mkdir()
    assert "empty is an empty folder\n  give an .onnx file" in flow2onnx("info", "empty").stderr
    assert "a bundle is a folder with manifest.json" in flow2onnx("verify", "empty").stderr
