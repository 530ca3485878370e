"""Convolutions and their gradients on oneDNN beside the standard operators."""

from dataclasses import dataclass

import numpy as np
import pytest
from flow2onnx_native.library import NativeLibrary

from flow2onnx.autodiff import gradients
from flow2onnx.dtypes import float32, float64
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_of
from flow2onnx.passes.pipeline import run_passes
from tests.native.running import both, rewrite


@dataclass(frozen=True)
class Case:
    x: tuple[int, int, int, int]
    out: int
    kernel: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (1, 1, 1, 1)
    dilations: tuple[int, int] = (1, 1)
    group: int = 1


FEW_CHANNELS = Case((3, 20, 45, 44), 12, (1, 1), pads=(0, 0, 0, 0))
CASES = [
    Case((2, 3, 9, 11), 5),
    Case((1, 1, 28, 28), 32, (5, 5), pads=(2, 2, 2, 2)),
    Case((6, 16, 14, 14), 32, (5, 5), pads=(2, 2, 2, 2)),
    Case((4, 64, 32, 32), 64),
    Case((3, 7, 13, 10), 9, strides=(2, 2)),
    Case((2, 8, 17, 9), 4, (3, 1), (2, 1), (1, 0, 1, 0)),
    Case((2, 3, 20, 20), 8, (7, 7), (2, 2), (3, 3, 3, 3)),
    Case((2, 4, 12, 15), 6, (2, 3), (1, 2), (0, 1, 1, 0)),
    Case((2, 5, 16, 16), 5, dilations=(2, 3), pads=(2, 3, 2, 3)),
    Case((4, 33, 12, 12), 17, (1, 1), pads=(0, 0, 0, 0)),
    Case((4, 16, 15, 15), 24, (1, 1), (2, 2), (0, 0, 0, 0)),
    Case((2, 8, 10, 10), 12, group=4),
    Case((2, 19, 11, 9), 19, group=19),
    Case((2, 6, 16, 16), 12, (5, 5), (2, 2), (2, 2, 2, 2), group=6),
    Case((8, 32, 4, 4), 32),
    FEW_CHANNELS,  # the weights' gradient in eight sums
    Case((3, 40, 32, 32), 24, (1, 1), pads=(0, 0, 0, 0)),  # rows at the same places of the cache
    Case((40, 64, 4, 4), 48, (4, 4), pads=(0, 0, 0, 0)),
    Case((16, 64, 4, 4), 64, (4, 4), pads=(0, 0, 0, 0)),
    Case((3, 1100, 5, 7), 150, (1, 1), pads=(0, 0, 0, 0)),  # several blocks of the weights
    Case((11, 8, 60, 60), 16),  # images that threads do not share evenly
    # oneDNN has loops for five blocks of channels, not for the six that one of two threads had
    Case((1, 168, 13, 13), 336, pads=(8, 8, 8, 8), dilations=(8, 8)),
]


