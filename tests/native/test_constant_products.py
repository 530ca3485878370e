"""Products of many rows with constant weights, in models for prediction."""

import numpy as np
import pytest
from flow2onnx_native.abi import DOMAIN
from flow2onnx_native.library import NativeLibrary
from flow2onnx_runtime import Options, Predictor

import flow2onnx as flow
from flow2onnx.dtypes import float32
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_bytes, model_of, parse_model

RNG = np.random.default_rng(5)
MANY, FEW = 2048, 1024  # rows


def numbers(*shape: int):
    return RNG.standard_normal(shape).astype(np.float32)


def gemm(b: Builder, x, *, transposed: bool = False):
    w = numbers(48, 32) if transposed else numbers(32, 48)
    return b.Gemm(x, b.const(w), b.const(numbers(48)), transB=int(transposed))


def relu(b: Builder, x):
    return b.Relu(gemm(b, x))


def scaled_gemm(b: Builder, x):
    return b.Gemm(x, b.const(numbers(32, 48)), b.const(numbers(1)), alpha=0.5, beta=2.0)


def turned_gemm(b: Builder, x):
    return b.Gemm(b.Transpose(x, perm=[1, 0]), b.const(numbers(32, 48)), transA=1)


def matmul(b: Builder, x):
    return b.Relu(b.Add(b.MatMul(x, b.const(numbers(32, 48))), b.const(numbers(48))))


def gelu(b: Builder, x):
    h = gemm(b, x)
    half = b.Mul(b.Mul(h, b.Add(b.Erf(b.Div(h, np.sqrt(2))), 1.0)), 0.5)
    return b.Gemm(half, b.const(numbers(48, 16)))


def both_read(b: Builder, x):
    h = gemm(b, x)
    return b.Add(b.Relu(h), h)


FORMS = [gemm, relu, scaled_gemm, turned_gemm, matmul, gelu, both_read,
         pytest.param(lambda b, x: gemm(b, x, transposed=True), id="transposed")]  # fmt: skip


def model(form, rows: int = MANY, leading: tuple[int, ...] = ()) -> bytes:
    b = Builder(21)
    b.output(form(b, b.input("x", (*leading, rows, 32), float32)), "y")
    return model_bytes(model_of(b.graph))


def kinds(content) -> list[str]:
    return [n.op_type for n in parse_model(content).graph if n.op_type in ("Product", "Gemm")]


def check(content: bytes, x, threads: int) -> None:
    options = Options(intra_op_threads=threads)
    want = Predictor(content, options)(x)["y"]
    rewritten = flow.accelerate(content, options, native=True)
    assert "Product" in kinds(rewritten[0])
    got = Predictor(*rewritten)(x)["y"]
    np.testing.assert_allclose(got, want, atol=2e-5 * abs(want).max(), rtol=0)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("form", FORMS)
def test_products_of_many_rows(form, threads: int, multiplying: NativeLibrary) -> None:
    content = model(form)
    check(content, numbers(MANY, 32), threads)
    rewritten, _ = flow.accelerate(content, Options(intra_op_threads=threads), native=True)
    assert kinds(rewritten) == ["Product"] * (2 if form is gelu else 1)


def test_rows_of_several_axes_count_together(multiplying: NativeLibrary) -> None:
    check(model(matmul, MANY // 8, (2, 4)), numbers(2, 4, MANY // 8, 32), 1)


def test_what_others_read_and_gelu_stay(multiplying: NativeLibrary) -> None:
    for form, kept in ((gelu, {"Div", "Erf"}), (both_read, {"Relu", "Add"}), (relu, set())):
        rewritten, _ = flow.accelerate(model(form), Options(intra_op_threads=1), native=True)
        operators = {n.op_type for n in parse_model(rewritten).graph if n.domain != DOMAIN}
        assert kept <= operators
        assert form is not relu or not operators


@pytest.mark.parametrize("rows", [1, FEW])
def test_the_runtime_keeps_products_of_few_rows(rows: int, multiplying: NativeLibrary) -> None:
    content, options = model(relu, rows), Options(intra_op_threads=1)
    assert flow.accelerate(content, options, native=True) == (content, options)
