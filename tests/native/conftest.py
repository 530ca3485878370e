"""The native library, compiled from its sources for these tests, as an installed package."""

import ast
import hashlib
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from flow2onnx.engine import native
from flow2onnx.engine.native import NativeLibrary, native_library
from flow2onnx.passes.native import products

SOURCE = Path(__file__).parents[2] / "runtime" / "native"
LIBRARY = "libflow2onnx_native.so"
FLAGS = ("-std=c++17", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math",
         "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror")  # fmt: skip


@pytest.fixture(scope="session")
def compiled_library() -> Path:
    """The shared library; compiled once for each state of the sources, whatever process asks."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler: the native library cannot be built")
    sources = sorted((SOURCE / "src").iterdir())
    state = hashlib.sha256(b"".join(p.read_bytes() for p in sources)).hexdigest()[:16]
    path = Path(tempfile.gettempdir(), f"flow2onnx-native-{os.getuid()}-{state}", LIBRARY)
    if not path.is_file():
        path.parent.mkdir(exist_ok=True)
        made = path.with_suffix(f".{os.getpid()}")
        units = [str(p) for p in sources if p.suffix == ".cc"]
        subprocess.run(
            [compiler, *FLAGS, "-shared", "-fPIC", *units, "-ldl", "-o", made], check=True
        )
        made.replace(path)
    return path


@pytest.fixture
def package(
    compiled_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """The folder of an installed flow2onnx-native."""
    folder = tmp_path / "site" / "flow2onnx_native"
    shutil.copytree(SOURCE / "flow2onnx_native", folder)
    (folder / LIBRARY).symlink_to(compiled_library)
    monkeypatch.syspath_prepend(str(folder.parent))
    forget()
    yield folder
    forget()


def forget() -> None:
    """Let the package be looked for again."""
    native._opened.cache_clear()
    sys.modules.pop("flow2onnx_native", None)
    importlib.invalidate_caches()


@pytest.fixture(autouse=True)
def small_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tests have programs of two nodes, which would not pay."""
    monkeypatch.setattr("flow2onnx.passes.native.FEWEST", 2)


@pytest.fixture
def library(package: Path) -> NativeLibrary:
    """The library, with the convolutions if there is oneDNN."""
    found = native_library(wish=True)
    assert found is not None
    return found


@pytest.fixture
def convolving(library: NativeLibrary) -> NativeLibrary:
    """The library, if it has convolutions."""
    if "Conv" not in library.operators:
        pytest.skip("no oneDNN 3: pip install onednn-cpu-gomp, or set FLOW2ONNX_ONEDNN")
    return library


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let products be taken that would not pay."""
    monkeypatch.setattr(products, "pays", lambda shape, depth, turned: depth > 0)


@pytest.fixture
def multiplying(convolving: NativeLibrary, small: None) -> NativeLibrary:
    """The library with oneDNN, for products of any size."""
    assert "Product" in convolving.operators
    return convolving


def setup_flags() -> tuple[str, ...]:
    """The flags that the package is built with."""
    tree = ast.parse((SOURCE / "setup.py").read_text())
    made = next(
        n.value
        for n in tree.body
        if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "FLAGS"
    )
    return tuple(ast.literal_eval(made))
