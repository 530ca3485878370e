"""Synthetic numbers: what models are tried, timed and compared on where nobody gives data."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["random_array"]


def random_array(
    draws: np.random.Generator,
    shape: Sequence[int],
    dtype: "np.dtype[Any]",
    *,
    integers: tuple[int, int] = (0, 2),
    reals: tuple[float, float] | None = None,
    is_bfloat16: bool = False,
) -> NDArray[Any]:
    """Numbers that any model takes: normal reals, and whole numbers that may be indices.

    Whole numbers are from the first of `integers`, below the second; `reals` are limits of a
    uniform distribution in place of the normal one. `is_bfloat16`: the uint16 bits of reals.
    """
    if dtype.kind == "b":
        integers = (0, 2)
    if dtype.kind in "iub" and not is_bfloat16:
        return np.asarray(draws.integers(*integers, tuple(shape))).astype(dtype)
    numbers = np.asarray(
        draws.standard_normal(shape) if reals is None else draws.uniform(*reals, shape)
    )
    if is_bfloat16:  # the upper half of a float32
        return (numbers.astype(np.float32).view(np.uint32) >> 16).astype(dtype)
    return numbers.astype(dtype)
