"""Transposes of matrices beside numpy, alone and in graphs."""

import math

import numpy as np
import pytest
from flow2onnx_native.library import NativeLibrary
from flow2onnx_native.transposes import exchanges_last_axes

from flow2onnx.dtypes import float32, float64
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_of
from tests.native.one_node import CASES, EXTREMES, each_case, is_refusal, numbers, outcome
from tests.native.running import both, rewrite

EXTENTS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64)
MOST_ELEMENTS = 1 << 18


def order_of(rank: int, draw: np.random.Generator) -> list[int]:
    """Axes whose last ones, from some axis on, come before those in front of them."""
    first = int(draw.integers(0, rank - 1))
    split = int(draw.integers(first + 1, rank))
    return [*range(first), *range(split, rank), *range(first, split)]


def case(draw: np.random.Generator, library: NativeLibrary) -> bool:
    order = order_of(int(draw.integers(2, 6)), draw)
    shape = [int(n) for n in draw.choice(EXTENTS, len(order))]
    while math.prod(shape) > MOST_ELEMENTS:
        shape[int(draw.integers(0, len(shape)))] = int(draw.integers(0, 3))
    x, tasks = numbers(draw, *shape), int(draw.integers(1, 7))
    kind = draw.random()
    if kind < 0.1:
        order = [int(n) for n in draw.choice([*EXTREMES, 0, 1, 2], int(draw.integers(0, 10)))]
    elif kind < 0.2:
        order = [int(n) for n in draw.permutation(len(order))]
    elif kind < 0.25:
        tasks = int(draw.choice(EXTREMES))
    elif kind < 0.3:
        x = x.reshape(-1)
    got = outcome(library, int(draw.integers(1, 4)), "Transpose", {"x": x}, perm=order, tasks=tasks)
    fits = exchanges_last_axes(order) and x.ndim == len(order) and 1 <= tasks <= 1024
    if not fits:
        assert is_refusal("Transpose", got), got
        return False
    np.testing.assert_array_equal(got, x.transpose(order))
    return True


def test_random_transposes(library: NativeLibrary) -> None:
    computed = each_case(9, lambda draw: case(draw, library))
    assert computed > CASES // 2


@pytest.mark.parametrize("order", [[0, 1, 2], [1, 2], [], [0, 2, 1, 3], [2, 1, 0], [0, 0, 1], [3]])
def test_other_orders_are_refused(order: list[int], library: NativeLibrary) -> None:
    assert not exchanges_last_axes(order)
    x = np.zeros((2, 3, 4), np.float32)
    assert "perm" in outcome(library, 1, "Transpose", {"x": x}, perm=order, tasks=1)


def test_of_many_small_matrices(library: NativeLibrary) -> None:
    b = Builder()
    x = b.input("x", (1000, 2, 8, 8), float32)
    b.output(b.Transpose(x, perm=[0, 2, 3, 1]), "last")
    b.output(b.Transpose(x, perm=[0, 1, 3, 2]), "square")
    b.output(b.Transpose(x, perm=[0, 2, 1, 3]), "rows")  # which the runtime copies whole
    feeds = {"x": np.random.default_rng(0).random((1000, 2, 8, 8), np.float32)}
    apart, native, used = both(b, feeds, library, threads=2)
    assert used["Transpose"] == 2
    for name, expected in apart.items():
        np.testing.assert_array_equal(native[name], expected)


def test_what_the_runtime_merges_stays(library: NativeLibrary) -> None:
    b = Builder()
    x, y = b.input("x", (64, 32, 32), float32), b.input("y", (4, 32, 64), float32)
    b.output(b.Transpose(b.Transpose(x, perm=[0, 2, 1]), perm=[1, 2, 0]), "twice")
    b.output(b.Transpose(b.input("few", (5, 3), float32), perm=[1, 0]), "few")
    b.output(b.Transpose(b.input("double", (64, 64), float64), perm=[1, 0]), "double")
    b.output(b.MatMul(y, b.Transpose(y, perm=[0, 2, 1])), "product")
    _, used = rewrite(model_of(b.graph), ["Transpose"])
    assert not used
