"""Which ranks there are, by what launchers set in the environment."""

import os
import subprocess
import sys

import pytest

from flow2onnx_runtime.errors import OptionsError
from flow2onnx_runtime.world import World, launched_world, rank_threads

TORCHRUN = {"WORLD_SIZE": "4", "RANK": "3", "LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "1"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
}
MPICH = {"PMI_SIZE": "4", "PMI_RANK": "3", "MPI_LOCALNRANKS": "2", "MPI_LOCALRANKID": "1"}


@pytest.mark.parametrize(
    ("environment", "engine"), [(TORCHRUN, "torch"), (OPEN_MPI, "mpi"), (MPICH, "mpi")]
)
def test_launchers_are_understood(environment, engine):
    assert launched_world(environment) == World(
        rank=3, size=4, local_rank=1, local_size=2, machine=1, machines=2, engine=engine
    )


def test_a_shell_sets_no_local_ranks():
    found = launched_world({"WORLD_SIZE": "2", "RANK": "1"})
    assert (found.rank, found.size, found.engine) == (1, 2, "torch")
    assert (found.local_rank, found.local_size, found.machine, found.machines) == (1, 2, 0, 1)


def test_a_pytorch_job_has_a_pod_for_each_rank():
    pod = {"WORLD_SIZE": "3", "RANK": "2", "PET_NNODES": "3", "PET_NODE_RANK": "2"}
    for each in ({}, {"PET_NPROC_PER_NODE": "1"}):
        found = launched_world(pod | each)
        assert (found.local_rank, found.local_size, found.machine, found.machines) == (0, 1, 2, 3)


def test_a_pod_of_several_ranks_needs_torchrun():
    pod = {"WORLD_SIZE": "4", "RANK": "1", "PET_NNODES": "2", "PET_NPROC_PER_NODE": "2"}
    with pytest.raises(OptionsError, match="PET_NPROC_PER_NODE=2") as caught:
        launched_world(pod)
    assert "torchrun" in str(caught.value)
    found = launched_world(pod | TORCHRUN)  # which sets variables of its own
    assert (found.rank, found.local_rank, found.machines) == (3, 1, 2)


def test_machines_may_have_different_numbers_of_ranks():
    """As torchrun tells, whose machines here have three ranks and one."""
    last = {"LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0", "GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2"}
    found = launched_world(TORCHRUN | last)
    assert (found.machine, found.machines) == (1, 2)


def test_settings_of_ours_go_before():
    environment = {**OPEN_MPI, "FLOW2ONNX_ENGINE": "torch", "FLOW2ONNX_DEADLINE": "2.5"}
    found = launched_world(environment)
    assert (found.engine, found.deadline) == ("torch", 2.5)


@pytest.mark.parametrize("environment", [{}, {"WORLD_SIZE": "1", "RANK": "0"}, {"RANK": "3"}])
def test_one_process_is_a_world(environment):
    assert launched_world(environment) == World()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"RANK": "4"}, "RANK=4 of WORLD_SIZE=4"),
        ({"RANK": "-1"}, "no ranks of one world"),
        ({"LOCAL_RANK": "2"}, "LOCAL_RANK=2 of LOCAL_WORLD_SIZE=2"),
        ({"LOCAL_WORLD_SIZE": "9"}, "no ranks of one world"),
        ({"WORLD_SIZE": "four"}, "WORLD_SIZE='four'"),
        ({"FLOW2ONNX_ENGINE": "ring"}, "FLOW2ONNX_ENGINE='ring' is no engine"),
        ({"FLOW2ONNX_DEADLINE": "soon"}, "FLOW2ONNX_DEADLINE='soon'"),
        ({"FLOW2ONNX_DEADLINE": "0"}, "is no number of seconds"),
        ({"FLOW2ONNX_DEADLINE": "nan"}, "is no number of seconds"),
    ],
)
def test_what_cannot_be_is_refused(changed, message):
    with pytest.raises(OptionsError, match=message):
        launched_world(TORCHRUN | changed)


def test_one_process_imports_no_engine():
    code = (
        "import sys; from flow2onnx_runtime.collectives import join_world\n"
        "assert join_world() is None\n"
        "assert not {'torch', 'mpi4py'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_ranks_share_the_processors_of_their_machine(monkeypatch):
    processors = set(range(8))
    bound = {os.getpid(): processors, os.getppid(): processors}
    monkeypatch.setattr(os, "sched_getaffinity", lambda n: bound[n or os.getpid()], raising=False)
    assert rank_threads(TORCHRUN) == 4
    assert rank_threads({"WORLD_SIZE": "16", "RANK": "0"}) == 1
    bound[os.getpid()] = {0, 1, 2}  # by the launcher
    assert rank_threads(TORCHRUN) == 3
    assert rank_threads({"WORLD_SIZE": "4", "RANK": "0"}) == 2, "others are bound there, too"


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {**TORCHRUN, "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0"},
        {"WORLD_SIZE": "x", "RANK": "0"},
    ],
)
def test_a_process_that_has_its_machine_alone_is_told_no_number(environment):
    assert rank_threads(environment) is None
