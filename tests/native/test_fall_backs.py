"""Libraries that do not load where flow2onnx-native is installed: errors and fall-backs."""

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from flow2onnx_native import library
from flow2onnx_native.library import open_library
from flow2onnx_runtime.errors import UnsupportedError

from tests.native.conftest import LIBRARY
from tests.native.test_jobs import lenet_like

ELF_X86_64, ELF_AARCH64 = 62, 183
OPEN = (
    "from flow2onnx_native.library import open_library; import logging; logging.basicConfig();"
    "print('Fused' in open_library().operators, 'Conv' in open_library().operators)"
)
NEWER = '__attribute__((visibility("default"))) int newer(void) { return 0; }\n'
NEEDS = "int newer(void); const char *flow2onnx_native_abi(void) { newer(); return 0; }\n"


def header(machine: int) -> bytes:
    """The first bytes of a shared library of 64 bits for some processor."""
    return b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 3, machine) + bytes(44)


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A library for a processor that this one is not."""
    own = library._MACHINES.get(os.uname().machine)
    if own is None:
        pytest.skip("neither x86-64 nor aarch64")
    path = tmp_path / LIBRARY
    path.write_bytes(header(ELF_AARCH64 if own == "x86-64" else ELF_X86_64))
    return path


def test_a_library_for_another_processor(
    package: None, foreign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOW2ONNX_NATIVE", str(foreign))
    with pytest.raises(UnsupportedError, match=r"cannot be opened: it is made for \S+, and") as got:
        open_library()
    assert "install flow2onnx-native for this system" in str(got.value)
    assert "config.runtime.native(False)" in str(got.value)


def test_a_job_that_wants_none_runs_in_spite_of_it(
    package: None, foreign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOW2ONNX_NATIVE", str(foreign))
    losses, _ = lenet_like(wish=False, steps=1)
    assert losses.shape == (1,)
    with pytest.raises(UnsupportedError, match="it is made for"):
        lenet_like(wish="auto", steps=1)


def test_a_library_that_needs_a_newer_system(
    package: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("no compiler of C, or not Linux")
    path = needing_newer_system(tmp_path, compiler)
    monkeypatch.setenv("FLOW2ONNX_NATIVE", str(path))
    with pytest.raises(UnsupportedError, match=r"version `GLIBC_9\.9' not found") as got:
        open_library()
    assert "from its sources if need be" in str(got.value)


def needing_newer_system(folder: Path, compiler: str) -> Path:
    """A library that asks the system's libm for a version which no system has yet."""
    (folder / "newer.c").write_text(NEWER)
    (folder / "newer.map").write_text("GLIBC_9.9 { global: newer; };\n")
    (folder / "needs.c").write_text(NEEDS)
    shared = [compiler, "-shared", "-fPIC"]
    commands = (
        [*shared, "newer.c", "-Wl,--version-script=newer.map", "-Wl,-soname,libm.so.6", "-o",
         "libnewer.so"],
        [*shared, "needs.c", "./libnewer.so", "-o", LIBRARY],
    )  # fmt: skip
    for command in commands:
        subprocess.run(command, cwd=folder, check=True)
    return folder / LIBRARY


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (header(ELF_AARCH64), "it is made for aarch64, and this is a process on x86-64"),
        (b"no library", "invalid ELF header|file too short"),
    ],
)
def test_onednn_that_does_not_load_leaves_the_other_operators(
    content: bytes, says: str, package: None, tmp_path: Path
) -> None:
    if library._MACHINES.get(os.uname().machine) != "x86-64":
        pytest.skip("the message names x86-64")
    path = tmp_path / "libdnnl.so.3"
    path.write_bytes(content)
    environment = {**os.environ, "FLOW2ONNX_ONEDNN": str(path),
                   "PYTHONPATH": os.pathsep.join(sys.path)}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", OPEN], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "True False\n"
    assert "oneDNN cannot be used, convolutions and products run without" in done.stderr
    assert any(part in done.stderr for part in says.split("|"))
