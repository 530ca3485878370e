"""Distributions that are found where they are installed."""

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from flow2onnx_runtime import extensions
from flow2onnx_runtime.errors import UnsupportedError
from flow2onnx_runtime.extensions import accelerator

FAST = "DOMAIN = 'fast'\ndef require_library(): pass\n"
BROKEN = """
from flow2onnx_runtime.errors import UnsupportedError
def require_library():
    raise UnsupportedError("it is broken")
"""


@pytest.fixture(autouse=True)
def anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A group of its own, whatever is installed here."""
    monkeypatch.setattr(extensions, "GROUP", "flow2onnx.tests")
    extensions._installed.cache_clear()
    yield
    extensions._installed.cache_clear()


def install(name: str, code: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a distribution of one module be found."""
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[flow2onnx.tests]\n{name} = {name}\n")
    (folder / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(str(folder))
    importlib.invalidate_caches()


def test_what_is_installed_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install("extension_found", FAST, tmp_path, monkeypatch)
    for wish in (True, "auto"):
        found = accelerator(wish)
        assert found is not None
        assert found.DOMAIN == "fast"
    assert accelerator(False) is None


def test_nothing_is_installed() -> None:
    assert accelerator() is None
    with pytest.raises(UnsupportedError, match="flow2onnx-native is not installed"):
        accelerator(True)


def test_what_is_installed_and_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install("extension_broken", BROKEN, tmp_path, monkeypatch)
    assert accelerator(False) is None
    with pytest.raises(UnsupportedError, match="it is broken"):
        accelerator("auto")


def test_what_forbids_it_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install("extension_raising", "raise RuntimeError", tmp_path, monkeypatch)
    assert accelerator(False) is None
