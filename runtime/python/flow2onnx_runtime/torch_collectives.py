"""The verbs on torch.distributed: gloo between processes on CPUs.

Ranks meet at the store that torchrun, or the environment, names. A restart by torchrun meets below
a prefix of its own: survivors of the last attempt would dial addresses that are gone.

What ranks add up in parts, or gather, each sends to the others directly, and so do two ranks with
what they add up: gloo's own algorithms pass more bytes, or the same ones in more turns. A rank that
is bound to one processor adds up by gloo: its threads take turns there, and one that sends a whole
array leaves none for what arrives.
"""

import atexit
import contextlib
import math
import os
import re
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from flow2onnx_runtime.collectives import Pending, PendingPart, RankError, last_line
from flow2onnx_runtime.errors import OptionsError
from flow2onnx_runtime.world import DEADLINE, World, usable_processors

__all__ = ["TorchCollectives"]

_GRACE = 2.0  # seconds in which the other ranks tell that they wait, or why they ended
_POLL = 0.05
_TAG = 2**30  # of arrays that ranks exchange; those of `begin_send` count from 0


class TorchCollectives:
    """The connection of one rank, which ends with the process."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._limit = timedelta(seconds=world.deadline)
        self._store = _meet(world, self._limit)
        self._failed = False
        self._rooms = _Rooms()
        self._store.set(f"host/{world.rank}", socket.gethostname())
        self._store.set(f"processors/{world.rank}", str(usable_processors()))
        with self._guarded("join"):
            dist.init_process_group(
                "gloo", store=dist.PrefixStore("group", self._store), rank=world.rank,
                world_size=world.size, timeout=self._limit,
            )  # fmt: skip
        self._sums_directly = world.size == 2 and all(  # both ranks have to go the same way
            int(self._store.get(f"processors/{rank}")) > 1 for rank in range(2)
        )
        atexit.register(self._leave)
        before = sys.excepthook

        def tell(kind: Any, error: BaseException, frames: Any) -> None:
            if not isinstance(error, RankError):
                self.fail(last_line(error))
            before(kind, error, frames)

        sys.excepthook = tell

    def begin_all_reduce(self, array: NDArray[Any]) -> Pending:
        """Begin to replace `array` by its sum over the ranks."""
        if self._sums_directly:
            return _Sum(self, "all-reduce", array, {1 - self.world.rank: array}, self._rooms)
        with self._guarded("all-reduce"):
            work = dist.all_reduce(torch.from_numpy(array), async_op=True)
            return _Work(self, [work], "all-reduce")

    def all_reduce(self, array: NDArray[Any]) -> None:
        """Replace `array` by its sum over the ranks."""
        self.begin_all_reduce(array).wait()

    def all_max(self, array: NDArray[Any]) -> None:
        """Replace each element of `array` by the largest of all ranks'."""
        with self._guarded("all-reduce"):
            dist.all_reduce(torch.from_numpy(array), dist.ReduceOp.MAX)

    def all_to_all(
        self, parts: Sequence[NDArray[Any]], shapes: Sequence[tuple[int, ...]]
    ) -> list[NDArray[Any]]:
        """Arrays of these `shapes` that each rank has for this one."""
        dtype = parts[0].dtype
        given = [_as_bytes(part) for part in parts]
        sizes = [math.prod(shape) * dtype.itemsize for shape in shapes]
        found = torch.empty(sum(sizes), dtype=torch.uint8)
        with self._guarded("all-to-all"):
            dist.all_to_all_single(
                found, torch.from_numpy(np.concatenate(given)), sizes, [g.size for g in given]
            )
        pieces = np.split(found.numpy(), np.cumsum(sizes)[:-1])
        return [p.view(dtype).reshape(s) for p, s in zip(pieces, shapes, strict=True)]

    def begin_send(self, array: NDArray[Any], target: int, tag: int) -> Pending:
        """Begin to send `array` to a rank."""
        with self._guarded("send"):
            sent = torch.from_numpy(_as_bytes(array))
            return _Work(self, [dist.isend(sent, target, tag=tag)], "send")

    def receive(self, array: NDArray[Any], source: int, tag: int) -> None:
        """Replace `array` by what a rank has sent with the same tag."""
        with self._guarded("receive"):
            dist.recv(torch.from_numpy(array.reshape(-1).view(np.uint8)), source, tag=tag)

    def begin_reduce_scatter(self, array: NDArray[Any]) -> PendingPart:
        """Begin to add up `array`, for this rank its part."""
        parts = dict(enumerate(np.split(array, self.world.size)))
        own = parts.pop(self.world.rank)
        return _Sum(self, "reduce-scatter", own, parts, self._rooms)

    def reduce_scatter(self, array: NDArray[Any]) -> NDArray[Any]:
        """This rank's part of the sum of `array`."""
        return self.begin_reduce_scatter(array).wait()

    def all_gather(self, array: NDArray[Any]) -> list[NDArray[Any]]:
        """The arrays of all ranks, by rank."""
        found = {rank: np.empty(array.shape, array.dtype) for rank in range(self.world.size)}
        found.pop(self.world.rank)
        self.exchange("all-gather", dict.fromkeys(found, array), found).wait()
        return [found.get(rank, array) for rank in range(self.world.size)]

    def broadcast(self, array: NDArray[Any], root: int = 0) -> None:
        """Replace `array` by that of `root`."""
        with self._guarded("broadcast"):
            dist.broadcast(torch.from_numpy(array.reshape(-1).view(np.uint8)), root)

    def barrier(self) -> None:
        """Return once every rank is here."""
        with self._guarded("barrier"):
            dist.barrier()

    def fail(self, cause: str) -> None:
        """Tell the other ranks why this one ends."""
        if not self._failed:
            self._failed = True
            with contextlib.suppress(Exception):  # the store may be gone, and this rank ends anyway
                self._store.set(f"failed/{self.world.rank}", f"{self.world.name}: {cause}")

    def exchange(
        self, what: str, given: Mapping[int, NDArray[Any]], found: Mapping[int, NDArray[Any]]
    ) -> "_Work":
        """Begin to send arrays to other ranks, and to fill others with what these send, by rank."""
        works = list[Any]()
        with self._guarded(what):
            for rank, array in found.items():
                if array.size:
                    room = torch.from_numpy(array.reshape(-1).view(np.uint8))
                    works.append(dist.irecv(room, rank, tag=_TAG))
            for rank, array in given.items():
                if array.size:
                    works.append(dist.isend(torch.from_numpy(_as_bytes(array)), rank, tag=_TAG))
        return _Work(self, works, what)

    def _guarded(self, what: str) -> "_Guard":
        return _Guard(self, what)

    def explain(self, what: str, error: Exception) -> RankError:
        """The error of a collective that failed: it names the ranks that did not come, and why."""
        if not self._failed:
            self._failed = True
            with contextlib.suppress(Exception):
                self._store.set(f"waits/{self.world.rank}", what)
        try:
            causes, silent = self._others()
        except Exception:  # the store is on another host, or in a process that is gone
            causes, silent = [], []
        if causes:
            return RankError(f"{what} of {self.world.name}: {'; '.join(causes)}")
        if silent:
            return RankError(
                f"{what} of {self.world.name}: {', '.join(silent)} did not come: it hangs, was "
                f"killed or never started, or calls other jobs ({_first_line(error)})",
                hint=f"{DEADLINE}, now {self.world.deadline:g} seconds, is how long ranks wait",
            )
        return RankError(f"{what} of {self.world.name} failed: {_first_line(error)}")

    def _others(self) -> tuple[list[str], list[str]]:
        """Why other ranks ended, as far as they told; else those that say nothing."""
        ranks = [r for r in range(self.world.size) if r != self.world.rank]
        end, causes = time.monotonic() + _GRACE, list[str]()
        silent = ranks
        while silent and not causes and time.monotonic() < end:
            time.sleep(_POLL)
            failed = [r for r in ranks if self._store.check([f"failed/{r}"])]
            causes = [self._store.get(f"failed/{r}").decode() for r in failed]
            silent = [r for r in silent if not self._store.check([f"waits/{r}"])]
        return causes, [self._name(r) for r in silent]

    def _name(self, rank: int) -> str:
        key = f"host/{rank}"
        host = self._store.get(key).decode() if self._store.check([key]) else "an unknown host"
        return f"rank {rank} on {host}"

    def _leave(self) -> None:
        with contextlib.suppress(Exception):  # at exit others may be gone already
            if not self._failed:
                self._store.set(f"failed/{self.world.rank}", f"{self.world.name} has ended")
            dist.destroy_process_group()


