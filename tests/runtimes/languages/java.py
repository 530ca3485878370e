"""Java: classes over the C runtime by JNI, under the virtual machine's own checks of that."""

import shutil
from pathlib import Path

from tests.runtimes.c_driver import MLP, ROOT, Command, rewrite, set_at
from tests.runtimes.languages.language import Language, onnxruntime, run

JAVA = ROOT / "runtime" / "java"
CHECKED = ["-Xcheck:jni", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
JAVAC = ["--release", "8", "-Xlint:all,-options", "-Werror", "-encoding", "UTF-8"]
LABELS = {"least": 0, "below": 10, "ignored": -1, "layer": "the loss"}


def make_java(release: Path, folder: Path, *targets: str) -> None:
    """What the archive's Makefile builds, in a folder."""
    run("make", "-C", release / "java", f"OUT={folder}", "BUILD_TYPE=Debug", *targets)


def compile_tests(folder: Path, *sources: Path) -> None:
    """Classes of the repository that use the archive's, in the folder of these."""
    run("javac", *JAVAC, "-cp", folder / "flow2onnx.jar", "-d", folder, *sources)


def java(folder: Path, *words: str | Path) -> list[str | Path]:
    """The command that runs a class of the folder."""
    paths = f"{folder / 'flow2onnx.jar'}:{folder}"
    return ["java", *CHECKED, f"-Djava.library.path={folder}", "-cp", paths, *words]


def copy_with_range(folder: Path) -> Path:
    """The bundle mlp, with a range of its labels."""
    shutil.copytree(MLP / "bundle", folder / "ranged")
    rewrite(folder / "ranged", set_at("feeds/1/range", LABELS))
    return folder / "ranged"


def _build(release: Path, folder: Path) -> Command:
    make_java(release, folder)
    compile_tests(folder, JAVA / "tests" / "Driver.java")
    return Command(tuple(java(folder, "Driver")), {"FLOW2ONNX_ORT_LIBRARY": str(onnxruntime())})


def _check(release: Path, folder: Path) -> None:
    """Warnings are errors, and the checks of JNI say nothing."""
    make_java(release, folder)
    compile_tests(folder, JAVA / "tests" / "Checks.java")
    said = run(*java(folder, "Checks", MLP / "bundle", copy_with_range(folder)))
    assert said.endswith(" checks\n"), said
    assert len(said.splitlines()) == 1, said


LANGUAGE = Language(
    "Java",
    ("java", "javac", "cmake", "cc", "make"),
    _build,
    _check,
    sources=("runtime/java/src/main/c/native.c",),
    readme="runtime/java/README.md",
)
