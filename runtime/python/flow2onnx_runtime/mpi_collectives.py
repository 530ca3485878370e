"""The verbs on MPI, through mpi4py.

An MPI library waits for ever. So every verb is a non-blocking one with a deadline, after which, as
after an error, this rank aborts the whole world: a rank that ends alone would leave it hanging.
"""

import atexit
import math
import socket
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from flow2onnx_runtime.collectives import (
    Pending,
    PendingPart,
    RankError,
    gather_bytes,
    last_line,
)
from flow2onnx_runtime.mpi_notices import ENDED, Notices
from flow2onnx_runtime.world import DEADLINE, World

__all__ = ["MPICollectives"]

_SPINS = 2000  # tests without a pause: small collectives take microseconds
_PAUSE = 20e-6
_LOOK = 0.05  # seconds between two looks at what other ranks tell
_GRACE = 2.0  # seconds in which others tell that they wait
_LAST = 5.0  # seconds in which a collective ends that a rank was in before its own end
_STEP = 1e-4  # between two looks at what goes on while this process computes


class MPICollectives:
    """The connection of one rank. An exception that nobody catches ends all ranks."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._progress = _Progress()
        self._comm = MPI.COMM_WORLD.Dup()
        if (self._comm.rank, self._comm.size) != (world.rank, world.size):
            raise RankError(
                f"{world.name}, and MPI counts it as {self._comm.rank} of {self._comm.size}",
                hint="start the program by the mpirun of the library that mpi4py has: "
                + MPI.Get_library_version().split("\n")[0],
            )
        self._left: float | None = None  # when another rank's end was first heard of
        self._notices = Notices(world)
        hosts = gather_bytes(self, socket.gethostname().encode())
        self._notices.know_hosts([host.decode() for host in hosts])
        atexit.register(self._notices.leave)
        before = sys.excepthook

        def abort(kind: Any, error: BaseException, frames: Any) -> None:
            before(kind, error, frames)
            self._abort(f"{world.name} failed: {last_line(error)}")

        sys.excepthook = abort

    def begin_all_reduce(self, array: NDArray[Any]) -> Pending:
        """Begin to replace `array` by its sum over the ranks."""
        request = self._comm.Iallreduce(MPI.IN_PLACE, array)
        return self._progress.drive(_Request(self, "all-reduce", request))

    def begin_reduce_scatter(self, array: NDArray[Any]) -> PendingPart:
        """Begin to add up `array`, for this rank its part."""
        part = np.empty(len(array) // self.world.size, array.dtype)
        request = self._comm.Ireduce_scatter_block(array, part)
        return _Part(self._progress.drive(_Request(self, "reduce-scatter", request)), array, part)

    def all_reduce(self, array: NDArray[Any]) -> None:
        """Replace `array` by its sum over the ranks."""
        self.begin_all_reduce(array).wait()

    def all_max(self, array: NDArray[Any]) -> None:
        """Replace each element of `array` by the largest of all ranks'."""
        self._finish("all-reduce", self._comm.Iallreduce(MPI.IN_PLACE, array, MPI.MAX))

    def all_to_all(
        self, parts: Sequence[NDArray[Any]], shapes: Sequence[tuple[int, ...]]
    ) -> list[NDArray[Any]]:
        """Arrays of these `shapes` that each rank has for this one."""
        dtype = parts[0].dtype
        given = [np.ascontiguousarray(p).reshape(-1).view(np.uint8) for p in parts]
        sizes = [math.prod(shape) * dtype.itemsize for shape in shapes]
        sent, found = np.concatenate(given), np.empty(sum(sizes), np.uint8)
        request = self._comm.Ialltoallv([sent, [g.size for g in given]], [found, sizes])
        self._finish("all-to-all", request)
        pieces = np.split(found, np.cumsum(sizes)[:-1])
        return [p.view(dtype).reshape(s) for p, s in zip(pieces, shapes, strict=True)]

    def begin_send(self, array: NDArray[Any], target: int, tag: int) -> Pending:
        """Begin to send `array` to a rank."""
        sent = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return _Request(self, "send", self._comm.Isend(sent, target, tag))

    def receive(self, array: NDArray[Any], source: int, tag: int) -> None:
        """Replace `array` by what a rank has sent with the same tag."""
        room = array.reshape(-1).view(np.uint8)
        self._finish("receive", self._comm.Irecv(room, source, tag))

    def reduce_scatter(self, array: NDArray[Any]) -> NDArray[Any]:
        """This rank's part of the sum of `array`."""
        return self.begin_reduce_scatter(array).wait()

    def all_gather(self, array: NDArray[Any]) -> list[NDArray[Any]]:
        """The arrays of all ranks, by rank."""
        found = np.empty((self.world.size, *array.shape), array.dtype)
        # as bytes, for not every element type is one of MPI's
        sent = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        room = found.reshape(-1).view(np.uint8)
        self._finish("all-gather", self._comm.Iallgather(sent, room))
        return list(found)

    def broadcast(self, array: NDArray[Any], root: int = 0) -> None:
        """Replace `array` by that of `root`."""
        self._finish("broadcast", self._comm.Ibcast(array.reshape(-1).view(np.uint8), root))

    def barrier(self) -> None:
        """Return once every rank is here."""
        self._finish("barrier", self._comm.Ibarrier())

    def fail(self, cause: str) -> None:
        """End all ranks: MPI has no other way to tell them."""
        self._abort(f"{self.world.name}: {cause}")

    def _finish(self, what: str, request: Any) -> None:
        _Request(self, what, request).wait()

    def late(self, what: str) -> None:
        """End all ranks, as others did not come in time."""
        self.look(what, 0.0, grace=0.0)
        missing = self._notices.silent(_GRACE)
        time_out = f"within {self.world.deadline:g} seconds, which {DEADLINE} sets"
        self._end_for(
            missing,
            f"{self._notices.names(missing)} did not come {time_out}: it hangs, or calls other jobs"
            if missing
            else f"it did not come about {time_out}: ranks wait for different things",
            what,
        )

    def look(self, what: str, since: float, grace: float = _LAST) -> None:
        """End all ranks if one has ended without this collective, which this one waits for."""
        gone, now = sorted(self._notices.heard(ENDED)), time.monotonic()
        if gone and self._left is None:
            self._left = now
        if self._left is not None and now - max(self._left, since) >= grace:
            self._end_for(gone, f"{self._notices.names(gone)} has ended", what)

    def _end_for(self, missing: Sequence[int], message: str, what: str) -> None:
        """End all ranks with one message: the first of those that wait is faster than others."""
        time.sleep(_GRACE * self._notices.position(missing))
        self._abort(f"{what} of {self.world.name}: {message}")

    def _abort(self, message: str) -> None:
        print(f"flow2onnx: error: {message}", file=sys.stderr, flush=True)
        sys.stdout.flush()
        MPI.COMM_WORLD.Abort(1)


