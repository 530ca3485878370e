"""Options that say nothing beside one another, or without one another."""

import pytest

TOGETHER = [
    (["tune", "a.py:b", "--emit", "x", "--cache", "y"], "--emit excludes --cache"),
    (["tune", "a.py:b", "--emit", "x", "--json"], "--emit excludes --json"),
    (["flags", "--markdown", "--json"], "--markdown excludes --json"),
    (["symbols", "--markdown", "--json"], "--markdown excludes --json"),
    (["export", "a.py:b", "--triton", "x", "--accumulate"], "--triton excludes --accumulate"),
    (["export", "a.py:b", "--triton", "x", "--dynamic-batch"], "excludes --dynamic-batch"),
    (["export", "a.py:b", "--triton", "x", "--ort"], "--triton excludes --ort"),
    (["export", "a.py:b", "-o", "x", "--on-device", "y"], "give one of -o OUT"),
    (["export", "a.py:b", "-o", "x", "--labels", "train.npz"], "--labels is for --triton"),
    (["train", "b", "--data", "d", "--patience", "3"], "--patience is for --reduce-on-plateau"),
    (["train", "b", "--data", "d", "--monitor", "loss"], "--monitor is for --early-stopping or"),
    (["train", "b", "--data", "d", "--output", "p"], "--output is for --metrics"),
    (["data", "build", "train.npz", "-o", "x", "--seed", "3"], "--seed is for --shuffle"),
    (["data", "build", "train.npz", "-o", "x", "--check-images"], "is for a folder of images"),
]


@pytest.mark.parametrize(("arguments", "text"), TOGETHER, ids=[row[1] for row in TOGETHER])
def test_options_that_do_not_go_together(flow2onnx, folder, arguments, text):
    (folder / "train.npz").write_bytes(b"")
    result = flow2onnx(*arguments)
    assert result.exit_code == 2, result.output
    assert text in result.output


def test_defaults_are_not_what_was_asked_for(flow2onnx):
    assert flow2onnx("symbols", "--markdown").exit_code == 0
