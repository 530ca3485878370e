"""The processes that train one job together, as the launcher of this one tells in its environment.

torchrun, a PyTorchJob, mpirun and an MPIJob each set variables of their own; nothing else is read.
"""

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from flow2onnx_runtime.errors import OptionsError

__all__ = [
    "DEADLINE",
    "ENGINE",
    "NOTES",
    "World",
    "deadline",
    "launched_world",
    "rank_threads",
    "usable_processors",
]

ENGINE = "FLOW2ONNX_ENGINE"  # "torch" or "mpi", in place of what the launcher suggests
DEADLINE = "FLOW2ONNX_DEADLINE"  # seconds that a rank waits for the others
NOTES = "FLOW2ONNX_RANK_NOTES"  # a folder in which ranks note for their launcher what they do

_SECONDS = 60.0
Engine = Literal["torch", "mpi"]


@dataclass(frozen=True, kw_only=True)
class World:
    """This process among those of one job: `rank` of `size`, `local_rank` of those of its machine.

    `machine` is the number of its machine among `machines`. `engine` is the library that moves
    bytes between them, None where there is one process. `deadline` is how many seconds a rank waits
    for the others.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    machine: int = 0
    machines: int = 1
    engine: Engine | None = None
    deadline: float = _SECONDS

    @property
    def name(self) -> str:
        """This rank and its host, as messages have it."""
        return f"rank {self.rank} of {self.size} on {socket.gethostname()}"


# What each launcher calls size, rank, local size and local rank; the first that is set counts.
_LAUNCHERS: Mapping[tuple[str, str, str, str], Engine] = {
    ("WORLD_SIZE", "RANK", "LOCAL_WORLD_SIZE", "LOCAL_RANK"): "torch",
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK"): "mpi",
    ("PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"): "mpi",
}  # fmt: skip


def launched_world(environment: Mapping[str, str] = os.environ) -> World:
    """The world that the launcher of this process set up; one of a single process if none did.

    Raises `OptionsError` for variables that contradict each other.
    """
    for names, suggested in _LAUNCHERS.items():
        if names[0] not in environment or names[1] not in environment:
            continue
        size, rank = (_number(environment, name) for name in names[:2])
        if names[2] in environment:
            local_size = _number(environment, names[2])
        else:
            local_size = _in_a_pod(environment, size)
        local_rank = _number(environment, names[3], rank % max(local_size, 1))
        if not 0 <= rank < size or not 0 <= local_rank < local_size <= size:
            raise OptionsError(
                f"{names[1]}={rank} of {names[0]}={size}, {names[3]}={local_rank} of "
                f"{names[2]}={local_size}: these are no ranks of one world",
                hint="start the program by flow2onnx launch, torchrun or mpirun, which set them",
            )
        if size == 1:
            return World()
        # Launchers number ranks machine by machine; torchrun also says which machine this is.
        machine, machines = rank // local_size, size // local_size
        if suggested == "torch":
            machine = _number(environment, "GROUP_RANK", machine)
            machines = _number(environment, "GROUP_WORLD_SIZE", machines)
        return World(
            rank=rank,
            size=size,
            local_rank=local_rank,
            local_size=local_size,
            machine=machine,
            machines=machines,
            engine=_engine(environment, suggested),
            deadline=deadline(environment),
        )
    return World()


def _in_a_pod(environment: Mapping[str, str], size: int) -> int:
    """How many ranks a machine has where no launcher says so: one in each pod of a PyTorchJob.

    Elsewhere all, as where a shell starts them. A pod of several needs torchrun, which counts them:
    the operator's RANK is that of the pod.
    """
    pods, each = environment.get("PET_NNODES", ""), environment.get("PET_NPROC_PER_NODE", "1")
    if pods and each != "1":
        raise OptionsError(
            f"PET_NPROC_PER_NODE={each} asks for several ranks in a pod, and nothing starts them",
            hint="let the command of the container begin with torchrun",
        )
    return max(size // int(pods), 1) if pods.isdigit() and int(pods) else size


def _number(environment: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = environment.get(name)
    if text is None and default is not None:
        return default
    try:
        return int(text or "")
    except ValueError:
        raise OptionsError(f"{name}={text!r} in the environment is no number") from None


def _engine(environment: Mapping[str, str], suggested: Engine) -> Engine:
    given = environment.get(ENGINE, suggested)
    for engine in ("torch", "mpi"):
        if given == engine:
            return engine
    raise OptionsError(f"{ENGINE}={given!r} is no engine", hint="it is torch or mpi")


def deadline(environment: Mapping[str, str] = os.environ) -> float:
    """The seconds that a rank waits for the others. Raises `OptionsError` if they are no number."""
    given = environment.get(DEADLINE, str(_SECONDS))
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise OptionsError(f"{DEADLINE}={given!r} is no number of seconds", hint="it is above 0")
    return seconds


def usable_processors() -> int:
    """How many processors this process may run on: all, unless it is bound to some."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def rank_threads(environment: Mapping[str, str] = os.environ) -> int | None:
    """How many threads an operator has in a process that shares its machine with other ranks.

    Its share of the processors that the launcher may use, and at most as many as it is bound to:
    several ranks may be bound to the same ones. None for a process that has its machine alone, or
    where no system tells.
    """
    try:
        ranks = launched_world(environment).local_size
    except OptionsError:  # which is raised where the world matters
        return None
    if ranks == 1 or not hasattr(os, "sched_getaffinity"):
        return None
    shared = own = os.sched_getaffinity(0)
    with suppress(OSError):  # the launcher has ended, or is of another user
        shared = own | os.sched_getaffinity(os.getppid())
    return max(1, min(len(own), len(shared) // ranks))
