"""The benchmark on a GPU over the stand-in: every row runs, and its document is whole."""

import json
import os

import pytest

from benchmarks import gpu

PEERS = ["flow2onnx", "flow2onnx, native", "torch", "torch.compile", "JAX"]


@pytest.fixture
def rehearse(monkeypatch, tmp_path, capsys):
    """The document of a rehearsal; as on a machine of its own, without other environments."""
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "1")

    def rehearsed(*given):
        gpu.main(["--rehearse", "--json", "--out", str(tmp_path), *given])
        found = json.loads(capsys.readouterr().out)
        assert json.loads((tmp_path / "gpu.json").read_text()).keys() == found.keys()
        assert (tmp_path / "gpu.md").read_text().startswith(f"# {found['title']}")
        return found

    return rehearsed


def check(found, rows, precisions):
    names = [f"{row} {precision}" for row in rows for precision in precisions]
    ours = [row for row in found["rows"] if row["peer"] == "flow2onnx"]
    assert [row["workload"] for row in ours] == names
    for row in ours:
        assert row["note"] == ""
        assert row["ms"] > 0
        assert row["extra"].keys() >= {"TFLOP/s", "of products", "of memory", "of roofline",
                                       "least ms", "of graph", "nodes"}  # fmt: skip
        assert found["least_ms"][row["workload"]]
    assert [row["peer"] for row in found["rows"]] == PEERS * len(names)
    assert all(row["ms"] or row["note"] for row in found["rows"])


def test_a_rehearsal_measures_rows_and_says_which_peers_are_absent(rehearse):
    found = rehearse("--rows", "mlp,gpt2", "--precisions", "tf32")
    check(found, ["mlp", "gpt2"], ["tf32"])
    assert "the numbers mean nothing" in found["title"]
    told = found["machine"]["ceilings"]
    assert told["onnxruntime"].keys() == {"float32", "tf32", "float16", "bfloat16", "bandwidth"}
    assert isinstance(told["torch"], str) or told["torch"].keys() == told["onnxruntime"].keys()


def test_rows_that_come_too_late_are_said(rehearse):
    found = rehearse("--rows", "mlp", "--precisions", "tf32", "--seconds", "1e-9")
    assert {row["note"] for row in found["rows"]} == {"not run: 0 seconds were over"}


@pytest.mark.slow
def test_every_row_in_every_precision(rehearse):
    found = rehearse("--precisions", ",".join(gpu.PRECISIONS))
    check(found, list(gpu.ROWS), list(gpu.PRECISIONS))
    assert os.cpu_count()
