"""The rules that choose the method of a convolution."""

import pytest
from flow2onnx_native.abi import ConvShape, Method
from flow2onnx_native.convolution_methods import fastest_method

FORWARD, INPUT, WEIGHTS = "Conv", "ConvInputGradient", "ConvWeightGradient"


def shape_of(
    channels: tuple[int, int], size: int, kernel: int, axes: int = 2, *, stride: int = 1,
    dilation: int = 1, groups: int = 1, images: int = 8,
) -> ConvShape:  # fmt: skip
    """A convolution of as many positions out as there are in, by stride."""
    pad, made = dilation * (kernel - 1) // 2, -(-size // stride)
    ones, zeros = [1] * (3 - axes), [0] * (3 - axes)
    return ConvShape._make([
        images, channels[0], *ones, *[size] * axes, channels[1], *ones, *[kernel] * axes,
        *ones, *[made] * axes, *ones, *[stride] * axes, *ones, *[dilation] * axes,
        *zeros, *[pad] * axes, *zeros, *[pad] * axes, groups, axes, 1,
    ])  # fmt: skip


DENSE = (64, 64)
WHOLE = shape_of((512, 100), 4, 4)._replace(out_height=1, out_width=1, top=0, left=0, bottom=0,
                                            right=0)  # fmt: skip
