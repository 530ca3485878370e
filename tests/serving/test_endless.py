"""A model whose loading never ends holds up neither another model nor SIGTERM."""

import json

import onnx
import pytest
from onnx import TensorProto, helper

from tests.hostile.models import FAMILIES, case

GOOD = '<ir_version: 10, opset_import: ["" : 21]> g (float[2] x) => (float[2] y) { y = Neg(x) }'


def write(repository, name, content, version=1):
    folder = repository / name / str(version)
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(content)


def parsed(text):
    return onnx.parser.parse_model(text).SerializeToString()


def endless():
    """A loop of 2^62 rounds on its input."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["on"], ["more"]), helper.make_node("Sin", ["v"], ["w"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, [2, 3]),
        ],
        [
            helper.make_tensor_value_info("more", TensorProto.BOOL, []),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, [2, 3]),
        ],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["n", "yes", "x"], ["y"], body=body)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
        [
            helper.make_tensor("n", TensorProto.INT64, [], [1 << 62]),
            helper.make_tensor("yes", TensorProto.BOOL, [], [True]),
        ],
    )
    imports = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


@pytest.fixture
def repository(tmp_path):
    write(tmp_path / "models", "a-endless", endless())
    write(tmp_path / "models", "b-good", parsed(GOOD))
    return tmp_path / "models"


def ask(server, name):
    return server.post(f"/v2/models/{name}/infer", {"inputs": [
        {"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2]}]})  # fmt: skip


def test_a_model_that_loads_for_ever(repository, serving):
    server = serving(repository, "--poll", 0.1, "--linger", 0)
    assert ask(server, "b-good")[1]["outputs"][0]["data"] == [-1, -2]
    assert ask(server, "a-endless")[0] == 503
    write(repository, "c-later", parsed(GOOD))
    server.wait_for("a version answers", model="c-later")
    assert server.ask("/v2/repository/index", b"{}")[0] == 200
    answering = {line["model"] for line in server.lines if line["message"] == "a version answers"}
    assert "a-endless" not in answering
    assert server.stop() == 0


def test_hostile_models_are_refused_in_the_index(tmp_path, serving):
    hostile = [n for n, family in enumerate(FAMILIES) if family.startswith("functions")]
    for number in hostile:
        name, content = case(number)
        write(tmp_path / "models", name, content)
    write(tmp_path / "models", "good", parsed(GOOD))
    server = serving(tmp_path / "models", "--poll", 0, "--linger", 0)
    rows = json.loads(server.ask("/v2/repository/index", b"{}")[2])
    refused = {row["name"]: row["reason"] for row in rows if row["state"] == "UNAVAILABLE"}
    assert len(refused) == len(hostile)
    assert all("are the most" in reason for reason in refused.values()), refused
    assert ask(server, "good")[0] == 200
    assert server.stop() == 0
