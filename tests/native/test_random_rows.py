"""Lookups and changes of rows with whatever operands: as numpy has them, or refused."""

import math
from itertools import accumulate
from operator import mul

import numpy as np
from flow2onnx_native.library import NativeLibrary

from tests.native.one_node import CASES, EXTREMES, each_case, is_refusal, numbers, outcome

OPERATORS = ("Rows", "AddRows", "PutRows")
WIDTHS = (0, 1, 2, 3, 4, 5, 15, 16, 17, 31, 63, 64, 65, 128, 200)


def table_shape(draw: np.random.Generator) -> tuple[int, ...]:
    height = int(draw.choice([0, 1, 2, 7, 50, 3000]))
    if draw.random() < 0.6:
        return (height, int(draw.choice(WIDTHS)))
    rank = int(draw.integers(0, 5))
    return (height, *(int(d) for d in draw.integers(0, 6, 4)))[:rank]


def indices_for(height: int, draw: np.random.Generator) -> np.ndarray:
    dtype = (np.int32, np.int64)[int(draw.integers(0, 2))]
    shape = tuple(int(d) for d in draw.integers(0, 9, int(draw.integers(0, 4))))
    if draw.random() < 0.1:
        shape = (int(draw.integers(900, 2500)),)
    many = max(height, 1) if draw.random() < 0.7 else 1  # or one row again and again
    found = np.asarray(draw.integers(-many if height > 0 else 0, many, shape), dtype)
    if draw.random() < 0.2 and found.size:
        limits = np.iinfo(dtype)
        wrong = [n for n in EXTREMES if limits.min <= n <= limits.max]
        wrong += [height, -height - 1, height - 1, -height]
        found.reshape(-1)[int(draw.integers(0, found.size))] = int(draw.choice(wrong))
    return found


def changed(shape: tuple[int, ...], draw: np.random.Generator) -> list[int]:
    """A shape that has another size, another rank, or numbers that are none of sizes."""
    found = list(shape)
    kind = int(draw.integers(0, 4))
    if kind == 0 and found:
        found[int(draw.integers(0, len(found)))] = int(draw.choice(EXTREMES))
    elif kind == 1:
        found = found[1:]
    elif kind == 2:
        found = [1, *found]
    else:
        found = [int(d) for d in draw.integers(-1, 4, int(draw.integers(0, 10)))]
    return found


def are_rows(shape: list[int], table: tuple[int, ...], count: int) -> bool:
    inner = len(table) - 1
    outer = shape[: max(len(shape) - inner, 0)]
    fits = len(shape) >= inner and tuple(shape[len(outer) :]) == table[1:]
    counted = list(accumulate(outer, mul, initial=1))
    return fits and min(outer, default=0) >= 0 and max(counted) < 2**63 and counted[-1] == count


def expected(op_type: str, table: np.ndarray, rows: np.ndarray, changes: np.ndarray) -> np.ndarray:
    made, flat = table.copy(), rows.ravel()
    for row, change in zip(flat, changes.reshape(flat.size, *table.shape[1:]), strict=True):
        made[row] = change if op_type == "PutRows" else made[row] + change
    return made


def case(draw: np.random.Generator, library: NativeLibrary) -> bool:
    op_type, shape = OPERATORS[int(draw.integers(0, 3))], table_shape(draw)
    indices = indices_for(shape[0] if shape else 0, draw)
    table = numbers(draw, *shape)
    result = [*indices.shape, *shape[1:]]
    if draw.random() < 0.25:
        result = changed(tuple(result), draw)
    tasks = int(draw.choice(EXTREMES)) if draw.random() < 0.1 else int(draw.integers(1, 9))
    inputs, attributes = {"t": table, "i": indices}, {"tasks": tasks}
    if op_type == "Rows":
        attributes["shape"] = result
    else:
        result = [min(max(d, 0), 9) if d not in table.shape else d for d in result]
        inputs["g"] = numbers(draw, *result) if math.prod(result) < 1 << 20 else numbers(draw, 1)
        result = list(inputs["g"].shape)
    fits = len(shape) >= 1 and 1 <= tasks <= 1024 and are_rows(result, shape, indices.size)
    within = fits and bool(np.all((indices >= -shape[0]) & (indices < shape[0])))
    in_place = "t" if op_type != "Rows" and table.size and draw.random() < 0.3 else None
    got = outcome(
        library, int(draw.integers(1, 4)), op_type, inputs, in_place=in_place, **attributes
    )
    if isinstance(got, str) and "array is too big" in got:  # for numpy, which has none so wide
        return False
    if not within:
        assert isinstance(got, str), (op_type, inputs, attributes)
        assert is_refusal(op_type, got), got
        return False
    assert not isinstance(got, str), (got, op_type, shape, indices.shape, result, tasks)
    if op_type == "Rows":
        wanted = table[indices].reshape(result)
    else:
        wanted = expected(op_type, table, indices, inputs["g"])
    np.testing.assert_array_equal(got, wanted)
    return True


def named_case(draw: np.random.Generator, library: NativeLibrary) -> bool:
    """Rows of another table, named by indices of either type, and not always as many."""
    shape = table_shape(draw)
    indices, table = indices_for(shape[0] if shape else 0, draw), numbers(draw, *shape)
    others = (int(draw.choice([0, 1, 2, 50, 3000])), *shape[1:])
    if draw.random() < 0.2:
        others = tuple(min(max(d, 0), 9) for d in changed(others, draw))
    other, named = numbers(draw, *others), indices_for(others[0] if others else 0, draw)
    if draw.random() < 0.8:
        named = np.resize(named, indices.shape)
    fits = shape and others and are_rows([*others], shape, others[0])
    within = (
        fits
        and named.size == indices.size
        and all(
            bool(np.all((rows >= -height) & (rows < height)))
            for rows, height in ((indices, shape[0]), (named, others[0]))
        )
    )
    inputs = {"t": table, "i": indices, "g": other, "n": named}
    in_place = "t" if table.size and draw.random() < 0.3 else None
    threads, tasks = int(draw.integers(1, 4)), int(draw.integers(1, 9))
    got = outcome(library, threads, "AddNamedRows", inputs, in_place=in_place, tasks=tasks)
    if not within:
        assert isinstance(got, str), {n: x.shape for n, x in inputs.items()}
        assert is_refusal("AddNamedRows", got), got
        return False
    assert not isinstance(got, str), (got, {n: x.shape for n, x in inputs.items()})
    changes = other.reshape(others[0], *shape[1:])[named.ravel()]
    np.testing.assert_array_equal(got, expected("AddNamedRows", table, indices, changes))
    return True


def test_rows(library: NativeLibrary) -> None:
    assert each_case(1, lambda draw: case(draw, library)) > CASES // 5


def test_named_rows(library: NativeLibrary) -> None:
    assert each_case(2, lambda draw: named_case(draw, library)) > CASES // 5
