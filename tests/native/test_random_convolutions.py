"""Convolutions and their gradients of whatever shape: as in double precision, or refused."""

import math

import numpy as np
import pytest
from flow2onnx_native.library import NativeLibrary

from tests.native.one_node import CASES, disturbed, each_case, is_refusal, numbers, outcome

OPERATORS = ("Conv", "ConvInputGradient", "ConvWeightGradient")
TOLERANCE = 3e-5  # of the largest value
LARGEST, MOST_TASKS = 1 << 40, 1 << 12


def extent(kernel: int, draw: np.random.Generator, *, plain: bool) -> list[int]:
    """One axis of a convolution: size, windows, stride, dilation and the zeros on both sides."""
    stride, dilation = (1, 1) if plain else (int(n) for n in draw.integers(1, 4, 2))
    most = kernel if plain else kernel + 3
    before, after = (int(n) for n in draw.integers(0, most, 2))
    reach = (kernel - 1) * dilation + 1
    size = max(1, reach - before - after) + int(draw.integers(0, 14))
    return [size, (size + before + after - reach) // stride + 1, stride, dilation, before, after]


def sound_shape(tile: int, draw: np.random.Generator) -> list[int]:
    side = {4: 3, 2: 5}.get(tile)
    kernel = [side or int(n) for n in draw.integers(1, 6, 2)]
    rows, columns = (extent(k, draw, plain=side is not None) for k in kernel)
    groups = int(draw.integers(1, 4)) if side is None and draw.random() < 0.4 else 1
    inner, outer = (groups * int(n) for n in draw.integers(1, 24 // groups, 2))
    images = int(draw.choice([1, 1, 2, 3, 4, 6, *([0] if side is not None else [])]))
    tasks = int(draw.choice([n for n in range(1, 7) if images % n == 0]))
    pairs = [n for both in zip(rows, columns, strict=True) for n in both]
    return [
        images, inner, *pairs[:2], outer, *kernel, *pairs[2:8],
        pairs[8], pairs[9], pairs[10], pairs[11], groups, tasks,
    ]  # fmt: skip


def is_sound(shape: list[int]) -> bool:
    """The rules, in numbers without bounds."""
    if len(shape) != 19:
        return False
    images, inner, height, width, outer, *rest, groups, tasks = shape
    if images < 0 or min(*shape[1:13], groups, tasks) < 1 or min(shape[13:17]) < 0:
        return False
    if max(shape[:13]) > 1 << 31 or max(shape[13:17]) > 1 << 20:
        return False
    if tasks > MOST_TASKS or images % tasks or inner % groups or outer % groups:
        return False
    sizes = (inner * height * width, outer * rest[2] * rest[3],
             outer * inner // groups * rest[0] * rest[1])  # fmt: skip
    if max(images, 1) * max(sizes) > LARGEST:
        return False
    for axis, size in enumerate((height, width)):
        room = size + rest[8 + axis] + rest[10 + axis]
        reach = (rest[axis] - 1) * rest[6 + axis] + 1
        if room < reach or (room - reach) // rest[4 + axis] + 1 != rest[2 + axis]:
            return False
    return True


def has_tile(shape: list[int], tile: int) -> bool:
    side = {4: 3, 2: 5}.get(tile)
    kernel, plain = shape[5:7], [*shape[9:13], shape[17]]
    extents = (*shape[2:4], *shape[7:9])
    within = max(extents) <= 1 << 12 and max(shape[0], shape[1], shape[4]) <= 1 << 16
    return kernel == [side] * 2 and plain == [1] * 5 and max(shape[13:17]) < kernel[0] and within


def exact(shape: list[int], which: str, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The result of an operator for its first two operands, without what is added."""
    n, inner, height, width, outer, kh, kw, oh, ow, sy, sx, dy, dx, top, left, bottom, right, g = (
        shape[:18]
    )
    n = first.size // math.prod(shape[1:4] if which != OPERATORS[1] else (outer, oh, ow))
    x, w = (
        np.zeros((n, g, inner // g, height, width)),
        np.zeros((g, outer // g, inner // g, kh, kw)),
    )
    y = np.zeros((n, g, outer // g, oh, ow))
    known = {"Conv": (x, w), "ConvInputGradient": (y, w), "ConvWeightGradient": (x, y)}[which]
    for to, values in zip(known, (first, second), strict=True):
        to[...] = values.reshape(to.shape)
    room = np.pad(x, ((0, 0), (0, 0), (0, 0), (top, bottom), (left, right)))
    for i in range(kh):
        for j in range(kw):
            rows, columns = slice(i * dy, i * dy + oh * sy, sy), slice(j * dx, j * dx + ow * sx, sx)
            seen, own = room[..., rows, columns][..., :oh, :ow], w[..., i, j]
            if which == "Conv":
                y += np.einsum("ngchw,gkc->ngkhw", seen, own)
            elif which == "ConvInputGradient":
                seen += np.einsum("ngkhw,gkc->ngchw", y, own)
            else:
                w[..., i, j] = np.einsum("ngkhw,ngchw->gkc", y, seen)
    if which == "Conv":
        return y.reshape(n, outer, oh, ow)
    if which == "ConvWeightGradient":
        return w.reshape(outer, inner // g, kh, kw)
    return room[..., top : top + height, left : left + width].reshape(n, inner, height, width)


def operands(shape: list[int], which: str, images: int, draw: np.random.Generator):
    """Tensors of the sizes that the shape tells."""
    x = (images, *shape[1:4])
    y = (images, shape[4], *shape[7:9])
    w = (shape[4], shape[1] // shape[17], *shape[5:7])
    first, second = {"Conv": (x, w), "ConvInputGradient": (y, w), "ConvWeightGradient": (x, y)}[
        which
    ]
    found = {"a": numbers(draw, *first), "b": numbers(draw, *second)}
    if which == "Conv":
        found |= {"c": numbers(draw, shape[4]), "d": numbers(draw, *y)}
    return found


def case(draw: np.random.Generator, library: NativeLibrary) -> bool:
    which, tile = OPERATORS[int(draw.integers(0, 3))], int(draw.choice([0, 4, 2]))
    given = sound_shape(tile, draw)
    any_batch = given[0] == 0
    images = int(draw.integers(0, 4)) if any_batch else given[0]
    inputs = operands(given, which, images, draw)
    if draw.random() < 0.1:
        name = str(draw.choice(list(inputs)))
        inputs[name] = numbers(draw, *(int(d) for d in draw.integers(0, 5, 4)))
    shape = disturbed(given, draw) if draw.random() < 0.4 else given
    tile = int(draw.choice([*range(-1, 7), 2**40, -(2**63)])) if draw.random() < 0.1 else tile
    bits = int(draw.integers(0, 2)), *(int(n) for n in draw.integers(0, 2, 3) if tile or any_batch)
    form = [*bits, 0, 0, 0][:4]
    attributes = {"shape": shape, "winograd": tile, **({"form": form} if which == "Conv" else {})}
    if which == "Conv":
        if not form[1]:
            inputs.pop("d")
        if not form[0]:
            inputs = {("_" if n == "c" else n): x for n, x in inputs.items()}
    fits = is_sound(shape) and (has_tile(shape, tile) if tile else shape[0] > 0)
    fits = fits and (tile > 0 or not any(form[1:]))
    images = shape[0] if fits and shape[0] > 0 else inputs["a"].shape[0]
    fits = fits and max(images * math.prod(shape[1:4]), math.prod(shape[4:9])) < 1 << 22
    right = operands(shape, which, images, draw) if fits else {}
    fits = fits and all(
        n == "_" or (n in right and x.size == right[n].size) for n, x in inputs.items()
    )
    if shape[:1] == [0]:
        fits = fits and inputs["a"].ndim == 4
    got = outcome(library, int(draw.integers(1, 4)), which, inputs, **attributes)
    if isinstance(got, str):
        assert is_refusal(which, got), got
        assert not fits or "oneDNN has no kernel" in got, (got, attributes)
        return False
    assert fits, (attributes, {n: x.shape for n, x in inputs.items()})
    wanted = exact(shape, which, inputs["a"], inputs["b"])
    if which == "Conv" and form[0]:
        wanted += inputs["c"].reshape(-1, 1, 1)
    if which == "Conv" and form[1]:
        wanted += inputs["d"].reshape(wanted.shape)
    wanted = np.maximum(wanted, 0) if which == "Conv" and form[2] else wanted
    assert got.shape == wanted.shape
    error = abs(got - wanted).max(initial=0)
    assert error <= TOLERANCE * max(1, abs(wanted).max(initial=0)), (error, attributes)
    return True


def test_convolutions(convolving: NativeLibrary) -> None:
    assert each_case(3, lambda draw: case(draw, convolving)) > CASES // 5


@pytest.mark.parametrize("which", ["Conv", "ConvWeightGradient"])
def test_sizes_are_counted_without_bounds(which: str, convolving: NativeLibrary) -> None:
    """In 64 bits an image of this shape would have no elements."""
    side = 2**30
    shape = [1, 16, side, side, 16, 1, 1, 1, 1, side, side, 1, 1, 0, 0, 0, 0, 16, 1]
    inputs = {"a": np.zeros(0, np.float32), "b": np.zeros(16, np.float32)}
    form = {"form": [0] * 4} if which == "Conv" else {}
    got = outcome(convolving, 1, which, inputs, shape=shape, winograd=0, **form)
    assert f"{which}: the shape is that of no convolution" in got


@pytest.mark.parametrize("images", [0, 1, 40])
@pytest.mark.parametrize("which", OPERATORS)
def test_the_number_of_images_may_be_open(
    which: str, images: int, convolving: NativeLibrary
) -> None:
    shape = [0, 3, 8, 7, 5, 3, 3, 8, 7, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
    inputs = operands(shape, which, images, np.random.default_rng(0))
    given = dict(list(inputs.items())[:2])
    form = {"form": [0] * 4} if which == "Conv" else {}
    got = outcome(convolving, 1, which, given, shape=shape, winograd=4, **form)
    assert not isinstance(got, str), got
    np.testing.assert_allclose(got, exact(shape, which, *given.values()), atol=1e-3)


def test_tasks_are_bounded(convolving: NativeLibrary) -> None:
    """Each has a gradient of its own, so many of them are larger than can be counted."""
    for tasks in (1 << 12, 1 << 13):
        shape = [1 << 13, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1, tasks]
        inputs = operands(shape, "ConvWeightGradient", shape[0], np.random.default_rng(0))
        got = outcome(convolving, 1, "ConvWeightGradient", inputs, shape=shape, winograd=0)
        assert isinstance(got, str) == (tasks > MOST_TASKS), got
