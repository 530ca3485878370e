"""Cross entropies and the CTC loss, forward and backward, beside what TensorFlow recorded."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

import flow2onnx as flow
from tests.ops.jobs import predict, watched_gradients

RECORD = Path(__file__).with_name("tensorflow_losses.npz")


@dataclass(frozen=True)
class Case:
    """A loss of `logits`, one number for each row, and what else its functions take."""

    kind: str
    logits: np.ndarray
    rest: tuple[np.ndarray, ...]
    settings: dict[str, int] = field(default_factory=dict)

    @property
    def seeds(self):
        """The gradient of each row's loss."""
        rows = self.logits.shape[1:2] if self.kind == "ctc" else self.logits.shape[:-1]
        shape = self.logits.shape if self.kind == "sigmoid" else rows
        return np.random.default_rng(7).uniform(0.5, 1.5, shape).astype(np.float32)


def scores(scale, *shape, seed=0):
    return (np.random.default_rng(seed).normal(size=shape) * scale).astype(np.float32)


def shares(*shape):
    drawn = np.random.default_rng(1).uniform(0.1, 1, shape)
    return (drawn / drawn.sum(-1, keepdims=True)).astype(np.float32)


def classes(count, *shape):
    return np.random.default_rng(2).integers(0, count, shape, dtype=np.int32)


def alignment(steps, rows, count, blank, label_lengths, step_lengths, scale=1.0):
    """Logits of a text that repeats labels; what lies behind a length must not matter."""
    labels = classes(count - 1, rows, max(label_lengths))
    labels[:, 1::3] = labels[:, : labels[:, 1::3].shape[1] * 3 : 3]
    labels += labels >= blank
    lengths = (np.asarray(n, np.int32) for n in (step_lengths, label_lengths))
    logits = scores(scale, steps, rows, count)
    return Case("ctc", logits, (labels.astype(np.int32), *lengths), {"blank": blank})


CASES = {
    "shares": Case("softmax", scores(1, 8, 10), (shares(8, 10),)),
    "shares of large scores": Case("softmax", scores(60, 8, 10), (shares(8, 10),)),
    "shares of five hundred": Case("softmax", scores(3, 2, 500), (shares(2, 500),)),
    "shares of rank 3": Case("softmax", scores(1, 2, 3, 5), (shares(2, 3, 5),)),
    "classes": Case("sparse", scores(1, 8, 10), (classes(10, 8),)),
    "classes of large scores": Case("sparse", scores(60, 8, 10), (classes(10, 8),)),
    "classes of five hundred": Case("sparse", scores(3, 2, 500), (classes(500, 2),)),
    "yes and no": Case("sigmoid", scores(1, 4, 6), (shares(4, 6),)),
    "yes and no of large scores": Case("sigmoid", scores(60, 4, 6), (shares(4, 6),)),
    "ctc": alignment(12, 4, 6, 0, [3, 5, 1, 4], [12, 12, 7, 9]),
    "ctc with the last as blank": alignment(12, 3, 6, 5, [3, 5, 4], [12, 10, 9]),
    "ctc of a long text": alignment(80, 2, 28, 0, [30, 12], [80, 61]),
    "ctc of large scores": alignment(12, 2, 6, 0, [3, 4], [12, 9], scale=8.0),
}


def loss_of(case):
    """The loss in flow2onnx, of logits and the rest."""
    if case.kind == "ctc":
        return lambda x, *rest: flow.ctc_loss(
            flow.nn.logsoftmax(x), *rest, reduction="none", **case.settings
        )
    name = {"softmax": "softmax_", "sparse": "sparse_softmax_", "sigmoid": "sigmoid_"}[case.kind]
    function = getattr(flow.nn, f"{name}cross_entropy_with_logits")
    return lambda x, labels: function(labels=labels, logits=x)


def assert_near(found, recorded):
    """Each number within 1e-5 of TensorFlow's, relative to the largest of its kind."""
    assert found.dtype == np.float32
    near = np.abs(recorded).max() * 1e-5
    np.testing.assert_allclose(found.reshape(recorded.shape), recorded, rtol=1e-5, atol=near)


@pytest.mark.parametrize("name", CASES)
def test_as_in_tensorflow(name):
    case = CASES[name]
    with np.load(RECORD) as recorded:
        loss, gradient = recorded[f"{name}/loss"], recorded[f"{name}/gradient"]
    (found,) = predict(loss_of(case), case.logits, *case.rest)
    assert_near(found, loss)
    arrays = [case.logits, *case.rest]
    moved = watched_gradients(loss_of(case), arrays, [0], [case.seeds.reshape(found.shape)])
    assert_near(moved["in0"], gradient)


def test_each_case_is_recorded():
    with np.load(RECORD) as recorded:
        assert {key.partition("/")[0] for key in recorded} == set(CASES)