class _Guard:
    """Turns what a collective raises into a `RankError`."""

    def __init__(self, collectives: TorchCollectives, what: str) -> None:
        self._collectives, self._what = collectives, what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, frames: Any) -> None:
        if isinstance(error, Exception):
            raise self._collectives.explain(self._what, error) from error


class _Work:
    """A collective under way, of one or several works; torch keeps the arrays while it is."""

    def __init__(self, collectives: TorchCollectives, works: Sequence[Any], what: str) -> None:
        self._collectives, self._works, self._what = collectives, works, what

    def wait(self) -> None:
        """Return once it is done."""
        with _Guard(self._collectives, self._what):
            for work in self._works:
                work.wait()


class _Rooms:
    """Memory that is used again: to have the system provide it costs more than to fill it."""

    def __init__(self) -> None:
        self._free: dict[tuple[int, np.dtype[Any]], list[NDArray[Any]]] = {}

    def take(self, array: NDArray[Any]) -> NDArray[Any]:
        """A vector of the size and element type of an array, and of any content."""
        free = self._free.setdefault((array.size, array.dtype), [])
        return free.pop() if free else np.empty(array.size, array.dtype)

    def give_back(self, room: NDArray[Any]) -> None:
        """Let a vector be taken again."""
        self._free[room.size, room.dtype].append(room)


