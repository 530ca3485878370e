"""The command itself: version, help, missing extras."""

import subprocess
import sys
import tomllib

import pytest

from flow2onnx.cli.app import COMMANDS
from tests.cli.conftest import ROOT


def test_version(process):
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert process("--version").stdout == f"flow2onnx {wanted}\n"


def test_every_command_has_help_with_examples(flow2onnx):
    overview = flow2onnx("--help").stdout
    for name in COMMANDS:
        result = flow2onnx(name, "-h")
        assert f"  {name}" in overview
        assert f"Examples:\n    flow2onnx {name}" in result.stdout


def test_an_unknown_command(flow2onnx):
    result = flow2onnx("rum")
    assert result.exit_code == 2
    assert "No such command 'rum'" in result.stderr


@pytest.mark.parametrize("package", ["click", "rich"])
def test_without_the_extra(package, process):
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from flow2onnx.cli import main; sys.argv = ['flow2onnx', 'doctor']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, timeout=60,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'runtime' / 'python'}"},
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == (
        f"flow2onnx: the command line needs click and rich; {package} is not installed\n"
        "  pip install 'flow2onnx[cli]'\n"
    )
