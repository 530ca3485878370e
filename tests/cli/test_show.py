"""Output for people and for programs."""

import json
import os
import subprocess
import sys

import pytest

from flow2onnx.cli.show import print_json, print_table, shape_text, size_text
from tests.cli.conftest import ROOT


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (2**40, "1.0 TiB")],
)
def test_sizes(size, text):
    assert size_text(size) == text


def test_shapes():
    shapes = [(3, "batch"), (), None]
    assert [shape_text(shape) for shape in shapes] == ["3 × batch", "scalar", "?"]


def test_json_has_no_numbers_that_json_lacks(capsys):
    print_json({"a": [float("nan"), float("inf"), 1.5], 2: "é"})
    text = capsys.readouterr().out
    assert json.loads(text) == {"a": [None, None, 1.5], "2": "é"}
    assert "é" in text


def test_a_table(capsys):
    print_table(("name", "size"), [("a", 1), ("bb", None), ("c", True)], right=("size",))
    assert capsys.readouterr().out.splitlines() == [
        " name   size",
        "─────────────",
        " a         1",
        " bb        -",
        " c       yes",
    ]


def test_on_a_terminal_there_are_colours_and_a_spinner():
    pty = pytest.importorskip("pty", reason="no pseudo-terminals on this system")
    ours, theirs = pty.openpty()
    paths = f"{ROOT}{os.pathsep}{ROOT / 'runtime' / 'python'}"
    done = subprocess.Popen(
        [sys.executable, "-m", "flow2onnx", "doctor"],
        stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT,
        env={"TERM": "xterm-256color", "COLUMNS": "100", "PYTHONPATH": paths, "PYTHONUTF8": "1"},
    )  # fmt: skip
    os.close(theirs)
    text = b"".join(_chunks(ours)).decode()
    os.close(ours)
    assert done.wait(60) == 0
    assert "Looking at the installation" in text
    assert "\x1b[1;32m" in text


def _chunks(descriptor):
    while True:
        try:
            chunk = os.read(descriptor, 4096)
        except OSError:  # the other end is closed
            return
        if not chunk:
            return
        yield chunk
