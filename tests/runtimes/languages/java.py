"""Java: classes over the C runtime by JNI, under the virtual machine's own checks of that."""

import shutil
from pathlib import Path

from tests.runtimes.c_driver import MLP, ROOT, Command, rewrite, sanitizers_work, set_at
from tests.runtimes.languages.language import Language, onnxruntime, run

JAVA = ROOT / "runtime" / "java"
CHECKED = ["-Xcheck:jni", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
JAVAC = ["--release", "8", "-Xlint:all,-options", "-Werror", "-encoding", "UTF-8"]
SANITIZERS = "-fsanitize=address,undefined -fno-sanitize-recover=all"
LABELS = {"least": 0, "below": 10, "ignored": -1, "layer": "the loss"}


def make_java(release: Path, folder: Path, *targets: str, **variables: str) -> None:
    """Build targets of the archive with its Makefile, in a folder."""
    words = ("make", "-C", release / "java", f"OUT={folder}", "BUILD_TYPE=Debug", *targets)
    run(*words, **variables)


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


def preloaded(library: Path) -> dict[str, str]:
    """Variables with which another language's process runs a library with the sanitizers."""
    assert b"__asan_init" in library.read_bytes()
    found = [
        run("cc", f"-print-file-name={name}").strip() for name in ("libasan.so", "libubsan.so")
    ]
    # Virtual machines use segmentation faults, and keep what they have at their end.
    return {"LD_PRELOAD": " ".join(found), "ASAN_OPTIONS": "handle_segv=0:detect_leaks=0"}


def _check(release: Path, folder: Path) -> None:
    """Warnings are errors, and neither the checks of JNI nor the sanitizers say anything."""
    with_sanitizers = sanitizers_work(folder)
    make_java(release, folder, **({"CFLAGS": SANITIZERS} if with_sanitizers else {}))
    variables = preloaded(folder / "libflow2onnx_jni.so") if with_sanitizers else {}
    compile_tests(folder, JAVA / "tests" / "Checks.java")
    command = java(folder, "Checks", MLP / "bundle", copy_with_range(folder))
    said = run(*command, **variables)
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
