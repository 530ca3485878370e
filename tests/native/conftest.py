"""The native library, compiled from its sources for these tests, as an installed package."""

import ast
import hashlib
import importlib
import os
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from flow2onnx_native import matmul
from flow2onnx_native.abi import ConvShape, Method, cpp_header
from flow2onnx_native.convolution_methods import fastest_method
from flow2onnx_native.library import NativeLibrary, open_cuda_library, open_library
from flow2onnx_runtime import extensions

from tests.gpu import standin
from tests.native import cuda_host
from tests.shared_builds import alone

SOURCE = Path(__file__).parents[2] / "runtime" / "native"
LIBRARY = "libflow2onnx_native.so"
FLAGS = ("-std=c++17", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math",
         "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror")  # fmt: skip


@pytest.fixture(scope="session")
def include(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The flag that lets the compiler find the header made of the table."""
    folder = tmp_path_factory.mktemp("include")
    (folder / "abi.h").write_text(cpp_header())
    return f"-I{folder}"


@pytest.fixture(scope="session")
def compiled_library(include: str) -> Path:
    """The shared library; compiled once for each state of the sources, whatever process asks.

    FLOW2ONNX_NATIVE may name another build, as one with sanitizers.
    """
    if given := os.environ.get("FLOW2ONNX_NATIVE"):
        return Path(given)
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler: the native library cannot be built")
    path = folder_for(SOURCE / "src") / LIBRARY
    with alone(path):
        if not path.is_file():
            made = path.with_suffix(f".{os.getpid()}")
            units = sorted(str(p) for p in (SOURCE / "src").glob("*.cc"))
            command = [compiler, *FLAGS, include, "-shared", "-fPIC", *units, "-ldl", "-o", made]
            subprocess.run(command, check=True)
            made.replace(path)
    return path


def folder_for(*sources: Path) -> Path:
    """The folder of what is built of the files in these folders, as they are now."""
    files = sorted(p for folder in sources for p in folder.rglob("*") if p.is_file())
    content = b"".join(p.read_bytes() for p in files) + cpp_header().encode()
    state = hashlib.sha256(content).hexdigest()[:16]
    path = Path(tempfile.gettempdir(), f"flow2onnx-native-{os.getuid()}-{state}")
    path.mkdir(exist_ok=True)
    return path


@pytest.fixture(scope="session")
def cuda_on_host() -> NativeLibrary:
    """The library of CUDA operators, its kernels compiled for this processor as they are asked for.

    Compiled once for each state of the sources, kernels too.
    """
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler: the native library cannot be built")
    folder = folder_for(SOURCE / "src", Path(standin.__file__).parent)
    cuda_host.build_on_host(folder)
    return cuda_host.open_on_host(folder)


@pytest.fixture
def package(
    compiled_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Let flow2onnx-native be installed, here and in the processes that are started."""
    about = tmp_path / "site" / "flow2onnx_native-0.1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: flow2onnx-native\n")
    (about / "entry_points.txt").write_text(entry_points())
    monkeypatch.syspath_prepend(str(about.parent))
    paths = [about.parent, SOURCE, os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, paths)))
    monkeypatch.setenv("FLOW2ONNX_NATIVE", str(compiled_library))
    forget()
    yield
    forget()


def entry_points() -> str:
    """The entry points of the package, as they are installed."""
    project = tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]
    return "".join(
        f"[{group}]\n" + "".join(f"{name} = {where}\n" for name, where in points.items())
        for group, points in project["entry-points"].items()
    )


@pytest.fixture
def not_installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let there be no accelerator, whatever is installed here."""
    monkeypatch.setattr(extensions, "GROUP", "flow2onnx.nobody")
    forget()
    yield
    forget()


def forget() -> None:
    """Let the package be looked for again, and its libraries opened."""
    open_library.cache_clear()
    open_cuda_library.cache_clear()
    extensions._installed.cache_clear()
    importlib.invalidate_caches()


@pytest.fixture(autouse=True)
def small_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tests have programs of two nodes, which do not pay."""
    monkeypatch.setattr("flow2onnx_native.pipeline.FEWEST", 2)


@pytest.fixture
def any_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let convolutions be native that are faster as standard operators."""

    def method_or_sums(name: str, shape: ConvShape, *, winograd: bool, avx512: bool) -> Method:
        return fastest_method(name, shape, winograd=winograd, avx512=avx512) or Method.SUMS

    monkeypatch.setattr("flow2onnx_native.convolutions.fastest_method", method_or_sums)


@pytest.fixture
def library(package: None) -> NativeLibrary:
    """The library, with the convolutions if there is oneDNN."""
    return open_library()


@pytest.fixture
def convolving(library: NativeLibrary) -> NativeLibrary:
    """The library, if it has convolutions."""
    if "Conv" not in library.operators:
        pytest.skip("no oneDNN 3: pip install onednn-cpu-gomp, or set FLOW2ONNX_ONEDNN")
    return library


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let products be taken that would not pay."""
    monkeypatch.setattr(matmul, "is_worth_a_call", lambda shape, depth, transposed: depth > 0)


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
