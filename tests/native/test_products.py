"""Matrix products on oneDNN beside products of double precision."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir
import pytest
from flow2onnx_native import matmul
from flow2onnx_native.library import NativeLibrary

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.dtypes import float32, float64
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_of
from tests.native.running import Array, both, in_place, rewrite, run, session
from tests.native.spoiling import refusals

TOLERANCE = 1e-5  # of the largest value


def numbers(shape: Sequence[int], seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(tuple(shape)).astype(np.float32)


def agree(got: Array, expected: Array) -> None:
    assert got.shape == expected.shape
    assert got.dtype == np.float32
    assert abs(got - expected).max() <= TOLERANCE * abs(expected).max()


def evaluate(
    b: Builder, library: NativeLibrary, feeds: Mapping[str, Array], threads: int = 1, count: int = 1
) -> dict[str, Array]:
    """The results of a graph whose products are `count` native ones, and nothing around them."""
    model, used = rewrite(model_of(b.graph), library.operators, threads)
    assert used == {"Product": count}
    assert {n.op_type for n in model.graph} == {"Product"}
    return run(session(model, library, threads), feeds)


def drawn(b: Builder) -> tuple[dict[str, Array], dict[str, Array]]:
    """What goes into a graph, as it is and of double precision."""
    feeds = {str(v.name): numbers(v.shape.numpy(), i) for i, v in enumerate(b.graph.inputs)}
    return feeds, {k: v.astype(np.float64) for k, v in feeds.items()}


def transposed(x: Array, flag: int) -> Array:
    return x.T if flag else x


@pytest.mark.parametrize("addend", [None, (), (1,), (9,), (1, 9), (7, 1), (1, 1), (7, 9)], ids=str)
@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("scales", [(1.0, 1.0), (-0.5, 3.0), (2.0, 0.0)], ids=str)
def test_gemm(
    addend: tuple[int, ...] | None,
    trans_a: int,
    trans_b: int,
    scales: tuple[float, float],
    multiplying: NativeLibrary,
) -> None:
    b, (alpha, beta) = Builder(), scales
    x = b.input("x", (5, 7) if trans_a else (7, 5), float32)
    w = b.input("w", (9, 5) if trans_b else (5, 9), float32)
    c = [] if addend is None else [b.input("c", addend, float32)]
    b.output(b.Gemm(x, w, *c, transA=trans_a, transB=trans_b, alpha=alpha, beta=beta), "y")
    feeds, doubles = drawn(b)
    expected = alpha * transposed(doubles["x"], trans_a) @ transposed(doubles["w"], trans_b)
    expected = expected + beta * doubles.get("c", 0.0)
    agree(evaluate(b, multiplying, feeds)["y"], expected)


@pytest.mark.parametrize(
    ("rows", "columns", "depth"),
    [
        (1, 1, 1),
        (1, 300, 5),
        (300, 1, 70),
        (129, 131, 400),
        (100, 96, 3000),
        (700, 40, 33),
        (40, 70, 1024),
        (16, 200, 3072),  # rows at the same places of the cache
        (1100, 100, 131),  # the right side is transposed first
        (3100, 384, 96),
    ],
)
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("full", [False, True])
def test_dense_layers(
    rows: int, columns: int, depth: int, threads: int, trans_a: int, full: bool,
    multiplying: NativeLibrary, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(matmul, "_FEWEST_SHARED", 1)
    b = Builder()
    x = b.input("x", (depth, rows) if trans_a else (rows, depth), float32)
    w = b.input("w", (columns, depth), float32)
    c = b.input("c", (rows, columns) if full else (columns,), float32)
    b.output(b.Relu(b.Gemm(x, w, c, transA=trans_a, transB=1)), "y")
    feeds, doubles = drawn(b)
    expected = transposed(doubles["x"], trans_a) @ doubles["w"].T + doubles["c"]
    agree(evaluate(b, multiplying, feeds, threads)["y"], np.maximum(expected, 0))


@pytest.mark.parametrize(
    ("rows", "columns", "depth"),
    [
        (70, 500, 33),
        (393, 400, 321),
        (130, 1030, 7),
        (64, 513, 900),
        (1100, 140, 500),
        (1024, 70, 515),  # rows at the same places of the cache
        (2048, 768, 64),
        (4200, 256, 70),
    ],
)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("full", [False, True])
def test_gradients_of_weights(
    rows: int, columns: int, depth: int, threads: int, full: bool, multiplying: NativeLibrary
) -> None:
    b = Builder()
    x, g = b.input("x", (depth, rows), float32), b.input("g", (depth, columns), float32)
    c = b.input("c", (rows, columns) if full else (columns,), float32)
    b.output(b.Gemm(x, g, c, transA=1, alpha=-0.5), "y")
    feeds, doubles = drawn(b)
    expected = -0.5 * doubles["x"].T @ doubles["g"] + doubles["c"]
    agree(evaluate(b, multiplying, feeds, threads)["y"], expected)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("full", [False, True])
def test_many_rows(threads: int, full: bool, multiplying: NativeLibrary) -> None:
    b = Builder()
    x, w = b.input("x", (4300, 1030), float32), b.input("w", (1030, 40), float32)
    c = b.input("c", (4300, 40) if full else (4300, 1), float32)
    b.output(b.Gemm(x, w, c, beta=2.0), "y")
    feeds, doubles = drawn(b)
    expected = doubles["x"] @ doubles["w"] + 2 * doubles["c"]
    agree(evaluate(b, multiplying, feeds, threads)["y"], expected)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3, 4, 5), (3, 5, 6)),
        ((2, 3, 4, 5), (2, 3, 5, 6)),
        ((2, 3, 4, 5), (5, 6)),
        ((4, 5), (2, 3, 5, 6)),
        ((2, 3, 4, 5), (3, 5, 6)),
        ((2, 1, 4, 5), (2, 3, 5, 6)),
        ((2, 1, 4, 5), (1, 3, 5, 6)),
        ((1, 1, 4, 5), (1, 5, 6)),
        ((7, 1, 5), (5, 6)),
        ((3, 4, 1), (3, 1, 6)),
    ],
    ids=str,
)
@pytest.mark.parametrize("threads", [1, 2])
def test_batches(
    left: tuple[int, ...], right: tuple[int, ...], threads: int, multiplying: NativeLibrary,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(matmul, "_FEWEST_SHARED", 1)
    b = Builder()
    b.output(b.MatMul(b.input("x", left, float32), b.input("w", right, float32)), "y")
    x, w = numbers(left), numbers(right, 1)
    y = evaluate(b, multiplying, {"x": x, "w": w}, threads)["y"]
    agree(y, x.astype(np.float64) @ w.astype(np.float64))


def test_one_right_operand_makes_one_matrix(multiplying: NativeLibrary) -> None:
    b = Builder()
    y = b.MatMul(b.input("x", (2, 3, 4, 5), float32), b.input("w", (5, 6), float32))
    b.output(b.Relu(b.Add(y, b.input("c", (6,), float32))), "y")
    x, w, c = numbers((2, 3, 4, 5)), numbers((5, 6), 1), numbers((6,), 2)
    got = evaluate(b, multiplying, {"x": x, "w": w, "c": c})["y"]
    agree(got, np.maximum(x.astype(np.float64) @ w + c, 0))


ORDERS = [None, (0, 2, 1, 3), (0, 1, 3, 2), (0, 2, 3, 1), (2, 0, 1, 3), (3, 1, 0, 2)]


@pytest.mark.parametrize("of_left", ORDERS, ids=str)
@pytest.mark.parametrize("of_right", ORDERS, ids=str)
@pytest.mark.parametrize("of_result", ORDERS, ids=str)
def test_turned_operands(
    of_left: tuple[int, ...] | None,
    of_right: tuple[int, ...] | None,
    of_result: tuple[int, ...] | None,
    multiplying: NativeLibrary,
) -> None:
    def operand(name: str, shape: tuple[int, ...], order: tuple[int, ...] | None) -> ir.Value:
        if order is None:
            return b.input(name, shape, float32)
        source = b.input(name, tuple(shape[order.index(i)] for i in range(4)), float32)
        return b.Transpose(source, perm=list(order))

    b = Builder()
    x, w = operand("x", (2, 3, 4, 5), of_left), operand("w", (2, 3, 5, 6), of_right)
    y = b.Mul(b.MatMul(b.Mul(x, 0.5), w), -3.0)
    b.output(y if of_result is None else b.Transpose(y, perm=list(of_result)), "y")
    feeds = {str(v.name): numbers(v.shape.numpy(), i) for i, v in enumerate(b.graph.inputs)}
    plain, native, used = both(b, feeds, multiplying)
    assert used["Product"] == 1
    agree(native["y"], plain["y"])


def attention(b: Builder) -> dict[str, Array]:
    """Heads split off, scores of them, and heads put together again."""
    q, k, v = (b.input(name, (2, 6, 3, 8), float32) for name in "qkv")
    q, v = (b.Transpose(x, perm=[0, 2, 1, 3]) for x in (q, v))
    scores = b.Div(b.MatMul(q, b.Transpose(k, perm=[0, 2, 3, 1])), 8.0)
    b.output(b.Transpose(b.MatMul(scores, v), perm=[0, 2, 1, 3]), "y")
    return {name: numbers((2, 6, 3, 8), i) for i, name in enumerate("qkv")}


@pytest.mark.parametrize("threads", [1, 2])
def test_heads_are_not_copied(threads: int, multiplying: NativeLibrary) -> None:
    b = Builder()
    feeds = attention(b)
    q, k, v = (x.astype(np.float64) for x in feeds.values())
    expected = np.einsum("bqhd,bkhd,bkhe->bqhe", q, k, v) / 8
    agree(evaluate(b, multiplying, feeds, threads, count=2)["y"], expected)


def test_what_others_read_stays(multiplying: NativeLibrary) -> None:
    b = Builder()
    x, w = b.input("x", (4, 5), float32), b.input("w", (5, 6), float32)
    y = b.MatMul(b.Mul(x, 2.0), w)
    b.output(y, "y")
    b.output(b.Relu(y), "relu")
    b.output(b.Transpose(y, perm=[1, 0]), "turned")
    feeds = {"x": numbers((4, 5)), "w": numbers((5, 6), 1)}
    plain, native, used = both(b, feeds, multiplying)
    assert used["Product"] == 1
    for name, expected in plain.items():
        agree(native[name], expected)


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize(
    ("rows", "columns", "depth"),
    [(130, 70, 200), (64, 500, 300), (100, 512, 1500), (1, 4000, 300), (1031, 33, 129)],
)
def test_threads_share_a_product(
    rows: int, columns: int, depth: int, trans_a: int, threads: int, multiplying: NativeLibrary
) -> None:
    """The last bits are oneDNN's, and may depend on the rows that it computes at once."""
    b = Builder()
    x = b.input("x", (depth, rows) if trans_a else (rows, depth), float32)
    w = b.input("w", (columns, depth), float32)
    b.output(b.Gemm(x, w, transA=trans_a, transB=1), "y")
    feeds = {"x": numbers(x.shape.numpy()), "w": numbers((columns, depth), 1)}
    left = feeds["x"].astype(np.float64)
    expected = (left.T if trans_a else left) @ feeds["w"].T
    for count in (1, threads):
        agree(evaluate(b, multiplying, feeds, count)["y"], expected)


