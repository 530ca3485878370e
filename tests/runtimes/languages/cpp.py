"""C++: the header over the C runtime, with the sanitizers."""

import shutil
from pathlib import Path

from tests.runtimes.c_driver import ROOT, WARNINGS, Command
from tests.runtimes.languages.language import Language, onnxruntime, run

_CPP = ROOT / "runtime" / "cpp"
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all",
               "-fno-omit-frame-pointer"]  # fmt: skip


def compile_program(release: Path, source: Path, target: Path, *flags: str | Path) -> None:
    """A program of one file with the C runtime in it."""
    includes = (f"-I{release / 'c'}", f"-I{release / 'cpp' / 'include'}")
    joined = target.parent / "runtime.o"
    kept = [flag for flag in flags if str(flag).startswith("-f")]
    if not joined.exists():
        run("cc", "-std=c11", "-O1", "-DFLOW2ONNX_LOAD_ORT", *kept, includes[0], "-c",
            release / "c" / "flow2onnx_runtime.c", "-o", joined)  # fmt: skip
    run("g++", "-std=c++17", "-O0", *WARNINGS, *flags, *includes, source, joined, "-o", target,
        "-lm", "-ldl", "-pthread")  # fmt: skip


def _build(release: Path, folder: Path) -> Command:
    compile_program(release, _CPP / "tests" / "driver.cpp", folder / "driver", *SANITIZERS)
    return Command((folder / "driver",), {"FLOW2ONNX_ORT_LIBRARY": str(onnxruntime())})


def _check(release: Path, folder: Path) -> None:
    """The driver is built with the sanitizers; here later standards and other compilers read it."""
    includes = (f"-I{release / 'c'}", f"-I{release / 'cpp' / 'include'}")
    for compiler in filter(shutil.which, ("g++", "clang++")):
        for standard in ("-std=c++17", "-std=c++20"):
            run(compiler, standard, "-O2", "-c", *WARNINGS, *includes,
                _CPP / "tests" / "driver.cpp", "-o", folder / "driver.o")  # fmt: skip


LANGUAGE = Language(
    "C++",
    ("g++", "cc", "make"),
    _build,
    _check,
    sources=("runtime/cpp/include/*.hpp",),
    readme="runtime/cpp/README.md",
)
