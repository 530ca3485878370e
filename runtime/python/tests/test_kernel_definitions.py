"""Kernels that were recorded stand in for those of a runtime that cannot be asked."""

import onnxruntime as ort
import pytest

from flow2onnx_runtime import kernel_definitions as module
from flow2onnx_runtime.kernel_definitions import (
    Kernel,
    as_text,
    installed_definitions,
    stored_definitions,
)

CPU = "CPUExecutionProvider"


def test_the_recorded_version_is_as_the_runtime_says():
    if ort.__version__ != "1.31.1":
        pytest.skip(f"onnxruntime {ort.__version__} is not the recorded one")
    if len(ort.get_available_providers()) > 2:
        pytest.skip("this build might not survive the question")
    stored, installed = stored_definitions()[CPU], installed_definitions()[CPU]
    assert {k: set(map(_row, v)) for k, v in stored.items()} == {
        k: set(map(_row, v)) for k, v in installed.items()
    }


def _row(kernel):
    types = tuple((n, tuple(sorted(t))) for n, t in sorted(kernel.types.items()))
    return kernel.first, kernel.last, types


def test_text_holds_definitions():
    real = frozenset({"tensor(float)", "tensor(double)"})
    given = {
        "A": {("", "Add"): (Kernel(7, 12, {"T": real}), Kernel(13, 13, {"T": real}))},
        "B": {("com.example", "Own"): (Kernel(1, 2**31 - 1, {}),)},
    }
    assert module._from_text(as_text(given)) == given


@pytest.mark.parametrize(("version", "is_newer"), [("1.22.0", False), ("1.99.0", True)])
def test_another_version_takes_the_nearest(monkeypatch, version, is_newer):
    monkeypatch.setattr(module.ort, "__version__", version)
    assert set(stored_definitions()) >= {CPU, "CUDAExecutionProvider"}
    assert (module._numbers(version) > (1, 31, 1)) is is_newer
