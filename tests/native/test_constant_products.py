"""Products with constant weights, in models for prediction."""

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
    kept = ("Product", "PackedProduct", "Gemm")
    return [n.op_type for n in parse_model(content).graph if n.op_type in kept]


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


WIDE = 160  # columns


def constants(b: Builder, *shapes: tuple[int, ...]):
    return [b.const(numbers(*shape) / 8) for shape in shapes]


def erf_form(order: str):
    """GELU with the half in one of the places that frameworks write it to."""

    def build(b: Builder, h):
        one = b.Add(
            b.Erf(b.Mul(h, np.sqrt(0.5)) if order == "inner" else b.Div(h, np.sqrt(2))), 1.0
        )
        if order == "inner":
            return b.Mul(b.Mul(h, 0.5), one)
        return b.Mul(b.Mul(h, one), 0.5) if order == "last" else b.Mul(h, b.Mul(one, 0.5))

    return build


ACTIVATIONS = {
    "none": lambda b, h: h,
    "relu": lambda b, h: b.Relu(h),
    "gelu": lambda b, h: b.Gelu(h),
    "erf, last": erf_form("last"),
    "erf, inner": erf_form("inner"),
    "erf, first": erf_form("first"),
}


def block(activation: str, *, transposed: bool = False):
    """A layer with its bias and activation, and a second one that adds to its input."""

    def form(b: Builder, x):
        shape = (WIDE, 64) if transposed else (64, WIDE)
        w, c, v, d = constants(b, shape, (WIDE,), (WIDE, 128), (128,))
        h = ACTIVATIONS[activation](b, b.Gemm(x, w, c, transB=int(transposed)))
        first = b.Gemm(x, *constants(b, (64, 128), (128,)))
        return b.Add(b.Relu(first), b.Gemm(h, v, d))

    return form


def of_three_axes(b: Builder, x):
    w, c = constants(b, (64, WIDE), (WIDE,))
    h = b.Gelu(b.Add(b.MatMul(x, w), c))
    return b.Softmax(b.MatMul(h, *constants(b, (WIDE, 128))), axis=-1)


def operators_of(form, shape: tuple[int, ...], threads: int = 1):
    """The operators of a model when it is rewritten, after a look at its results."""
    b = Builder(21)
    b.output(form(b, b.input("x", (*shape, 64), float32)), "y")
    content, options = model_bytes(model_of(b.graph)), Options(intra_op_threads=threads)
    rewritten = flow.accelerate(content, options, native=True)
    x = numbers(*shape, 64)
    want, got = (Predictor(*m)(x)["y"] for m in ((content, options), rewritten))
    np.testing.assert_allclose(got, want, atol=2e-5 * abs(want).max(), rtol=0)
    return [n.op_type for n in parse_model(rewritten[0]).graph]


@pytest.fixture
def packing(multiplying: NativeLibrary) -> None:
    """Skip where weights are not packed."""
    if not multiplying.uses_avx512:
        pytest.skip("weights are packed with AVX-512 alone")


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_layers_are_single_nodes(activation: str, threads: int, packing: None) -> None:
    found = operators_of(block(activation), (33,), threads)
    assert found == ["PackedProduct"] * 3


def test_transposed_weights_are_packed(packing: None) -> None:
    assert operators_of(block("relu", transposed=True), (50,)) == ["PackedProduct"] * 3


def test_products_of_three_axes_keep_them(packing: None) -> None:
    found = operators_of(of_three_axes, (3, 17))
    assert found == ["PackedProduct", "Reshape", "PackedProduct", "Reshape", "Softmax"]


def test_nodes_that_others_read_stay(packing: None) -> None:
    def form(b: Builder, x):
        h = b.Gemm(x, *constants(b, (64, WIDE), (WIDE,)))
        gelu = b.Mul(b.Mul(h, b.Add(b.Erf(b.Div(h, np.sqrt(2))), 1.0)), 0.5)
        return b.Concat(gelu, b.Neg(h), axis=1)

    found = operators_of(form, (40,))
    assert found[0] == "PackedProduct"
    assert {"Erf", "Neg", "Concat"} <= set(found)


@pytest.mark.parametrize("power", [2.0, 1.0 / 3.0])
def test_what_is_not_gelu_stays(power: float, packing: None) -> None:
    def form(b: Builder, x):
        h = b.Gemm(x, *constants(b, (64, WIDE), (WIDE,)))
        return b.Mul(b.Mul(h, b.Add(b.Erf(b.Div(h, np.sqrt(2))), 1.0)), power)

    assert "Erf" in operators_of(form, (40,))


def test_tanh_gelu_stays(packing: None) -> None:
    def form(b: Builder, x):
        return b.Gelu(b.Gemm(x, *constants(b, (64, WIDE), (WIDE,))), approximate="tanh")

    assert operators_of(form, (40,)) == ["PackedProduct", "Gelu"]


def test_a_broadcast_sum_is_no_residual(packing: None) -> None:
    def form(b: Builder, x):
        return b.Add(b.Gemm(x, *constants(b, (64, WIDE), (WIDE,))), *constants(b, (5, 40, WIDE)))

    assert operators_of(form, (40,)) == ["PackedProduct", "Add"]


@pytest.mark.parametrize("rows", [1, 3])
def test_the_runtime_keeps_a_few_rows(rows: int, packing: None) -> None:
    assert "PackedProduct" not in operators_of(block("gelu"), (rows,))


def test_weights_beyond_what_a_model_may_hold_stay(
    packing: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = "flow2onnx_native.constant_products._MOST_PACKED_BYTES"
    monkeypatch.setattr(limit, 4 * 64 * WIDE)
    found = operators_of(block("relu"), (40,))
    assert found.count("PackedProduct") == 1
    assert found.count("Gemm") == 2


def test_a_weight_of_several_products_is_packed_once(packing: None) -> None:
    def form(b: Builder, x):
        w = b.const(numbers(64, 128))
        return b.Add(b.MatMul(x, w), b.MatMul(b.Neg(x), w))

    b = Builder(21)
    b.output(form(b, b.input("x", (40, 64), float32)), "y")
    content, _ = flow.accelerate(
        model_bytes(model_of(b.graph)), Options(intra_op_threads=1), native=True
    )
    graph = parse_model(content).graph
    assert [n.op_type for n in graph].count("PackedProduct") == 2
    assert sum(v.const_value.size for v in graph.initializers.values()) == 64 * 128
