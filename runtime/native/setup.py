"""Builds the shared library with the system's C++ compiler; it does not depend on Python's ABI."""

import runpy
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

FOLDER = Path(__file__).parent / "src"
TABLE = Path(__file__).parent / "flow2onnx_native" / "abi.py"
SOURCES = sorted(f"src/{p.name}" for p in FOLDER.glob("*.cc"))
# Built without CUDA, of which it opens the driver and the compiler when a job starts.
CUDA_SOURCES = ["src/ort.cc", "src/fused_plan.cc", "src/channels_plan.cc",
                "src/row_operators.cc",
                *sorted(f"src/cuda/{p.name}" for p in FOLDER.glob("cuda/*.cc"))]  # fmt: skip
HEADERS = sorted(
    str(p.relative_to(FOLDER.parent)) for p in FOLDER.rglob("*") if p.suffix in (".h", ".inc")
)
# No contraction: a program rounds after every operation, as the operators it stands for do.
FLAGS = [
    "-std=c++17", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math",
    "-fvisibility=hidden", "-Wall", "-Wextra",
]  # fmt: skip


class BuildLibrary(build_ext):
    """Libraries for any Python, without the name of one in theirs; with the table's header."""

    def build_extension(self, ext: Extension) -> None:
        """Make the header of what Python and C++ share, then build."""
        folder = Path(self.build_temp)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "abi.h").write_text(runpy.run_path(str(TABLE))["cpp_header"]())
        ext.include_dirs.append(str(folder))
        super().build_extension(ext)

    def get_ext_filename(self, fullname: str) -> str:
        """The library's name, whatever Python is called here."""
        path = Path(*fullname.split("."))
        return str(path.with_name(f"lib{path.name}.so"))

    def get_export_symbols(self, ext: Extension) -> list[str]:
        """None: it is no Python module."""
        return []


class PlatformWheel(bdist_wheel):
    """A wheel for one platform and every Python."""

    def get_tag(self) -> tuple[str, str, str]:
        """Python 3, no ABI of its, this platform."""
        return "py3", "none", super().get_tag()[2]


def library(name: str, sources: list[str]) -> Extension:
    """How a shared library of the package is built."""
    return Extension(
        f"flow2onnx_native.{name}", sources, depends=[*HEADERS, str(TABLE)], language="c++",
        extra_compile_args=FLAGS, libraries=["dl"],
    )  # fmt: skip


setup(
    ext_modules=[
        library("flow2onnx_native", SOURCES),
        library("flow2onnx_native_cuda", CUDA_SOURCES),
    ],
    cmdclass={"build_ext": BuildLibrary, "bdist_wheel": PlatformWheel},
)
