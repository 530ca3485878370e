"""Tensors of which each rank has its own part along an axis: the first ranks have one row more."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["own_slice", "part_length", "part_of_axis", "part_start"]


def part_length(size: int, ranks: int, rank: int) -> int:
    """How many of `size` rows a rank has.

    >>> [part_length(10, 4, rank) for rank in range(4)]
    [3, 3, 2, 2]
    """
    return size // ranks + (rank < size % ranks)


def part_start(size: int, ranks: int, rank: int) -> int:
    """The first of the rows of a rank."""
    return rank * (size // ranks) + min(rank, size % ranks)


def own_slice(axis: int, size: int, ranks: int, rank: int) -> tuple[slice, ...]:
    """The index of the rows of a rank along an axis."""
    start = part_start(size, ranks, rank)
    rows = slice(start, start + part_length(size, ranks, rank))
    return (*[slice(None)] * axis, rows)


def part_of_axis(array: NDArray[Any], axis: int, ranks: int, rank: int) -> NDArray[Any]:
    """The rows of a rank, as an array of their own."""
    return np.ascontiguousarray(array[own_slice(axis, array.shape[axis], ranks, rank)])
