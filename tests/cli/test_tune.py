"""`flow2onnx tune`: the forms of a job's lowerings, measured and kept, or sent to a target."""

import json

import pytest
from flow2onnx_runtime.tune import read_trials
from flow2onnx_runtime.tuning_file import Answer

from flow2onnx.cli.commands.tune import _verdict
from flow2onnx.engine.tuning import Tuning
from flow2onnx.lowering.forms import Question

SCRIPT = """
import oneflow as flow
import oneflow.typing as tp

@flow.global_function(type="train")
def train_job(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
    loss = flow.math.square(flow.nn.relu(flow.layers.dense(x, 2, name="fc")))
    rate = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
    flow.optimizer.SGD(rate, momentum=0.9).minimize(loss)
    return loss
"""


def test_a_table_and_a_file(flow2onnx, script, tmp_path):
    target, path = f"{script(SCRIPT)}:train_job", tmp_path / "tuned.json"
    result = flow2onnx("tune", target, "--cache", str(path), "--seconds", "0")
    assert result.exit_code == 0, result.stderr
    assert "Relu.dX" in result.stdout
    assert "measuring 1 of 2" in result.stderr
    assert len(json.loads(path.read_text())["machines"]) == 1
    again = flow2onnx("tune", target, "--cache", str(path), "--seconds", "0", "--json")
    assert "measuring" not in again.stderr
    facts = json.loads(again.stdout)
    assert facts["file"] == str(path)
    assert {row["lowering"] for row in facts["lowerings"]} == {"Relu.dX", "Sum.rows"}
    for row in facts["lowerings"]:
        assert row["form"] in row["ms"]
        assert row["nodes"] == 1


def test_models_for_a_target(flow2onnx, script, tmp_path):
    path = tmp_path / "models.zip"
    result = flow2onnx("tune", f"{script(SCRIPT)}:train_job", "--emit", str(path))
    assert result.exit_code == 0, result.stderr
    assert "2 lowerings; on the target: python -m flow2onnx_runtime.tune models.zip" in (
        " ".join(result.stdout.split())
    )
    assert {t.key.partition(":")[0] for t in read_trials(path)} == {"Relu.dX", "Sum.rows"}


def test_models_for_a_target_without_a_place(flow2onnx, script, tmp_path):
    target = f"{script(SCRIPT)}:train_job"
    result = flow2onnx("tune", target, "--emit", str(tmp_path / "nowhere" / "models.zip"))
    assert result.exit_code == 1
    assert "there is no folder" in result.stderr
    assert "Traceback" not in result.stderr
    result = flow2onnx("tune", target, "--emit", str(tmp_path))
    assert result.exit_code == 1
    assert "is a folder, not a file" in result.stderr


def test_a_cache_that_cannot_be_written_is_told_first(flow2onnx, script, tmp_path):
    target = f"{script(SCRIPT)}:train_job"
    other = tmp_path / "notes.txt"
    other.write_text("mine\n")
    for path, words in ((other, "something else"), (tmp_path, "Is a directory"),
                        (other / "t.json", "cannot be written")):  # fmt: skip
        result = flow2onnx("tune", target, "--cache", str(path))
        assert result.exit_code == 1
        assert words in " ".join(result.stderr.split())
        assert "measuring" not in result.stderr
        assert "Traceback" not in result.stderr
    assert other.read_text() == "mine\n"
    assert not list(tmp_path.glob("*.lock"))


def test_explain_shows_the_forms(flow2onnx, script):
    result = flow2onnx("explain", f"{script(SCRIPT)}:train_job")
    assert any(
        line.split()[:4] == ["Relu.dX", "mask_product", "static", "rule"]
        for line in result.stdout.splitlines()
    )


def tuning(rule, **ms):
    answer = Answer(min(ms, key=ms.get), ms) if ms else None
    return Tuning(Question("Relu.dX", None, (), ("where", "step")), 1, rule, answer)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ([], "nothing to choose"),
        ([tuning("where")], "nothing to choose"),
        ([tuning("where", where=1.0, step=2.0)], "the fastest of all 1"),
        ([tuning("where", where=3.0, step=2.0), tuning("step", where=3.0, step=2.0)],
         "1 of 2 lowerings have a faster form than the rule's, up to 1.5 times"),
    ],
)  # fmt: skip
def test_the_last_line_says_what_was_found(found, text):
    assert text in _verdict("job", found)
