"""The real CUDA provider runs over the stand-in for the CUDA libraries: `make test-gpu`."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gpu import standin
from tests.native import cuda_host
from tests.native.conftest import SOURCE, entry_points, folder_for, forget


def pytest_collection_modifyitems(items):
    """Skip them where the stand-in is not in the loader's path."""
    here = [item for item in items if "tests/gpu/" in item.nodeid]
    if here and not standin.is_loaded():
        for item in here:
            item.add_marker(pytest.mark.skip("make test-gpu: the stand-in for CUDA is not loaded"))


@pytest.fixture(autouse=True)
def counted_anew():
    """Each test counts from 0, on a device of the usual size."""
    if standin.is_loaded():
        standin.repair()
        standin.reset()


@pytest.fixture(scope="session")
def cuda_library() -> Path:
    """The library of CUDA operators, as it is built for GPUs."""
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler: the native library cannot be built")
    folder = folder_for(SOURCE / "src")
    path = folder / cuda_host.LIBRARY
    return path if path.is_file() else cuda_host.build(folder)


@pytest.fixture
def native(cuda_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let flow2onnx-native be installed, here and in processes; the loader finds its NVRTC."""
    about = tmp_path / "flow2onnx_native-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: flow2onnx-native\n")
    (about / "entry_points.txt").write_text(entry_points())
    monkeypatch.syspath_prepend(str(tmp_path))
    paths = [str(tmp_path), str(SOURCE), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv("FLOW2ONNX_NATIVE_CUDA", str(cuda_library))
    forget()
    yield
    forget()
