"""Recurrent layers of native operators, beside the standard graph in double precision."""

from collections.abc import Collection
from typing import Any

import numpy as np
import pytest
from flow2onnx_native.abi import MOST_MATRIX_ELEMENTS, Cell, RecurrenceShape
from flow2onnx_native.library import NativeLibrary

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.autodiff.walk import gradients
from flow2onnx.dtypes import DType, float32, float64, int32
from flow2onnx.engine.session import current_session
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_of
from flow2onnx.graph.types import dims
from flow2onnx.passes.dead_code import DeadCodeElimination
from tests.native.one_node import disturbed, each_case, is_refusal, numbers, outcome
from tests.native.running import Array, rewrite, run, session
from tests.native.test_packed import packed_by_numpy

DRAW = np.random.default_rng(8)
STEPS, BATCH, INPUTS, UNITS = 4, 3, 5, 7
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
NAMES = ("x", "w", "r", "bias", "lengths", "h0", "c0", "peepholes")


def layer(kind: str, dtype: DType, options: Collection[str] = (), **settings: Any) -> Builder:
    """The outputs of a layer and its gradients, for drawn gradients of the outputs.

    `options`: of "bias", "lengths", "start" (first states) and "peepholes" those that it has, and
    "last", where only the last state is read.
    """
    b = Builder()
    sides = 2 if settings.get("direction") == "bidirectional" else 1
    is_by_image = bool(settings.get("layout"))
    state = (BATCH, sides, UNITS) if is_by_image else (sides, BATCH, UNITS)
    gates = GATES[kind] * UNITS
    shapes = {
        "x": (BATCH, STEPS, INPUTS) if is_by_image else (STEPS, BATCH, INPUTS),
        "w": (sides, gates, INPUTS), "r": (sides, gates, UNITS), "bias": (sides, 2 * gates),
        "lengths": (BATCH,), "h0": state, "c0": state, "peepholes": (sides, 3 * UNITS),
    }  # fmt: skip
    chosen = {"x", "w", "r", *options} | ({"h0", "c0"} if "start" in options else set())
    names = NAMES[: 8 if kind == "LSTM" else 6]
    given = {
        n: b.input(n, shapes[n], int32 if n == "lengths" else dtype) for n in names if n in chosen
    }
    outputs = b.several(kind, *(given.get(n) for n in names), hidden_size=UNITS,
                        outputs=3 if kind == "LSTM" else 2, **settings)  # fmt: skip
    for i, y in enumerate(outputs):
        b.output(b.Neg(y), f"y{i}")
    read = outputs[1:2] if "last" in options else outputs
    seeds = {y: b.input(f"g{i}", dims(y), dtype) for i, y in enumerate(read)}
    wrt = {n: v for n, v in given.items() if n != "lengths"}
    found = gradients(b, seeds, wrt.values())
    for name, value in wrt.items():
        b.output(found[value], f"d{name}")
    DeadCodeElimination().run(b.graph)
    return b


def feeds_of(b: Builder) -> dict[str, Array]:
    """Numbers for all inputs; one sequence is of no step."""
    return {
        str(v.name): np.array([STEPS, 0, 2], np.int32)
        if v.name == "lengths"
        else DRAW.standard_normal(dims(v)) / 2
        for v in b.graph.inputs
    }


def single(feeds: dict[str, Array]) -> dict[str, Array]:
    """The same in single precision."""
    return {n: x.astype(np.float32) if x.dtype == np.float64 else x for n, x in feeds.items()}


def is_near(got: Array, expected: Array) -> bool:
    return bool(abs(got - expected).max() <= 2e-6 * max(abs(expected).max(), 1e-30))


