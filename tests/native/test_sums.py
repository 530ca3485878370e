"""Products with one row or one column beside the sums that programs make of them."""

import numpy as np
import onnx_ir as ir
import pytest
from flow2onnx_native.abi import LONGEST_ROW
from flow2onnx_native.library import NativeLibrary

from flow2onnx.dtypes import float32
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_of
from tests.native.running import both, rewrite

SHAPE = (257, 300)  # more elements than LARGE
ROWS, COLUMNS = SHAPE


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def agree(apart: dict[str, np.ndarray], fused: dict[str, np.ndarray]) -> None:
    for name, expected in apart.items():
        assert fused[name].shape == expected.shape
        np.testing.assert_allclose(fused[name], expected, rtol=2e-5, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("weights", ["ones", "plain", "reshaped"])
def test_sums_of_columns(weights: str, threads: int, library: NativeLibrary) -> None:
    b = Builder()
    x, w = b.input("x", SHAPE, float32), b.input("w", (ROWS, 1), float32)
    row = {
        "ones": lambda: b.const(np.ones((1, ROWS), np.float32)),
        "plain": lambda: b.Transpose(w, perm=[1, 0]),
        "reshaped": lambda: b.Reshape(w, [1, ROWS]),
    }[weights]()
    b.output(b.MatMul(row, b.Neg(b.Abs(x))), "y")
    b.output(w, "kept")
    feeds = {"x": numbers(*SHAPE), "w": numbers(ROWS, 1, seed=1)}
    apart, fused, used = both(b, feeds, library, threads)
    assert used == {"Fused": 1}
    agree(apart, fused)


@pytest.mark.parametrize("is_left", [True, False])
def test_sums_of_rows_spread_over_them(is_left: bool, library: NativeLibrary) -> None:
    b = Builder()
    x, w = b.input("x", SHAPE, float32), b.input("w", (COLUMNS, 1), float32)
    rate = b.input("rate", (ROWS, 1), float32)
    z = b.Mul(x, b.Neg(x))
    sums = b.MatMul(z, w)
    factors = b.Mul(sums, rate) if is_left else b.Mul(rate, sums)
    b.output(b.Mul(x, factors) if is_left else b.Mul(factors, x), "y")
    feeds = {
        "x": numbers(*SHAPE), "w": numbers(COLUMNS, 1, seed=1), "rate": numbers(ROWS, 1, seed=2),
    }  # fmt: skip
    apart, fused, used = both(b, feeds, library)
    assert used == {"Fused": 1}
    agree(apart, fused)


@pytest.mark.parametrize("shown", ["sums", "factors"])
def test_sums_of_rows_that_others_read(shown: str, library: NativeLibrary) -> None:
    b = Builder()
    x, w = b.input("x", SHAPE, float32), b.input("w", (COLUMNS, 1), float32)
    sums = b.MatMul(b.Abs(b.Neg(x)), w)
    factors = b.Mul(sums, b.input("rate", (ROWS, 1), float32))
    b.output(b.Mul(x, factors), "y")
    b.output(b.Neg(sums if shown == "sums" else factors), "shown")
    feeds = {
        "x": numbers(*SHAPE), "w": numbers(COLUMNS, 1, seed=1), "rate": numbers(ROWS, 1, seed=2),
    }  # fmt: skip
    apart, fused, used = both(b, feeds, library)
    assert used["Fused"] >= 1
    assert "Product" not in used
    agree(apart, fused)


def test_a_layer_normalization_goes_back_in_one_program(library: NativeLibrary) -> None:
    b = Builder()
    x, g = b.input("x", SHAPE, float32), b.input("g", SHAPE, float32)
    mean, rate = (b.input(n, (ROWS, 1), float32) for n in ("mean", "rate"))
    scale = b.input("scale", (COLUMNS,), float32)
    centred, wide = b.Sub(x, mean), b.Mul(g, scale)
    pulled = b.Mul(g, centred)
    slope = b.MatMul(pulled, b.Reshape(scale, [COLUMNS, 1]))
    inner = b.Mul(b.Sub(wide, b.ReduceMean(wide, [1], keepdims=1)), rate)
    b.output(b.Sub(inner, b.Mul(centred, b.Mul(rate, slope))), "gx")
    b.output(b.MatMul(b.Reshape(rate, [1, ROWS]), pulled), "g_scale")
    feeds = {
        "x": numbers(*SHAPE), "g": numbers(*SHAPE, seed=1), "mean": numbers(ROWS, 1, seed=2),
        "rate": numbers(ROWS, 1, seed=3), "scale": numbers(COLUMNS, seed=4),
    }  # fmt: skip
    apart, fused, used = both(b, feeds, library)
    assert used == {"Fused": 1}
    agree(apart, fused)


def of_few(b: Builder) -> ir.Value:
    x = b.input("x", (16, 16), float32)
    return b.MatMul(b.Neg(x), b.input("w", (16, 1), float32))


def of_what_is_given(b: Builder) -> ir.Value:
    return b.MatMul(b.input("x", SHAPE, float32), b.input("w", (COLUMNS, 1), float32))


def of_rows_too_long(b: Builder) -> ir.Value:
    x = b.input("x", (2, LONGEST_ROW + 1), float32)
    return b.MatMul(b.Neg(x), b.input("w", (LONGEST_ROW + 1, 1), float32))


def of_several(b: Builder) -> ir.Value:
    x = b.input("x", SHAPE, float32)
    return b.MatMul(b.Neg(x), b.input("w", (COLUMNS, 2), float32))


def in_stacks(b: Builder) -> ir.Value:
    x = b.input("x", (2, *SHAPE), float32)
    return b.MatMul(b.Neg(x), b.input("w", (2, COLUMNS, 1), float32))


@pytest.mark.parametrize(
    "product", [of_few, of_what_is_given, of_rows_too_long, of_several, in_stacks]
)
def test_products_that_stay(product) -> None:
    b = Builder()
    b.output(product(b), "y")
    rewritten, _ = rewrite(model_of(b.graph), {"Fused"})
    assert [n.op_type for n in rewritten.graph if n.op_type == "MatMul"] == ["MatMul"]
