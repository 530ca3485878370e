"""The doctor's lines about the engines that connect processes."""

import importlib.util

import pytest

from flow2onnx.cli.engines import engines

LIBRARIES = {"torch": "torch", "mpi": "mpi4py"}


def of(name):
    (found,) = [e for e in engines() if e["name"] == name]
    return found


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A library of a given text, in the place of the real one."""

    def put(library, text):
        (tmp_path / f"{library}.py").write_text(text)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == library or None)

    return put


def test_what_is_not_installed(fake):
    fake("torch", "")
    assert of("mpi") == {
        "name": "mpi", "usable": False, "version": None,
        "why_not": "not installed: pip install 'flow2onnx[mpi]'",
    }  # fmt: skip


@pytest.mark.parametrize("name", LIBRARIES)
def test_what_cannot_be_imported(fake, name):
    fake(LIBRARIES[name], "raise ImportError('libmpi.so.40 is missing')")
    found = of(name)
    assert not found["usable"]
    assert found["why_not"] == "ImportError: libmpi.so.40 is missing"


def test_a_library_that_kills_its_process(fake):
    fake("mpi4py", "import os; os.abort()")
    assert of("mpi")["why_not"] == "it ends with exit status -6"


def test_mpi_without_mpirun(fake, monkeypatch):
    text = "class MPI:\n    Get_library_version = staticmethod(lambda: 'Some MPI 1.0')"
    fake("mpi4py", text)
    monkeypatch.setattr("shutil.which", lambda *a, **k: None)
    found = of("mpi")
    assert (found["usable"], found["version"]) == (False, "Some MPI 1.0")
    assert "no mpirun" in found["why_not"]
    monkeypatch.setattr("shutil.which", lambda *a, **k: "/usr/bin/mpirun")
    assert of("mpi")["usable"]