def test_numbers_that_are_none_go_where_they_should(multiplying: NativeLibrary) -> None:
    b = Builder()
    x, w = b.input("x", (40, 30), float32), b.input("w", (30, 50), float32)
    b.output(b.Gemm(x, w, b.input("c", (50,), float32)), "y")
    feeds = {"x": numbers((40, 30)), "w": numbers((30, 50), 1), "c": numbers((50,), 2)}
    feeds["x"][3, 7], feeds["x"][11, 0], feeds["w"][29, 49] = np.nan, np.inf, -np.inf
    feeds["c"][8] = np.nan
    with np.errstate(invalid="ignore"):
        expected = feeds["x"].astype(np.float64) @ feeds["w"] + feeds["c"]
    got = evaluate(b, multiplying, feeds)["y"]
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(expected))
    sound = np.isfinite(expected)
    np.testing.assert_allclose(got[sound], expected[sound], atol=1e-4)


def test_other_types_and_constants_stay(multiplying: NativeLibrary) -> None:
    b = Builder()
    x, w = b.input("x", (4, 5), float64), b.input("w", (5, 6), float64)
    b.output(b.MatMul(x, w), "wide")
    packed = b.const(numbers((5, 6)))
    b.output(b.MatMul(b.input("z", (4, 5), float32), packed), "packed")
    _, used = rewrite(model_of(b.graph), multiplying.operators)
    assert used == {}


