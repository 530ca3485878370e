"""Products of whatever shape: as in double precision, or refused."""

import math

import numpy as np
from flow2onnx_native.abi import Addend
from flow2onnx_native.library import NativeLibrary

from tests.native.one_node import CASES, disturbed, each_case, is_refusal, numbers, outcome

LARGEST, MOST_TASKS = 1 << 30, 1 << 12
TOLERANCE = 1e-5  # of the largest value


def laid_out(
    rows: int, columns: int, pairs: tuple[int, int], draw: np.random.Generator
) -> list[int]:
    """Where matrices lie in an operand: in any order, with gaps, or on top of each other."""
    flag = int(draw.integers(0, 2))
    rows, columns = (columns, rows) if flag else (rows, columns)
    leading = columns + int(draw.choice([0, 0, 1, 7]))
    inner, outer = (int(draw.choice([0, 1, rows * leading, columns])) for _ in range(2))
    reach = (pairs[0] - 1) * outer + (pairs[1] - 1) * inner + (rows - 1) * leading + columns
    return [flag, leading, outer, inner, reach + int(draw.choice([0, 0, 3]))]


def sound_shape(draw: np.random.Generator) -> list[int]:
    rows, columns, depth = (int(n) for n in draw.integers(1, 70, 3))
    if draw.random() < 0.1:
        depth = int(draw.integers(1000, 1700))
    elif draw.random() < 0.1:
        rows, columns = (int(n) for n in draw.integers(64, 600, 2))
    pairs = (1, 1) if draw.random() < 0.5 else tuple(int(n) for n in draw.integers(1, 5, 2))
    outer, inner = pairs
    addend = (
        int(draw.integers(Addend.NOTHING, Addend.MASK + 1))
        if outer * inner == 1
        else Addend.NOTHING
    )
    a = laid_out(rows, depth, pairs, draw)
    b = laid_out(depth, columns, pairs, draw)
    whole = outer * inner * rows * columns
    if draw.random() < 0.5:
        y = [0, columns, inner * rows * columns, rows * columns, whole]
    else:
        y = [0, inner * columns, rows * inner * columns, columns, whole]
    tasks, relu = int(draw.integers(1, 9)), int(draw.integers(0, 2))
    sums = int(draw.integers(0, 2)) if addend == Addend.MASK and not relu else 0
    return [rows, columns, depth, outer, inner, tasks, addend, relu, sums, *a, *b, *y]


def is_sound(shape: list[int]) -> bool:
    """The rules, in numbers without bounds."""
    if len(shape) != 24:
        return False
    rows, columns, depth, outer, inner, tasks, addend, relu, sums = shape[:9]
    if not all(1 <= n <= LARGEST for n in shape[:6]) or tasks > MOST_TASKS:
        return False
    if addend not in range(Addend.MASK + 1) or relu not in (0, 1) or outer * inner > LARGEST:
        return False
    if sums not in (0, 1) or (sums and (addend != Addend.MASK or relu)):
        return False
    if addend != Addend.NOTHING and outer * inner > 1:
        return False
    sides = ((rows, depth), (depth, columns), (rows, columns))
    for at, (height, width) in zip((9, 14, 19), sides, strict=True):
        flag, leading, *ways, size = shape[at : at + 5]
        height, width = (width, height) if flag == 1 else (height, width)
        reach = (outer - 1) * ways[0] + (inner - 1) * ways[1] + (height - 1) * leading + width
        if flag not in (0, 1) or not width <= leading <= LARGEST or not reach <= size <= LARGEST:
            return False
        if not all(0 <= w <= LARGEST for w in ways):
            return False
    ways = [(1, columns), (shape[20], rows), (shape[22], inner), (shape[21], outer)]
    covered = 1
    for way, count in sorted(ways):
        if count > 1 and way != covered:
            return False
        covered *= count
    return shape[19] == 0 and covered == shape[23] <= LARGEST


