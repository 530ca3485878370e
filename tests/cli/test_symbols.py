"""`flow2onnx symbols`: what of OneFlow is here."""

import dataclasses
import json

from flow2onnx.api.status import markdown, status_table


def test_all(flow2onnx):
    result = flow2onnx("symbols")
    assert result.exit_code == 0
    for row in status_table():
        assert row.name.rpartition(".")[2] in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 100


def test_json_is_the_table(flow2onnx):
    found = json.loads(flow2onnx("symbols", "--json").stdout)
    assert found == [dataclasses.asdict(row) for row in status_table()]


def test_markdown_is_the_section(flow2onnx):
    assert flow2onnx("symbols", "--markdown").stdout == markdown()


def test_one(flow2onnx):
    assert flow2onnx("symbols", "flow.local_gather").stdout.splitlines() == [
        "flow.local_gather(params, indices, axis=0, name=None)",
        "releases a–0.1.0",
        "status   unsupported",
        "note     gathering within the piece of each device is gone since 0.1.1; use flow.gather, "
        "which is",
        "         the same on one device",
    ]


def test_a_part_of_a_name(flow2onnx):
    found = json.loads(flow2onnx("symbols", "--json", "pool2d").stdout)
    assert [row["name"] for row in found] == ["nn.avg_pool2d", "nn.max_pool2d"]


def test_no_such_symbol(flow2onnx):
    result = flow2onnx("symbols", "nn.conv2e")
    assert result.exit_code == 1
    assert result.stderr.startswith(
        "ArgumentError: OneFlow has no symbol nn.conv2e\n  did you mean nn.conv2d"
    )
