"""The rehearsal of a release: everything is built, installed from the files alone, and tried.

Each distribution for Python goes into an environment of its own for each Python that is here, with
its requirements from the index and nothing of ours but the files; the programs of `release/smoke`
run there, in a folder outside the checkout. So are the package for npm and the archive for C.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from release.build import BILL, Builder, run
from release.contents import findings
from release.versions import ReleaseError, semantic

__all__ = ["PYTHONS", "Rehearsal", "Row", "table"]

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
_SMOKE = Path(__file__).parent / "smoke"
# What each program needs: files of the release with their extras.
_PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "runtime": ("flow2onnx_runtime[cpu]",),
    "compiler": ("flow2onnx_runtime", "flow2onnx[cpu]"),
    "serve": ("flow2onnx_runtime", "flow2onnx_serve[cpu]"),
    "native": ("flow2onnx_runtime", "flow2onnx[cpu]", "flow2onnx_native"),
}
_ORT_NODE = "onnxruntime-node"


class _SkippedError(Exception):
    """A trial that cannot be made here; the message says why."""


@dataclass(frozen=True)
class Row:
    """A trial, its result (`passed`, `FAILED`, `skipped`), how long it took, and a word."""

    what: str
    result: str
    seconds: float
    word: str


class Rehearsal:
    """The rows of one rehearsal; `work` is an empty folder outside the checkout."""

    def __init__(self, builder: Builder, work: Path, pythons: Sequence[str] = PYTHONS) -> None:
        self.builder, self.work, self.pythons = builder, work, pythons
        self.rows: list[Row] = []
        self.conformance = work / "conformance"

    def run(self) -> list[Row]:
        """Build, look at the files, install, try."""
        self._row("build", self._build)
        if self.rows[-1].result == "FAILED":
            return self.rows
        self._row("contents", self._contents)
        shutil.copytree(self.builder.root / "runtime" / "conformance", self.conformance)
        for number in self.pythons:
            python = find_python(number)
            for name in _PROGRAMS:
                self._row(f"{name}, Python {number}", partial(self._python, name, python))
        self._row("npm", self._npm)
        self._row("C archive, CMake", partial(self._c, "cmake"))
        self._row("C archive, pkg-config", partial(self._c, "pkg-config"))
        return self.rows

    def _row(self, what: str, step: Callable[[], str]) -> None:
        begun = time.monotonic()
        try:
            result, word = "passed", step()
        except _SkippedError as reason:
            result, word = "skipped", str(reason)
        except ReleaseError as error:
            result, word = "FAILED", str(error)
        self.rows.append(Row(what, result, time.monotonic() - begun, word))
        print(_line(self.rows[-1]), flush=True)

    def _build(self) -> str:
        missing = self.builder.build()
        sizes = [path.stat().st_size for path in self.builder.out.iterdir()]
        told = "".join(f"; no {what}: {why}" for what, why in missing.items())
        return f"{self.builder.version}: {len(sizes)} files, {sum(sizes) / 2**20:.1f} MB{told}"

    def _contents(self) -> str:
        found = findings(self.builder.out, self.builder.version)
        wheels = sorted(self.builder.out.glob("*.whl"))
        run([sys.executable, "-m", "twine", "check", "--strict", *wheels],
            self.builder.environment)  # fmt: skip
        if found:
            raise ReleaseError("\n".join(found))
        return f"a valid {BILL} and the licence in each; nothing else that is not meant"

    @property
    def _variables(self) -> dict[str, str]:
        """The variables of what is tried: nothing leads back to the checkout."""
        foreign = ("PYTHON", "VIRTUAL_ENV", "FLOW2ONNX", "MAKE", "MFLAGS")
        own = {name: v for name, v in os.environ.items() if not name.startswith(foreign)}
        return own | {"PYTHONNOUSERSITE": "1"}

    def _python(self, name: str, python: str | None) -> str:
        """Install a distribution in a bare environment and run its program."""
        if python is None:
            raise _SkippedError("this Python is not here")
        work = self._folder(f"{name}-{Path(python).name}")
        uv = str(Path(sys.executable).with_name("uv"))
        home = work / "env"
        run([uv, "venv", "--quiet", "--python", python, home], self._variables, work)
        files = [self._wheel(text) for text in _PROGRAMS[name]]
        run([uv, "pip", "install", "--quiet", "--python", home / "bin" / "python", *files],
            self._variables, work)  # fmt: skip
        for path in ("common.py", f"{name}.py"):
            shutil.copy(_SMOKE / path, work)
        words = [self.builder.version, self.conformance, self._folder(work / "made")]
        return _last(run([home / "bin" / "python", f"{name}.py", *words], self._variables, work))

    def _wheel(self, text: str) -> str:
        """A wheel of the release with extras: pip takes it, and not one of this name elsewhere."""
        name, _, extras = text.partition("[")
        (path,) = self.builder.out.glob(f"{name}-*.whl")
        return f"{path.resolve()}{'[' if extras else ''}{extras}"

    def _npm(self) -> str:
        """Install the package for npm beside onnxruntime-node, and run its program."""
        packed = list(self.builder.out.glob("*.tgz"))
        if not packed or shutil.which("node") is None:
            raise _SkippedError("no package was built" if not packed else "no node")
        work = self._folder("npm")
        manifest = json.loads((self.builder.root / "runtime/js/package.json").read_text("utf-8"))
        runtime = f"{_ORT_NODE}@{manifest['devDependencies'][_ORT_NODE]}"
        (work / "package.json").write_text('{"private": true, "type": "module"}')
        run(["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline",
             packed[0].resolve(), runtime], self._variables, work)  # fmt: skip
        shutil.copy(_SMOKE / "npm.mjs", work)
        words = [semantic(self.builder.version), self.conformance, work]
        return _last(run(["node", "npm.mjs", *words], self._variables, work))

    def _c(self, way: str) -> str:
        """Install the archive by CMake; build a program that finds it by `way`, and run that."""
        for tool in ("cmake", "cc", way):
            if shutil.which(tool) is None:
                raise _SkippedError(f"no {tool}")
        work = self._folder(f"c-{way}")
        (archive,) = self.builder.out.glob("flow2onnx-runtime-c-*.tar.gz")
        run(["tar", "xf", archive.resolve()], self._variables, work)
        (source,) = work.glob("flow2onnx-runtime-*/")
        prefix = work / "installed"
        self._cmake(source / "cpp", work / "build", f"-DCMAKE_INSTALL_PREFIX={prefix}")
        run(["cmake", "--install", work / "build"], self._variables)
        for path in ("archive.c", "CMakeLists.txt"):
            shutil.copy(_SMOKE / path, work)
        if way == "cmake":
            self._cmake(work, work / "own", f"-DCMAKE_PREFIX_PATH={prefix}")
        else:
            self._compile(work, prefix)
        library = onnxruntime_library(self.work)
        words = [self.conformance, work, *_losses(self.conformance / "mlp" / "trace.json")]
        variables = self._variables | {"FLOW2ONNX_ORT_LIBRARY": library}
        return run([work / "own" / "archive", *words], variables).strip()

    def _cmake(self, source: Path, build: Path, setting: str) -> None:
        run(["cmake", "-S", source, "-B", build, setting], self._variables)
        run(["cmake", "--build", build], self._variables)

    def _compile(self, work: Path, prefix: Path) -> None:
        """Build the program with what pkg-config says of the installation."""
        (found,) = prefix.rglob("flow2onnx.pc")
        variables = self._variables | {"PKG_CONFIG_PATH": str(found.parent)}
        flags = run(["pkg-config", "--cflags", "--libs", "flow2onnx"], variables).split()
        stated = run(["pkg-config", "--modversion", "flow2onnx"], variables).strip()
        if stated != self.builder.version.base_version:
            raise ReleaseError(f"flow2onnx.pc states {stated}")
        (work / "own").mkdir()
        run(
            ["cc", "-std=c11", "archive.c", *flags, "-o", work / "own" / "archive"], variables, work
        )

    def _folder(self, name: str | Path) -> Path:
        folder = self.work / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def table(rows: list[Row]) -> str:
    """The rows as a table, and how many there are of each result."""
    count = {r: sum(row.result == r for row in rows) for r in ("passed", "FAILED", "skipped")}
    return "\n".join((*map(_line, rows), ", ".join(f"{n} {r}" for r, n in count.items())))


def find_python(number: str) -> str | None:
    """The path of a Python of a version, or None: its own name, or where pyenv keeps it."""
    homes = [Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"]
    choices = [*(p for h in homes for p in sorted(h.glob(f"{number}.*/bin/python{number}"))),
               *filter(None, [shutil.which(f"python{number}")])]  # fmt: skip
    for path in choices:
        try:
            done = subprocess.run([path, "-c", "import sys; print(sys.version)"],
                                  capture_output=True, text=True)  # fmt: skip
        except OSError:
            continue
        if done.returncode == 0 and done.stdout.startswith(f"{number}."):
            return str(path)
    return None


def onnxruntime_library(work: Path) -> str:
    """The library of the wheel of onnxruntime that was installed to try the runtime."""
    found = sorted(work.glob("runtime-*/env/lib/python3*/site-packages/onnxruntime/capi/"
                             "libonnxruntime.so.*.*"))  # fmt: skip
    if not found:
        raise _SkippedError("no libonnxruntime.so: no Python of ours is here")
    return str(found[0])


def _losses(trace: Path) -> list[str]:
    """The batch and the first number of the loss of each of the first steps."""
    actions = json.loads(trace.read_text("utf-8"))["actions"][:10]
    return [str(word) for a in actions for word in (a["batch"], a["results"]["out/0"][0])]


def _last(text: str) -> str:
    return (text.strip().splitlines() or ["nothing was said"])[-1]


def _line(row: Row) -> str:
    first, *more = row.word.splitlines() or [""]
    rest = "".join(f"\n    {line}" for line in more)
    return f"{row.what:<24} {row.result:<8} {row.seconds:6.1f} s  {first}{rest}"
