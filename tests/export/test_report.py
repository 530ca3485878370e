"""The verdict of a report in one line, and what a reduced model costs."""

import dataclasses

import pytest

from flow2onnx.export import Check, Comparison, Output, Report
from flow2onnx.export.precision import _verdicts
from flow2onnx.export.report import Difference, Timing

GOOD = Check("checker", True, "valid")
BAD = Check("kernels", False, "no kernel")
WRITTEN, OPEN = Check("written", True, "m.onnx"), Check("latency", None, "int8 is slower")
OUT = Output(name="y", shape=(1,), dtype="float32", max_abs=2e-7, max_rel=0.0, ok=True)


@pytest.mark.parametrize(
    ("report", "line"),
    [
        (Report("m", (WRITTEN, GOOD)), "m: passed 1 check"),
        (Report("m", (GOOD, GOOD, OPEN)), "m: passed 2 checks"),
        (Report("m", (GOOD,), (OUT,)), "m: passed 1 check, 1 output within 2.0e-07 of the "
                                       "reference"),
        (Report("m", (GOOD, BAD), (OUT,)), "m: FAILED verification, 1 of what was checked"),
        (Report("m", (GOOD,), (dataclasses.replace(OUT, ok=False),)),
         "m: FAILED verification, 1 of what was checked"),
    ],
)  # fmt: skip
def test_one_line(report, line):
    assert report.summary() == line


def compared(ms, float32_ms, size):
    return Comparison(
        precision="int8", data="4 rows", differences=(Difference("y", 0.1, 0.2, 0.05),),
        answers=None, bytes=size, float32_bytes=100, timing=Timing(4, 7, ms, float32_ms),
        reduced={"MatMul": 1}, left=(),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ms", "size", "text"),
    [
        (2.0, 50, "2 ms against 1 ms for 4 rows: it saves bytes alone"),
        (2.0, 150, "and its files are no smaller"),
        (1.0, 50, None),
        (0.5, 50, None),
    ],
)
def test_a_slower_model_says_so(ms, size, text):
    class Options:
        max_drop, tolerance = 0.01, None

    rows = [r for r in _verdicts(compared(ms, 1.0, size), Options()) if r.check == "latency"]
    assert [r.ok for r in rows] == ([None] if text else [])
    assert all("int8 is slower than float32 on this CPU" in r.detail for r in rows)
    assert all(text in r.detail for r in rows)