def convolution(case: Case, dtype=float32, bias: bool = True):
    """A convolution, its gradients, and numbers for what goes in."""
    b = Builder()
    shape = (case.out, case.x[1] // case.group, *case.kernel)
    x, w = b.input("x", case.x, dtype), b.input("w", shape, dtype)
    inputs = [x, w, *([b.input("bias", (case.out,), dtype)] if bias else [])]
    y = b.Conv(*inputs, strides=case.strides, pads=case.pads, dilations=case.dilations,
               group=case.group)  # fmt: skip
    g = b.input("g", tuple(y.shape.numpy()), dtype)
    found = gradients(b, {y: g}, inputs)
    for value in inputs:
        b.output(found[value], f"d{value.name}")
    b.output(y, "y")
    draw = np.random.default_rng(0)
    feeds = {
        str(v.name): draw.standard_normal(v.shape.numpy()).astype(np.float32)
        for v in b.graph.inputs
    }
    return b, feeds


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolutions(
    case: Case, threads: int, bias: bool, convolving: NativeLibrary, any_shape: None
) -> None:
    b, feeds = convolution(case, bias=bias)
    apart, native, used = both(b, feeds, convolving, threads, winograd=False)
    assert used["Conv"] == used["ConvInputGradient"] == used["ConvWeightGradient"] == 1
    for name, expected in apart.items():
        error = abs(native[name] - expected).max() / abs(expected).max()
        assert error < 1e-5, (name, error)


TRANSPOSED = [
    (Case((2, 6, 5, 7), 16, (4, 4), (2, 2)), {}),
    (Case((3, 16, 7, 7), 18, (5, 5), (2, 2), (2, 2, 2, 2)), {"output_padding": [1, 1]}),
    (Case((2, 8, 9, 6), 17, (3, 2), (1, 3), (0, 1, 2, 1)), {}),
    (Case((2, 6, 8, 8), 4, dilations=(2, 1), group=2), {}),
    (Case((4, 24, 12, 12), 32), {}),
    (Case((1, 4, 1, 1), 19, (4, 4), pads=(0, 0, 0, 0)), {}),
]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("case", "more"), TRANSPOSED, ids=str)
def test_transposed_convolutions(
    case: Case, more: dict[str, list[int]], bias: bool, convolving: NativeLibrary, any_shape: None
) -> None:
    b = Builder()
    x = b.input("x", case.x, float32)
    w = b.input("w", (case.x[1], case.out // case.group, *case.kernel), float32)
    inputs = [x, w, *([b.input("bias", (case.out,), float32)] if bias else [])]
    y = b.ConvTranspose(*inputs, strides=case.strides, pads=case.pads, dilations=case.dilations,
                        group=case.group, **more)  # fmt: skip
    g = b.input("g", tuple(y.shape.numpy()), float32)
    for value, slope in gradients(b, {y: g}, inputs).items():
        b.output(slope, f"slope of {value.name}")
    b.output(y, "y")
    draw = np.random.default_rng(0)
    feeds = {
        str(v.name): draw.standard_normal(v.shape.numpy()).astype(np.float32)
        for v in b.graph.inputs
    }
    expected, got, used = both(b, feeds, convolving, threads=2, winograd=False)
    assert used["ConvInputGradient"] == used["Conv"] == used["ConvWeightGradient"] == 1
    for name, array in expected.items():
        assert abs(got[name] - array).max() <= 1e-5 * abs(array).max(), name


def test_transposed_convolutions_of_another_rule_stay(
    convolving: NativeLibrary,
) -> None:
    b = Builder()
    x, w = b.input("x", (2, 4, 6, 6), float32), b.input("w", (4, 16, 3, 3), float32)
    few = b.input("few", (4, 2, 3, 3), float32)  # these are faster as the runtime has them
    b.output(b.ConvTranspose(x, few), "few channels")
    b.output(b.ConvTranspose(x, w, strides=[2, 2], output_shape=[12, 12]), "shaped")
    b.output(b.ConvTranspose(x, w, strides=[2, 2], auto_pad="SAME_UPPER"), "padded")
    b.output(b.ConvTranspose(x, w, dilations=[3, 3], output_padding=[2, 2]), "roomy")
    _, used = rewrite(model_of(b.graph), convolving.operators)
    assert not used


def test_other_types_stay(convolving: NativeLibrary) -> None:
    b, _ = convolution(CASES[0], float64)
    _, used = rewrite(model_of(b.graph), convolving.operators)
    assert not [name for name in used if name.startswith("Conv")]


def test_batches_that_threads_cannot_share_equally(convolving: NativeLibrary) -> None:
    b, feeds = convolution(Case((5, 4, 8, 8), 4))
    apart, native, _ = both(b, feeds, convolving, threads=3, winograd=False)
    for name, expected in apart.items():
        np.testing.assert_allclose(native[name], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", [FEW_CHANNELS, Case((2, 16, 60, 60), 16)], ids=str)
def test_gradients_of_few_weights_are_the_same_on_any_threads(
    case: Case, convolving: NativeLibrary
) -> None:
    if not convolving.uses_avx512 and case is FEW_CHANNELS:
        pytest.skip("without AVX-512 a standard product is faster for so few channels")
    b, feeds = convolution(case)
    found = []
    for threads in (1, 2, 3):
        apart, native, used = both(b, feeds, convolving, threads)
        assert used["ConvWeightGradient"] == 1
        error = abs(native["dw"] - apart["dw"]).max() / abs(apart["dw"]).max()
        assert error < 2e-5
        found.append(native["dw"])
    assert all(np.array_equal(other, found[0]) for other in found)


def test_without_onednn_convolutions_stay(library: NativeLibrary) -> None:
    b, _ = convolution(CASES[0])
    model, used = rewrite(model_of(b.graph), {"Fused"})
    assert set(used) <= {"Fused"}
    assert [n for n in model.graph if n.op_type == "Conv" and not n.domain]


def test_one_convolution_behind_another(convolving: NativeLibrary, any_shape: None) -> None:
    # the gradient of the second reads what a native operator of the first makes
    b = Builder()
    x = b.input("x", (2, 8, 16, 16), float32)
    weights = [b.input(name, (8, 8, 3, 3), float32) for name in "wv"]
    y = x
    for w in weights:
        y = b.Conv(y, w, pads=[1] * 4)
    g = b.input("g", (2, 8, 16, 16), float32)
    for value, slope in gradients(b, {y: g}, [x, *weights]).items():
        b.output(slope, f"slope of {value.name}")
    draw = np.random.default_rng(0)
    feeds = {
        str(v.name): draw.standard_normal(v.shape.numpy()).astype(np.float32)
        for v in b.graph.inputs
    }
    model, _ = rewrite(model_of(b.graph), convolving.operators)
    assert not {n.op_type for n in model.graph if not n.domain} & {"Conv", "ConvTranspose"}
    expected, got, _ = both(b, feeds, convolving)
    for name, array in expected.items():
        assert abs(got[name] - array).max() <= 1e-5 * abs(array).max()


@pytest.mark.parametrize("is_equal", [False, True], ids=["bias", "equal value"])
def test_gradients_follow_values_that_passes_replace(
    library: NativeLibrary, is_equal: bool
) -> None:
    """A pass lets others read another value than the one that a note on a gradient names."""
    b = Builder()
    x = b.input("x", (4, 16, 12, 12), float32)
    v, w = (b.input(name, (16, 16, 3, 3), float32) for name in "vw")
    if is_equal:
        h = b.Relu(x)
        read = b.Relu(x)  # merged with the first one
    else:
        bias = b.Reshape(b.input("bias", (16,), float32), b.const([16, 1, 1]))
        h = read = b.Add(b.Conv(x, v, pads=[1] * 4), bias)  # the convolution adds it itself
    y = b.Add(b.Conv(read, w, pads=[1] * 4), b.Conv(h, v, pads=[1] * 4) if is_equal else h)
    g = b.input("g", (4, 16, 12, 12), float32)
    found = gradients(b, {y: g}, [x, v, w])
    for value in (x, v, w):
        b.output(found[value], f"d{value.name}")
    b.output(y, "y")
    run_passes(b.graph)
    draw = np.random.default_rng(0)
    feeds = {
        str(i.name): draw.standard_normal(i.shape.numpy()).astype(np.float32)
        for i in b.graph.inputs
    }
    standard, ours, used = both(b, feeds, library)
    assert used["ConvInputGradient"] == used["ConvWeightGradient"] == 2
    for name, value in standard.items():
        np.testing.assert_allclose(ours[name], value, rtol=1e-4, atol=1e-3)