def test_sizes_known_at_run_time_stay(multiplying: NativeLibrary) -> None:
    b = Builder()
    b.output(b.MatMul(b.input("x", ("n", 5), float32), b.input("w", (5, 6), float32)), "y")
    _, used = rewrite(model_of(b.graph), multiplying.operators)
    assert used == {}


@pytest.mark.parametrize(
    ("rows", "columns", "depth", "is_taken"),
    [(64, 64, 64, True), (8, 8, 8, False), (512, 2, 256, False), (512, 1, 256, True)],
)
def test_products_that_do_not_pay_stay(
    rows: int, columns: int, depth: int, is_taken: bool, convolving: NativeLibrary
) -> None:
    b = Builder()
    x, w = b.input("x", (rows, depth), float32), b.input("w", (depth, columns), float32)
    b.output(b.MatMul(x, w), "y")
    _, used = rewrite(model_of(b.graph), convolving.operators)
    assert used == ({"Product": 1} if is_taken else {})


@pytest.mark.parametrize(
    ("shape", "tasks"), [((3, 128, 128), 3), ((512, 512), 8), ((64, 64), 1)], ids=str
)
def test_tasks(shape: tuple[int, ...], tasks: int, multiplying: NativeLibrary) -> None:
    b = Builder()
    b.output(b.MatMul(b.input("x", shape, float32), b.input("w", shape, float32)), "y")
    model, _ = rewrite(model_of(b.graph), multiplying.operators, threads=8)
    (node,) = model.graph
    assert node.attributes["shape"].as_ints()[5] == tasks


