"""Kernel texts compiled by NVIDIA's compiler for the GPUs they are meant for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.nvrtc import ARCHITECTURES

KERNELS = ("fused", "sums", "stage0", "cells", "cross_entropy", "look_up", "add_rows",
           "attention", "attention_queries", "attention_keys", "draw")  # fmt: skip


def run(module: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_kernel_compiles_for_every_gpu(
    native: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = os.environ.get("STANDIN_NVRTC")
    if not compiler:
        pytest.skip("STANDIN_NVRTC names no libnvrtc.so.13: kernels are not compiled for any GPU")
    monkeypatch.setenv("STANDIN_KERNELS", str(tmp_path))
    print(run("tests.gpu.kernel_texts"))
    texts = [path.read_text() for path in tmp_path.glob("kernel-*.cu")]
    assert len(texts) > 20
    missing = [n for n in KERNELS if not any(f"KERNEL(flow2onnx_{n}," in text for text in texts)]
    assert not missing
    monkeypatch.delenv("LD_LIBRARY_PATH")
    made = run("tests.gpu.nvrtc", compiler, str(tmp_path)).splitlines()
    assert len(made) == len(texts) * len(ARCHITECTURES)
