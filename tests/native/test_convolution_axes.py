"""Convolutions over one and three axes, of groups and transposed, beside the standard operators."""

from dataclasses import dataclass

import numpy as np
import pytest
from flow2onnx_native.library import NativeLibrary

from flow2onnx.autodiff import gradients
from flow2onnx.dtypes import float32
from flow2onnx.graph import Builder
from tests.native.running import both


@dataclass(frozen=True)
class Case:
    x: tuple[int, ...]
    out: int
    kernel: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    pads: tuple[int, ...] | None = None  # none, if not told
    dilations: tuple[int, ...] | None = None
    group: int = 1
    output_padding: tuple[int, ...] | None = None

    def attributes(self) -> dict[str, object]:
        """What the operator is told."""
        axes = len(self.kernel)
        found = {
            "strides": self.strides or (1,) * axes, "dilations": self.dilations or (1,) * axes,
            "pads": self.pads or (0,) * 2 * axes, "group": self.group,
        }  # fmt: skip
        return found | ({"output_padding": self.output_padding} if self.output_padding else {})


STRAIGHT = [
    Case((3, 20, 90), 40, (7,), pads=(3, 3)),
    Case((2, 17, 101), 33, (4,), (3,), (1, 2)),
    Case((1, 24, 300), 24, (3,), pads=(16, 16), dilations=(16,)),
    Case((2, 32, 400), 32, (31,), pads=(15, 15), group=32),
    Case((4, 32, 64), 64, (9,), (2,), (4, 4), group=8),
    Case((2, 20, 6, 9, 11), 24, (3, 3, 3), pads=(1,) * 6),
    Case((1, 3, 8, 16, 16), 20, (3, 5, 5), (1, 2, 2), (1, 2, 2, 1, 2, 2)),
    Case((2, 24, 5, 12, 10), 24, (3, 3, 3), (1, 2, 2), (1,) * 6, group=24),
    Case((1, 32, 8, 8, 8), 32, (3, 1, 1), pads=(1, 0, 0, 1, 0, 0), group=4),
    Case((3, 40, 12, 12), 40, (7, 5), (2, 1), (3, 2, 3, 2), group=40),
    Case((1, 64, 24, 24), 3, (9, 9), pads=(4,) * 4),
    # along the first axis, of planes that lie as they are
    Case((3, 33, 5, 6, 25), 24, (3, 1, 1), pads=(1, 0, 0, 2, 0, 0)),
    Case((2, 40, 31, 29), 30, (15, 1), pads=(7, 0, 7, 0)),
    Case((1, 36, 9, 30), 28, (3, 1), pads=(4, 0, 2, 0), dilations=(2, 1)),
]
# Taps at the ends of these kernels meet the border alone.
BEYOND = [
    Case((2, 40, 7, 7), 24, (3, 3), pads=(18,) * 4, dilations=(18, 18)),
    Case((1, 24, 2, 2), 40, (7, 7), pads=(3,) * 4),
    Case((2, 24, 3, 9), 32, (7, 3), (2, 1), pads=(5, 1, 1, 1)),
    Case((2, 20, 4), 24, (9,), (2,), pads=(7, 2)),
    Case((2, 32, 3, 5), 32, (7, 7), pads=(3, 3, 3, 3), group=32),
    Case((2, 32, 3, 5), 64, (9, 3), pads=(4, 1, 4, 1), group=4),
    Case((1, 48, 2, 30), 40, (15, 1), pads=(9, 0, 6, 0)),
    Case((1, 20, 2, 4, 5), 24, (5, 3, 3), pads=(2, 1, 1, 2, 1, 1)),
]
TRANSPOSED = [
    Case((2, 40, 30), 20, (16,), (8,), (4, 4)),
    Case((1, 24, 50), 18, (3,), (2,), (1, 1), output_padding=(1,)),
    Case((2, 24, 8, 8, 8), 20, (2, 2, 2), (2, 2, 2)),
    Case((1, 24, 5, 8, 9), 17, (3, 3, 3), (2, 2, 2), (1,) * 6, output_padding=(1, 1, 1)),
    Case((2, 32, 9, 9), 32, (4, 4), (2, 2), (1,) * 4, group=32),
    Case((1, 56, 16, 16), 1, (9, 9), (3, 3), (4,) * 4, output_padding=(2, 2)),
]


def outputs(
    case: Case, operator: str, weights: tuple[int, ...], library: NativeLibrary, threads: int
):
    """What an operator and its gradients give in both forms, and the native operators."""
    b = Builder()
    inputs = [b.input("x", case.x, float32), b.input("w", weights, float32)]
    inputs.append(b.input("bias", (case.out,), float32))
    y = getattr(b, operator)(*inputs, **case.attributes())
    g = b.input("g", tuple(y.shape.numpy()), float32)
    for value, slope in gradients(b, {y: g}, inputs).items():
        b.output(slope, f"slope of {value.name}")
    b.output(y, "y")
    draw = np.random.default_rng(0)
    feeds = {
        str(v.name): draw.standard_normal(v.shape.numpy()).astype(np.float32)
        for v in b.graph.inputs
    }
    return both(b, feeds, library, threads)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("case", [*STRAIGHT, *BEYOND], ids=str)
def test_convolutions(case: Case, threads: int, convolving: NativeLibrary, any_shape: None) -> None:
    weights = (case.out, case.x[1] // case.group, *case.kernel)
    expected, got, used = outputs(case, "Conv", weights, convolving, threads)
    assert used["Conv"] == used["ConvInputGradient"] == used["ConvWeightGradient"] == 1
    for name, array in expected.items():
        assert got[name].shape == array.shape
        assert abs(got[name] - array).max() <= 2e-5 * abs(array).max(), name


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", TRANSPOSED, ids=str)
def test_transposed_convolutions(
    case: Case, threads: int, convolving: NativeLibrary, any_shape: None
) -> None:
    weights = (case.x[1], case.out // case.group, *case.kernel)
    expected, got, used = outputs(case, "ConvTranspose", weights, convolving, threads)
    assert used["Conv"] == used["ConvInputGradient"] == used["ConvWeightGradient"] == 1
    for name, array in expected.items():
        assert got[name].shape == array.shape
        assert abs(got[name] - array).max() <= 2e-5 * abs(array).max(), name


@pytest.mark.parametrize("operator", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (3, 3, 3)], ids=str)
def test_no_images(operator: str, kernel: tuple[int, ...], convolving: NativeLibrary) -> None:
    case = Case((0, 16, *[8] * len(kernel)), 16, kernel)
    expected, got, used = outputs(case, operator, (16, 16, *kernel), convolving, 1)
    assert not {"Conv", "ConvInputGradient", "ConvWeightGradient"} & set(used)
    for name, array in expected.items():
        assert got[name].shape == array.shape
        assert np.array_equal(got[name], array), name