class _Request:
    """A collective under way."""

    def __init__(self, collectives: MPICollectives, what: str, request: Any) -> None:
        self._collectives, self._what, self._request = collectives, what, request
        self._lock, self._is_done = threading.Lock(), False

    def test(self) -> bool:
        """True once it is done. Asking is what lets an MPI library go on with it."""
        with self._lock:  # MPI allows one thread to ask for a request
            self._is_done = self._is_done or self._request.Test()
            return self._is_done

    def wait(self) -> None:
        """Return once it is done."""
        for _ in range(_SPINS):
            if self.test():
                return
        since = now = time.monotonic()
        end, look = now + self._collectives.world.deadline, now + _LOOK
        while not self.test():
            now = time.monotonic()
            if now > end:
                self._collectives.late(self._what)
            if now > look:
                look = now + _LOOK
                self._collectives.look(self._what, since)
            time.sleep(_PAUSE)


class _Part:
    """A reduce-scatter under way; it keeps what it reads until it is done."""

    def __init__(self, request: Pending, array: NDArray[Any], part: NDArray[Any]) -> None:
        self._request, self._array, self._part = request, array, part

    def wait(self) -> NDArray[Any]:
        """The part, once it is there."""
        self._request.wait()
        return self._part


class _Progress:
    """A thread that asks for requests under way, so that they go on while the process computes."""

    def __init__(self) -> None:
        self._may = MPI.Query_thread() == MPI.THREAD_MULTIPLE
        self._requests: list[_Request] = []
        self._there = threading.Event()
        self._thread: threading.Thread | None = None

    def drive(self, request: _Request) -> _Request:
        """The request, looked after from now on, if the library allows several threads."""
        if self._may:
            self._requests.append(request)
            self._there.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="mpi", daemon=True)
                self._thread.start()
        return request

    def _run(self) -> None:
        while True:
            self._there.wait()
            self._there.clear()
            while self._requests:
                if self._requests[0].test():
                    self._requests.pop(0)
                else:
                    time.sleep(_STEP)