class _Sum:
    """A sum under way: `own` becomes it, others get the arrays that are `given` for them."""

    def __init__(
        self,
        collectives: TorchCollectives,
        what: str,
        own: NDArray[Any],
        given: Mapping[int, NDArray[Any]],
        rooms: _Rooms,
    ) -> None:
        self._own, self._rooms = own, rooms
        self._found = {rank: rooms.take(own) for rank in given}
        self._work = collectives.exchange(what, given, self._found)

    def wait(self) -> NDArray[Any]:
        """The sum, once it is there."""
        self._work.wait()
        while self._found:
            _, room = self._found.popitem()
            np.add(self._own, room.reshape(self._own.shape), out=self._own)
            self._rooms.give_back(room)
        return self._own


def _as_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """The memory of an array, which torch may have no element type for."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return flat if flat.flags.writeable else flat.copy()


def _meet(world: World, limit: timedelta) -> Any:
    """The store at which the ranks meet."""
    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "")
    if address is None or not port.isdigit():
        raise OptionsError(
            f"{world.size} ranks were started, and MASTER_ADDR={address!r}, "
            f"MASTER_PORT={port!r} do not say where they meet",
            hint="flow2onnx launch and torchrun set both",
        )
    is_master = world.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    try:
        # a rank that waits for the others here would not know for whom
        store = dist.TCPStore(
            address, int(port), world.size, is_master, limit, wait_for_workers=False
        )
    except Exception as error:  # torch's errors have no common base
        raise RankError(
            f"{world.name} cannot reach {address}:{port}, where the ranks meet: "
            f"{_first_line(error)}",
            hint=f"see that rank 0 runs there and no firewall is between; ranks wait {DEADLINE}, "
            f"now {world.deadline:g} seconds",
        ) from error
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return dist.PrefixStore(f"flow2onnx/{restart}", store)


def _first_line(error: Exception) -> str:
    """The library's words, without the place in its own text and its advice."""
    line = str(error).strip().split("\n")[0]
    return re.sub(r"^\[[^]]*\] *", "", line).split(". ")[0]
