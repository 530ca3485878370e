"""Products with a weight that is packed once, beside products of double precision."""

from collections.abc import Callable
from math import erf, sqrt

import numpy as np
import pytest
from flow2onnx_native.abi import PACKED_COLUMNS, Activation, Addend, PackedShape, PackShape
from flow2onnx_native.library import NativeLibrary

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.dtypes import float32
from flow2onnx.engine.session import current_session
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.model import model_of
from tests.native.one_node import disturbed, each_case, is_refusal, numbers, outcome
from tests.native.running import Array, both, rewrite

DRAW = np.random.default_rng(7)
STEPS = 5


@pytest.fixture
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let products be packed for that would not pay."""
    for name in ("_FEWEST_COLUMNS", "_FEWEST_MULTIPLICATIONS"):
        monkeypatch.setattr(f"flow2onnx_native.packed_products.{name}", 1)


def is_near(got: Array, expected: Array) -> bool:
    return bool(abs(got - expected).max() <= 1e-5 * max(abs(expected).max(), 1e-30))


def packed_by_numpy(w: Array) -> Array:
    depth, columns = w.shape
    panels = -(-columns // PACKED_COLUMNS)
    wide = np.zeros((depth, panels * PACKED_COLUMNS), np.float32)
    wide[:, :columns] = w
    return wide.reshape(depth, panels, PACKED_COLUMNS).transpose(1, 0, 2)


def activate(x: Array, activation: Activation) -> Array:
    """Relu or GELU of doubles."""
    if activation == Activation.GELU:
        return x / 2 * (1 + np.vectorize(erf)(x / sqrt(2)))
    return np.maximum(x, 0) if activation == Activation.RELU else x


EXTENTS = ((1, 1, 1), (32, 256, 48), (12, 7, 33), (25, 3, 16), (47, 64, 31), (13, 130, 100))


@pytest.mark.parametrize("extents", EXTENTS, ids=str)
@pytest.mark.parametrize("kind", [Addend.NOTHING, Addend.PER_COLUMN, Addend.FULL])
@pytest.mark.parametrize("threads", [1, 3])
def test_products_are_those_of_doubles(
    extents: tuple[int, int, int], kind: Addend, threads: int, library: NativeLibrary
) -> None:
    rows, depth, columns = extents
    x, w = numbers(DRAW, rows, depth), numbers(DRAW, depth, columns)
    c = numbers(DRAW, *([rows] if kind == Addend.FULL else []), columns)
    inputs = {"x": x, "w": packed_by_numpy(w)} | ({"c": c} if kind else {})
    shape = PackedShape(rows, depth, columns, kind, threads)
    got = outcome(library, threads, "PackedProduct", inputs, shape=list(shape))
    assert not isinstance(got, str), got
    assert got.shape == (rows, columns)
    assert is_near(got, x.astype(np.float64) @ w + (c if kind else 0.0))


# Rows in blocks, sums in parts, columns in groups, and less than whole ones of each.
LARGE = ((400, 64, 48), (130, 800, 50), (97, 1600, 800))


@pytest.mark.parametrize("extents", [*EXTENTS, *LARGE], ids=str)
@pytest.mark.parametrize("activation", list(Activation), ids=lambda a: a.name)
@pytest.mark.parametrize("has_residual", [False, True], ids=["", "residual"])
@pytest.mark.parametrize("threads", [1, 3])
def test_activations_and_residuals_follow(
    extents: tuple[int, int, int],
    activation: Activation,
    has_residual: bool,
    threads: int,
    library: NativeLibrary,
) -> None:
    rows, depth, columns = extents
    x, w = numbers(DRAW, rows, depth), numbers(DRAW, depth, columns)
    c, residual = numbers(DRAW, columns), numbers(DRAW, rows, columns)
    inputs = {"x": x, "w": packed_by_numpy(w), "c": c}
    inputs |= {"residual": residual} if has_residual else {}
    shape = PackedShape(rows, depth, columns, Addend.PER_COLUMN, threads, activation, has_residual)
    got = outcome(library, threads, "PackedProduct", inputs, shape=list(shape))
    assert not isinstance(got, str), got
    want = activate(x.astype(np.float64) @ w + c, activation) + (residual if has_residual else 0)
    assert is_near(got, want)


def test_gelu_of_every_kind_of_number(library: NativeLibrary) -> None:
    x = np.concatenate([np.linspace(-14, 14, 4001), [0.0, -0.0, 1e-30, -1e30, 1e30, np.inf]])
    x = x.astype(np.float32)[None]
    w = packed_by_numpy(np.ones((1, 1), np.float32))
    shape = list(PackedShape(x.size, 1, 1, Addend.NOTHING, 1, Activation.GELU))
    got = outcome(library, 1, "PackedProduct", {"x": x.T.copy(), "w": w}, shape=shape)
    assert not isinstance(got, str), got
    want = activate(x.astype(np.float64), Activation.GELU).ravel()
    np.testing.assert_allclose(got.ravel(), want, rtol=3e-6, atol=2e-7)
    nan = outcome(
        library, 1, "PackedProduct", {"x": np.full((x.size, 1), np.nan, np.float32), "w": w},
        shape=shape,
    )  # fmt: skip
    assert not isinstance(nan, str)
    assert np.isnan(nan).all()


@pytest.mark.parametrize(("depth", "columns"), [(1, 1), (7, 16), (5, 33), (64, 100), (300, 17)])
@pytest.mark.parametrize("is_transposed", [0, 1])
def test_packing(depth: int, columns: int, is_transposed: int, library: NativeLibrary) -> None:
    w = numbers(DRAW, depth, columns)
    given = np.ascontiguousarray(w.T) if is_transposed else w
    shape = list(PackShape(depth, columns, is_transposed))
    got = outcome(library, 2, "Pack", {"w": given}, shape=shape)
    assert not isinstance(got, str), got
    np.testing.assert_array_equal(got, packed_by_numpy(w))


def test_results_do_not_depend_on_threads_or_rows(library: NativeLibrary) -> None:
    x, w = numbers(DRAW, 64, 512), packed_by_numpy(numbers(DRAW, 512, 512))

    def made(rows: int, threads: int) -> Array | str:
        shape = PackedShape(rows, 512, 512, Addend.NOTHING, threads)
        given = {"x": x[:rows], "w": w}
        return outcome(library, threads, "PackedProduct", given, shape=list(shape))

    whole = made(64, 1)
    np.testing.assert_array_equal(made(64, 3), whole)
    np.testing.assert_array_equal(made(11, 2), whole[:11])


def _random_case(library: NativeLibrary, draw: np.random.Generator) -> bool:
    """One product or packing of random extents, in a quarter of the cases with wrong numbers."""
    rows, depth, columns = (int(n) for n in draw.integers(1, 70, 3))
    kind = Addend(int(draw.choice([Addend.NOTHING, Addend.PER_COLUMN, Addend.FULL])))
    x, w = numbers(draw, rows, depth), numbers(draw, depth, columns)
    c = numbers(draw, *([rows] if kind == Addend.FULL else []), columns)
    if draw.random() < 0.5:
        op_type, inputs = "Pack", {"w": w}
        shape, expected = list(PackShape(depth, columns, 0)), packed_by_numpy(w).astype(np.float64)
    else:
        op_type = "PackedProduct"
        inputs = {"x": x, "w": packed_by_numpy(w)} | ({"c": c} if kind else {})
        activation, tasks = Activation(int(draw.integers(3))), int(draw.integers(1, 5))
        shape = list(PackedShape(rows, depth, columns, kind, tasks, activation))
        expected = activate(x.astype(np.float64) @ w + (c if kind else 0.0), activation)
    given = disturbed(shape, draw) if draw.random() < 0.25 else shape
    got = outcome(library, 2, op_type, inputs, shape=given)
    if isinstance(got, str):
        assert given != shape, got
        assert is_refusal(op_type, got), got
        return False
    if given == shape:
        assert is_near(got, expected)
    return True


def test_random_shapes_are_computed_or_refused(library: NativeLibrary) -> None:
    assert each_case(22, lambda draw: _random_case(library, draw)) > 0


def chained(
    b: Builder, x: Value, w: Value, make: Callable[[Value, Value], Value], *, sums: bool = False
) -> Value:
    """A state that a weight multiplies in every step, and perhaps the sum of all states."""
    h = total = x
    for _ in range(STEPS):
        h = make(h, w)
        total = b.Add(total, h)
    return total if sums else h


FORMS = {
    "plain": lambda b, c: lambda h, w: b.Tanh(b.MatMul(h, w)),
    "linear": lambda b, c: lambda h, w: b.MatMul(h, w),
    "a row": lambda b, c: lambda h, w: b.Tanh(b.Gemm(h, w, c)),
    "a row behind": lambda b, c: lambda h, w: b.Relu(b.Add(c, b.MatMul(h, w))),
    "itself": lambda b, c: lambda h, w: b.Tanh(b.Add(b.Gemm(h, w, transB=1), h)),
    "two products": lambda b, c: lambda h, w: b.Tanh(b.Add(b.MatMul(h, w), b.MatMul(b.Neg(h), w))),
    "scaled": lambda b, c: lambda h, w: b.Tanh(b.Gemm(h, w, alpha=0.5)),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("threads", [1, 2])
def test_loops(form: str, threads: int, library: NativeLibrary, any_size: None) -> None:
    b = Builder()
    x, w, c = (b.input(n, s, float32) for n, s in (("x", (3, 20)), ("w", (20, 20)), ("c", (20,))))
    b.output(chained(b, x, w, FORMS[form](b, c), sums=True), "y")
    feeds = {"x": numbers(DRAW, 3, 20), "w": numbers(DRAW, 20, 20) / 5, "c": numbers(DRAW, 20)}
    feeds = {v.name: feeds[str(v.name)] for v in b.graph.inputs}
    standard, native, used = both(b, feeds, library, threads)
    assert is_near(native["y"], standard["y"].astype(np.float64))
    times = {"scaled": 0, "two products": 2}.get(form, 1)
    assert used.get("PackedProduct", 0) == times * STEPS
    assert used.get("Pack", 0) == min(times, 1)


def test_few_products_and_constants_are_left(library: NativeLibrary, any_size: None) -> None:
    b = Builder()
    x, w = b.input("x", (3, 20), float32), b.input("w", (20, 20), float32)
    fixed, h, g = b.const(numbers(DRAW, 20, 20)), x, x
    for i in range(STEPS):
        g = b.Tanh(b.MatMul(g, fixed))
        h = b.Tanh(b.MatMul(h, w)) if i < 3 else h
    b.output(b.Add(h, g), "y")
    _, used = rewrite(model_of(b.graph), library.operators)
    assert "PackedProduct" not in used


def language_model(ids: flow.Blob, labels: flow.Blob) -> flow.Blob:
    """A loop of recurrent cells as scripts write it, trained by Adam."""
    x = flow.gather(flow.get_variable("words", (7, 24), initializer="uniform"), ids)
    weight = flow.get_variable("state", (24, 24), initializer="uniform")
    h, states = flow.constant(0.0, flow.float32, (4, 24)), []
    for t in range(STEPS):
        word = flow.squeeze(flow.slice(x, [None, t, None], [None, 1, None]), axis=[1])
        h = flow.math.tanh(word + flow.matmul(h, weight, transpose_b=True))
        states.append(h)
    y = flow.stack(states, axis=1)
    logits = flow.layers.dense(flow.reshape(y, (-1, 24)), 7, name="output")
    losses = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    loss = flow.math.reduce_mean(losses)
    flow.optimizer.Adam(0.01).minimize(loss)
    return loss


def test_a_loop_of_cells_learns_as_it_does_without(package: None, any_size: None) -> None:
    ids, labels = (DRAW.integers(0, 7, s).astype(np.int32) for s in ((4, STEPS), (4 * STEPS,)))
    found = []
    for is_native in (False, True):
        flow.clear_default_session()
        config = flow.function_config()
        config.runtime.native(is_native)

        @flow.global_function(type="train", function_config=config)
        def job(
            ids: tp.Numpy.Placeholder((4, STEPS), dtype=flow.int32),
            labels: tp.Numpy.Placeholder((4 * STEPS,), dtype=flow.int32),
        ) -> tp.Numpy:
            return language_model(ids, labels)

        found.append([job(ids, labels).item() for _ in range(4)])
        operators = {n.op_type for n in current_session().opening("job").model.graph}
        assert ("PackedProduct" in operators) == is_native
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)
