"""Java, Kotlin and Android beyond the binding that all languages share."""

import os
import re
import shutil
import zipfile
from pathlib import Path

import pytest

from tests.runtimes.c_driver import MARKS, MLP, ROOT
from tests.runtimes.languages.java import JAVA, LANGUAGE, java, make_java
from tests.runtimes.languages.language import run

# Where `.ci/run` puts the compiler, which brings the coroutines.
KOTLIN = ROOT / ".venv" / "kotlin" / "node_modules" / "kotlin-compiler"
KOTLINC = os.environ.get("KOTLINC") or str(KOTLIN / "bin" / "kotlinc")

pytestmark = [*MARKS, pytest.mark.skipif(bool(LANGUAGE.missing), reason=LANGUAGE.missing)]
needs_kotlin = pytest.mark.skipif(
    not Path(KOTLINC).is_file(),
    reason="no Kotlin compiler: npm install --prefix .venv/kotlin kotlin-compiler, or KOTLINC=FILE",
)


def test_each_native_is_used():
    """A function that the header gains is missing in Java until a class calls it."""
    folder = JAVA / "src" / "main" / "java" / "flow2onnx"
    natives = set(re.findall(r" static native \w+ (\w+)\(", (folder / "Native.java").read_text()))
    others = [path for path in folder.glob("*.java") if path.name != "Native.java"]
    used = set(re.findall(r"\bNative\.([a-z]\w+)\(", "".join(p.read_text() for p in others)))
    assert natives - used == {"dtypeName", "tensorBytes", "tensorsFind"}


@pytest.mark.slow
def test_the_archive_for_android(release, tmp_path):
    make_java(release, tmp_path, "aar")
    with zipfile.ZipFile(tmp_path / "flow2onnx.aar") as archive:
        assert {"AndroidManifest.xml", "classes.jar", "R.txt", "proguard.txt"} <= set(
            archive.namelist()
        )
        (tmp_path / "classes.jar").write_bytes(archive.read("classes.jar"))
    with zipfile.ZipFile(tmp_path / "classes.jar") as classes:
        content = classes.read("flow2onnx/Trainer.class")
    assert int.from_bytes(content[6:8], "big") == 52, "classes of Java 8"


@pytest.mark.slow
@needs_kotlin
def test_kotlin(release, tmp_path):
    """Flows and calls that are cancelled, and the program of the page."""
    libraries = Path(KOTLINC).resolve().parents[1] / "lib"
    coroutines = libraries / "kotlinx-coroutines-core-jvm.jar"
    make_java(release, tmp_path, "all", "kotlin", f"KOTLINC=bash {KOTLINC}",
              f"COROUTINES={coroutines}")  # fmt: skip
    shown = re.search(r"```kotlin Learn\.kt\n(.*?)```", (JAVA / "README.md").read_text(), re.S)
    (tmp_path / "Learn.kt").write_text(shown[1])
    jars = [tmp_path / "flow2onnx.jar", tmp_path / "flow2onnx-kotlin.jar", coroutines]
    path = ":".join(map(str, jars))
    run("bash", KOTLINC, "-Werror", "-jvm-target", "1.8", "-cp", path, tmp_path / "Learn.kt",
        JAVA / "tests" / "Flows.kt", "-d", tmp_path / "tests.jar")  # fmt: skip
    path = ":".join([path, str(tmp_path / "tests.jar"), str(libraries / "kotlin-stdlib.jar")])
    command = ["java", "-Xcheck:jni", f"-Djava.library.path={tmp_path}", "-cp", path]
    assert run(*command, "FlowsKt", MLP / "bundle") == "flows are right\n"
    shutil.copytree(MLP / "bundle", tmp_path / "bundle")
    said = run(*command, "LearnKt", cwd=tmp_path)
    losses = [float(found) for found in re.findall(r"loss (\S+)", said)]
    assert len(losses) == 3
    assert losses[2] < losses[0]
    assert said.endswith("[out/0]\n")


@pytest.mark.slow
def test_a_missing_library_is_said(release, tmp_path):
    make_java(release, tmp_path, str(tmp_path / "flow2onnx.jar"))
    (tmp_path / "Try.java").write_text(
        'class Try { public static void main(String[] a) { flow2onnx.Trainer.open("b"); } }\n'
    )
    run("javac", "-cp", tmp_path / "flow2onnx.jar", "-d", tmp_path, tmp_path / "Try.java")
    command = java(tmp_path, "Try")
    with pytest.raises(AssertionError, match="no flow2onnx_jni in") as told:
        run(*command)
    assert "-Dflow2onnx.library=FILE" in str(told.value)
