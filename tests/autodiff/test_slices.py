"""Gradients of slices of one value: side by side where they do not overlap, and always right."""

from collections import Counter

import numpy as np
import pytest

from flow2onnx.autodiff import gradients
from flow2onnx.dtypes import float32
from flow2onnx.graph import Builder
from tests.autodiff.graphs import open_graph

X = np.random.default_rng(3).standard_normal((2, 7, 3)).astype(np.float32)


def differentiate(make):
    """The gradient of sum(make(b, 2 x)) in x, and the operators that compute it."""
    b = Builder()
    x = b.input("x", X.shape, float32)
    y = make(b, b.Mul(x, 2.0))
    dx = gradients(b, {y: b.const(np.float32(1))}, [x])[x]
    b.output(dx, "dx")
    found = open_graph(b)(X)[0]
    return found, Counter(_needed(dx))


def _needed(value, seen=None):
    """The operators that a value is computed by."""
    seen = set() if seen is None else seen
    node = value.producer()
    if node is None or node in seen:
        return
    seen.add(node)
    yield node.op_type
    for read in node.inputs:
        if read is not None:
            yield from _needed(read, seen)


def total(b, *values):
    """The sum of the squares of all, as one number."""
    sums = [b.ReduceSum(b.Mul(v, v), keepdims=0) for v in values]
    found = sums[0]
    for one in sums[1:]:
        found = b.Add(found, one)
    return found


def slices(*ranges, axis=1):
    return lambda b, x: total(b, *(b.Slice(x, [start], [end], [axis]) for start, end in ranges))


def counts(*ranges, axis=1):
    """How often each element is read."""
    found = np.zeros_like(X)
    for start, end in ranges:
        np.moveaxis(found, axis, 0)[start:end] += 1
    return found


@pytest.mark.parametrize(("ranges", "concats"), [
    ([(i, i + 1) for i in range(7)], 1),  # the steps of a sequence
    ([(0, 3), (3, 7)], 1),
    ([(4, 6), (1, 2)], 1),  # out of order, with gaps before, between and behind
    ([(0, 4), (2, 6), (4, 7)], 1),  # two of them join
    ([(0, 3), (1, 4), (2, 5), (3, 6), (4, 7)], 2),  # windows
    ([(0, 5), (0, 5), (0, 5)], 0),
    ([(2, 3)], 0),
    ([(0, 7), (1, 3), (4, 5)], 1),
])  # fmt: skip
def test_what_does_not_overlap_is_joined(ranges, concats):
    found, operators = differentiate(slices(*ranges))
    np.testing.assert_allclose(found, 8 * X * counts(*ranges), rtol=1e-6)
    assert operators["Concat"] == concats


def test_the_steps_of_a_sequence_are_one_concat():
    found, operators = differentiate(slices(*((i, i + 1) for i in range(7))))
    assert operators["Pad"] == 0
    assert operators["Concat"] == 1
    np.testing.assert_allclose(found, 8 * X, rtol=1e-6)


def test_slices_along_other_axes_are_joined_by_axis():
    def make(b, x):
        rows = [b.Slice(x, [i], [i + 1], [0]) for i in range(2)]
        columns = [b.Slice(x, [i], [i + 1], [2]) for i in range(3)]
        return total(b, *rows, *columns, x)

    found, operators = differentiate(make)
    np.testing.assert_allclose(found, 8 * X * 3, rtol=1e-6)
    assert operators["Concat"] == 2


def test_slices_of_two_axes_are_added_up():
    def make(b, x):
        return total(
            b, *(b.Slice(x, [i, j], [i + 1, j + 2], [0, 2]) for i in (0, 1) for j in (0, 1))
        )

    found, _ = differentiate(make)
    np.testing.assert_allclose(found, 8 * X * [1, 2, 1], rtol=1e-6)


@pytest.mark.parametrize("shape", [(), (1,)])
def test_known_single_indices_are_slices(shape):
    def make(b, x):
        return total(
            b, *(b.Gather(x, np.full(shape, i, np.int64), axis=1) for i in (*range(6), -1))
        )

    found, operators = differentiate(make)
    np.testing.assert_allclose(found, 8 * X, rtol=1e-6)
    assert operators["Concat"] == 1
    assert not {"ScatterND", "ScatterElements", "Pad"} & set(operators)
