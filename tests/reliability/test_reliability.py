"""Each stress program of this folder, with small counts; docs/reliability.md has the large ones."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.reliability import (
    damaged_bundles,
    interrupted_calls,
    interrupted_steps,
    killed_writers,
    racing_savers,
    server_under_attack,
    shared_trainer,
)
from tests.runtimes import c_driver, test_js

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", racing_savers.KINDS)
@pytest.mark.parametrize("saves", [60, pytest.param(2000, marks=pytest.mark.slow)])
def test_racing_savers_all_succeed(kind, saves):
    found = racing_savers.race(kind, saves)
    assert found["failed"] == 0, found
    assert found["last is whole"]
    assert found["left over"] == 0
    assert kind == "model" or found["mixed reads"] == 0  # two files cannot be read at one moment


@pytest.mark.parametrize(
    ("runs", "steps"), [(1, 50), pytest.param(20, 500, marks=pytest.mark.slow)]
)
def test_threads_that_share_a_trainer_are_not_stuck(runs, steps):
    for _ in range(runs):
        found = shared_trainer.run_in_process(steps)
        assert not isinstance(found, str), found
        assert found["step_async"] == steps


@pytest.mark.parametrize(
    ("exits", "prompts"), [(1, 5), pytest.param(100, 200, marks=pytest.mark.slow)]
)
def test_an_interrupt_leaves_whole_calls(exits, prompts):
    found = interrupted_calls.measure(exits, prompts, seed=1, burst=5)
    assert found == {"ended": exits, "whole": prompts}


@pytest.mark.parametrize(
    ("exits", "prompts"), [(2, 10), pytest.param(100, 200, marks=pytest.mark.slow)]
)
def test_an_interrupt_ends_the_process_or_leaves_whole_steps(exits, prompts):
    found = interrupted_steps.measure(exits, prompts, seed=1, burst=5)
    assert found == {"ended": exits, "whole": prompts}


@pytest.mark.slow  # tests/serving has a quick test of each case
@pytest.mark.parametrize("scale", [0.01, 1.0])
def test_a_server_under_attack_answers_others_and_keeps_nothing(scale):
    """Each attack ends, others get right answers meanwhile, and memory comes back."""
    rows = server_under_attack.measure(list(server_under_attack.CASES), 2, scale)
    for row in rows:
        assert row["wrong"] == 0, row
        assert row["asked"] > 0, row
        assert row["last_mb"] < row["first_mb"] + 100, row
    outcomes = {row["case"]: set(row["outcome"]) for row in rows}
    assert outcomes["fields"] == {"RESOURCE_EXHAUSTED"}
    assert outcomes["packed"] <= {"400", "413"}
    for case in ("json", "lists", "answer", "pipelined", "calls", "stream"):
        assert outcomes[case] == {"200"}, rows


@pytest.mark.parametrize(
    ("kills", "writers"),
    [
        (3, ["file", "checkpoint-folder", "records"]),
        pytest.param(200, [*killed_writers.WRITERS], marks=pytest.mark.slow),
    ],
)
def test_killed_writers_leave_what_is_whole(kills, writers):
    found = killed_writers.measure(kills, 1, writers)
    assert found["model-with-data: no model"] <= kills // 20  # which may be between its two files
    assert {name.partition(":")[2] for name in found} <= {" whole", " no model"}, found


def test_damages_are_the_same_for_the_same_seed(tmp_path):
    one, two = (damaged_bundles.damage(tmp_path / name, 0, 3) for name in "ab")
    assert {p.name: p.read_bytes() for p in one.iterdir()} == {
        p.name: p.read_bytes() for p in two.iterdir()
    }


@pytest.mark.parametrize("count", [24, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "language",
    [
        "python",
        pytest.param("javascript", marks=test_js.pytestmark),
        pytest.param("c", marks=c_driver.MARKS),
    ],
)
def test_damaged_bundles_are_refused(language, count):
    found = damaged_bundles.measure(count, 1, [language])
    assert found == {language: {"refused": count}}


@pytest.mark.slow
@pytest.mark.parametrize("how", [(), ("--signal", "INT"), ("--signal", "INT", "--twice")])
def test_a_killed_training_of_adapters_goes_on_to_the_same_bits(how):
    """In a process of its own, whose functions it changes and which it forks."""
    pytest.importorskip("tokenizers")
    pytest.importorskip("jinja2")
    command = [sys.executable, "-m", "tests.reliability.killed_lora", "--kills", "4", "--seed", "1"]
    done = subprocess.run([*command, *how], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