WITHOUT_GAPS = shape_of((256, 512), 8, 2, stride=2)
CASES = [
    (FORWARD, shape_of(DENSE, 13, 3), Method.TILES_OF_4),
    (INPUT, shape_of(DENSE, 13, 3), Method.TILES_OF_4),
    (FORWARD, shape_of(DENSE, 13, 3, images=1), Method.SUMS),
    (FORWARD, shape_of((48, 72), 2000, 15, 1), Method.PRODUCTS),
    (FORWARD, shape_of((48, 72), 31, 15, 1), Method.PRODUCTS),
    (FORWARD, shape_of((48, 72), 20, 15, 1), Method.SUMS),
    (INPUT, shape_of((48, 72), 2000, 15, 1), Method.PRODUCTS),
    (INPUT, shape_of((48, 72), 20, 15, 1), Method.SUMS),
    (INPUT, shape_of((48, 72), 20, 15, 1, images=1), Method.PRODUCTS),
    (WEIGHTS, shape_of((48, 72), 20, 15, 1), Method.PRODUCTS),
    (FORWARD, shape_of((512, 512), 7, 3, images=1, dilation=2), Method.COLUMNS),
    (FORWARD, shape_of((512, 512), 7, 3, images=1, dilation=6), Method.SUMS),
    (FORWARD, shape_of((512, 512), 10, 3, images=1, dilation=2), Method.SUMS),
    (WEIGHTS, shape_of(DENSE, 12, 3, 3, dilation=2), Method.PRODUCTS),
    (WEIGHTS, shape_of(DENSE, 6, 3, 3, dilation=4), Method.SUMS),
    (WEIGHTS, shape_of((48, 72), 2000, 15, 1), Method.PRODUCTS),
    (FORWARD, shape_of((48, 72), 31, 7, 1), Method.SUMS),
    (FORWARD, shape_of((48, 128), 31, 15, 1), Method.SUMS),
    (FORWARD, shape_of((64, 64), 256, 3, 1, groups=8), Method.PLANES),
    (INPUT, shape_of((64, 64), 256, 3, 1, groups=8), Method.PLANES),
    (FORWARD, shape_of((64, 64), 256, 3, 1, groups=4), Method.PLANES),
    (INPUT, shape_of((64, 64), 256, 3, 1, groups=4), Method.PLANES),
    (FORWARD, shape_of((128, 128), 256, 3, 1, groups=2), Method.SUMS),
    (WEIGHTS, shape_of((64, 64), 256, 3, 1, groups=4), Method.SUMS),
    (WEIGHTS, shape_of((64, 64), 256, 41, 1, groups=4), Method.PLANES),
    (FORWARD, shape_of((64, 64), 28, 3, groups=8), Method.PLANES),
    (FORWARD, shape_of((64, 64), 28, 3, groups=4), Method.SUMS),
    (FORWARD, shape_of((64, 64), 14, 3, groups=8), Method.SUMS),
    (FORWARD, shape_of((64, 64), 56, 3, groups=8, stride=2), Method.SUMS),
    (FORWARD, shape_of((3, 12), 96, 3, stride=2), Method.SUMS),
    (FORWARD, shape_of((3, 12), 96, 3), Method.PLANES),
    (FORWARD, WHOLE, Method.PRODUCTS),
    (FORWARD, WHOLE._replace(images=16), Method.COLUMNS),
    (FORWARD, WHOLE._replace(images=32), Method.PRODUCTS),
    (INPUT, WHOLE._replace(images=16), Method.PRODUCTS),
    (INPUT, WHOLE, Method.PRODUCTS),
    (WEIGHTS, WHOLE, Method.PRODUCTS),
    (FORWARD, shape_of(DENSE, 1, 1), Method.PRODUCTS),
    (FORWARD, shape_of(DENSE, 28, 3), Method.TILES_OF_4),
    (FORWARD, shape_of(DENSE, 28, 3, stride=2), Method.SUMS),
    (FORWARD, shape_of(DENSE, 300, 3, 1), Method.PRODUCTS),
    (FORWARD, shape_of((64, 3), 32, 9), Method.PLANES),
    (FORWARD, shape_of((3, 64), 112, 3, stride=2), None),
    (FORWARD, shape_of((3, 64), 112, 7, stride=2), Method.SUMS),
    (FORWARD, shape_of((3, 64), 128, 7), Method.PLANES),
    (FORWARD, shape_of((3, 12), 16, 3, 3), Method.PLANES),
    (FORWARD, shape_of((1, 16), 32, 5, 3), Method.SUMS),
    (FORWARD, shape_of((3, 32), 16, 3, 3), Method.SUMS),
    (FORWARD, shape_of(DENSE, 28, 3, groups=64), Method.CHANNELS),
    (FORWARD, shape_of(DENSE, 7, 3, groups=64), Method.CHANNELS),
    (FORWARD, shape_of(DENSE, 7, 5, groups=64), Method.SUMS),
    (FORWARD, shape_of(DENSE, 7, 5, groups=64, dilation=2), Method.CHANNELS),
    (FORWARD, shape_of(DENSE, 28, 31, groups=64), Method.CHANNELS),
    (FORWARD, shape_of(DENSE, 8, 3, 3, groups=64), Method.CHANNELS),
    (FORWARD, shape_of((4, 4), 28, 3, groups=4), Method.SUMS),
    (FORWARD, shape_of((4, 4), 28, 3, groups=4, dilation=2), Method.PLANES),
    (FORWARD, shape_of((60, 240), 28, 1, groups=3), None),
    (INPUT, shape_of((60, 240), 28, 1, groups=3), Method.PRODUCTS),
    (WEIGHTS, shape_of((60, 240), 28, 1, groups=3), Method.PRODUCTS),
    (FORWARD, shape_of((240, 60), 28, 1, groups=3), Method.PRODUCTS),
    (FORWARD, shape_of((64, 64), 28, 1, groups=4), Method.PRODUCTS),
    (FORWARD, shape_of((64, 64), 7, 1, groups=4), Method.SUMS),
    (WEIGHTS, shape_of((28, 28), 28, 1, groups=4), Method.SUMS),
    (FORWARD, shape_of((36, 36), 28, 3, groups=9), Method.PLANES),
    (FORWARD, shape_of(DENSE, 28, 1), Method.PRODUCTS),
    (FORWARD, shape_of((64, 2), 28, 1), Method.PRODUCTS),
    (FORWARD, shape_of((512, 4), 7, 1), Method.PRODUCTS),
    (FORWARD, shape_of((3, 16), 16, 1, 3), Method.PRODUCTS),
    (FORWARD, shape_of((6, 6), 7, 1), Method.PRODUCTS),
    (FORWARD, shape_of(DENSE, 7, 1), Method.SUMS),
    (FORWARD, shape_of((320, 320), 4, 3, 3, images=1), Method.COLUMNS),  # of few windows
    (FORWARD, shape_of((256, 512), 8, 4, stride=2, images=2), Method.COLUMNS),
    (FORWARD, shape_of((512, 512), 7, 3, images=1), Method.COLUMNS),
    (FORWARD, shape_of((512, 64), 7, 3, images=1), Method.SUMS),
    (FORWARD, shape_of((1024, 64), 2, 3, images=1), Method.COLUMNS),
    (FORWARD, shape_of((512, 512), 7, 1, images=1), None),
    (FORWARD, shape_of((512, 512), 2, 1, images=16), Method.COLUMNS),
    (FORWARD, shape_of((512, 512), 4, 3), Method.COLUMNS),
    (FORWARD, shape_of((512, 512), 7, 1, images=2), Method.COLUMNS),
    (FORWARD, shape_of((256, 256), 4, 3), Method.SUMS),
    (FORWARD, shape_of((256, 256), 16, 3, stride=2, images=2), Method.COLUMNS),
    (FORWARD, shape_of((256, 256), 16, 3, stride=2, images=3), Method.SUMS),
    (FORWARD, shape_of((512, 512), 4, 3, groups=2), Method.SUMS),
    (FORWARD, shape_of((32, 32), 56, 8, stride=8, images=1), Method.SUMS),
    (INPUT, shape_of(DENSE, 28, 1), Method.PRODUCTS),
    (INPUT, shape_of(DENSE, 7, 1), Method.PRODUCTS),
    (INPUT, shape_of((512, 512), 7, 1), Method.SUMS),
    (INPUT, shape_of((512, 512), 7, 1, images=2), Method.PRODUCTS),
    (INPUT, shape_of(DENSE, 2, 1, images=32), Method.SUMS),
    (INPUT, shape_of((3, 64), 28, 1), Method.PRODUCTS),
    (INPUT, shape_of((256, 512), 8, 1, stride=2), Method.PRODUCTS),
    (INPUT, shape_of((512, 1024), 4, 1, stride=2), Method.SUMS),
    (INPUT, WITHOUT_GAPS, Method.SUMS),
    (INPUT, WITHOUT_GAPS._replace(in_=32), Method.PRODUCTS),
    (INPUT, WITHOUT_GAPS._replace(kernel_height=1), Method.PRODUCTS),
    (INPUT, WITHOUT_GAPS._replace(images=32, in_=6, out_height=2, out_width=2), Method.PRODUCTS),
    (INPUT, shape_of((1, 64), 28, 5), None),
    (INPUT, shape_of((3, 64), 28, 5), Method.PLANES),
    (INPUT, shape_of(DENSE, 7, 31, groups=64), Method.SUMS),
    (INPUT, shape_of(DENSE, 28, 31, groups=64), Method.CHANNELS),
    (WEIGHTS, shape_of(DENSE, 28, 1), Method.PRODUCTS),
    (WEIGHTS, shape_of((16, 96), 28, 1), None),
    (WEIGHTS, shape_of(DENSE, 14, 1), Method.PRODUCTS),
    (WEIGHTS, shape_of((1, 128), 1000, 15, 1), None),
    (WEIGHTS, shape_of(DENSE, 4, 1), None),
    (WEIGHTS, shape_of((3, 64), 14, 1), Method.PRODUCTS),
    (WEIGHTS, shape_of((2048, 2048), 16, 1), Method.PRODUCTS),
    (WEIGHTS, shape_of((1024, 512), 13, 1, images=2), Method.PRODUCTS),
    (WEIGHTS, shape_of((1024, 512), 13, 1, images=1), Method.PRODUCTS),
    (WEIGHTS, shape_of(DENSE, 4, 3, images=1), Method.PRODUCTS),  # of few windows
    (WEIGHTS, shape_of(DENSE, 2, 7, images=2), Method.PRODUCTS),
    (WEIGHTS, shape_of(DENSE, 2, 3, images=4), Method.SUMS),
    (WEIGHTS, shape_of((512, 512), 2, 3, images=32), None),
    (WEIGHTS, shape_of((512, 512), 8, 3, stride=2, images=32), Method.SUMS),
    (WEIGHTS, shape_of((40, 40), 15, 15, 1), Method.SUMS),
    (INPUT, shape_of(DENSE, 4, 3, images=1), Method.SUMS),
    (WEIGHTS, shape_of(DENSE, 9, 3), Method.TILES_OF_4),
    (FORWARD, shape_of(DENSE, 9, 3), Method.SUMS),
    (WEIGHTS, shape_of(DENSE, 5, 3), Method.SUMS),
    (WEIGHTS, shape_of((20, 20), 28, 7), Method.PLANES),
    (WEIGHTS, shape_of((20, 20), 28, 7, stride=2), Method.SUMS),
    (WEIGHTS, shape_of((20, 4), 28, 7, stride=2), Method.PLANES),
    (WEIGHTS, shape_of(DENSE, 4, 3, stride=2), Method.SUMS),
    (WEIGHTS, shape_of(DENSE, 8, 3, stride=2), Method.SUMS),
    (WEIGHTS, shape_of(DENSE, 8, 3, stride=2, images=2), Method.PRODUCTS),
    (WEIGHTS, shape_of(DENSE, 28, 5, groups=64), Method.CHANNELS),
    (WEIGHTS, shape_of((4, 4), 28, 5, groups=4), Method.PLANES),
    (WEIGHTS, shape_of((4, 4), 14, 3, groups=4), Method.SUMS),
    (WEIGHTS, shape_of((4, 4), 28, 31, groups=4), None),
]


