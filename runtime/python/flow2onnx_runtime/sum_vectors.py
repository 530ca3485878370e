"""The memory in which the ranks of a bundle add up their gradients, and pass on what they move."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flow2onnx_runtime.collectives import Collectives
from flow2onnx_runtime.state import State

__all__ = ["SumVectors"]


@dataclass(frozen=True)
class _Vector:
    """Tensors of one element type end to end, and its slices in their shapes, by their names."""

    array: NDArray[Any]
    slices: Mapping[str, NDArray[Any]]


class SumVectors:
    """A vector for each element type of the sums of gradients, made once.

    Fresh memory in each step would cost more than the copies. Where tensors have `owners`, the
    ranks that move them, their next values travel too: in the memory of their `sums`, which nobody
    needs by then, if they have one of their element type.
    """

    def __init__(
        self,
        state: State,
        names: Sequence[str],
        owners: Mapping[str, int],
        sums: Mapping[str, str],
    ) -> None:
        self._state, self._spread = state, list[tuple[int, _Vector]]()
        owner_of_sum = {sums[name]: owner for name, owner in owners.items() if name in sums}
        ordered = sorted(names, key=lambda name: owner_of_sum.get(name, -1))
        self._vectors = _joined(state, ordered)
        variables = {sum_name: name for name, sum_name in sums.items()}
        alone = set(owners)
        for vector in self._vectors:
            for owner, part in _parts_by_owner(state, vector, owner_of_sum, variables):
                self._spread.append((owner, part))
                alone -= part.slices.keys()
        for owner in sorted({owners[name] for name in alone}):
            mine = [name for name in owners if name in alone and owners[name] == owner]
            self._spread += [(owner, vector) for vector in _joined(state, mine)]

    def add_up(self, others: Collectives) -> None:
        """Let the sums of gradients, and the count of their batches, be those of all ranks."""
        pending = []
        for vector in self._vectors:
            for name, part in vector.slices.items():
                self._state.read_into(name, part)
            pending.append(others.begin_all_reduce(vector.array))
        for work, vector in zip(pending, self._vectors, strict=True):
            work.wait()
            for name, part in vector.slices.items():
                self._state.write(name, part)

    def spread(self, others: Collectives) -> None:
        """Give each tensor that one rank has moved its value on all others."""
        for owner, vector in self._spread:
            if others.world.rank == owner:
                for name, part in vector.slices.items():
                    self._state.read_into(name, part)
            others.broadcast(vector.array, owner)
            if others.world.rank != owner:
                for name, part in vector.slices.items():
                    self._state.write(name, part)


def _joined(state: State, names: Sequence[str]) -> list[_Vector]:
    """A vector for each element type of these tensors."""
    found = []
    for kind in dict.fromkeys(map(state.dtype, names)):
        own = [name for name in names if state.dtype(name) == kind]
        ends = np.cumsum([prod(state.shape(name)) for name in own])
        vector = np.zeros(int(ends[-1]), kind)
        parts = zip(own, np.split(vector, ends[:-1]), strict=True)
        found.append(_Vector(vector, {n: part.reshape(state.shape(n)) for n, part in parts}))
    return found


def _parts_by_owner(
    state: State, vector: _Vector, owners: Mapping[str, int], variables: Mapping[str, str]
) -> list[tuple[int, _Vector]]:
    """The parts of a vector of sums in which the variables of one owner fit, end to end."""
    found, start = list[tuple[int, _Vector]](), 0
    for owner, group in groupby(vector.slices, key=lambda name: owners.get(name, -1)):
        names = list(group)
        end = start + sum(vector.slices[name].size for name in names)
        fits = all(state.dtype(variables[n]) == vector.array.dtype for n in names if n in variables)
        if owner >= 0 and fits:
            slices = {variables[name]: vector.slices[name] for name in names}
            found.append((owner, _Vector(vector.array[start:end], slices)))
        start = end
    return found
