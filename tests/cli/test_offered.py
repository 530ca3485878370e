"""Commands that other distributions offer by entry point."""

import os
import tomllib
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, call_each

WING = ROOT / "runtime" / "server"


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """An environment in which flow2onnx-serve counts as installed."""
    project = tomllib.loads((WING / "pyproject.toml").read_text())["project"]
    folder = tmp_path / "site" / "flow2onnx_serve-0.1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: flow2onnx-serve\nVersion: 0.1.0\n"
    )
    points = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in values.items())
        for group, values in project["entry-points"].items()
    ]
    (folder / "entry_points.txt").write_text("\n".join(points))
    paths = [folder.parent, ROOT, ROOT / "runtime" / "python", WING]
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}


def test_serve_is_the_servers_command(installed, folder):
    (folder / "broken.onnx").write_bytes(b"broken")
    serve = ("serve", "broken.onnx", "--port", "0")
    overview, usage, broken, traced = call_each(
        ("--help",), ("serve", "-h"), serve, (*serve, "--traceback"), environment=installed
    )
    assert "  serve  " in overview[1]
    assert "Usage: flow2onnx serve" in usage[1]
    assert (broken[0], "broken.onnx cannot be opened" in broken[2]) == (1, True)
    assert "Traceback (most" in traced[2]


def test_serve_says_what_to_install(flow2onnx, monkeypatch):
    monkeypatch.setattr("flow2onnx.cli.app.entry_points", lambda **_: EntryPoints())
    result = flow2onnx("serve", ".")
    assert result.exit_code == 1
    assert "comes with flow2onnx-serve, which is not installed" in result.stderr
    assert "pip install flow2onnx-serve" in result.stderr
    assert flow2onnx("rum").exit_code == 2


def test_any_distribution_may_offer_one(flow2onnx, monkeypatch):
    known = EntryPoints(
        [EntryPoint("again", "flow2onnx.cli.commands.info:info", "flow2onnx.commands")]
    )
    monkeypatch.setattr("flow2onnx.cli.app.entry_points", lambda **chosen: known.select(**chosen))
    assert "  again  " in flow2onnx("--help").stdout
    assert "Usage: flow2onnx again" in flow2onnx("again", "-h").stdout