@pytest.mark.parametrize(("name", "shape", "method"), CASES)
def test_the_method(name: str, shape: ConvShape, method: Method | None) -> None:
    assert fastest_method(name, shape, winograd=True, avx512=False) == method


FIRST_CASES = [
    (FORWARD, shape_of((1, 64), 128, 9), Method.PLANES),
    (FORWARD, shape_of((3, 64), 64, 5), None),
    (FORWARD, shape_of((3, 64), 128, 7), Method.PLANES),
    (FORWARD, shape_of((4, 24), 64, 7), Method.PLANES),
    (WEIGHTS, shape_of((1, 32), 32, 5, 3, stride=2), Method.PLANES),
    (WEIGHTS, shape_of((3, 64), 16, 3, 3), Method.PLANES),
]


@pytest.mark.parametrize(("name", "shape", "method"), FIRST_CASES)
def test_sums_with_avx512(name: str, shape: ConvShape, method: Method | None) -> None:
    assert fastest_method(name, shape, winograd=True, avx512=False) == method
    assert fastest_method(name, shape, winograd=True, avx512=True) == Method.SUMS


def test_narrow_products_with_avx512() -> None:
    shape = shape_of((16, 96), 28, 1)
    assert fastest_method(WEIGHTS, shape, winograd=True, avx512=False) is None
    assert fastest_method(WEIGHTS, shape, winograd=True, avx512=True) == Method.PRODUCTS
    for shape in (shape_of((96, 32), 28, 1), shape_of((32, 96), 54, 1)):
        assert fastest_method(WEIGHTS, shape, winograd=True, avx512=True) == Method.PRODUCTS


