"""Adapters of modules that some models have in one: of Phi-3, ``qkv_proj`` and ``gate_up_proj``.

A pair (A, B) of the whole is one for each part, of the same A and the part's columns of B. Pairs of
the parts are one of the whole whose rank is the sum of theirs: the A side by side, the B along a
diagonal with zeros beside.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from flow2onnx_runtime.dtypes import Array
from flow2onnx_runtime.errors import BundleError

__all__ = ["PARTS", "join_pairs", "split_pair", "wholes"]

PARTS: Mapping[str, tuple[str, ...]] = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}

Pair = tuple[Array, Array]


def wholes(modules: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The modules that hold several of `modules`, with the names of their parts.

    Raises `BundleError` where one of the parts is missing.
    """
    for last, parts in PARTS.items():
        stems = dict.fromkeys(m.rpartition(".")[0] for m in modules if m.endswith(parts))
        for stem in stems:
            before = f"{stem}." if stem else ""
            names = tuple(before + part for part in parts)
            missing = [n for n in names if n not in modules]
            if missing:
                raise BundleError(
                    f"{before}{last} is one module for PEFT, and the adapter has none of "
                    f"{', '.join(missing)}",
                    hint="train all of its parts, or take the .onnx_adapter alone",
                )
            yield before + last, names


def join_pairs(pairs: list[Pair]) -> Pair:
    """The pair of a whole of those of its parts, in order."""
    a = np.concatenate([pair[0] for pair in pairs], axis=1)
    b = np.zeros((a.shape[1], sum(pair[1].shape[1] for pair in pairs)), pairs[0][1].dtype)
    row = column = 0
    for _, part in pairs:
        b[row : row + part.shape[0], column : column + part.shape[1]] = part
        row, column = row + part.shape[0], column + part.shape[1]
    return a, b


def split_pair(pair: Pair, rows: list[int]) -> list[Pair]:
    """The pairs of parts of these widths; a rank whose row of B is zeros in a part leaves it."""
    a, b = pair
    found = []
    for part in np.split(b, np.cumsum(rows)[:-1], axis=1):
        used = np.flatnonzero(part.any(axis=1))
        if not used.size:
            used = np.zeros(1, np.int64)  # a pair has a rank
        found.append((np.ascontiguousarray(a[:, used]), np.ascontiguousarray(part[used])))
    return found
