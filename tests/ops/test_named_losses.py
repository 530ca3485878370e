"""Losses by name: twenty steps in float64 equal torch's, or those of the paper's formula."""

from pathlib import Path

import numpy as np
import pytest

import flow2onnx as flow
from flow2onnx.errors import ArgumentError, DTypeError, ShapeError
from flow2onnx.ops.named_losses import LOSSES
from tests.ops.jobs import define, predict, run
from tests.ops.loss_cases import CASES, RATE, STEPS, operands, weights

RECORDED = np.load(Path(__file__).with_name("torch_losses.npz"))
HEADS = {
    "scores": lambda x: x,
    "time": lambda x: x,
    "log_softmax": lambda x: flow.nn.logsoftmax(x, 1),
    "time_log_softmax": lambda x: flow.nn.logsoftmax(x, 2),
    "sigmoid": flow.math.sigmoid,
    "positive": flow.math.exp,
}


def loss_of(case, given):
    name, settings, heads, labels = CASES[case]
    outputs = []
    for i, head in enumerate(heads):
        w = flow.get_variable(f"{case}-{i}", (4, 3), flow.float64, flow.zeros_initializer())
        x = given["x"] if not head.startswith("time") else flow.reshape(given["x_time"], (10, 4))
        y = flow.matmul(x, w)
        outputs.append(HEADS[head](y if "time" not in head else flow.reshape(y, (5, 2, 3))))
    function = getattr(flow.losses, name)
    return function(*outputs, *(given[n] for n in labels), **settings)


@pytest.fixture(scope="module")
def trained():
    """The weights of all cases after all steps of one job, and every loss at every step."""
    values = operands()

    def body(*feeds):
        given = dict(zip(values, feeds, strict=True))
        losses = [loss_of(case, given) for case in CASES]
        flow.optimizer.named("sgd", RATE).minimize(flow.math.add_n(losses))
        return losses

    flow.clear_default_session()
    job = define(body, list(values.values()), "train")
    flow.load_variables(weights())
    steps = [run(job, *values.values()) for _ in range(STEPS)]
    found = {n: v.numpy().copy() for n, v in flow.get_all_variables().items()}
    losses = {c: np.array([s[i].item() for s in steps]) for i, c in enumerate(CASES)}
    flow.clear_default_session()
    return found, losses


@pytest.mark.parametrize("case", CASES)
def test_steps_equal_torch(case, trained):
    found, losses = trained
    np.testing.assert_allclose(losses[case], RECORDED[f"loss/{case}"], rtol=1e-6, atol=1e-6)
    assert losses[case][-1] < losses[case][0]
    for name in (n for n in weights() if n.rpartition("-")[0] == case):
        np.testing.assert_allclose(found[name], RECORDED[name], rtol=1e-6, atol=1e-6)


def test_every_loss_has_a_case():
    assert {name for name, *_ in CASES.values()} == set(LOSSES)


X, Y = np.float32([[1, 2, -1], [0, 3, 1]]), np.int64([2, 0])
R = np.float32([[0.5, 1, 0], [1, 0, 0.25]])


def value(name, *arrays, **settings):
    return predict(lambda *v: getattr(flow.losses, name)(*v, **settings), *arrays)[0].item()


def test_all_labels_but_one_may_be_left_out():
    kept = value("cross_entropy", X[:1], Y[:1], label_smoothing=0.1)
    both = value("cross_entropy", X, np.int64([2, -100]), label_smoothing=0.1)
    assert both == pytest.approx(kept)


def test_labels_of_32_bits():
    assert value("nll", X, np.int32(Y)) == pytest.approx(value("nll", X, Y))


def test_infinite_scores_that_are_left_out_do_not_count():
    scores = np.float32([[0, -np.inf, 0], [0, 1, 0]])
    found = value("nll", scores, np.int64([1, 1]), ignore_index=1, reduction="sum")
    assert found == 0


def test_focal_without_focus_is_the_cross_entropy():
    expected = value("bce_with_logits", X, np.round(R))
    assert value("focal", X, np.round(R), gamma=0, alpha=None) == pytest.approx(expected)


