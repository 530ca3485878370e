"""`flow2onnx doctor`: a healthy installation, and the broken ones it explains."""

import hashlib
import json
import os
import sys
from base64 import urlsafe_b64encode
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path

import pytest
from flow2onnx_runtime.providers import PROVIDERS

from flow2onnx.cli import diagnosis
from flow2onnx.cli.app import COMMANDS
from flow2onnx.engine.session import current_session
from tests.cli.conftest import ROOT, call_each


def test_a_healthy_installation(process):
    done = process("doctor")
    assert done.returncode == 0, done.stdout
    assert "No problems found." in done.stdout
    assert "train step" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_json(flow2onnx):
    result = flow2onnx("doctor", "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    facts = json.loads(result.stdout)
    assert list(facts) == [
        "ok", "python", "packages", "onnxruntime", "providers", "engines", "processor",
        "environment", "train_step", "problems",
    ]  # fmt: skip
    assert facts["ok"] is True
    assert facts["problems"] == []
    assert facts["packages"].keys() > {"flow2onnx", "flow2onnx-runtime", "onnx", "onnx-ir", "numpy"}
    runtime = facts["onnxruntime"]
    assert runtime["build"] in ("cpu", "gpu")
    assert runtime["newest_opset"] >= 21
    assert runtime["newest_ir"] >= 10
    assert [d["missing"] + d["changed"] for d in runtime["distributions"]] == [0]
    for provider in facts["providers"]:
        assert list(provider) == ["name", "compiled_in", "usable", "why_not"]
        assert provider["usable"] == (provider["why_not"] is None)
    assert "CUDAExecutionProvider" in [p["name"] for p in facts["providers"]]
    assert facts["processor"]["usable_cores"] >= 1
    assert facts["train_step"]["last_loss"] < facts["train_step"]["first_loss"]


def test_variables_that_change_the_runtime_are_shown(flow2onnx, monkeypatch):
    monkeypatch.delenv("ORT_LOAD_CONFIG_FROM_MODEL", raising=False)
    monkeypatch.setenv("ORT_CUDA_GEMM_OPTIONS", "1")
    found = json.loads(flow2onnx("doctor", "--json").stdout)["environment"]
    assert found["ORT_CUDA_GEMM_OPTIONS"] == "1"
    assert "ORT_LOAD_CONFIG_FROM_MODEL" not in found


def test_the_train_step_leaves_the_session_alone(flow2onnx):
    flow2onnx("doctor", "--json")
    assert current_session().job_names() == ()


# --- broken ones ----------------------------------------------------------------------------------


def installed(site: Path, name: str, files: dict[str, bytes]) -> Distribution:
    """A wheel's record; the files themselves are written by whoever comes last."""
    info = site / f"{name.replace('-', '_')}-1.30.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.30.0\n")
    lines = []
    for file, content in files.items():
        path = site / "onnxruntime" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        digest = urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        lines.append(f"onnxruntime/{file},sha256={digest},{len(content)}\n")
    (info / "RECORD").write_text("".join(lines))
    return PathDistribution(info)


CPU = {"__init__.py": b"x = 1", "capi/core.so": b"cpu build"}
GPU = {"__init__.py": b"x = 1", "capi/core.so": b"gpu build", "capi/cuda.so": b"cuda"}


@pytest.fixture
def wheels(monkeypatch):
    def replace(*found: Distribution) -> None:
        monkeypatch.setattr(diagnosis.metadata, "distributions", lambda: iter(found))

    return replace


def test_two_wheels_that_overwrite_each_other(flow2onnx, wheels, folder):
    wheels(installed(folder, "onnxruntime", CPU), installed(folder, "onnxruntime-gpu", GPU))
    result = flow2onnx("doctor")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-4:] == [
        "Problem: onnxruntime and onnxruntime-gpu are both installed and overwrite each other",
        "  pip uninstall -y onnxruntime onnxruntime-gpu",
        "  pip install 'flow2onnx[cpu]'",
        "  pip install 'flow2onnx[gpu]'    # instead, with an NVIDIA GPU",
    ]


