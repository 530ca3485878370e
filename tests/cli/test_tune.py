"""`flow2onnx tune`: the forms of a job's lowerings, measured and kept, or sent to a target."""

import json

from flow2onnx_runtime.tune import read_trials

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
