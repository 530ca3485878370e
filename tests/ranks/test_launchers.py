"""One script under every launcher: what ranks are told, and that all compute the same."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from tests.ranks.killed_ranks import MARK, marked
from tests.ranks.ranks import ROOT, ends, environment, free_port, python_with, start
from tests.ranks.test_faults import PROGRAM as FAULTY
from tests.ranks.test_faults import check_resumed, undisturbed

TRUTH = str(ROOT / "tests/ranks/truth.py")


def program(engine, name):
    """A launcher beside the interpreter of an engine."""
    folder = str(Path(python_with(engine)).parent)
    found = shutil.which(name, path=folder)
    if found is None:
        pytest.skip(f"no {name} in {folder}")
    return found


def begin(command, **variables):
    return subprocess.Popen(
        command, env=environment(**variables), cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def check_truth(folder, size, machines):
    """The records of the ranks; `machines` has, for each rank, the number of its machine."""
    found = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(size)]
    for rank, one in enumerate(found):
        assert (one["rank"], one["size"], one["parallel_num"]) == (rank, size, size)
        assert (one["machine"], one["machine_num"]) == (machines[rank], len(set(machines)))
        assert one["losses"] == [float(2 * 2 * i + 1) for i in range(8)]
        # the mean over the rows of x is (7, 8)
        np.testing.assert_allclose(one["w"], [1 - 0.1 * 7, 1 - 0.1 * 8], atol=1e-6)


def check_ends(processes):
    results = ends(processes)
    assert all(status == 0 for status, _, _ in results), results


@pytest.mark.slow
def test_torchrun(tmp_path):
    torchrun = program("torch", "torchrun")
    check_ends([begin([torchrun, "--nproc-per-node", "2", TRUTH, str(tmp_path)])])
    check_truth(tmp_path, 2, [0, 0])


@pytest.mark.slow
def test_torchrun_on_two_machines(tmp_path):
    """Both of which are this one."""
    torchrun, port = program("torch", "torchrun"), str(free_port())
    place = ["--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", port]
    command = [torchrun, *place, "--nproc-per-node", "1"]
    check_ends([begin([*command, "--node-rank", str(i), TRUTH, str(tmp_path)]) for i in (0, 1)])
    check_truth(tmp_path, 2, [0, 1])


@pytest.mark.slow
def test_launch_on_two_machines(tmp_path):
    address = f"127.0.0.1:{free_port()}"
    arguments = ["-m", "flow2onnx", "launch", "-n", "1", "--machines", "2", "--address", address]
    check_ends([
        start("torch", [*arguments, "--machine", str(i), TRUTH, str(tmp_path)]) for i in (0, 1)
    ])  # fmt: skip
    check_truth(tmp_path, 2, [0, 1])


def pods(port, each):
    """The variables that Kubeflow's operator sets for each of two pods."""
    for pod in range(2):
        yield {
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "PET_MASTER_ADDR": "127.0.0.1",
            "PET_MASTER_PORT": port, "WORLD_SIZE": str(2 * each), "RANK": str(pod),
            "PET_NODE_RANK": str(pod), "PET_NNODES": "2", "PET_NPROC_PER_NODE": str(each),
        }  # fmt: skip


@pytest.mark.slow
def test_pods_with_one_rank_each(tmp_path):
    python, port = python_with("torch"), str(free_port())
    check_ends([begin([python, TRUTH, str(tmp_path)], **told) for told in pods(port, 1)])
    check_truth(tmp_path, 2, [0, 1])


@pytest.mark.slow
def test_pods_with_two_ranks_each(tmp_path):
    torchrun, port = program("torch", "torchrun"), str(free_port())
    check_ends([begin([torchrun, TRUTH, str(tmp_path)], **told) for told in pods(port, 2)])
    check_truth(tmp_path, 4, [0, 0, 1, 1])


@pytest.mark.parametrize(("engine", "launcher"), [("mpi", "mpirun"), ("mpich", "mpiexec")])
@pytest.mark.parametrize(
    "module", [["-m", "mpi4py"], pytest.param([], marks=pytest.mark.slow)], ids=["module", "plain"]
)
def test_mpi(engine, launcher, module, tmp_path):
    command = [program(engine, launcher), "-n", "2", python_with(engine), *module, TRUTH]
    check_ends([begin([*command, str(tmp_path)])])
    check_truth(tmp_path, 2, [0, 0])


@pytest.mark.slow
def test_torchrun_begins_anew(tmp_path):
    command = [program("torch", "torchrun"), "--nproc-per-node", "2", "--max-restarts", "1"]
    ((status, _, errors),) = ends([begin([*command, FAULTY, "once", "1", str(tmp_path)])])
    assert status == 0, errors
    undisturbed(tmp_path)
    check_resumed(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("address", ["127.0.0.1:9", "no-such-host.invalid:29500"])
def test_a_machine_that_reaches_nobody_says_so(address):
    arguments = ["-m", "flow2onnx", "launch", "--machines", "2", "--machine", "1"]
    arguments += ["--address", address, "--deadline", "3", FAULTY]
    ((status, _, errors),) = ends([start("torch", arguments)])
    assert status == 1, errors
    assert f"cannot reach {address}" in errors
    assert "now 3 seconds" in errors
    assert "Traceback" not in errors


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["torch", "mpi", "mpich"])
def test_nobody_outlives_a_killed_launcher(engine, tmp_path):
    mark = f"{tmp_path.name}-{os.getpid()}-{engine}"
    face = "torch" if engine == "torch" else "mpi"
    arguments = ["-m", "flow2onnx", "launch", "-n", "2", "--engine", face, "--all-output"]
    process = start(engine, [*arguments, FAULTY, "hang", "1", str(tmp_path)], **{MARK: mark})
    for line in process.stderr:
        if line.startswith("the fault"):
            break
    assert len(list(marked(mark))) >= 3
    process.kill()
    process.communicate()
    while list(marked(mark)):  # for as long as the test may take
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["torch", "mpi", "mpich"])  # MPI libraries say their own
def test_ctrl_c_ends_all_ranks_with_one_line(engine, tmp_path):
    mark = f"{tmp_path.name}-{os.getpid()}-interrupt"
    face = "torch" if engine == "torch" else "mpi"
    arguments = ["-m", "flow2onnx", "launch", "-n", "2", "--engine", face, FAULTY, "hang", "1"]
    process = start(engine, [*arguments, str(tmp_path)], **{MARK: mark})
    for line in process.stderr:
        if line.startswith("the fault"):
            break
    for number, _ in [*marked(mark)]:  # as a terminal does, which asks all of a group
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert "flow2onnx: SIGINT: every rank was ended" in errors
    assert len(errors.splitlines()) == 1 or engine != "torch", errors
    assert not list(marked(mark))


def test_the_command_is_the_one_of_this_interpreter(tmp_path):
    """A script that plain Python starts is a world of one."""
    subprocess.run([sys.executable, TRUTH, str(tmp_path)], env=environment(), cwd=ROOT, check=True)
    check_truth(tmp_path, 1, [0])