STRIDED_1D = shape_of((64, 64), 999, 3, 1, stride=2)
ROW = shape_of((60, 21), 28, 15)._replace(kernel_height=1, top=0, bottom=0)
COLUMN = shape_of((60, 21), 28, 15)._replace(kernel_width=1, left=0, right=0)
# What is moved to rows, or could be: windows that do not meet first.
MOVED = [
    (FORWARD, COLUMN),
    (FORWARD, shape_of((96, 192), 56, 2, stride=2)),
    (INPUT, shape_of((64, 32), 16, 2, 3, stride=2)),
    (WEIGHTS, shape_of((64, 128), 32, 1, stride=2)),
    (FORWARD, STRIDED_1D),
    (INPUT, STRIDED_1D),
    (WEIGHTS, STRIDED_1D),
    (FORWARD, shape_of((16, 64), 128, 3, stride=2)),
    (FORWARD, shape_of(DENSE, 128, 3)._replace(kernel_width=1, left=0, right=0)),
    (INPUT, shape_of((3, 64), 112, 3, stride=2)),
    (WEIGHTS, shape_of((512, 512), 14, 3, stride=2, images=1)),
    (WEIGHTS, shape_of((320, 320), 4, 3, 3, images=1)),
    (WEIGHTS, shape_of((1, 64), 1000, 16, 1, stride=4)),
    (WEIGHTS, ROW),
]
# The same but for a number.
NOT_MOVED = [
    (FORWARD, COLUMN._replace(kernel_height=11, top=5, bottom=5)),
    (FORWARD, shape_of((96, 192), 14, 2, stride=2)),
    (INPUT, shape_of((64, 32), 16, 2, 3, stride=2, images=8, groups=2)),
    (WEIGHTS, shape_of((64, 128), 8, 1, stride=2)),
    (FORWARD, shape_of((64, 64), 62, 3, 1, stride=2)),
    (INPUT, shape_of((64, 64), 999, 5, 1, stride=2)),
    (FORWARD, shape_of((16, 64), 32, 3, stride=2)),
    (INPUT, shape_of((3, 64), 32, 3, stride=2)),
    (INPUT, shape_of((3, 64), 112, 3, stride=2, images=1)._replace(tasks=8)),
    (WEIGHTS, shape_of((512, 512), 14, 3, stride=2)),
    (WEIGHTS, shape_of((320, 320), 8, 3, 3, images=1)),
    (WEIGHTS, ROW._replace(kernel_width=11, left=5, right=5)),
    (WEIGHTS, shape_of((96, 32), 54, 1)),
]


