"""`flow2onnx summary` and `flow2onnx show`: models, bundles and jobs to look at."""

import json
from pathlib import Path

import onnx
import pytest

from tests.view.models import hostile

BUNDLE = Path(__file__).parents[2] / "runtime" / "conformance" / "lenet" / "bundle"
SCRIPT = """
import oneflow as flow
import oneflow.typing as tp

@flow.global_function(type="train")
def train_job(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
    hidden = flow.layers.dense(x, 5, flow.nn.relu, trainable=False, name="first")
    loss = flow.math.square(flow.layers.dense(hidden, 2, name="second"))
    rate = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
    flow.optimizer.SGD(rate, momentum=0.9).minimize(loss)
    return loss

@flow.global_function()
def broken(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
    return flow.matmul(x, x)
"""


def test_summary_of_a_job(flow2onnx, script):
    result = flow2onnx("summary", f"{script(SCRIPT)}:train_job")
    assert result.exit_code == 0, result.stderr
    lines = {line.split()[0]: line.split() for line in result.stdout.splitlines() if line.strip()}
    assert lines["first"][1:] == ["Gemm,", "Relu", "4", "×", "5", "20", "no", "60", "160", "B"]
    assert lines["second"][-5:] == ["12", "yes", "40", "32", "B"]
    assert lines["parameters"][1] == "32"
    assert (lines["trainable"][1], lines["frozen"][1]) == ("12", "20")


def test_summary_of_a_bundle_as_json(flow2onnx):
    facts = json.loads(flow2onnx("summary", BUNDLE, "--json").stdout)
    assert (facts["parameters"], facts["trainable"], facts["macs"]) == (1034, 1034, 60672)
    assert facts["layers"][0] == {
        "name": "conv1", "operators": "Conv, Tanh", "dtype": "float32", "shape": [8, 4, 8, 8],
        "parameters": 40, "trainable": 40, "macs": 18432, "bytes": 16384, "nodes": 2,
    }  # fmt: skip


def test_summary_of_a_model(flow2onnx):
    result = flow2onnx("summary", BUNDLE / "predict.onnx")
    assert "trains" not in result.stdout
    assert "60,672 in a forward pass" in result.stdout


def test_a_page_of_a_job(flow2onnx, script, folder):
    result = flow2onnx("show", f"{script(SCRIPT)}:train_job", "-o", "page.html")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("page.html  ")
    assert '"first-weight"' in (folder / "page.html").read_text("utf-8")


def test_a_page_without_a_place_is_opened(flow2onnx, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    assert flow2onnx("show", BUNDLE).exit_code == 0
    assert flow2onnx("show", BUNDLE, "--no-open").exit_code == 0
    (address,) = opened
    assert address.startswith("file:///")
    assert address.endswith("/bundle.html")


def test_where_there_is_no_browser(flow2onnx, monkeypatch, folder):
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    result = flow2onnx("show", BUNDLE, "-o", folder / "page.html", "--open")
    assert "no browser could be started here" in result.stdout


def test_hostile_names_in_a_terminal(flow2onnx, folder):
    onnx.save(hostile(), "hostile.onnx")
    result = flow2onnx("summary", "hostile.onnx")
    assert result.exit_code == 0
    assert "\u202e" not in result.stdout
    assert "\x07" not in result.stdout


@pytest.mark.parametrize("command", ["summary", "show"])
@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("missing.onnx", "missing.onnx is not there"),
        ("folder/missing", "folder/missing is not there"),
        ("text.txt", "text.txt is a text file, no ONNX model"),
        ("text.onnx", "text.onnx is a text file, no ONNX model"),
        ("empty.onnx", "is no ONNX model"),
        ("bytes.onnx", "bytes.onnx"),
        ("plain", "plain is a folder without manifest.json"),
        ("train.py:train_jbo", "did you mean train.py:train_job?"),
        ("train.py:broken", "matmul"),
        ("no_such_module:job", "is neither a script nor a module"),
    ],
)
def test_bad_targets_in_words(flow2onnx, script, folder, command, target, words):
    script(SCRIPT)
    (folder / "text.txt").write_text("no model at all\n")
    (folder / "text.onnx").write_text("no model at all\n")
    (folder / "empty.onnx").write_bytes(b"")
    (folder / "bytes.onnx").write_bytes(bytes(range(255, 0, -1)))
    (folder / "plain").mkdir()
    result = flow2onnx(command, target)
    assert result.exit_code == 1
    assert words in result.stderr
    assert "Traceback" not in result.stderr
