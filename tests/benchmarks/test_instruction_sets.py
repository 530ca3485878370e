"""The caps of instruction sets: what peers are told, and what results say of it."""

import json
import os
import subprocess
import sys

import pytest

from benchmarks import contest, instruction_sets, training
from benchmarks.contest import Contest, Contestant, Row, Setting
from benchmarks.driver import Program, main
from benchmarks.worker_process import PeerError

OURS = Contestant("flow2onnx", "flow2onnx")


def test_every_switch_has_a_value_for_every_set():
    for isa in instruction_sets.SETS:
        found = instruction_sets.variables(isa)
        assert found.keys() == {s.variable for s in instruction_sets.SWITCHES}
        assert all(found.values())
    assert instruction_sets.variables("") == {}


def test_flags_of_xla_that_are_there_stay(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=folder")
    found = instruction_sets.variables("avx2")["XLA_FLAGS"]
    assert found == "--xla_dump_to=folder --xla_cpu_max_isa=AVX2"


def test_a_peer_gets_the_switches_of_its_setting(monkeypatch):
    given = []

    def leave(who, command, variables):
        given.append(variables)
        raise PeerError("it was only asked")

    monkeypatch.setattr(contest, "Peer", leave)
    Contest(contest.QUICK).measure("small", Setting("training", "mlp", isa="avx2"), [OURS])
    assert given[0]["FLOW2ONNX_NATIVE_ISA"] == given[0]["ATEN_CPU_CAPABILITY"] == "avx2"
    assert given[0]["MKL_ENABLE_INSTRUCTIONS"] == "AVX2"
    plain = contest.environment_of(OURS, "folder")
    assert plain.get("ATEN_CPU_CAPABILITY") == os.environ.get("ATEN_CPU_CAPABILITY")


def test_results_say_the_cap_and_are_apart(tmp_path, monkeypatch):
    settings = []

    def measure(self, name, setting, who):
        settings.append(setting)
        self.rows.append(Row(name, setting.threads, who[0].label, ms=1.0, busy_ms=1.0, ratio=1.0))
        return self.rows

    monkeypatch.setattr(Contest, "measure", measure)
    program = Program("training", "Steps", {"tiny": ("small", "mlp:batch=3,hidden=5")}, ("note",),
                      lambda row, folder, takes_all: iter([OURS]))  # fmt: skip
    arguments = ["training", "--threads", "1", "--isa", "avx2", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", arguments)
    main(program, training.__doc__)
    found = json.loads((tmp_path / "training_avx2.json").read_text())
    assert [setting.isa for setting in settings] == ["avx2"]
    assert found["instruction_set"] == "avx2"
    assert found["title"] == "Steps, instructions capped to avx2"
    assert "`ATEN_CPU_CAPABILITY=avx2`" in found["notes"][-1]
    assert "ONNX Runtime's kernels (MLAS)" in (tmp_path / "training_avx2.md").read_text()
    assert not (tmp_path / "training.json").exists()


def test_torch_keeps_to_it():
    pytest.importorskip("torch")
    text = "import torch; print(torch.backends.cpu.get_cpu_capability())"
    environment = os.environ | instruction_sets.variables("baseline")
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "DEFAULT"