def test_a_text_that_cannot_be_spelt():
    scores = np.zeros((2, 1, 3), np.float32)
    arguments = scores, np.int64([[1, 1]]), np.int64([2]), np.int64([2])
    assert value("ctc", *arguments) == np.inf
    assert value("ctc", *arguments, zero_infinity=True) == 0


def test_classes_on_the_last_axis():
    images = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)
    labels = np.random.default_rng(1).integers(0, 3, (2, 4, 5))
    moved = np.ascontiguousarray(images.transpose(0, 2, 3, 1))
    for name in ("cross_entropy", "softmax_focal"):
        expected = value(name, images, labels, weight=[1.0, 2.0, 3.0])
        got = value(name, moved, labels, axis=-1, weight=[1.0, 2.0, 3.0])
        assert got == pytest.approx(expected, rel=1e-5)


WRONG = [
    ("cross_entropy", (X, Y), {"weight": [1.0]}, ArgumentError, "a list of 3 numbers"),
    ("cross_entropy", (X, Y), {"weight": [1.0, -1.0, 0.0]}, ArgumentError, "of at least 0"),
    ("cross_entropy", (X, Y), {"weight": "high"}, ArgumentError, "weight is 'high'"),
    ("cross_entropy", (X, Y), {"label_smoothing": 1.5}, ArgumentError, "at most 1"),
    ("cross_entropy", (X, Y), {"ignore_index": 0.5}, ArgumentError, "ignore_index is 0.5"),
    ("cross_entropy", (X, Y), {"reduction": "none"}, ArgumentError, "'mean' or 'sum'"),
    ("cross_entropy", (X, Y), {"axis": 2}, ShapeError, "no axis 2"),
    ("cross_entropy", (X, R), {}, DTypeError, "labels are class numbers"),
    ("cross_entropy", (X, Y), {"probabilities": True}, ShapeError, "shapes differ"),
    ("cross_entropy", (X, np.int64([[1, 2]])), {}, ShapeError, "labels of these scores are (2,)"),
    ("mse", (X, R[:1]), {}, ShapeError, "shapes differ"),
    ("mse", (X, np.int64(R)), {}, DTypeError, "labels is of real numbers"),
    ("mse", (X, R), {"reduction": "max"}, ArgumentError, "reduction is 'max'"),
    ("huber", (X, R), {"delta": 0}, ArgumentError, "above 0"),
    ("huber", (X, R), {"delta": True}, ArgumentError, "delta is True"),
    ("bce_with_logits", (X, R), {"pos_weight": [1.0, 2.0]}, ArgumentError, "broadcasts to (2, 3)"),
    ("bce_with_logits", (X, R), {"pos_weight": -1.0}, ArgumentError, "pos_weight is -1.0"),
    ("focal", (X, R), {"gamma": -1}, ArgumentError, "gamma is -1"),
    ("focal", (X, R), {"alpha": 2.0}, ArgumentError, "alpha is 2.0"),
    ("dice", (X[0], R[0]), {}, ShapeError, "scores of masks"),
    ("kl", (X, R), {"reduction": "all"}, ArgumentError, "reduction is 'all'"),
    ("multi_margin", (X, Y), {"p": 3}, ArgumentError, "p is 3"),
    ("triplet", (X, X, R[:1]), {}, ShapeError, "negative is (1, 3)"),
    ("triplet", (X, X, R), {"margin": 0}, ArgumentError, "margin is 0"),
    ("cosine_embedding", (X, R, X), {}, ShapeError, "labels is (2, 3)"),
    ("info_nce", (X, R), {"temperature": 0.0}, ArgumentError, "temperature is 0.0"),
    ("info_nce", (X[None], R[None]), {}, ShapeError, "takes (batch, size)"),
    ("ctc", (X, Y[None], Y, Y), {}, ShapeError, "(time, batch, classes)"),
    ("ctc", (X[None], Y[:, None], Y, Y), {"blank": 3}, ArgumentError, "no class of 3"),
]


@pytest.mark.parametrize(("name", "arrays", "settings", "kind", "message"), WRONG,
                         ids=[f"{w[0]}-{w[4]}" for w in WRONG])  # fmt: skip
def test_wrong_losses(name, arrays, settings, kind, message):
    with pytest.raises(kind) as caught:
        value(name, *arrays, **settings)
    assert message in str(caught.value)