@pytest.mark.parametrize(("name", "shape"), MOVED)
def test_what_is_moved_to_rows(name: str, shape: ConvShape) -> None:
    assert fastest_method(name, shape, winograd=True, avx512=True) == Method.PRODUCTS


@pytest.mark.parametrize(("name", "shape"), NOT_MOVED)
def test_what_is_not_moved_to_rows(name: str, shape: ConvShape) -> None:
    assert fastest_method(name, shape, winograd=True, avx512=True) != Method.PRODUCTS


def test_the_runtimes_own_without_avx512() -> None:
    for name, shape in (
        (FORWARD, shape_of((3, 32), 224, 3, stride=2)),
        (FORWARD, shape_of((3, 64), 112, 3)),
    ):
        assert fastest_method(name, shape, winograd=True, avx512=False) is None
        assert fastest_method(name, shape, winograd=True, avx512=True) == Method.PRODUCTS


OTHERS = [
    (FORWARD, shape_of((1, 64), 128, 7)),
    (FORWARD, shape_of((3, 64), 80, 3)),
    (FORWARD, shape_of((3, 12), 128, 7)),
    (FORWARD, shape_of((320, 320), 8, 2, 3, stride=2, images=8)),
    (FORWARD, shape_of((64, 64), 8, 2, 3, stride=2, images=4)),
    (INPUT, shape_of((3, 64), 16, 3, 3)),
    (WEIGHTS, shape_of((4, 32), 16, 3, 3)),
    (WEIGHTS, shape_of((3, 12), 16, 3, 3)),
    (WEIGHTS, shape_of((1, 128), 1000, 15, 1)),
    (WEIGHTS, shape_of((4, 32), 28, 3, groups=4)),
]


@pytest.mark.parametrize(("name", "shape"), OTHERS)
def test_the_same_with_avx512(name: str, shape: ConvShape) -> None:
    narrow, wide = (fastest_method(name, shape, winograd=True, avx512=a) for a in (False, True))
    assert wide == narrow


def test_without_winograd() -> None:
    shape = shape_of(DENSE, 28, 3)
    assert fastest_method(FORWARD, shape, winograd=False, avx512=False) == Method.SUMS
