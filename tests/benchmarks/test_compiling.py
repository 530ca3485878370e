"""The table of first steps: stages inside each other, the line through nodes."""

import pytest

from benchmarks.compiling import REST, STAGES, Stages, fit, tables


def run_of(nodes, total):
    stages = dict.fromkeys(STAGES, 0.0) | {REST: total}
    return {
        "loss": 1.0, "total": total, "stages": stages, "peak_mb": 10.0, "state_mb": 4.0,
        "nodes": nodes, "opened": nodes // 2,
    }  # fmt: skip


def row_of(nodes, total):
    return {"workload": "w", "first": run_of(nodes, total), "second": run_of(nodes, total / 4)}


def test_the_line_through_first_steps():
    line = fit([row_of(1000, 1.5), row_of(2000, 2.5), row_of(4000, 4.5)])
    assert line["ms_a_node"] == pytest.approx(1.0)
    assert line["seconds"] == pytest.approx(0.5)
    assert line["r2"] == pytest.approx(1.0)


def test_a_column_for_each_workload():
    totals, first, second = tables([row_of(1000, 1.5), row_of(2000, 2.5)])
    assert totals.lines[0][1:5] == ["1,000", "500", "1.50", "0.38"]
    assert first.lines[-1] == ["all", "1.500", "1.250"]
    assert second.lines[-1] == [REST, "0.38", "0.62"]


def test_a_stage_is_without_those_inside_it(monkeypatch):
    clock = iter((0.0, 1.0, 3.0, 7.0))
    monkeypatch.setattr("benchmarks.compiling.time.process_time", lambda: next(clock))
    stages = Stages()
    inner = stages._timed("inner", lambda: None)
    stages._timed("outer", inner)()
    assert stages.seconds == {"inner": 2.0, "outer": 5.0}
