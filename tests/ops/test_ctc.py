"""The CTC loss against a sum over all alignments."""

import itertools
import math

import numpy as np
import pytest

import flow2onnx as flow
from flow2onnx.errors import ArgumentError, DTypeError, FlowError, ShapeError
from tests.ops.jobs import predict, watched_gradients

STEPS, CLASSES = 5, 4


def log_softmax(x):
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def spelled(path, blank):
    """The labels of a path: repetitions once, blanks left out."""
    return [k for k, _ in itertools.groupby(path) if k != blank]


def loss_of(log_probs, labels, steps, blank=0):
    """-ln of the probability of all paths of one sample that spell the labels."""
    total = 0.0
    for path in itertools.product(range(log_probs.shape[1]), repeat=steps):
        if spelled(path, blank) == list(labels):
            total += math.exp(sum(log_probs[t, k] for t, k in enumerate(path)))
    return -math.log(total) if total else math.inf


def reference(log_probs, rows, inputs, blank=0):
    return np.asarray(
        [
            loss_of(log_probs[:, i], row, steps, blank)
            for i, (row, steps) in enumerate(zip(rows, inputs, strict=True))
        ]
    )


ROWS = [[1, 2], [3, 3], [2], []]
INPUTS = np.asarray([5, 4, 3, 5], np.int32)
LENGTHS = np.asarray([len(r) for r in ROWS], np.int32)
PADDED = np.asarray([[*r, *[1] * (2 - len(r))] for r in ROWS], np.int32)
FLAT = np.asarray([k for r in ROWS for k in r], np.int32)


def drawn(dtype="float32", seed=1):
    x = np.random.default_rng(seed).normal(0, 1, (STEPS, len(ROWS), CLASSES))
    return log_softmax(x).astype(dtype)


def call(**options):
    return lambda *blobs: flow.ctc_loss(*blobs, **options)


@pytest.mark.parametrize("targets", [PADDED, FLAT], ids=["padded", "flat"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_each_loss(targets, dtype):
    x = drawn(dtype)
    (y,) = predict(call(reduction="none"), x, targets, INPUTS, LENGTHS)
    tolerance = 1e-5 if dtype == "float32" else 1e-10
    np.testing.assert_allclose(y, reference(x.astype(np.float64), ROWS, INPUTS), tolerance)


def test_another_blank():
    x, rows = drawn(), [[1, 2], [0, 0], [2], []]
    targets = np.asarray([[1, 2], [0, 0], [2, 0], [0, 0]], np.int64)
    (y,) = predict(call(reduction="none", blank=3), x, targets, INPUTS, LENGTHS)
    np.testing.assert_allclose(y, reference(x, rows, INPUTS, 3), 1e-5)


def test_reductions():
    x = drawn()
    losses = reference(x, ROWS, INPUTS)
    (mean,) = predict(call(), x, PADDED, INPUTS, LENGTHS)
    np.testing.assert_allclose(mean, [(losses / np.maximum(LENGTHS, 1)).mean()], 1e-5)
    (total,) = predict(call(reduction="sum"), x, PADDED, INPUTS, LENGTHS)
    np.testing.assert_allclose(total, [losses.sum()], 1e-5)


@pytest.mark.parametrize("zero_infinity", [True, False])
def test_what_cannot_be_spelled(zero_infinity):
    x, inputs = drawn(), np.asarray([1, 2, 3, 5], np.int32)  # too few steps for the first two
    options = {"reduction": "none", "zero_infinity": zero_infinity}
    (y,) = predict(call(**options), x, PADDED, inputs, LENGTHS)
    wanted = reference(x, ROWS, inputs)
    assert list(np.isinf(wanted)) == [True, True, False, False]
    np.testing.assert_allclose(y, np.where(np.isinf(wanted) & zero_infinity, 0, wanted), 1e-5)
    g = watched_gradients(call(**options), [x, PADDED, inputs, LENGTHS], [0], [np.ones(4, "f")])
    assert np.isfinite(g["in0"]).all()
    np.testing.assert_array_equal(g["in0"][:, :2], 0)


def test_the_gradient_is_that_of_the_logits():
    rng = np.random.default_rng(2)
    logits, seed = rng.normal(0, 1, (STEPS, 4, CLASSES)), rng.uniform(0.5, 1.5, 4)

    def from_logits(x, *rest):
        return flow.ctc_loss(flow.nn.logsoftmax(x), *rest, reduction="none")

    rest = [PADDED, INPUTS, LENGTHS]
    behind = watched_gradients(from_logits, [logits, *rest], [0], [seed])["in0"]
    direct = watched_gradients(call(reduction="none"), [log_softmax(logits), *rest], [0], [seed])
    np.testing.assert_allclose(direct["in0"], behind, 1e-9, 1e-9)
    direction, step = rng.normal(0, 1, logits.shape), 1e-6
    ends = [
        (reference(log_softmax(logits + s * direction), ROWS, INPUTS) * seed).sum()
        for s in (step, -step)
    ]
    slope = (ends[0] - ends[1]) / (2 * step)
    np.testing.assert_allclose((behind * direction).sum(), slope, 1e-6)


def test_one_step():
    x = drawn()[:1]
    inputs, targets = np.ones(4, np.int32), np.asarray([[1], [3], [2], [1]], np.int32)
    lengths = np.asarray([1, 1, 1, 0], np.int32)
    (y,) = predict(call(reduction="none"), x, targets, inputs, lengths)
    np.testing.assert_allclose(y, -x[0, [0, 1, 2, 3], [1, 3, 2, 0]], 1e-5)


@pytest.mark.parametrize("merges", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_greedy_decoder(merges, dtype):
    x = np.random.default_rng(4).normal(0, 1, (9, 5, 3)).astype(dtype)
    lengths = np.asarray([9, 0, 1, 5, 8], np.int64)
    labels, total = predict(lambda *v: flow.nn.ctc_greedy_decoder(*v, merges), x, lengths)
    assert (labels.dtype, total.dtype) == (np.int64, np.dtype(dtype))
    for i, steps in enumerate(lengths):
        path = list(x[:steps, i].argmax(-1))
        said = spelled(path, 2) if merges else [k for k in path if k != 2]
        assert labels[i].tolist() == said + [0] * (9 - len(said))
        wanted = -x[:steps, i].max(-1, initial=-9).sum(dtype=np.float64)
        np.testing.assert_allclose(total[i], [wanted], 1e-2 if dtype == "float16" else 1e-5)


@pytest.mark.parametrize(
    ("options", "change", "error", "says"),
    [
        ({"blank": 4}, {}, ArgumentError, "no class"),
        ({"reduction": "all"}, {}, ArgumentError, "reduction"),
        ({}, {0: drawn()[0]}, ShapeError, "time, batch, classes"),
        ({}, {1: PADDED[:2]}, ShapeError, "targets"),
        ({}, {2: INPUTS[:2]}, ShapeError, "input_lengths"),
        ({}, {3: LENGTHS.astype(np.float32)}, DTypeError, "whole numbers"),
    ],
)
def test_bad_arguments(options, change, error, says):
    arrays = [change.get(i, a) for i, a in enumerate([drawn(), PADDED, INPUTS, LENGTHS])]
    with pytest.raises(FlowError, match=says) as info:
        predict(call(**options), *arrays)
    assert isinstance(info.value, error)
    assert info.value.op == "ctc_loss"
