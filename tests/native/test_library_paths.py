"""Which libraries the native package takes from the environment."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from flow2onnx_native import library
from flow2onnx_runtime.errors import OptionsError, UnsupportedError
from flow2onnx_runtime.trusted_libraries import PackageLibrary

posix_only = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no such owners")


@pytest.fixture
def named(tmp_path: Path) -> Path:
    """A file that may be loaded, as far as it is asked for who may write to it."""
    path = tmp_path / "libdnnl.so.3"
    path.write_bytes(b"no library")
    path.chmod(0o644)
    return path


def test_one_that_only_its_owner_changes(named: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, find in (("ONEDNN", library.onednn_path), ("NATIVE", library.library_path)):
        monkeypatch.setenv(f"FLOW2ONNX_{variable}", str(named))
        assert find() == str(named.resolve())


@posix_only
def test_one_that_others_write_to(named: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named.chmod(0o666)
    monkeypatch.setenv("FLOW2ONNX_ONEDNN", str(named))
    with pytest.raises(OptionsError, match="others may write to"):
        library.onednn_path()
    monkeypatch.setenv("FLOW2ONNX_NATIVE", str(named))
    with pytest.raises(
        UnsupportedError, match=r"FLOW2ONNX_NATIVE .*others may write to .*\n.*chmod"
    ):
        library.library_path()


@pytest.mark.parametrize("name", ["libdnnl.so.3", "./libdnnl.so.3", "../libdnnl.so.3"])
def test_a_name_that_depends_on_where_one_is(
    name: str, named: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(named.parent)
    monkeypatch.setenv("FLOW2ONNX_ONEDNN", name)
    with pytest.raises(OptionsError, match="no absolute path"):
        library.onednn_path()
    monkeypatch.setenv("FLOW2ONNX_NATIVE", name)
    with pytest.raises(UnsupportedError, match="no absolute path"):
        library.library_path()


def test_an_empty_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOW2ONNX_ONEDNN", "")
    assert library.onednn_path() is None
    monkeypatch.setenv("FLOW2ONNX_NATIVE", "")
    assert isinstance(library.library_path(), PackageLibrary)


def test_no_program_is_started_to_find_onednn(named: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise AssertionError(f"{arguments} was started")

    monkeypatch.delenv("FLOW2ONNX_ONEDNN", raising=False)
    monkeypatch.setattr(library, "_packaged", lambda *_: None)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    assert library.onednn_path() in (None, "libdnnl.so.3")


@posix_only
def test_what_is_refused_is_not_opened(named: Path, tmp_path: Path) -> None:
    """A library that says so when it is opened says nothing."""
    text = (
        "import os, logging; logging.basicConfig()\n"
        "from flow2onnx_native import library\n"
        "class Library:\n"
        "    def __getattr__(self, name):\n"
        "        raise AssertionError(name)\n"
        "print(library._open_onednn(Library()))\n"
    )
    named.chmod(0o646)
    environment = {**os.environ, "FLOW2ONNX_ONEDNN": str(named),
                   "PYTHONPATH": os.pathsep.join(sys.path)}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=True
    )
    assert "FLOW2ONNX_ONEDNN: the library" in done.stdout
    assert "others may write to" in done.stdout
