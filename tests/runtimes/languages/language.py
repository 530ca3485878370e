"""A language as the tests know it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import onnxruntime as ort

from tests.runtimes.c_driver import ROOT, Command

__all__ = ["Language", "onnxruntime", "run"]


@dataclass(frozen=True)
class Language:
    """A language with a binding.

    `build` makes the driver in a folder, from the unpacked release; `check` runs the language's own
    checker or the sanitizers there and fails on a finding. `lacks` gives, for a feature of the
    contract's table, the reason why the language has it not; `not_run` why none of it is run.
    """

    name: str
    tools: tuple[str, ...]
    build: Callable[[Path, Path], Command] | None = None
    check: Callable[[Path, Path], None] | None = None
    sources: tuple[str, ...] = ()  # patterns of the binding's own files, in the repository
    readme: str | None = None
    unused: tuple[str, ...] = ()  # functions of C that it does by means of its own
    lacks: dict[str, str] = field(default_factory=dict)
    not_run: str = ""

    @property
    def missing(self) -> str:
        """Why it cannot be built here, or nothing."""
        absent = [tool for tool in self.tools if not shutil.which(tool)]
        return f"{self.name}: there is no {' and no '.join(absent)}" if absent else ""


def onnxruntime() -> Path:
    """The library in the wheel of onnxruntime."""
    folder = Path(ort.__file__).parent / "capi"
    return max(folder.glob("libonnxruntime.*"), key=lambda path: len(path.name))


def run(*words: str | Path, cwd: Path | None = None, **variables: str) -> str:
    """The output of a program; an assertion with all it said where it fails."""
    done = subprocess.run(
        words, cwd=cwd, capture_output=True, text=True,
        env=dict(os.environ, FLOW2ONNX_ORT_LIBRARY=str(onnxruntime()), PYTHON=sys.executable,
                 PYTHONPATH=os.pathsep.join([str(ROOT), str(ROOT / "runtime" / "python")]),
                 **variables),
    )  # fmt: skip
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout
