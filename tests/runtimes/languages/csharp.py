"""C#: classes over the C runtime by P/Invoke, on Mono."""

from pathlib import Path

from tests.runtimes.c_driver import MLP, ROOT, Command, sanitizers_work
from tests.runtimes.languages.java import SANITIZERS, copy_with_range, preloaded
from tests.runtimes.languages.language import Language, onnxruntime, run

CSHARP = ROOT / "runtime" / "csharp"


def build_library(release: Path, folder: Path, flags: str = "") -> None:
    """Both halves of the binding, in a folder."""
    run("make", "-C", release / "csharp", f"OUT={folder}", f"CFLAGS=-O1 {flags}")


def compile_with(folder: Path, name: str, *words: str | Path) -> None:
    """A program or library of sources and flags that uses the binding in a folder."""
    run("mcs", "-langversion:7.2", "-warn:4", "-warnaserror", f"-r:{folder / 'Flow2Onnx.dll'}",
        f"-out:{folder / name}", *words)  # fmt: skip


def compile_program(
    release: Path, folder: Path, name: str, *sources: Path, flags: str = ""
) -> dict[str, str]:
    """Variables with which Mono runs a program made in a folder, beside the archive's library."""
    build_library(release, folder, flags)
    compile_with(folder, name, *sources)
    return {
        "MONO_PATH": str(folder),
        "LD_LIBRARY_PATH": str(folder),
        "FLOW2ONNX_ORT_LIBRARY": str(onnxruntime()),
    }


def _build(release: Path, folder: Path) -> Command:
    variables = compile_program(release, folder, "Driver.exe", CSHARP / "tests" / "Driver.cs")
    return Command(("mono", "--debug", folder / "Driver.exe"), variables)


def _check(release: Path, folder: Path) -> None:
    """Warnings are errors; arrays, tasks and finalizers do what they should, by the sanitizers."""
    flags = SANITIZERS if sanitizers_work(folder) else ""
    checks = CSHARP / "tests" / "Checks.cs"
    variables = compile_program(release, folder, "Checks.exe", checks, flags=flags)
    if flags:
        variables |= preloaded(folder / "libflow2onnx_runtime.so")
    del variables["FLOW2ONNX_ORT_LIBRARY"]  # `run` gives it
    command = ("mono", "--debug", folder / "Checks.exe", MLP / "bundle", copy_with_range(folder))
    assert run(*command, **variables).endswith(" checks\n")


LANGUAGE = Language(
    "C#",
    ("mcs", "mono", "cc", "make"),
    _build,
    _check,
    sources=("runtime/csharp/Flow2Onnx/[!N]*.cs",),
    readme="runtime/csharp/README.md",
    unused=("f2o_dtype_name", "f2o_dtype_size", "f2o_tensor_bytes", "f2o_tensors_find"),
)