def test_many_small_pairs_stay(convolving: NativeLibrary) -> None:
    b = Builder()
    x, w = b.input("x", (1000, 16, 16), float32), b.input("w", (1000, 16, 16), float32)
    b.output(b.MatMul(x, w), "y")
    _, used = rewrite(model_of(b.graph), convolving.operators)
    assert used == {}


def product(library: NativeLibrary) -> tuple[ir.Model, dict[str, Array]]:
    b = Builder()
    feeds = attention(b)
    x, w, c = (b.input(n, s, float32) for n, s in [("x", (6, 8)), ("w", (8, 9)), ("c", (6, 9))])
    b.output(b.Relu(b.Gemm(x, w, c)), "z")
    feeds |= {"x": numbers((6, 8)), "w": numbers((8, 9)), "c": numbers((6, 9))}
    model, used = rewrite(model_of(b.graph), library.operators, 2)
    assert used == {"Product": 3}
    return model, feeds


def test_no_shape_reaches_beyond_its_tensors(multiplying: NativeLibrary) -> None:
    others = [-1, 0, 1, 2, 3, 4, 8, 48, 144, 2**30, 2**62]
    assert refusals(product(multiplying), "Product", "shape", others, multiplying, 300) > 150


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        (ir.AttrInt64s("dims", [6, 8]), "the dims are not those of 54 elements"),
        (ir.AttrInt64s("dims", [-6, -9]), "the dims are not those of 54 elements"),
        (ir.AttrInt64s("dims", [2**33, 2**33]), "the dims are not those of 54 elements"),
        (ir.AttrInt64s("shape", [1] * 22), "the shape is that of no product"),
        (ir.AttrFloat32s("scales", [1.0]), "the shape is that of no product"),
    ],
    ids=str,
)
def test_attributes_that_are_not_sound(
    attribute: ir.Attr, message: str, multiplying: NativeLibrary
) -> None:
    model, _ = product(multiplying)
    node = next(n for n in model.graph if n.op_type == "Product" and n.outputs[0].name == "z")
    node.attributes[attribute.name] = attribute
    model.graph.outputs[-1].shape = None
    with pytest.raises(Exception, match=message):
        session(model, multiplying)


