"""Ranks for tests: real processes, on whichever engine an interpreter here has."""

import functools
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# `make ranks` installs both engines apart: torch alone is larger than all that is locked.
# An empty variable names none: `make test` leaves the tests that start ranks to `make ranks`.
_PLACES = (os.environ.get("RANKS_PYTHON", ROOT / ".venv/ranks/bin/python"), sys.executable)
# One environment holds one MPI library: Open MPI is beside torch, MPICH has its own.
_MPICH_PLACES = (os.environ.get("MPICH_PYTHON", ROOT / ".venv/mpich/bin/python"),)
_LIBRARIES = {"torch": "torch", "mpi": "mpi4py", "mpich": "mpi4py"}


@functools.cache
def python_with(engine):
    """An interpreter that has an engine; the test is skipped without."""
    library = _LIBRARIES[engine]
    code = f"import importlib.util as u, sys; sys.exit(u.find_spec({library!r}) is None)"
    places = _MPICH_PLACES if engine == "mpich" else _PLACES
    for place in [str(p) for p in places if Path(p).is_file()]:
        if subprocess.run([place, "-c", code], check=False).returncode == 0:
            return place
    pytest.skip(f"no {library} here: `make ranks` installs it")


def start(engine, arguments, folder=ROOT, **more):
    """`python ARGUMENTS` as one process, in a folder and the environment of ranks of an engine."""
    return _start([python_with(engine), *arguments], environment(**more), folder)


def start_ranks(count, arguments, engine="torch", *, is_bound=False, **more):
    """`python ARGUMENTS` in `count` processes, as a launcher starts them.

    Those of torch may be bound to one processor, as launchers of clusters do.
    """
    python, own = python_with(engine), environment(**more)
    bound = ["taskset", "--cpu-list", str(min(os.sched_getaffinity(0)))] if is_bound else []
    if engine != "torch":
        command = [_mpirun(python), "-n", str(count), python, "-m", "mpi4py", *arguments]
        return [_start(command, own)]
    place = {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(count)
    }  # fmt: skip
    return [
        _start([*bound, python, *arguments], {**own, **place, "RANK": str(rank), **more})
        for rank in range(count)
    ]


def environment(**more):
    """The environment of ranks, with the project on their path."""
    paths = [str(ROOT), str(ROOT / "runtime/python"), os.environ.get("PYTHONPATH", "")]
    own = {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    # for Open MPI, which counts cores and minds who it is started by
    may = (
        "OMPI_ALLOW_RUN_AS_ROOT",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
        "PRTE_MCA_rmaps_default_mapping_policy",
    )
    own |= dict(zip(may, ("1", "1", ":oversubscribe"), strict=True))
    return {**os.environ, "FLOW2ONNX_DEADLINE": "60", **own, **more}


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _mpirun(python):
    found = shutil.which("mpirun", path=str(Path(python).parent)) or shutil.which("mpirun")
    if found is None:
        pytest.skip("no mpirun here: `make ranks` installs one")
    return found


def _start(command, environment, folder=ROOT):
    return subprocess.Popen(
        command, env=environment, cwd=folder, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def ends(processes, seconds=300):
    """Exit status, output and errors of each process."""
    found = []
    try:
        for process in processes:
            out, err = process.communicate(timeout=seconds)
            found.append((process.returncode, out, err))
    finally:
        for process in processes:
            process.kill()
    return found
