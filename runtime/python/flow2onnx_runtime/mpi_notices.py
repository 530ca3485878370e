"""Notices that ranks on MPI send each other beside their collectives: who has ended, who waits.

An MPI library tells no rank of another's end. By these, a rank that waits in vain can say for whom.
"""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from flow2onnx_runtime.world import World

__all__ = ["ENDED", "WAITS", "Notices"]

ENDED, WAITS = 1, 2  # the tags of messages
_PAUSE = 0.02


class Notices:
    """The notices of this rank, on a communicator of their own."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._comm = MPI.COMM_WORLD.Dup()
        self._sent: list[Any] = []  # what an MPI library may still read
        self._heard: dict[int, set[int]] = {ENDED: set(), WAITS: set()}
        self._hosts: Sequence[str] = ["an unknown host"] * world.size

    def know_hosts(self, hosts: Sequence[str]) -> None:
        """Take the names of all ranks' hosts, by rank."""
        self._hosts = hosts

    def tell(self, tag: int) -> None:
        """Send a notice to every other rank, and wait for none."""
        for rank in self._others():
            content = np.zeros(1, np.uint8)
            self._sent.append((content, self._comm.Isend(content, rank, tag)))

    def heard(self, tag: int) -> set[int]:
        """The ranks that have sent a notice so far."""
        state, content = MPI.Status(), np.zeros(1, np.uint8)
        # a message that is found here is taken from other threads, too
        while (found := self._comm.Improbe(MPI.ANY_SOURCE, MPI.ANY_TAG, state)) is not None:
            found.Recv(content)
            self._heard[state.tag].add(state.source)
        return self._heard[tag]

    def silent(self, seconds: float) -> list[int]:
        """The ranks that do not say within so many seconds that they wait, as this one does."""
        self.tell(WAITS)
        self._wait_for(WAITS, time.monotonic() + seconds)
        return [rank for rank in self._others() if rank not in self.heard(WAITS)]

    def leave(self) -> None:
        """Say that this rank ends, and return when all do: MPI's own end would wait as well."""
        self.tell(ENDED)
        self._wait_for(ENDED, float("inf"))

    def names(self, ranks: Sequence[int]) -> str:
        """Ranks with their hosts, as messages have them."""
        return ", ".join(f"rank {rank} on {self._hosts[rank]}" for rank in ranks)

    def position(self, missing: Sequence[int]) -> int:
        """How many ranks below this one are not missing, and so see the same."""
        return sum(rank not in missing for rank in range(self._world.rank))

    def _wait_for(self, tag: int, end: float) -> None:
        while len(self.heard(tag)) < self._world.size - 1 and time.monotonic() < end:
            time.sleep(_PAUSE)

    def _others(self) -> list[int]:
        return [rank for rank in range(self._world.size) if rank != self._world.rank]
