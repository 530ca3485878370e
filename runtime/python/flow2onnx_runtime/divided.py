"""Tensors of which each rank has a part: the elements end to end, then zeros, in equal parts."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["join_parts", "own_part", "part_size"]


def part_size(shape: Sequence[int], parts: int) -> int:
    """The number of elements in each of `parts` parts of a tensor."""
    return -(-prod(shape) // parts)


def own_part(array: NDArray[Any], rank: int, parts: int) -> NDArray[Any]:
    """The part of a rank, of shape (part_size,).

    >>> own_part(np.arange(5), 1, 2)
    array([3, 4, 0])
    """
    size, flat = part_size(array.shape, parts), array.reshape(-1)
    found = np.zeros(size, array.dtype)
    own = flat[rank * size : (rank + 1) * size]
    found[: own.size] = own
    return found


def join_parts(parts: Sequence[NDArray[Any]], shape: Sequence[int]) -> NDArray[Any]:
    """The tensor, from the parts of all ranks in their order."""
    return np.concatenate(parts)[: prod(shape)].reshape(shape)
