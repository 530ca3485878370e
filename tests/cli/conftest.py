import inspect
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from flow2onnx.cli.app import app

ROOT = Path(__file__).parents[2]

# click 8.1 mixes the two streams unless told otherwise; later versions know no such setting.
_APART = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}

Command = Callable[..., Result]
Script = Callable[..., Path]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory, whose modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def script(folder: Path) -> Script:
    """Write a script, indented as in the test, into the working directory."""

    def write(text: str, name: str = "train.py") -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return Path(name)

    return write


def invoke(*arguments: object, **options: bool) -> Result:
    """The result of the command, called in this process."""
    words = [str(a) for a in arguments]
    return CliRunner(**_APART).invoke(app, words, prog_name="flow2onnx", **options)


@pytest.fixture
def flow2onnx() -> Command:
    """The command, in this process."""
    return invoke


_CALLS = """
import json, sys
from tests.cli.conftest import invoke
results = [invoke(*words, catch_exceptions=False) for words in json.loads(sys.argv[1])]
print(json.dumps([(r.exit_code, r.stdout, r.stderr) for r in results]))
"""


def call_each(
    *calls: tuple[str, ...], environment: Mapping[str, str]
) -> list[tuple[int, str, str]]:
    """Exit status, output and errors of several calls in one other process.

    To start one for each takes longer than what they do.
    """
    done = subprocess.run(
        [sys.executable, "-c", _CALLS, json.dumps(calls)],
        capture_output=True, text=True, encoding="utf-8", timeout=60, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [(status, out, errors) for status, out, errors in json.loads(done.stdout)]


@pytest.fixture
def process() -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command, in a process of its own."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        paths = [str(ROOT), str(ROOT / "runtime" / "python"), os.environ.get("PYTHONPATH", "")]
        return subprocess.run(
            [sys.executable, "-m", "flow2onnx", *map(str, arguments)],
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=60,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUTF8": "1"},
        )

    return run
