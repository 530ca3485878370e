"""No step asks more of the GPU than docs/launches.md says."""

import json
import os
import subprocess
import sys
from dataclasses import asdict

import pytest

from tests.gpu.launches import PAGE, QUICK, Load, label, load_of, names, page, written

ROWS = list(names(slow=True))


def check(found: Load, row: str) -> None:
    allowed, found_now = asdict(written()[row]), asdict(found)
    grown = {kind: (allowed[kind], n) for kind, n in found_now.items() if n > allowed[kind]}
    assert not grown, "if that is meant: python -m tests.gpu.launches"
    assert found.launches == 1


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=label(*row), marks=[] if row[0] in QUICK else pytest.mark.slow)
        for row in ROWS
        if not row[2]
    ],
)
def test_a_step_asks_no_more_than_is_written(row):
    check(load_of(*row), label(*row))


def test_a_native_step_asks_no_more_than_is_written(native):
    """In a process of its own, where kernels are counted and neither compiled nor run."""
    rows = [label(*row) for row in ROWS if row[2]]
    command = [sys.executable, "-m", "tests.gpu.launches", "--json", *rows]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"STANDIN_RUNS": "0"}
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert list(found) == rows
    for row, load in found.items():
        check(Load(**load), row)
        plain = written().get(row.removesuffix(", native"))
        assert plain is None or load["kernels"] < plain.kernels
        assert plain is None or load["moved"] < plain.moved


def test_the_page_has_each_row_once():
    assert list(written()) == [label(*row) for row in ROWS]
    assert PAGE.read_text(encoding="utf-8") == page(written())
