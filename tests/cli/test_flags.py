"""`flow2onnx flags`: the table of settings."""

import json
from pathlib import Path

from flow2onnx.config import flags_table


def test_all(flow2onnx):
    result = flow2onnx("flags")
    assert result.exit_code == 0
    for row in flags_table():
        assert row["name"].rpartition(".")[2] in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 100


def test_json_is_the_table(flow2onnx):
    assert json.loads(flow2onnx("flags", "--json").stdout) == flags_table()


def test_one(flow2onnx):
    result = flow2onnx("flags", "enable_cudnn")
    assert result.stdout.splitlines() == [
        "function_config.enable_cudnn",
        "takes   True or False",
        "default True",
        "effect  cuda option enable_cudnn",
        "doc     Use cuDNN kernels.",
    ]


def test_a_part_of_a_name(flow2onnx):
    found = json.loads(flow2onnx("flags", "--json", "nccl_fusion").stdout)
    assert len(found) > 1
    assert all("nccl_fusion" in row["name"] for row in found)


def test_the_dotted_name_that_users_write(flow2onnx):
    found = json.loads(flow2onnx("flags", "--json", "flow.config.random_seed").stdout)
    assert [row["name"] for row in found] == ["random_seed"]


def test_no_such_setting(flow2onnx):
    result = flow2onnx("flags", "enable_inplce")
    assert result.exit_code == 1
    assert result.stderr.startswith(
        "ConfigError: no setting is named enable_inplce\n  did you mean enable_inplace"
    )


def test_the_page_of_documentation_is_current(flow2onnx):
    made = flow2onnx("flags", "--markdown").stdout
    page = Path(__file__).parents[2] / "docs" / "flags.md"
    assert page.read_text() == made, "run: flow2onnx flags --markdown > docs/flags.md"


def test_the_page_has_a_line_for_every_setting(flow2onnx):
    lines = flow2onnx("flags", "--markdown").stdout.splitlines()
    rows = [line for line in lines if line.startswith("| `")]
    assert len(rows) == len(flags_table())
    columns = {line.replace("\\|", "").count("|") for line in lines if line.startswith("|")}
    assert columns == {6}
