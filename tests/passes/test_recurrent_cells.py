"""Cells of a loop as one recurrent layer: the same values and gradients, and what stays."""

from collections import Counter

import numpy as np
import onnxruntime as ort
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.dtypes import float32, float64
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_bytes, model_of
from flow2onnx.passes.hoist_products import hoist_products
from flow2onnx.passes.recurrent_cells import join_cells

STEPS, BATCH, WIDTH, UNITS = 5, 2, 3, 4
X = np.random.default_rng(5).standard_normal((STEPS, BATCH, WIDTH)).astype(np.float32)


def values_of(b):
    """The results of a graph for X."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(model_bytes(model_of(b.graph)), options)
    return session.run(None, {"x": X})


def joined(make, kept=()):
    """The operators of a graph after the pass, whose values are as before."""
    b = Builder()
    x = b.input("x", X.shape, float32)
    steps = [b.Squeeze(v, [0]) for v in b.several("Split", x, axis=0, num_outputs=STEPS,
                                                   outputs=STEPS)]  # fmt: skip
    values = make(b, steps)
    for i, value in enumerate(values):
        b.output(b.Identity(value), f"y{i}")
    wanted = values_of(b)
    chosen = [values[i] for i in kept]
    hoist_products(b, chosen)
    join_cells(b, chosen)
    assert [id(n) for n in b.nodes] == [id(n) for n in b.graph]
    for got, want in zip(values_of(b), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    return Counter(n.op_type for n in b.graph)


def weight(b, *shape):
    """A constant, another one at each place of the graph."""
    draw = np.random.default_rng([len(b.nodes), len(b.graph.initializers), *shape])
    return b.const(draw.standard_normal(shape).astype(np.float32) / 2)


def gates_by_slices(b, made):
    return [b.Slice(made, [0, k * UNITS], [np.iinfo(np.int64).max, (k + 1) * UNITS])
            for k in range(4)]  # fmt: skip


def gates_by_slices_from_the_end(b, made):
    return [b.Slice(made, [(k - 4) * UNITS], [(k + 1) * UNITS], [-1], [1]) for k in range(4)]


def gates_by_split(b, made):
    return b.several("Split", made, axis=-1, num_outputs=4, outputs=4)


def cell(b, gates, c, order):
    """The next h and c of gates, of which `order` says where i, f, g and o are."""
    i, f, g, o = (gates[k] for k in order)
    c = b.Add(b.Mul(b.Sigmoid(f), c), b.Mul(b.Tanh(g), b.Sigmoid(i)))
    return b.Mul(b.Tanh(c), b.Sigmoid(o)), c


def loop(
    b, steps, *, split=gates_by_slices, order=(0, 1, 2, 3), start=None, apart=False,
    transposed=True, biased=True,
):  # fmt: skip
    """All h, and the last c, of a loop."""
    width, shape = steps[0].shape[1], (4 * UNITS,)
    w, u = weight(b, *_sides(width, transposed)), weight(b, *_sides(UNITS, transposed))
    both = b.Concat(w, u, axis=int(transposed))
    bias = weight(b, *shape)
    zeros = b.const(np.zeros((BATCH, UNITS), np.float32))
    (h, c), found = start or (zeros, zeros), []
    for x in steps:
        if apart:
            made = b.Gemm(h, u, b.Gemm(x, w, transB=int(transposed)), transB=int(transposed))
        else:
            made = b.Gemm(b.Concat(x, h, axis=1), both, transB=int(transposed))
        made = b.Add(made, bias) if biased and not apart else made
        h, c = cell(b, split(b, made), c, order)
        found.append(h)
    return [*found, c]


def _sides(width, transposed):
    return (4 * UNITS, width) if transposed else (width, 4 * UNITS)


def states(b):
    return weight(b, BATCH, UNITS), weight(b, BATCH, UNITS)


def two_layers(b, steps):
    *hs, _ = loop(b, steps)
    return loop(b, hs, order=(3, 1, 0, 2))


def two_layers_in_step(b, steps):
    """Both layers advance in each step, as scripts with a list of cells have it."""
    lower, upper = weight(b, WIDTH + UNITS, 4 * UNITS), weight(b, 2 * UNITS, 4 * UNITS)
    (h, c), (g, d), found = states(b), states(b), []
    for x in steps:
        h, c = cell(b, gates_by_split(b, b.MatMul(b.Concat(x, h, axis=1), lower)), c, (0, 1, 2, 3))
        g, d = cell(b, gates_by_split(b, b.MatMul(b.Concat(h, g, axis=1), upper)), d, (0, 1, 2, 3))
        found.append(g)
    return found


def decoder(b, steps):
    """A loop that starts with the last states of another."""
    *hs, c = loop(b, steps)
    return loop(b, steps, start=(hs[-1], c))


def stacked(b, steps):
    """All states along each axis, as a new one and not."""
    *hs, _ = loop(b, steps)
    wide = [b.Concat(*(b.Unsqueeze(h, [axis]) for h in hs), axis=axis) for axis in (0, 1)]
    return [*wide, *(b.Concat(*hs, axis=axis) for axis in (0, 1, -1))]


def backwards(b, steps):
    *hs, c = loop(b, steps[::-1])
    return [b.Concat(*hs[::-1], axis=0), b.Concat(*hs, axis=0), hs[0], c]


@pytest.mark.parametrize(("make", "layers"), [
    (loop, 1),
    (lambda b, s: loop(b, s, split=gates_by_split, order=(2, 3, 1, 0)), 1),
    (lambda b, s: loop(b, s, split=gates_by_slices_from_the_end), 1),
    (lambda b, s: loop(b, s, transposed=False, order=(1, 2, 0, 3)), 1),
    (lambda b, s: loop(b, s, apart=True), 1),
    (lambda b, s: loop(b, s, biased=False), 1),
    (lambda b, s: loop(b, s, start=states(b)), 1),
    (two_layers, 2),
    (two_layers_in_step, 2),
    (decoder, 2),
    (stacked, 1),
    (backwards, 1),
], ids=["slices", "split", "from the end", "not transposed", "apart", "no bias", "first states",
        "two layers", "two in a step", "decoder", "stacked", "backwards"])  # fmt: skip
def test_values_stay_and_one_layer_stands_for_a_loop(make, layers):
    after = joined(make)
    assert after["LSTM"] == layers
    assert after["Sigmoid"] == 0


def with_a_cell_read(b, steps):
    """Somebody reads the cell of a step in the middle."""
    (h, c), found = states(b), []
    w = weight(b, WIDTH + UNITS, 4 * UNITS)
    for x in steps:
        made = b.MatMul(b.Concat(x, h, axis=1), w)
        h, c = cell(b, gates_by_split(b, made), c, (0, 1, 2, 3))
        found.append(c)
    return [found[2], h]


def with_another_activation(b, steps):
    (h, c), w = states(b), weight(b, WIDTH + UNITS, 4 * UNITS)
    for x in steps:
        i, f, g, o = gates_by_split(b, b.MatMul(b.Concat(x, h, axis=1), w))
        c = b.Add(b.Mul(b.Sigmoid(f), c), b.Mul(b.Sigmoid(i), b.Relu(g)))
        h = b.Mul(b.Sigmoid(o), b.Tanh(c))
    return [h]


def with_one_block_twice(b, steps):
    return loop(b, steps, order=(0, 1, 2, 0))


def with_gates_of_whole_rows(b, steps):
    """A gate is one number for all units of a row."""
    (h, c), w = states(b), weight(b, WIDTH + UNITS, 4)
    for x in steps:
        made = b.MatMul(b.Concat(x, h, axis=1), w)
        h, c = cell(b, gates_by_split(b, made), c, (0, 1, 2, 3))
    return [h]


def with_double_precision(b, steps):
    """The runtime has no LSTM of it that runs."""
    draw = np.random.default_rng(1)
    w = b.const(draw.standard_normal((WIDTH + UNITS, 4 * UNITS)))
    h = c = b.const(np.zeros((BATCH, UNITS)))
    for x in steps:
        made = b.MatMul(b.Concat(b.Cast(x, to=float64), h, axis=1), w)
        h, c = cell(b, gates_by_split(b, made), c, (0, 1, 2, 3))
    return [h]


def with_a_drawn_factor(b, steps):
    """A sigmoid of what is made of nothing."""
    drawn = b.RandomUniform(shape=[BATCH, WIDTH], dtype=float32, seed=1.0)
    return [b.Mul(steps[0], b.Sigmoid(drawn))]


def over_rows(b, rows, bias):
    """A loop over the products of rows that were multiplied at once, by the user."""
    (h, c), w, r = states(b), weight(b, WIDTH, 4 * UNITS), weight(b, UNITS, 4 * UNITS)
    made = b.several("Split", b.Gemm(rows, w, bias), axis=0, num_outputs=STEPS, outputs=STEPS)
    for part in made:
        h, c = cell(b, gates_by_split(b, b.Gemm(h, r, part)), c, (0, 1, 2, 3))
    return [h]


def with_own_rows(b, steps):
    return over_rows(b, b.Concat(*steps, axis=0), weight(b, 4 * UNITS))


def with_a_row_for_all(b, steps):
    """One row is added to each sequence of a batch."""
    rows = b.Concat(*(b.Slice(x, [0], [1], [0]) for x in steps), axis=0)
    return over_rows(b, rows, weight(b, 4 * UNITS))


def with_a_number_for_a_bias(b, steps):
    return over_rows(b, b.Concat(*steps, axis=0), weight(b, 1))


@pytest.mark.parametrize("make", [
    with_a_cell_read, with_another_activation, with_one_block_twice, with_gates_of_whole_rows,
    with_double_precision, with_a_drawn_factor, with_a_row_for_all, with_a_number_for_a_bias,
    lambda b, s: loop(b, s[:3]),
], ids=["cell read", "relu", "block twice", "gates of rows", "double", "drawn", "row for all",
        "number for a bias", "few"])  # fmt: skip
def test_what_is_no_lstm_stays(make):
    assert joined(make)["LSTM"] == 0


def test_products_that_the_user_made_at_once_are_taken():
    assert joined(with_own_rows)["LSTM"] == 1


def test_what_others_refer_to_stays():
    assert joined(loop, kept=[0])["LSTM"] == 0


def job_of(layer):
    """A train job whose loss is of the states that a layer gives."""

    @flow.global_function(type="train")
    def job(x: tp.Numpy.Placeholder((BATCH, STEPS, WIDTH))) -> tp.Numpy:
        y = layer(x)
        loss = flow.math.reduce_mean(y * y)
        flow.optimizer.named("sgd", 1.0).minimize(loss)
        return loss

    return job


def whole(x):
    return flow.nn.LSTM(x, UNITS, batch_first=True, name="layer")[0]


def unrolled(x):
    bound = flow.random_uniform_initializer(-0.5, 0.5)
    sizes = {"weight_ih_l0": (4 * UNITS, WIDTH), "weight_hh_l0": (4 * UNITS, UNITS),
             "bias_ih_l0": (4 * UNITS,), "bias_hh_l0": (4 * UNITS,)}  # fmt: skip
    made = [flow.get_variable(f"layer-{n}", s, initializer=bound) for n, s in sizes.items()]
    both, bias = flow.concat(made[:2], axis=1), made[2] + made[3]
    h = c = flow.constant(0.0, flow.float32, (BATCH, UNITS))
    states = []
    for t in range(STEPS):
        word = flow.squeeze(flow.slice(x, [None, t, None], [None, 1, None]), axis=[1])
        rows = flow.matmul(flow.concat([word, h], axis=1), both, transpose_b=True)
        rows = flow.nn.bias_add(rows, bias)
        i, f, g, o = (flow.slice(rows, [None, k * UNITS], [None, UNITS]) for k in range(4))
        c = flow.math.sigmoid(f) * c + flow.math.sigmoid(i) * flow.math.tanh(g)
        h = flow.math.sigmoid(o) * flow.math.tanh(c)
        states.append(h)
    return flow.stack(states, axis=1)


def test_a_job_of_cells_trains_as_one_with_the_layer():
    x, job = X.transpose(1, 0, 2), job_of(unrolled)
    start = {n: np.array(v.numpy()) for n, v in flow.get_all_variables().items()}
    of_cells = [job(x).item() for _ in range(4)]
    flow.clear_default_session()
    job = job_of(whole)
    flow.load_variables(start)
    np.testing.assert_allclose(of_cells, [job(x).item() for _ in range(4)], rtol=1e-5)
    assert of_cells[-1] < of_cells[0]


def test_a_prediction_of_cells_is_one_layer():
    @flow.global_function(type="predict")
    def job(x: tp.Numpy.Placeholder((BATCH, STEPS, WIDTH))) -> tp.Numpy:
        return unrolled(x) * 2.0

    nodes = Counter(n.op_type for n in job.session.compile("job").model.graph)
    assert (nodes["LSTM"], nodes["Sigmoid"]) == (1, 0)
