"""Functions that only ask for memory are compiled: a compiler may take them for empty."""

import platform
import shutil
import subprocess

import pytest

from tests.native.conftest import SOURCE, setup_flags

ASKING = sorted(
    path.name for path in (SOURCE / "src").glob("*.cc") if "machine::fetch" in path.read_text()
)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="instructions have other names")
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
@pytest.mark.parametrize("name", ASKING)
def test_asking_ahead_is_compiled(name: str, include: str) -> None:
    source = str(SOURCE / "src" / name)
    command = ["g++", *setup_flags(), include, "-fPIC", "-S", "-o", "-", source]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "prefetch" in made


def test_some_ask() -> None:
    assert {"channels.cc", "fused.cc", "product.cc", "rows.cc", "winograd.cc"} <= set(ASKING)
