"""Ranks of adapters by their first gradients, and how far they are from float64's."""

import numpy as np

from benchmarks.lora import Side
from benchmarks.lora_rounding import EXACT, MOMENT, OURS, TORCH, A, B, rows, smallest_gradients

# the squares of the first gradients of a module's B: the second rank has a tiny one
FIRST = {
    MOMENT + "q" + A: np.zeros((3, 2)),
    MOMENT + "q" + B: np.array([[1.0, 4.0, 1.0, 1.0], [1.0, 1.0, 1e-12, 4.0]]),
}


def side(name, a=(0.0, 0.0), b=(0.0, 0.0)):
    """A side whose ranks are off zero by these amounts, throughout A and in one number of B."""
    found = {"q" + A: np.tile(np.asarray(a), (3, 1)), "q" + B: np.zeros((2, 4))}
    found["q" + B][:, 1] = b
    return Side(name, worker=None, adapters=found)


def test_a_rank_has_the_smallest_gradient_of_its_row_of_b():
    (sizes,) = smallest_gradients(FIRST).values()
    np.testing.assert_allclose(sizes, [1.0, 1e-6])


def test_numbers_count_in_the_row_of_their_rank():
    sides = {EXACT: side(EXACT), OURS: side(OURS, (0.0, 1e-4), (1e-6, 3e-4)), TORCH: side(TORCH)}
    found = {row["least"]: row for row in rows(sides, FIRST)}
    assert [row["ranks"] for row in found.values()] == [1, 0, 0, 1, 2]
    assert found[1e-3][OURS] | {"median": 0.0} == {
        "most": 1e-6, "median": 0.0, "beyond": 0, "ranks": 0,
    }  # fmt: skip
    assert found[0.0][OURS]["beyond"] == 4
    assert found[None][OURS]["most"] == 3e-4
    assert found[None][TORCH] == {"most": 0.0, "median": 0.0, "beyond": 0, "ranks": 0}
