"""Ranks that fail: all end, and training goes on from a checkpoint."""

import os
import shutil
import time
import uuid

import numpy as np
import pytest

from tests.ranks.killed_ranks import MARK, marked
from tests.ranks.ranks import ROOT, ends, free_port, start, start_ranks

PROGRAM = str(ROOT / "tests/ranks/faulty.py")
PATIENT, IMPATIENT = "60", "5"  # seconds
ENGINES = ("torch", "mpi", "mpich")
OTHER = "does not run what rank 0"
SILENT = ("hang", "stop", "absent", "leave")  # which the deadline tells of
# What rank 0, or the launcher, says of the rank that is at fault.
MESSAGES = {
    "kill": (1, ["rank 1", "killed by SIGKILL"]),
    "crash": (1, ["rank 1", "killed by SIGABRT"]),
    "raise": (1, ["rank 1", "no more data"]),
    "early": (1, ["rank 1", "no data yet"]),
    "absent": (1, ["rank 1", "did not come"]),
    "exit": (1, ["rank 1", "exit status 3"]),
    "leave": (1, ["rank 1", "has ended"]),
    "hang": (1, ["rank 1", "did not come"]),
    "stop": (1, ["rank 1", "did not come"]),
    "save": (0, ["rank 0", "killed by SIGKILL"]),
    "disk": (0, ["rank 0", "could not be written", "File too large"]),
    "differ": (1, ["rank 1", OTHER, "the program of job job differs"]),
    "config": (1, ["rank 1", OTHER, "the configuration of job job"]),
    "settings": (1, ["rank 1", OTHER, "flow.config"]),
    "version": (1, ["rank 1", OTHER, "the version of onnxruntime or numpy"]),
}


def launched(fault, folder, *options, engine="torch"):
    """Exit status and errors of `flow2onnx launch`, once no process of it is left."""
    face, mark = "torch" if engine == "torch" else "mpi", uuid.uuid4().hex
    arguments = ["-m", "flow2onnx", "launch", "-n", "2", "--engine", face]
    who = MESSAGES[fault][0] if fault in MESSAGES else 1
    deadline = IMPATIENT if fault in SILENT else PATIENT
    arguments += ["--deadline", deadline, *options, PROGRAM, fault, str(who), str(folder)]
    ((status, _, errors),) = ends([start(engine, arguments, **{MARK: mark})])
    while list(marked(mark)):  # for as long as the test may take
        time.sleep(0.1)
    return status, errors


def end_of(folder, rank):
    return dict(np.load(folder / f"end-{rank}.npz"))


def check_resumed(folder):
    """Both ranks went on at step 4, and are where an undisturbed training from there is."""
    for rank in (0, 1):
        found, expected = end_of(folder, rank), end_of(folder / "undisturbed", 0)
        assert found.pop("first") == 4
        assert found.keys() | {"first"} == expected.keys()
        for name, array in found.items():
            np.testing.assert_array_equal(array, expected[name])


def undisturbed(folder, engine="torch"):
    """The same training, resumed from the same checkpoint, without a fault."""
    other = folder / "undisturbed"
    (other / "saved").mkdir(parents=True)
    names = sorted(p.name for p in (folder / "saved").iterdir() if not p.name.startswith("."))
    for name in names[:2]:  # of the beginning, and after the fourth step
        shutil.copytree(folder / "saved" / name, other / "saved" / name)
    (other / "recovered").touch()
    results = ends(start_ranks(2, [PROGRAM, "none", "1", str(other)], engine))
    assert all(status == 0 for status, _, _ in results), results


def test_a_killed_rank_ends_the_other(tmp_path):
    """Without a launcher that would end it."""
    (status, _, errors), (killed, _, _) = ends(
        start_ranks(2, [PROGRAM, "kill", "1", str(tmp_path)], FLOW2ONNX_DEADLINE=PATIENT)
    )
    assert (status, killed) == (1, -9)
    assert "RankError" in errors
    assert "rank 1" in errors


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("fault", MESSAGES)
def test_every_rank_ends_and_says_why(fault, engine, tmp_path):
    """And no process is left; how long that takes is what `tests.ranks.killed_ranks` measures."""
    status, errors = launched(fault, tmp_path, engine=engine)
    assert status != 0, errors
    for part in MESSAGES[fault][1]:
        assert part in errors
    assert os.uname().nodename in errors


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "engine"),
    [("kill", "torch"), ("save", "torch"), ("disk", "torch"), ("kill", "mpi"), ("stop", "mpi"),
     ("save", "mpich"), ("disk", "mpich")],
)  # fmt: skip
def test_training_goes_on_from_the_last_checkpoint(fault, engine, tmp_path):
    status, errors = launched(fault, tmp_path, engine=engine)
    assert status != 0, errors
    undisturbed(tmp_path, engine)
    (tmp_path / "recovered").touch()
    status, errors = launched(fault, tmp_path, engine=engine)
    assert status == 0, errors
    check_resumed(tmp_path)


@pytest.mark.slow
def test_the_launcher_begins_anew(tmp_path):
    """Without anybody's help, as the fault happens once: `recovered` comes into being by itself."""
    status, errors = launched("once", tmp_path, "--max-restarts", "1")
    assert status == 0, errors
    assert "the fault is now" in errors
    assert errors.startswith("flow2onnx: 2 processes start on")
    undisturbed(tmp_path)
    check_resumed(tmp_path)


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


@pytest.mark.slow
def test_ranks_that_wait_for_one_that_never_starts_name_it(tmp_path):
    """Rank 0 is there, and rank 1 is not."""
    process = start(
        "torch", [PROGRAM, "none", "0", str(tmp_path)], RANK="0", WORLD_SIZE="2",
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), FLOW2ONNX_DEADLINE="3",
    )  # fmt: skip
    ((status, _, errors),) = ends([process])
    assert status == 1
    assert "rank 0 of 2" in errors
    assert "rank 1" in errors


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_launches_beside_each_other(engine, tmp_path):
    """Neither meets the ranks of the other."""
    face = "torch" if engine == "torch" else "mpi"
    arguments = ["-m", "flow2onnx", "launch", "-n", "2", "--engine", face, PROGRAM, "none", "1"]
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    results = ends([start(engine, [*arguments, str(folder)]) for folder in folders])
    assert all(status == 0 for status, _, _ in results), results
    for name, array in end_of(folders[0], 1).items():
        np.testing.assert_array_equal(array, end_of(folders[1], 0)[name])


@pytest.mark.slow
def test_a_port_that_another_launch_has_is_named(tmp_path):
    address = f"127.0.0.1:{free_port()}"
    arguments = ["-m", "flow2onnx", "launch", "--machines", "2", "--machine", "0"]
    arguments += ["--address", address, "--deadline", "8", PROGRAM, "none", "1", str(tmp_path)]
    results = ends([start("torch", arguments) for _ in range(2)])
    assert [status for status, _, _ in results] == [1, 1]
    told = [errors for _, _, errors in results]
    assert any("in use" in errors and address in errors for errors in told), told
    assert all("Traceback" not in errors for errors in told), told
