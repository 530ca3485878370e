"""`--native`: whatever accelerates models is found by its entry point, and the server uses it."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from flow2onnx_runtime import extensions
from flow2onnx_serve.cli import serve

from tests.serving.conftest import start, stop
from tests.serving.models import mlp

ACCELERATOR = """
def require_library():
    pass

def accelerate(model, options):
    return (model.read_bytes() if "fast" in model.name else model), options
"""


@pytest.fixture
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution that offers an accelerator, for processes that start meanwhile."""
    site = tmp_path / "site"
    about = site / "quick-1.dist-info"
    about.mkdir(parents=True)
    (site / "quick.py").write_text(ACCELERATOR)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: quick\nVersion: 1\n")
    # the first by name is taken, wherever another is installed
    (about / "entry_points.txt").write_text(f"[{extensions.GROUP}]\na = quick\n")
    monkeypatch.setenv("PYTHONPATH", str(site))


@pytest.mark.parametrize("is_wanted", [True, False])
def test_models_are_accelerated_if_told(offered, tmp_path, is_wanted):
    for name in ("fast", "slow"):
        path = tmp_path / name / "1"
        path.mkdir(parents=True)
        (path / f"{name}.onnx").write_bytes(mlp())
        running = start(path / f"{name}.onnx", *["--native"] * is_wanted)
        try:
            notes = running.wait_for("a version answers", model=name)["notes"]
        finally:
            stop(running)
        assert ("prepared for this machine" in notes) is (is_wanted and name == "fast")


@pytest.mark.parametrize(
    ("provider", "text"),
    [("cpu", "flow2onnx-native is not installed"), ("cuda", "--native is for --provider cpu")],
)
def test_what_is_missing_is_told_at_the_start(provider, text, tmp_path, monkeypatch):
    monkeypatch.setattr(extensions, "_installed", lambda: None)
    (tmp_path / "m.onnx").write_bytes(mlp())
    arguments = [str(tmp_path / "m.onnx"), "--native", "--provider", provider]
    result = CliRunner().invoke(serve, arguments)
    assert result.exit_code != 0
    assert text in result.output