def test_tensors_of_another_size_are_refused(multiplying: NativeLibrary) -> None:
    model, feeds = product(multiplying)
    for value in model.graph.inputs:
        value.shape = ir.Shape([None] * len(value.shape))
    opened = session(model, multiplying)
    run(opened, feeds)
    for name, index, size in [("x", 0, 40), ("w", 1, 45), ("c", 2, 45)]:
        wrong = numbers((5, size // 5))
        with pytest.raises(Exception, match=f"Product: input {index} has {size} elements"):
            run(opened, feeds | {name: wrong})


def masked(b: Builder, bound: float = 0.0) -> None:
    g, w, x = (b.input(n, s, float32) for n, s in [("g", (70, 5)), ("w", (5, 50)), ("x", (70, 50))])
    y = b.Identity(b.Abs(b.Relu(x)))
    b.output(y, "kept")
    truth = b.Cast(b.Greater(y, b.const(np.float32(bound))), to=ir.DataType.FLOAT)
    b.output(b.Mul(b.MatMul(g, w), truth), "next/g")


@pytest.mark.parametrize("threads", [1, 3])
def test_gradients_before_relu(
    threads: int, multiplying: NativeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matmul, "_FEWEST_SHARED", 1)
    b = Builder()
    masked(b)
    feeds = {"g": numbers((70, 5)), "w": numbers((5, 50), 1), "x": numbers((70, 50), 2)}
    feeds["x"][3, 4] = 0
    model, used = rewrite(model_of(b.graph), ["Product"], threads)
    assert used == {"Product": 1}
    assert not {"Greater", "Cast", "Mul", "MatMul"} & {n.op_type for n in model.graph}
    got = run(session(model, multiplying, threads), feeds)["next/g"]
    agree(got, (feeds["g"].astype(np.float64) @ feeds["w"]) * (feeds["x"] > 0))


def test_other_bounds_are_no_mask(multiplying: NativeLibrary) -> None:
    b = Builder()
    masked(b, bound=0.5)
    model, _ = rewrite(model_of(b.graph), ["Product"])
    assert "Greater" in {n.op_type for n in model.graph}


def test_inputs_are_no_masks(multiplying: NativeLibrary) -> None:
    b = Builder()
    x, w = b.input("x", (40, 40), float32), b.input("w", (40, 40), float32)
    truth = b.Cast(b.Greater(w, b.const(np.float32(0))), to=ir.DataType.FLOAT)
    b.output(b.Mul(b.MatMul(x, x), truth), "next/w")
    feeds = {"x": numbers((40, 40)), "w": numbers((40, 40), 1)}
    model, used = rewrite(model_of(b.graph), ["Product"])
    assert used == {"Product": 1}
    assert "Greater" in {n.op_type for n in model.graph}
    got = run(session(model, multiplying), feeds)["next/w"]
    agree(got, (feeds["x"].astype(np.float64) @ feeds["x"]) * (feeds["w"] > 0))


@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("read", [0, 1])
def test_columns_that_nobody_reads(trans_b: int, read: int, multiplying: NativeLibrary) -> None:
    b = Builder()
    x = b.input("x", (7, 5), float32)
    w = b.input("w", (40, 5) if trans_b else (5, 40), float32)
    sizes = b.const(np.array([23, 17], np.int64))
    parts = b.several("Split", b.Gemm(x, w, transB=trans_b), sizes, axis=1, outputs=2)
    b.output(b.Relu(parts[read]), "y")
    feeds = {"x": numbers((7, 5)), "w": numbers(w.shape.numpy(), 1)}
    model, used = rewrite(model_of(b.graph), ["Product"])
    assert used == {"Product": 1}
    assert ("Split" in {n.op_type for n in model.graph}) == bool(read)
    y = feeds["x"].astype(np.float64) @ transposed(feeds["w"], trans_b)
    got = run(session(model, multiplying), feeds)["y"]
    agree(got, np.maximum(y[:, 23:] if read else y[:, :23], 0))


def updating(b: Builder, beta: float = 1.0) -> None:
    x, g, w = (b.input(n, s, float32) for n, s in [("x", (9, 40)), ("g", (9, 50)), ("w", (50, 40))])
    b.output(b.Gemm(g, x, w, transA=1, beta=beta), "next/w")


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("beta", [1.0, 0.5])
def test_the_addend_may_be_the_result(
    threads: int, beta: float, multiplying: NativeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matmul, "_FEWEST_SHARED", 1)
    b = Builder()
    updating(b, beta)
    model, used = rewrite(model_of(b.graph), multiplying.operators, threads)
    assert used == {"Product": 1}
    feeds = {"x": numbers((9, 40)), "g": numbers((9, 50), 1), "w": numbers((50, 40), 2)}
    opened = session(model, multiplying, threads)
    expected = run(opened, feeds)["next/w"]
    binding = opened.io_binding()
    for name, array in feeds.items():
        binding.bind_cpu_input(name, array)
    w = feeds["w"]
    binding.bind_output("next/w", "cpu", 0, np.float32, w.shape, w.ctypes.data)
    opened.run_with_iobinding(binding)
    np.testing.assert_array_equal(w, expected)


def test_what_may_be_updated_in_place(multiplying: NativeLibrary) -> None:
    b = Builder()
    updating(b)
    model, _ = rewrite(model_of(b.graph), multiplying.operators)
    assert in_place(model.graph, ["w"])[0].is_safe
    b = Builder()
    w = b.input("w", (30, 30), float32)
    b.output(b.Gemm(w, b.input("x", (30, 30), float32), w), "next/w")
    model, _ = rewrite(model_of(b.graph), multiplying.operators)
    verdict = in_place(model.graph, ["w"])[0]
    assert not verdict.is_safe
    assert "writes before it has read all" in verdict.reason


def encoder_like(*, wish: bool, threads: int = 1, update=None):
    """The losses of a few steps of an attention with a dense layer behind it, and the job."""
    flow.clear_default_session()
    flow.config.compute_thread_pool_size(threads)
    config = flow.FunctionConfig()
    config.runtime.native(wish)

    @flow.global_function(type="train", function_config=config)
    def job(x: tp.Numpy.Placeholder((4, 32, 64))) -> tp.Numpy:
        init = flow.random_normal_initializer(0, 0.1)

        def heads(name: str):
            y = flow.layers.dense(
                flow.reshape(x, [-1, 64]), 256, name=name, kernel_initializer=init
            )
            return flow.transpose(flow.reshape(y, [4, 32, 4, 64]), perm=[0, 2, 1, 3])

        q, k, v = map(heads, "qkv")
        scores = flow.math.multiply(flow.matmul(q, k, transpose_b=True), 0.125)
        y = flow.matmul(flow.nn.softmax(scores), v)
        y = flow.reshape(flow.transpose(y, perm=[0, 2, 1, 3]), [-1, 256])
        y = flow.nn.relu(flow.layers.dense(y, 128, name="last", kernel_initializer=init))
        loss = flow.math.reduce_mean(flow.math.square(y))
        rate = flow.optimizer.PiecewiseConstantScheduler([], [0.01])
        (update or flow.optimizer.Adam)(rate).minimize(loss)
        return loss

    draw = np.random.default_rng(0)
    batches = [draw.standard_normal((4, 32, 64)).astype(np.float32) for _ in range(5)]
    return np.array([job(x).mean() for x in batches]), job


def sgd(rate):
    return flow.optimizer.SGD(rate, momentum=0)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("update", [flow.optimizer.Adam, sgd])
def test_jobs_learn_the_same(threads: int, update, convolving: NativeLibrary) -> None:
    plain, _ = encoder_like(wish=False, threads=threads, update=update)
    native, job = encoder_like(wish=True, threads=threads, update=update)
    used = job.explain().native
    assert used["Product"] >= 9
    assert used["Attention"] == used["AttentionGradient"] == 1
    assert len(set(native)) == 5  # it does learn
    np.testing.assert_allclose(native, plain, rtol=1e-4)


def test_weights_are_updated_by_products_in_place(convolving: NativeLibrary) -> None:
    _, job = encoder_like(wish=True, update=sgd)
    verdicts = {v.name: v for v in job.explain().state}
    assert verdicts["q-weight"].is_safe