LAYERS: dict[str, tuple[str, Collection[str], dict[str, Any]]] = {
    "lstm": ("LSTM", ("bias", "start"), {}),
    "lstm, last state": ("LSTM", ("bias", "last"), {}),
    "lstm, lengths": ("LSTM", ("lengths", "start"), {"direction": "reverse"}),
    "lstm, both ways": (
        "LSTM", ("bias", "lengths", "start"), {"direction": "bidirectional", "layout": 1},
    ),
    "gru": ("GRU", ("bias",), {"linear_before_reset": 1}),
    "gru, both ways": (
        "GRU", ("lengths", "start"), {"linear_before_reset": 1, "direction": "bidirectional"},
    ),
    "rnn": ("RNN", ("bias", "start"), {"layout": 1}),
    "rnn, both ways": (
        "RNN", ("bias", "lengths"),
        {"direction": "bidirectional", "activations": ["Relu", "Tanh"]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_those_of_doubles(name: str, library: NativeLibrary) -> None:
    kind, options, settings = LAYERS[name]
    exact = layer(kind, float64, options, **settings)
    feeds = feeds_of(exact)
    expected = run(session(model_of(exact.graph)), feeds)
    model = model_of(layer(kind, float32, options, **settings).graph)
    found = []
    for threads in (1, 3):
        rewritten, used = rewrite(model, library.operators, threads)
        sides = 2 if settings.get("direction") == "bidirectional" else 1
        assert {"Recurrence": sides, "RecurrenceGradient": sides}.items() <= used.items()
        assert not {n.op_type for n in rewritten.graph} & {"Sigmoid", "Tanh", "Split", "Greater"}
        found.append(run(session(rewritten, library, threads), single(feeds)))
    for output, value in expected.items():
        assert is_near(found[0][output], value), output
        np.testing.assert_array_equal(found[1][output], found[0][output])


LEFT: dict[str, tuple[str, Collection[str], dict[str, Any]]] = {
    "clip": ("LSTM", (), {"clip": 0.5}),
    "coupled": ("LSTM", (), {"input_forget": 1}),
    "peepholes": ("LSTM", ("peepholes",), {}),
    "activations": ("LSTM", (), {"activations": ["HardSigmoid", "Tanh", "Tanh"]}),
    "reset before": ("GRU", (), {}),
    "one of two": (
        "RNN", (), {"direction": "bidirectional", "activations": ["Affine", "Tanh"]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_other_layers_stay_as_they_are(name: str, library: NativeLibrary) -> None:
    kind, options, settings = LEFT[name]
    _, used = rewrite(model_of(layer(kind, float32, options, **settings).graph), library.operators)
    assert "Recurrence" not in used
    assert "RecurrenceGradient" not in used


# --- one operator ------------------------------------------------------------------------------


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def steps_by_numpy(
    shape: RecurrenceShape, x: Array, r: Array, states: list[Array], bias: Array, lengths: Array
) -> list[Array]:
    """y and the last states, of real or complex numbers: what `Recurrence` gives."""
    h, c = states
    ys = np.zeros((shape.steps, shape.batch, shape.units), x.dtype)
    order = range(shape.steps)
    for t in reversed(order) if shape.is_reverse else order:
        goes_on = (t < lengths)[:, None]
        parts, made = np.split(x[t], max(1, x.shape[2] // shape.units), 1), h @ r
        if shape.cell == Cell.LSTM:
            i, o, f, n = (p + q for p, q in zip(parts, np.split(made, 4, 1), strict=True))
            new = sigmoid(f) * c + sigmoid(i) * np.tanh(n)
            c = np.where(goes_on, new, c)
            new = sigmoid(o) * np.tanh(new)
        elif shape.cell == Cell.GRU:
            z, reset, n = np.split(made + bias, 3, 1)
            z, reset = sigmoid(parts[0] + z), sigmoid(parts[1] + reset)
            new = (1 - z) * np.tanh(parts[2] + reset * n) + z * h
        else:
            new = parts[0] + made
            new = np.tanh(new) if shape.cell == Cell.TANH else new * (new.real > 0)
        ys[t] = np.where(goes_on, new, 0)
        h = np.where(goes_on, new, h)
    return [ys, h, c]


def drawn_shape(draw: np.random.Generator) -> RecurrenceShape:
    steps, batch, units, tasks = (int(n) for n in draw.integers(1, (7, 9, 40, 5)))
    flags = (int(n) for n in draw.integers(0, 2, 5))
    return RecurrenceShape(int(draw.integers(0, 4)), steps, batch, units, *flags, tasks)


def _random_case(library: NativeLibrary, draw: np.random.Generator) -> bool:
    """One run of random extents, in a quarter of the cases with wrong numbers."""
    s = drawn_shape(draw)
    gates = {Cell.LSTM: 4, Cell.GRU: 3}.get(Cell(s.cell), 1) * s.units
    x, r = numbers(draw, s.steps * s.batch, gates), numbers(draw, s.units, gates) / 4
    h, c = (numbers(draw, s.batch, s.units) for _ in range(2))
    bias, lengths = numbers(draw, gates), draw.integers(-1, s.steps + 2, s.batch).astype(np.int32)
    given = {"x": x, "r": packed_by_numpy(r), "h": h}
    given |= {"c": c} if s.cell == Cell.LSTM else {"b": bias} if s.cell == Cell.GRU else {"_s": h}
    given |= {"lengths": lengths} if s.has_lengths else {}
    counts = {Cell.LSTM: 5, Cell.GRU: 4}
    shape = disturbed(list(s), draw) if draw.random() < 0.25 else list(s)
    got = outcome(library, 2, "Recurrence", given, outputs=counts.get(Cell(s.cell), 2), shape=shape)
    if isinstance(got, str):
        assert shape != list(s), got
        assert is_refusal("Recurrence", got), got
        return False
    if shape == list(s):
        wide = [v.astype(np.float64) for v in (x.reshape(s.steps, s.batch, gates), r, h, c, bias)]
        ends = lengths if s.has_lengths else np.full(s.batch, s.steps)
        expected = steps_by_numpy(s, wide[0], wide[1], wide[2:4], wide[4], ends)
        assert is_near(got, expected[0])
    return True


def test_random_shapes_are_computed_or_refused(library: NativeLibrary) -> None:
    assert each_case(23, lambda draw: _random_case(library, draw)) > 0


@pytest.mark.parametrize("name", ["Recurrence", "RecurrenceGradient"])
def test_impossible_shapes_are_refused(name: str, library: NativeLibrary) -> None:
    given = {n: numbers(DRAW, 1) for n in "abcd"}
    for extents in ((MOST_MATRIX_ELEMENTS, 4, 4), (1, 1 << 29, 4), (1, 1, 1 << 20), (0, 1, 1)):
        shape = RecurrenceShape(Cell.LSTM, *extents, 0, 0, 0, 0, 0, 1)
        got = outcome(library, 1, name, given, outputs=4, shape=list(shape))
        assert "the shape is that of no layer" in str(got)


def test_gradients_refuse_what_has_another_size(library: NativeLibrary) -> None:
    draw, refused = np.random.default_rng(3), 0
    for _ in range(20):
        shape = drawn_shape(draw)
        given = {n: numbers(draw, *draw.integers(1, 40, 2)) for n in "abcdefghij"}
        given["g"] = np.zeros(shape.batch, np.int32)
        got = outcome(library, 1, "RecurrenceGradient", given, outputs=4, shape=list(shape))
        refused += isinstance(got, str) and "wanted are" in got
    assert refused == 20


# --- jobs --------------------------------------------------------------------------------------


def language_model(ids: flow.Blob, labels: flow.Blob) -> flow.Blob:
    """Two layers, the second in both directions, trained by Adam."""
    x = flow.gather(flow.get_variable("words", (7, 24), initializer="uniform"), ids)
    y, _ = flow.nn.LSTM(x, 24, batch_first=True)
    y, _ = flow.nn.GRU(y, 12, batch_first=True, bidirectional=True)
    logits = flow.layers.dense(flow.reshape(y, (-1, 24)), 7, name="output")
    losses = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    loss = flow.math.reduce_mean(losses)
    flow.optimizer.Adam(0.01).minimize(loss)
    return loss


def test_layers_learn_as_they_do_without(package: None) -> None:
    ids, labels = (DRAW.integers(0, 7, s).astype(np.int32) for s in ((4, 5), (4 * 5,)))
    found = []
    for is_native in (False, True):
        flow.clear_default_session()
        config = flow.function_config()
        config.runtime.native(is_native)

        @flow.global_function(type="train", function_config=config)
        def job(
            ids: tp.Numpy.Placeholder((4, 5), dtype=flow.int32),
            labels: tp.Numpy.Placeholder((4 * 5,), dtype=flow.int32),
        ) -> tp.Numpy:
            return language_model(ids, labels)

        found.append([job(ids, labels).item() for _ in range(4)])
        operators = [n.op_type for n in current_session().opening("job").model.graph]
        assert operators.count("RecurrenceGradient") == (3 if is_native else 0)
        assert ("Tanh" in operators) != is_native
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)
