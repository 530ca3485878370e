"""The C++ header: its types, its examples, and what a main loop allocates."""

import shutil
import subprocess
import sys

import pytest

from tests.runtimes.c_driver import MARKS, MLP, OPTIONS, ROOT, Driver
from tests.runtimes.languages import cpp
from tests.runtimes.languages.language import onnxruntime, run

CPP = ROOT / "runtime" / "cpp"
pytestmark = [*MARKS, pytest.mark.skipif(bool(cpp.LANGUAGE.missing), reason=cpp.LANGUAGE.missing)]


@pytest.mark.slow
def test_types_and_refusals_of_the_header(release, tmp_path):
    """tests/types.cpp asserts at compile time and at run time; it prints how often."""
    cpp.compile_program(release, CPP / "tests" / "types.cpp", tmp_path / "types", *cpp.SANITIZERS)
    assert run(tmp_path / "types", MLP / "bundle", cwd=tmp_path).endswith("as it should be\n")


@pytest.mark.slow
def test_a_loop_allocates_nothing(release, tmp_path):
    run(sys.executable, CPP / "examples" / "prepare.py", tmp_path / "bundle")
    loop = tmp_path / "loop.o"
    includes = [f"-I{release / 'c'}", f"-I{release / 'cpp' / 'include'}"]
    run("g++", "-std=c++17", "-Os", *includes, "-c", CPP / "examples" / "loop.cpp", "-o", loop)
    wraps = [f"-Wl,--wrap={f}" for f in ("malloc", "calloc", "realloc", "aligned_alloc")]
    cpp.compile_program(release, CPP / "tests" / "heap.cpp", tmp_path / "heap",
                        loop, "-static-libstdc++", *wraps)  # fmt: skip
    lines = run(tmp_path / "heap", cwd=tmp_path).splitlines()
    assert lines[-1].endswith(" 0 in 400 turns")
    assert int(lines[-1].split()[0]) > 100, "what setup() allocates is counted"
    assert "8 of 8 right" in lines[-2]


@pytest.mark.slow
def test_the_console_program_learns(release, tmp_path):
    run(sys.executable, "-m", "examples.c.prepare", tmp_path, cwd=ROOT)
    cpp.compile_program(release, CPP / "examples" / "digits.cpp", tmp_path / "digits")
    printed = run(tmp_path / "digits", tmp_path, "6")
    assert float(printed.split()[-2]) > 95
    assert "going on after step" in run(tmp_path / "digits", tmp_path, "1")
    (tmp_path / "state.safetensors").write_bytes(b"\0" * 100)
    done = subprocess.run([tmp_path / "digits", tmp_path], capture_output=True, text=True)
    assert done.returncode == 1


@pytest.mark.slow
@pytest.mark.skipif(
    not (shutil.which("cmake") and shutil.which("pkg-config")), reason="no cmake or no pkg-config"
)
def test_an_installation_may_link_onnxruntime(release, tmp_path):
    """Linked, the program takes no other library; pkg-config knows what to link."""
    build, installed = tmp_path / "build", tmp_path / "installed"
    library = tmp_path / "libonnxruntime.so.1"  # the name that the wheel's library lacks
    library.symlink_to(onnxruntime())
    run("cmake", "-S", release / "cpp", "-B", build, f"-DFLOW2ONNX_ONNXRUNTIME={library}",
        f"-DCMAKE_INSTALL_PREFIX={installed}", "-DCMAKE_INSTALL_LIBDIR=lib/deep")  # fmt: skip
    run("cmake", "--build", build, "--target", "install")
    flags = run("pkg-config", "--cflags", "--libs", "flow2onnx",
                PKG_CONFIG_PATH=str(installed / "lib" / "deep" / "pkgconfig")).split()  # fmt: skip
    run("g++", "-std=c++17", CPP / "tests" / "driver.cpp", *flags, "-o", tmp_path / "driver",
        f"-Wl,-rpath,{tmp_path}")  # fmt: skip
    driver = Driver(tmp_path)
    driver.ok("open", MLP / "bundle")
    driver.ok("library", library)
    driver.refused(OPTIONS, "open", MLP / "bundle")
    driver.close()
