"""Small calls beside the runtime alone."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import calls


def test_the_runtime_alone_computes_the_same(tmp_path: Path) -> None:
    made = calls.prepare(tmp_path)["predict"]
    alone, job, device = (made[name]() for name in (calls.ALONE, calls.JOB, calls.DEVICE))
    assert np.array_equal(job, np.full((1, 4), 16, np.float32))
    assert np.array_equal(alone[0], job)
    assert np.array_equal(next(iter(device.values())), job)


def test_a_rehearsal_writes_both_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["calls", "--quick", "--out", str(tmp_path)])
    monkeypatch.setattr(calls, "confine", lambda threads: None)  # it would last
    calls.main()
    found = json.loads((tmp_path / "calls.json").read_text(encoding="utf-8"))
    assert [row["workload"] for row in found["rows"]] == ["predict", "train"]
    assert all(us > 0 for row in found["rows"] for us in row["us"].values())
    assert "| train, job |" in (tmp_path / "calls.md").read_text(encoding="utf-8")
