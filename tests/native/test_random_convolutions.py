"""Convolutions and their gradients of whatever shape: as in double precision, or refused."""

import math

import numpy as np
import pytest
from flow2onnx_native.library import NativeLibrary

from tests.native.one_node import CASES, disturbed, each_case, is_refusal, numbers, outcome

OPERATORS = ("Conv", "ConvInputGradient", "ConvWeightGradient")
CHANNELS, PRODUCTS, COLUMNS = 3, 5, 6  # methods: one channel a group, products, few windows
TOLERANCE = 3e-5  # of the largest value
LARGEST, MOST_TASKS = 1 << 40, 1 << 12


def extent(kernel: int, most: int, draw: np.random.Generator, *, plain: bool) -> list[int]:
    """One axis of a convolution: size, windows, stride, dilation and the zeros on both sides."""
    stride, dilation = (1, 1) if plain else (int(n) for n in draw.integers(1, 4, 2))
    pads = kernel if plain else kernel + 3
    before, after = (int(n) for n in draw.integers(0, pads, 2))
    reach = (kernel - 1) * dilation + 1
    size = max(1, reach - before - after) + int(draw.integers(0, most))
    return [size, (size + before + after - reach) // stride + 1, stride, dilation, before, after]


def apart(kernel: int, most: int, draw: np.random.Generator) -> list[int]:
    """One axis whose windows do not meet, and perhaps elements that none sees."""
    stride = kernel + int(draw.integers(0, 2))
    size = kernel + int(draw.integers(0, most))
    return [size, (size - kernel) // stride + 1, stride, 1, 0, 0]


def sound_shape(tile: int, draw: np.random.Generator) -> list[int]:
    side = {4: 3, 2: 5}.get(tile)
    axes = 2 if side is not None else int(draw.integers(1, 4))
    kernel = [side or int(n) for n in draw.integers(1, 6 if axes < 3 else 4, axes)]
    most = {1: 60, 2: 14, 3: 7}[axes]
    rows = [[1, 1, 1, 1, 0, 0]] * (3 - axes)
    lie = draw.random() if tile == PRODUCTS else 1.0  # as rows, with one element or one window
    sizes = [int(n) for n in draw.integers(1, most, axes)]
    if lie < 0.2:
        kernel = [1] * axes
        rows += [[n, n, 1, int(draw.integers(1, 3)), 0, 0] for n in sizes]
    elif lie < 0.4:
        kernel = sizes
        rows += [[n, 1, int(draw.integers(1, 3)), 1, 0, 0] for n in sizes]
    elif lie < 0.6:
        rows += [apart(k, most, draw) for k in kernel]
    elif lie < 0.8 and axes > 1:  # along the first axis
        kernel[1:] = [1] * (axes - 1)
        rows.append(extent(kernel[0], most, draw, plain=draw.random() < 0.7))
        rows += [[n, n, 1, 1, 0, 0] for n in sizes[1:]]
    else:
        rows += [extent(k, most, draw, plain=side is not None) for k in kernel]
    sizes, windows, strides, dilations, before, after = (list(c) for c in zip(*rows, strict=True))
    groups = int(draw.integers(1, 20)) if side is None and draw.random() < 0.4 else 1
    inner, outer = (groups * int(n) for n in draw.integers(1, max(2, 40 // groups), 2))
    if tile == PRODUCTS and lie >= 0.1:  # below it, windows are of one element
        groups, inner, outer = 1, *(int(n) for n in draw.integers(1, 70, 2))
    elif tile == CHANNELS:
        inner = outer = groups = int(draw.integers(1, 70))
    images = int(draw.choice([1, 1, 2, 3, 4, 6, *([0] if side is not None else [])]))
    return [
        images, inner, *sizes, outer, *[1] * (3 - axes), *kernel, *windows, *strides, *dilations,
        *before, *after, groups, axes, int(draw.integers(1, 7)),
    ]  # fmt: skip


def by_axis(shape: list[int]) -> list[tuple[int, ...]]:
    """Size, kernel, windows, stride, dilation and pads of each of three axes."""
    first = (2, 6, 9, 12, 15, 18, 21)
    return [tuple(shape[at + i] for at in first) for i in range(3)]


def is_sound(shape: list[int]) -> bool:
    """The rules, in numbers without bounds."""
    if len(shape) != 27:
        return False
    images, inner, outer, (groups, axes, tasks) = shape[0], shape[1], shape[5], shape[24:]
    if images < 0 or min(*shape[1:18], *shape[24:]) < 1 or min(shape[18:24]) < 0:
        return False
    if max(shape[:18]) > 1 << 31 or max(shape[18:24]) > 1 << 20:
        return False
    if tasks > MOST_TASKS or axes > 3 or inner % groups or outer % groups:
        return False
    sizes = (inner * math.prod(shape[2:5]), outer * math.prod(shape[9:12]))
    weights = outer * inner // groups * math.prod(shape[6:9])
    if max(*(max(images, 1) * n for n in sizes), weights) > LARGEST:
        return False
    for axis, (size, kernel, windows, stride, dilation, before, after) in enumerate(by_axis(shape)):
        room, reach = size + before + after, (kernel - 1) * dilation + 1
        if room < reach or (room - reach) // stride + 1 != windows:
            return False
        if axis < 3 - axes and (size, kernel, windows, stride) != (1, 1, 1, 1):
            return False
    return True


def has_tile(shape: list[int], tile: int) -> bool:
    side = {4: 3, 2: 5}.get(tile)
    kernel, plain = shape[7:9], [*shape[13:15], *shape[16:18], shape[24]]
    extents = (*shape[2:5], *shape[9:12])
    within = max(extents) <= 1 << 12 and max(shape[0], shape[1], shape[5]) <= 1 << 16
    is_plain = kernel == [side] * 2 and plain == [1] * 5 and shape[25] == 2
    return is_plain and max(shape[18:24]) < kernel[0] and within


def is_pointwise(shape: list[int]) -> bool:
    return set(shape[6:9]) | set(shape[12:15]) == {1} and not any(shape[18:24])


def exact(shape: list[int], which: str, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The result of an operator for its first two operands, without what is added."""
    inner, size, outer, kernel, windows = (
        shape[1], shape[2:5], shape[5], shape[6:9], shape[9:12]
    )  # fmt: skip
    groups, axes = shape[24:26]
    n = first.size // math.prod([inner, *size] if which != OPERATORS[1] else [outer, *windows])
    x = np.zeros((n, groups, inner // groups, *size))
    w = np.zeros((groups, outer // groups, inner // groups, *kernel))
    y = np.zeros((n, groups, outer // groups, *windows))
    known = {"Conv": (x, w), "ConvInputGradient": (y, w), "ConvWeightGradient": (x, y)}[which]
    for to, values in zip(known, (first, second), strict=True):
        to[...] = values.reshape(to.shape)
    pads = [(before, after) for *_, before, after in by_axis(shape)]
    room = np.pad(x, [(0, 0)] * 3 + pads)
    for tap in np.ndindex(*kernel):
        steps = [
            slice(i * dilation, i * dilation + out * stride, stride)
            for i, (_, _, out, stride, dilation, _, _) in zip(tap, by_axis(shape), strict=True)
        ]
        cut = [slice(None)] * 3 + [slice(0, out) for out in windows]
        seen, own = room[(..., *steps)][tuple(cut)], w[(..., *tap)]
        if which == "Conv":
            y += np.einsum("ngcdhw,gkc->ngkdhw", seen, own)
        elif which == "ConvInputGradient":
            seen += np.einsum("ngkdhw,gkc->ngcdhw", y, own)
        else:
            w[(..., *tap)] = np.einsum("ngkdhw,ngcdhw->gkc", y, seen)
    if which == "Conv":
        return y.reshape(n, outer, *windows[3 - axes :])
    if which == "ConvWeightGradient":
        return w.reshape(outer, inner // groups, *kernel[3 - axes :])
    inside = [slice(p, p + s) for (p, _), s in zip(pads, size, strict=True)]
    return room[(..., *inside)].reshape(n, inner, *size[3 - axes :])


def operands(shape: list[int], which: str, images: int, draw: np.random.Generator):
    """Tensors of the sizes that the shape tells."""
    hidden = 3 - min(max(shape[25], 1), 3)  # axes that a tensor has not
    x = (images, shape[1], *shape[2 + hidden : 5])
    y = (images, shape[5], *shape[9 + hidden : 12])
    w = (shape[5], shape[1] // shape[24], *shape[6 + hidden : 9])
    first, second = {"Conv": (x, w), "ConvInputGradient": (y, w), "ConvWeightGradient": (x, y)}[
        which
    ]
    found = {"a": numbers(draw, *first), "b": numbers(draw, *second)}
    if which == "Conv":
        found |= {"c": numbers(draw, shape[5]), "d": numbers(draw, *y)}
    return found


def case(draw: np.random.Generator, library: NativeLibrary) -> bool:
    which, method = (
        OPERATORS[int(draw.integers(0, 3))],
        int(draw.choice([0, 0, 1, 1, 3, 3, 5, 5, 4, 2, 6])),
    )
    given = sound_shape(method, draw)
    any_batch = given[0] == 0
    images = int(draw.integers(0, 4)) if any_batch else given[0]
    inputs = operands(given, which, images, draw)
    if draw.random() < 0.1:
        name = str(draw.choice(list(inputs)))
        inputs[name] = numbers(draw, *(int(d) for d in draw.integers(0, 5, 4)))
    shape = disturbed(given, draw) if draw.random() < 0.4 else given
    method = int(draw.choice([*range(-1, 8), 2**40, -(2**63)])) if draw.random() < 0.1 else method
    is_tiled = method not in (0, 1, CHANNELS, PRODUCTS, COLUMNS)
    more = is_tiled or any_batch
    bits = int(draw.integers(0, 2)), *(int(n) for n in draw.integers(0, 2, 3) if more)
    form = [*bits, 0, 0, 0][:4]
    attributes = {"shape": shape, "method": method, **({"form": form} if which == "Conv" else {})}
    if which == "Conv":
        if not form[1]:
            inputs.pop("d")
        if not form[0]:
            inputs = {("_" if n == "c" else n): x for n, x in inputs.items()}
    fits = is_sound(shape) and (has_tile(shape, method) if is_tiled else shape[0] > 0)
    fits = fits and (method != PRODUCTS or shape[24] == 1 or is_pointwise(shape))
    fits = fits and (method != COLUMNS or (which == "Conv" and shape[24] == 1))
    fits = fits and (method != CHANNELS or shape[1] == shape[5] == shape[24])
    fits = fits and (is_tiled or not any(form[1:]))
    images = shape[0] if fits and shape[0] > 0 else inputs["a"].shape[0]
    fits = fits and max(images * math.prod(shape[1:5]), math.prod(shape[5:12])) < 1 << 22
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
        wanted += inputs["c"].reshape(-1, *[1] * shape[25])
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
    ones = [1] * 3
    shape = [1, 16, 1, side, side, 16, *ones, *ones, 1, side, side, *ones, *[0] * 6, 16, 2, 1]
    inputs = {"a": np.zeros(0, np.float32), "b": np.zeros(16, np.float32)}
    form = {"form": [0] * 4} if which == "Conv" else {}
    got = outcome(convolving, 1, which, inputs, shape=shape, method=0, **form)
    assert f"{which}: the shape is that of no convolution" in got


@pytest.mark.parametrize("images", [0, 1, 40])
@pytest.mark.parametrize("which", OPERATORS)
def test_the_number_of_images_may_be_open(
    which: str, images: int, convolving: NativeLibrary
) -> None:
    ones = [1] * 6
    shape = [0, 3, 1, 8, 7, 5, 1, 3, 3, 1, 8, 7, *ones, 0, 1, 1, 0, 1, 1, 1, 2, 1]
    inputs = operands(shape, which, images, np.random.default_rng(0))
    given = dict(list(inputs.items())[:2])
    form = {"form": [0] * 4} if which == "Conv" else {}
    got = outcome(convolving, 1, which, given, shape=shape, method=4, **form)
    assert not isinstance(got, str), got
    np.testing.assert_allclose(got, exact(shape, which, *given.values()), atol=1e-3)


def test_tasks_are_bounded(convolving: NativeLibrary) -> None:
    """Each has a gradient of its own, so many of them are larger than can be counted."""
    for tasks in (1 << 12, 1 << 13):
        shape = [1 << 13, *[1] * 17, *[0] * 6, 1, 2, tasks]
        inputs = operands(shape, "ConvWeightGradient", shape[0], np.random.default_rng(0))
        got = outcome(convolving, 1, "ConvWeightGradient", inputs, shape=shape, method=0)
        assert isinstance(got, str) == (tasks > MOST_TASKS), got


# More terms than are added at a time; images over one axis and three; odd numbers of windows.
FEW_WINDOWS = [
    [1, 130, 1, 9, 8, 50, 1, 3, 3, 1, 5, 4, 1, 2, 2, 1, 1, 1, 0, 1, 1, 0, 1, 0, 1, 2, 1],
    [3, 40, 1, 1, 11, 70, 1, 1, 4, 1, 1, 5, 1, 1, 2, 1, 1, 1, 0, 0, 1, 0, 0, 0, 1, 1, 1],
    [3, 7, 4, 3, 5, 33, 2, 3, 2, 3, 3, 4, *[1] * 6, 0, 1, 0, 0, 1, 0, 1, 3, 1],
]


@pytest.mark.parametrize("shape", FEW_WINDOWS)
@pytest.mark.parametrize("has_bias", [False, True])
def test_columns_of_all_images(shape: list[int], has_bias: bool, convolving: NativeLibrary) -> None:
    inputs = operands(shape, "Conv", shape[0], np.random.default_rng(0))
    wanted = exact(shape, "Conv", inputs["a"], inputs["b"])
    if has_bias:
        wanted = wanted + inputs["c"].reshape(1, -1, *[1] * shape[25])
    given = {n: inputs[n] for n in ("abc" if has_bias else "ab")}
    one, many = (
        outcome(convolving, threads, "Conv", given, shape=[*shape[:-1], threads], method=COLUMNS,
                form=[int(has_bias), 0, 0, 0])
        for threads in (1, 3)
    )  # fmt: skip
    assert abs(one - wanted).max() <= TOLERANCE * abs(wanted).max()
    assert np.array_equal(one, many)


def test_columns_are_of_forward_passes_without_groups(convolving: NativeLibrary) -> None:
    shape = [1, 4, *[1] * 2, 9, 4, *[1] * 2, 3, *[1] * 2, 7, *[1] * 6, *[0] * 6, 2, 1, 1]
    for which, groups in (("Conv", 2), ("ConvInputGradient", 1)):
        given = [*shape[:24], groups, *shape[25:]]
        inputs = operands(given, which, 1, np.random.default_rng(0))
        pair, form = dict(list(inputs.items())[:2]), {"form": [0] * 4} if which == "Conv" else {}
        got = outcome(convolving, 1, which, pair, shape=given, method=COLUMNS, **form)
        assert f"{which}: columns are for forward passes without groups" in got


def test_many_windows_are_no_columns(convolving: NativeLibrary) -> None:
    shape = [1, 2, 1, 1, 300, 3, *[1] * 5, 300, *[1] * 6, *[0] * 6, 1, 1, 1]
    inputs = dict(list(operands(shape, "Conv", 1, np.random.default_rng(0)).items())[:2])
    by_columns, by_sums = (
        outcome(convolving, 1, "Conv", inputs, shape=shape, method=method, form=[0] * 4)
        for method in (COLUMNS, 0)
    )
    assert np.array_equal(by_columns, by_sums)


@pytest.mark.parametrize("method", [1, CHANNELS])
def test_shapes_that_are_too_large_are_computed_by_sums(
    method: int, convolving: NativeLibrary
) -> None:
    stride = 5000  # as many phases as neither has
    ones = [1] * 2
    shape = [1, 2, *ones, 2 * stride, 2, *ones, 1, *ones, 2, *ones, stride, *[1] * 3, *[0] * 6,
             2, 1, 1]  # fmt: skip
    inputs = {"a": np.arange(4.0 * stride, dtype=np.float32).reshape(1, 2, -1),
              "b": np.array([2, 3], np.float32).reshape(2, 1, 1)}  # fmt: skip
    got = outcome(convolving, 1, "Conv", inputs, shape=shape, method=method, form=[0] * 4)
    assert np.array_equal(got, inputs["a"][:, :, ::stride] * inputs["b"].reshape(1, 2, 1))


def test_channels_side_by_side_are_one_a_group(convolving: NativeLibrary) -> None:
    shape = [1, 4, *[1] * 2, 9, 4, *[1] * 3, *[1] * 2, 9, *[1] * 6, *[0] * 6, 2, 1, 1]
    inputs = operands(shape, "Conv", 1, np.random.default_rng(0))
    given = {"a": inputs["a"], "b": inputs["b"]}
    got = outcome(convolving, 1, "Conv", given, shape=shape, method=CHANNELS, form=[0] * 4)
    assert "Conv: only of one channel a group there are channels side by side" in got


@pytest.mark.parametrize("which", OPERATORS)
def test_threads_do_not_change_channels_side_by_side(which: str, convolving: NativeLibrary) -> None:
    shape = [2, 20, 6, 30, 31, 20, 3, 3, 5, 6, 15, 31, 1, 2, 1, 1, 1, 1, 1, 1, 2, 1, 0, 2, 20, 3, 1]
    inputs = dict(list(operands(shape, which, 2, np.random.default_rng(0)).items())[:2])
    form = {"form": [0] * 4} if which == "Conv" else {}
    one, many = (
        outcome(convolving, threads, which, inputs, shape=shape, method=CHANNELS, **form)
        for threads in (1, 3)
    )
    assert np.array_equal(one, many)
    wanted = exact(shape, which, *inputs.values())
    assert abs(one - wanted).max() <= TOLERANCE * abs(wanted).max()


def test_products_are_of_one_group(convolving: NativeLibrary) -> None:
    shape = [1, 4, *[1] * 2, 9, 4, *[1] * 2, 3, *[1] * 2, 7, *[1] * 6, *[0] * 6, 2, 1, 1]
    inputs = operands(shape, "ConvWeightGradient", 1, np.random.default_rng(0))
    got = outcome(convolving, 1, "ConvWeightGradient", inputs, shape=shape, method=PRODUCTS)
    assert "of groups there are products with windows of one element alone" in got


# Two images whose rows do not fit into the cache at once; the second has windows that do not meet.
MOVED = [
    [2, 40, 1, 61, 130, 30, 1, 3, 3, 1, 31, 129, 1, 2, 1, 1, 1, 2, 0, 1, 1, 0, 1, 2, 1, 2, 3],
    [2, 24, 3, 64, 131, 80, 1, 2, 2, 3, 32, 44, 1, 2, 3, 1, 1, 1, *[0] * 6, 1, 3, 3],
]


@pytest.mark.parametrize("shape", MOVED)
@pytest.mark.parametrize("which", OPERATORS)
def test_rows_moved_by_threads_are_right(
    which: str, shape: list[int], convolving: NativeLibrary
) -> None:
    inputs = dict(list(operands(shape, which, 2, np.random.default_rng(0)).items())[:2])
    form = {"form": [0] * 4} if which == "Conv" else {}
    one, many = (
        outcome(
            convolving, threads, which, inputs, shape=[*shape[:-1], threads], method=PRODUCTS,
            **form,
        )
        for threads in (1, 3)
    )  # fmt: skip
    wanted = exact(shape, which, *inputs.values())
    assert abs(one - wanted).max() <= TOLERANCE * abs(wanted).max()
    assert abs(many - wanted).max() <= TOLERANCE * abs(wanted).max()


@pytest.mark.parametrize("threads", [1, 4])
def test_pieces_of_a_weight_gradient_are_added_up(threads: int, convolving: NativeLibrary) -> None:
    """There are many more pieces than jobs, each of several images."""
    side, images = 20, 80
    shape = [images, 24, 1, side, side, 20, 1, 3, 3, 1, side, side, *[1] * 6, 0, 1, 1, 0, 1, 1,
             1, 2, threads]  # fmt: skip
    inputs = operands(shape, "ConvWeightGradient", images, np.random.default_rng(0))
    got = outcome(convolving, threads, "ConvWeightGradient", inputs, shape=shape, method=0)
    wanted = exact(shape, "ConvWeightGradient", *inputs.values())
    assert abs(got - wanted).max() <= TOLERANCE * abs(wanted).max()
