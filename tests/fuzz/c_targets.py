"""The targets in C: built with libFuzzer, or with a program that reads inputs and nothing more."""

import functools
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.runtimes.c_driver import SOURCE, make

__all__ = ["C_NAMES", "build_fuzzer", "build_replay", "environment", "inputs_of"]

# Of each target, the Python target whose inputs it takes.
_INPUTS = {"c-json": "manifest", "c-manifest": "manifest", "c-model": "model_limits",
           "c-safetensors": "safetensors"}  # fmt: skip
C_NAMES = tuple(_INPUTS)
_FOLDER = Path(__file__).with_name("c")
# Functions that no target calls are no mistake here.
_FLAGS = ("-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function",
          "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")  # fmt: skip


def inputs_of(name: str) -> str:
    """The Python target that a target in C shares its inputs with."""
    return _INPUTS[name]


def environment(name: str) -> dict[str, str]:
    """The variable by which the program knows its target."""
    return {"F2O_TARGET": name.removeprefix("c-")}


@functools.cache
def build_fuzzer(folder: Path) -> Path:
    """The program with libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer."""
    clang = shutil.which("clang")
    if clang is None:
        raise SystemExit("the targets in C need clang: apt-get install clang")
    return _build(clang, folder, "fuzzer,address,undefined", ["targets.c"])


def build_replay(folder: Path) -> Path:
    """The program without libFuzzer, by any compiler that has the sanitizers; soon compiled."""
    return _build("cc", folder, "address,undefined", ["-O0", "targets.c", "replay.c"])


def _build(compiler: str, folder: Path, sanitizers: str, sources: Sequence[str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    make(folder, "flow2onnx_runtime.c")
    program = folder / "fuzzer"
    subprocess.run(
        [compiler, *_FLAGS, f"-fsanitize={sanitizers}", f"-I{folder}", f"-I{SOURCE}",
         *(s if s.startswith("-") else str(_FOLDER / s) for s in sources),
         "-lm", "-o", str(program)],
        check=True,
    )  # fmt: skip
    return program