def test_what_is_left_when_one_of_two_wheels_was_removed(flow2onnx, wheels, folder):
    cpu = installed(folder, "onnxruntime", CPU)
    installed(folder, "onnxruntime-gpu", GPU)
    (folder / "onnxruntime" / "__init__.py").unlink()
    wheels(cpu)
    facts = json.loads(flow2onnx("doctor", "--json").stdout)
    assert facts["onnxruntime"]["distributions"] == [
        {"name": "onnxruntime", "version": "1.30.0", "files": 2, "missing": 1, "changed": 1}
    ]
    assert facts["problems"][0]["what"] == (
        "1 files of onnxruntime 1.30.0 are missing and 1 are not the ones it installed"
    )
    assert facts["problems"][0]["remedy"][0] == "pip uninstall -y onnxruntime"


def test_other_packages_of_a_similar_name_are_no_conflict(wheels, folder, flow2onnx):
    genai = installed(folder / "a", "onnxruntime-genai", {"../genai.py": b""})
    wheels(installed(folder / "b", "onnxruntime", CPU), genai)
    assert json.loads(flow2onnx("doctor", "--json").stdout)["ok"]


def test_without_onnxruntime(flow2onnx, wheels, monkeypatch):
    wheels()
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    result = flow2onnx("doctor")
    assert result.exit_code == 1
    assert "Problem: onnxruntime is not installed" in result.stdout
    assert "pip install 'flow2onnx[cpu]'" in result.stdout


def test_an_onnxruntime_that_cannot_be_imported(flow2onnx, wheels, folder, monkeypatch):
    wheels(installed(folder, "onnxruntime", CPU))
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    facts = json.loads(flow2onnx("doctor", "--json").stdout)
    assert facts["onnxruntime"]["version"] is None
    assert facts["train_step"] == {"ok": False, "error": "onnxruntime cannot be imported"}
    assert facts["problems"][0]["what"].startswith(
        "onnxruntime 1.30.0 cannot be imported: ModuleNotFoundError"
    )


@pytest.mark.parametrize("kind", ["OSError", "ImportError"])
def test_a_process_in_which_onnxruntime_is_broken(kind: str, folder: Path) -> None:
    (folder / "onnxruntime").mkdir()
    text = f"raise {kind}('libonnxruntime.so is not there')"
    (folder / "onnxruntime" / "__init__.py").write_text(text)
    paths = os.pathsep.join(map(str, (folder, ROOT, ROOT / "runtime" / "python")))
    version, flags, overview, verify, doctor = call_each(
        ("--version",), ("flags",), ("--help",), ("verify", "model.onnx", "--full"), ("doctor",),
        environment=os.environ | {"PYTHONPATH": paths, "PYTHONUTF8": "1"},
    )  # fmt: skip
    assert [call[0] for call in (version, flags, overview, verify, doctor)] == [0, 0, 0, 1, 1]
    assert version[1].startswith("flow2onnx")
    assert "function_config  " in flags[1]
    assert overview[2] == ""
    assert all(f"  {name} " in overview[1] for name in COMMANDS)
    assert verify[2].splitlines() == [
        f"ConfigError: onnxruntime cannot be imported: {kind}: libonnxruntime.so is not there",
        "  `flow2onnx doctor` tells what is wrong, and what to do",
    ]
    assert "onnxruntime cannot be imported" in doctor[1]
    assert not any("Traceback" in call[2] for call in (flags, doctor))


def test_a_train_step_that_fails(flow2onnx, monkeypatch):
    def broken() -> dict[str, object]:
        raise RuntimeError("no kernel")

    monkeypatch.setattr(diagnosis, "_train", broken)
    result = flow2onnx("doctor")
    assert result.exit_code == 1
    assert "Problem: a train step fails: RuntimeError: no kernel" in result.stdout


def test_a_provider_whose_libraries_are_missing(flow2onnx, monkeypatch):
    import onnxruntime

    names = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: names)
    facts = json.loads(flow2onnx("doctor", "--json").stdout)
    cuda = facts["providers"][0]
    assert (cuda["compiled_in"], cuda["usable"]) == (True, False)
    assert "CUDA and cuDNN 9" in cuda["why_not"]
    assert facts["onnxruntime"]["build"] == "gpu"


def test_providers_that_a_build_lacks_are_listed_with_what_to_install(flow2onnx):
    listed = {p["name"]: p for p in json.loads(flow2onnx("doctor", "--json").stdout)["providers"]}
    local = [row for row in PROVIDERS.values() if not row.is_remote]
    assert {row.name for row in local} <= set(listed)
    for row in local:
        if not listed[row.name]["compiled_in"]:
            assert listed[row.name]["why_not"] == row.remedy