def positions(side: list[int], pairs: tuple[int, int], rows: int, columns: int) -> np.ndarray:
    """Where in a tensor the elements of each pair's matrix lie."""
    flag, leading, outer, inner, _ = side
    starts = np.add.outer(np.arange(pairs[0]) * outer, np.arange(pairs[1]) * inner)
    i, j = np.arange(rows)[:, None], np.arange(columns)
    return starts[..., None, None] + (j * leading + i if flag else i * leading + j)


def expected(shape: list[int], inputs: list[np.ndarray], scales: list[float]) -> np.ndarray:
    rows, columns, depth, outer, inner, _, addend, relu, _ = shape[:9]
    a, b, c = (x.astype(np.float64).ravel() for x in inputs)
    pairs = (outer, inner)
    y = (
        scales[0]
        * a[positions(shape[9:14], pairs, rows, depth)]
        @ b[positions(shape[14:19], pairs, depth, columns)]
    )
    if addend == Addend.MASK:
        y = y * (c.reshape(rows, columns) > 0)
    elif addend != Addend.NOTHING:
        spread = {
            Addend.ONE: (1, 1),
            Addend.PER_COLUMN: (1, columns),
            Addend.PER_ROW: (rows, 1),
            Addend.FULL: (rows, columns),
        }
        y = y + scales[1] * c.reshape(spread[addend])
    made = np.empty(shape[23])
    made[positions(shape[19:], pairs, rows, columns)] = np.maximum(y, 0) if relu else y
    return made


def addends(shape: list[int]) -> int:
    rows, columns = shape[:2]
    return [1, 1, columns, rows, rows * columns, rows * columns][shape[6]]


def case(draw: np.random.Generator, library: NativeLibrary) -> bool:
    given = sound_shape(draw)
    shape = disturbed(given, draw) if draw.random() < 0.5 else given
    sizes = [given[13], given[18], addends(given)]
    if draw.random() < 0.1:
        sizes[int(draw.integers(0, 3))] += int(draw.choice([-1, 1, 64]))
    dims = [1, given[23]] if draw.random() < 0.9 else disturbed([2, given[23]], draw)
    scales = [float(s) for s in draw.choice([-1.5, 0.5, 1.0, 2.0], 2)]
    inputs = [numbers(draw, max(n, 0)) for n in sizes]
    count = 2 if given[6] == Addend.NOTHING or draw.random() < 0.05 else 3
    fits = is_sound(shape) and all(d > 0 for d in dims) and math.prod(dims) == shape[23]
    fits = fits and len(dims) <= 8 and [x.size for x in inputs[:2]] == [shape[13], shape[18]]
    fits = fits and (
        shape[6] == Addend.NOTHING or (count == 3 and inputs[2].size == addends(shape))
    )
    outputs = 2 if given[8] and draw.random() < 0.9 else 1
    fits = fits and (outputs == 2 or not shape[8])
    in_place = "c" if fits and shape[6] == Addend.FULL and draw.random() < 0.5 else None
    feeds = dict(zip("abc"[:count], inputs, strict=False))
    if in_place:
        feeds["c"] = feeds["c"].reshape(dims)
    got = outcome(
        library, int(draw.integers(1, 4)), "Product", feeds, in_place=in_place,
        outputs=outputs, shape=shape, scales=scales, dims=dims,
    )  # fmt: skip
    if not fits:
        assert isinstance(got, str), (shape, dims, sizes)
        assert is_refusal("Product", got), got
        return False
    assert not isinstance(got, str), (got, shape, dims)
    wanted = expected(shape, inputs, scales)
    assert got.shape == tuple(dims)
    assert abs(got.ravel() - wanted).max() <= TOLERANCE * max(1, abs(wanted).max()), shape
    return True


def test_products(convolving: NativeLibrary) -> None:
    assert each_case(2, lambda draw: case(draw, convolving)) > CASES // 5
