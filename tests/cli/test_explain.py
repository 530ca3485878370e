"""`flow2onnx explain`: what became of a job in a script."""

import json

import pytest
from flow2onnx_runtime.ort_settings import session_keys

from flow2onnx.engine.placement import best_device

SCRIPT = """
import oneflow as flow
import oneflow.typing as tp

print("imported")
config = flow.function_config()
config.enable_inplace(False)
config.default_placement_scope(flow.scope.placement("gpu", "0:0"))

@flow.global_function(type="train", function_config=config)
def train_job(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
    loss = flow.math.square(flow.layers.dense(x, 2, name="fc"))
    rate = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
    flow.optimizer.SGD(rate, momentum=0.9).minimize(loss)
    return loss

if __name__ == "__main__":
    raise AssertionError("explaining does not run this")
"""

on_cpu = pytest.mark.skipif(best_device() == "gpu", reason="this machine has a usable GPU")

tells = pytest.mark.skipif(
    "session.record_ep_graph_assignment_info" not in session_keys(),
    reason="this onnxruntime does not tell which provider runs which node",
)


@tells
@on_cpu
def test_tables(flow2onnx, script):
    result = flow2onnx("explain", f"{script(SCRIPT)}:train_job")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "train job train_job  on CPUExecutionProvider"
    assert any("enable_inplace" in line and "yes" in line for line in lines)
    assert "not on gpu, where the job was placed:" in lines
    assert any(line.split()[:1] == ["activations"] and "about" in line for line in lines)
    assert max(map(len, lines)) <= 100


def test_json(flow2onnx, script):
    result = flow2onnx("explain", f"{script(SCRIPT)}:train_job", "--json")
    facts = json.loads(result.stdout)
    assert (facts["job"], facts["kind"], facts["placed_on"]) == ("train_job", "train", "gpu")
    assert [f["name"] for f in facts["flags"]] == ["enable_inplace", "default_placement_scope"]
    assert {m["kind"] for m in facts["memory"]} >= {"weights", "optimizer state", "activations"}


def test_a_job_that_is_not_there(flow2onnx, script):
    result = flow2onnx("explain", f"{script(SCRIPT)}:train_jbo")
    assert result.exit_code == 1
    assert "did you mean train.py:train_job?" in result.stderr


def test_a_runtime_that_does_not_tell(flow2onnx, script, monkeypatch):
    monkeypatch.setattr("flow2onnx.engine.explain_job.nodes_of", lambda session: None)
    result = flow2onnx("explain", f"{script(SCRIPT)}:train_job")
    assert "does not tell which provider runs which node" in result.stdout
