"""Recurrent layers beside their formulas in numpy; their gradients beside differences."""

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.errors import ArgumentError, ShapeError

RNG = np.random.default_rng(5)
TIME, BATCH, FEATURES, HIDDEN = 4, 2, 3, 5
X = RNG.normal(size=(TIME, BATCH, FEATURES)).astype(np.float32)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def rnn_cell(a, r, h, c):
    return np.tanh(a + r), c


def lstm_cell(a, r, h, c):
    i, f, g, o = np.split(a + r, 4, axis=1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def gru_cell(a, r, h, c):
    (ar, az, an), (rr, rz, rn) = np.split(a, 3, axis=1), np.split(r, 3, axis=1)
    z = sigmoid(az + rz)
    return (1 - z) * np.tanh(an + sigmoid(ar + rr) * rn) + z * h, c


CELLS = {"RNN": rnn_cell, "LSTM": lstm_cell, "GRU": gru_cell}


def reference(kind, x, values, layers, directions, bias):
    """Outputs and last states by torch's formulas."""
    ends = []
    for layer in range(layers):
        sides = []
        for direction in range(directions):
            end = f"l{layer}" + "_reverse" * direction
            w, r = values[f"r-weight_ih_{end}"], values[f"r-weight_hh_{end}"]
            bw, br = (values[f"r-bias_{p}_{end}"] if bias else 0 for p in ("ih", "hh"))
            h = c = np.zeros((x.shape[1], HIDDEN))
            outputs = []
            for step in x[::-1] if direction else x:
                h, c = CELLS[kind](step @ w.T + bw, h @ r.T + br, h, c)
                outputs.append(h)
            sides.append(np.stack(outputs[::-1] if direction else outputs))
            ends.append((h, c))
        x = np.concatenate(sides, axis=-1)
    return x, np.stack([h for h, _ in ends]), np.stack([c for _, c in ends])


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize(
    ("layers", "directions", "bias", "batch_first"),
    [(1, 1, True, False), (2, 1, False, True), (1, 2, True, True), (2, 2, True, False)],
)
def test_forward(kind, layers, directions, bias, batch_first):
    given = X.transpose(1, 0, 2).copy() if batch_first else X

    @flow.global_function()
    def job(x: tp.Numpy.Placeholder(given.shape)) -> tp.Bundle[tp.Numpy]:
        y, last = getattr(flow.nn, kind)(
            x, HIDDEN, layers, bias, batch_first, bidirectional=directions == 2, name="r"
        )
        return [y, *(last if isinstance(last, tuple) else [last])]

    got = job(given)
    values = {n: v.numpy() for n, v in flow.get_all_variables().items()}
    y, h, c = reference(kind, X, values, layers, directions, bias)
    wanted = [y.transpose(1, 0, 2) if batch_first else y, h, c]
    for g, w in zip(got, wanted, strict=False):
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-5)
    assert len(got) == (3 if kind == "LSTM" else 2)


@pytest.mark.parametrize("kind", CELLS)
def test_gradient(kind):
    @flow.global_function(type="train")
    def step(x: tp.Numpy.Placeholder(X.shape)) -> tp.Numpy:
        loss = getattr(flow.nn, kind)(x, HIDDEN, name="r")[0].sum()
        flow.optimizer.SGD(1.0, momentum=0).minimize(loss)
        return loss

    before = {n: v.numpy().astype(float) for n, v in flow.get_all_variables().items()}
    step(X)
    after = {n: v.numpy() for n, v in flow.get_all_variables().items()}
    name = "r-weight_ih_l0"
    gradient = before[name] - after[name]
    direction = RNG.normal(size=gradient.shape)
    ends = []
    for sign in (1, -1):
        moved = before | {name: before[name] + sign * 1e-4 * direction}
        ends.append(reference(kind, X.astype(float), moved, 1, 1, True)[0].sum())
    wanted = (ends[0] - ends[1]) / 2e-4
    np.testing.assert_allclose((gradient * direction).sum(), wanted, rtol=2e-3)


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda x: flow.nn.LSTM(x[0], 3), ShapeError, "time, batch, features"),
        (lambda x: flow.nn.GRU(x, "3"), ArgumentError, "hidden_size"),
        (lambda x: flow.nn.RNN(x, 3, 0), ArgumentError, "num_layers"),
        (lambda x: flow.nn.LSTM(x, 3, hx=x), ArgumentError, "2 blobs"),
        (lambda x: flow.nn.RNN(x, 3, hx=x), ShapeError, "first axis has size 1"),
    ],
)
def test_bad_arguments(call, kind, text):
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder(X.shape)) -> tp.Numpy:
        return call(x)[0]

    with pytest.raises(kind, match=text):
        job(X)
