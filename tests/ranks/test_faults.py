"""What happens to all ranks when one fails, and how training goes on from a checkpoint."""

import shutil
import time

import numpy as np
import pytest

from tests.ranks.ranks import ROOT, ends, start, start_ranks

PROGRAM = str(ROOT / "tests/ranks/faulty.py")
DEADLINE = 5
# From the fault to the end of the last process: the deadline, what ranks need to tell each other,
# and the 30 seconds that torchrun gives a process that does not answer its signal.
LIMITS = {"stop": DEADLINE + 60, "hang": DEADLINE + 30}
LIMIT = 30
# What rank 0, or the launcher, says of rank 1.
MESSAGES = {
    "kill": ["rank 1", "killed by SIGKILL"],
    "raise": ["rank 1", "no more data"],
    "exit": ["rank 1", "exit status 3"],
    "leave": ["rank 1", "has ended"],
    "hang": ["rank 1", "did not come"],
    "stop": ["rank 1", "did not come"],
    "differ": ["rank 1", "does not run what rank 0", "the program of job job differs"],
}


def launched(fault, folder, *options, engine="torch"):
    """Exit status, errors, and the seconds from the fault to the end of `flow2onnx launch`."""
    arguments = ["-m", "flow2onnx", "launch", "-n", "2", "--engine", engine]
    arguments += ["--deadline", str(DEADLINE), *options, PROGRAM, fault, "1", str(folder)]
    ((status, _, errors),) = ends([start(engine, arguments)])
    now, told = time.time(), [t for t in errors.split("\n") if t.startswith("fault at ")]
    return status, errors, now - float(told[0].split()[-1]) if told else 0.0


def end_of(folder, rank):
    return dict(np.load(folder / f"end-{rank}.npz"))


def check_resumed(folder, status, errors):
    """Both ranks went on at step 4, and are where an undisturbed training from there is."""
    assert status == 0, errors
    for rank in (0, 1):
        found, expected = end_of(folder, rank), end_of(folder / "undisturbed", 0)
        assert found.pop("first") == 4
        assert found.keys() | {"first"} == expected.keys()
        for name, array in found.items():
            np.testing.assert_array_equal(array, expected[name])


def undisturbed(folder):
    """The same training, resumed from the same checkpoint, without a fault."""
    other = folder / "undisturbed"
    (other / "saved").mkdir(parents=True)
    names = sorted(p.name for p in (folder / "saved").iterdir() if p.is_dir())
    for name in names:
        shutil.copytree(folder / "saved" / name, other / "saved" / name)
    (other / "recovered").touch()
    results = ends(start_ranks(2, [PROGRAM, "none", "1", str(other)]))
    assert all(status == 0 for status, _, _ in results), results


def test_a_killed_rank_ends_the_other(tmp_path):
    """Without a launcher that would end it."""
    (status, _, errors), (killed, _, _) = ends(
        start_ranks(2, [PROGRAM, "kill", "1", str(tmp_path)], FLOW2ONNX_DEADLINE=str(DEADLINE))
    )
    assert (status, killed) == (1, -9)
    assert "RankError" in errors
    assert "rank 1" in errors


@pytest.mark.slow
@pytest.mark.parametrize("fault", MESSAGES)
def test_every_rank_ends_and_says_why(fault, tmp_path):
    status, errors, seconds = launched(fault, tmp_path)
    assert status == 1, errors
    for part in MESSAGES[fault]:
        assert part in errors
    assert seconds < LIMITS.get(fault, LIMIT), errors


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["kill", "raise", "exit", "leave", "hang"])
def test_mpi_ends_all_ranks(fault, tmp_path):
    status, errors, seconds = launched(fault, tmp_path, engine="mpi")
    assert status != 0, errors
    assert seconds < LIMITS.get(fault, LIMIT), errors


@pytest.mark.slow
def test_training_goes_on_from_the_last_checkpoint(tmp_path):
    status, errors, _ = launched("kill", tmp_path)
    assert status == 1, errors
    undisturbed(tmp_path)
    (tmp_path / "recovered").touch()
    check_resumed(tmp_path, *launched("kill", tmp_path)[:2])


@pytest.mark.slow
def test_the_launcher_begins_anew(tmp_path):
    """Without anybody's help, as the fault happens once: `recovered` comes into being by itself."""
    status, errors, _ = launched("once", tmp_path, "--max-restarts", "1")
    assert status == 0, errors
    assert "fault at" in errors
    ends_ = [end_of(tmp_path, rank) for rank in (0, 1)]
    assert [int(e["first"]) for e in ends_] == [4, 4]
    for name in ends_[0]:
        np.testing.assert_array_equal(ends_[0][name], ends_[1][name])


@pytest.mark.slow
def test_ranks_that_cannot_meet_say_where(tmp_path):
    """Rank 0 is not there."""
    process = start(
        "torch", [PROGRAM, "none", "0", str(tmp_path)], RANK="1", WORLD_SIZE="2",
        MASTER_ADDR="127.0.0.1", MASTER_PORT="9", FLOW2ONNX_DEADLINE="3",
    )  # fmt: skip
    ((status, _, errors),) = ends([process])
    assert status == 1
    assert "rank 1 of 2" in errors
    assert "cannot reach 127.0.0.1:9" in errors
