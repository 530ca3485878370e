"""Metrics, beside scikit-learn's over whole data."""

import json
import math

import numpy as np
import pytest

from flow2onnx_runtime import FeedError, OptionsError
from flow2onnx_runtime.metrics import METRICS, metrics_of

RNG = np.random.default_rng(0)
SCORES = RNG.standard_normal((50, 4)).astype(np.float32)
LABELS = RNG.integers(0, 4, 50)
REAL = RNG.standard_normal((50, 3)).astype(np.float32)
TARGET = (REAL + 0.3 * RNG.standard_normal((50, 3))).astype(np.float32)
SHARES = RNG.uniform(size=(50, 1)).astype(np.float32)
TRUTHS = RNG.integers(0, 2, (50, 1))


@pytest.fixture
def sk():
    """scikit-learn, which takes longer to import than most tests to run."""
    return pytest.importorskip("sklearn.metrics")


def result_of(text, predictions, labels, size=8):
    (metric,) = metrics_of(text)
    for first in range(0, len(labels), size):
        metric.update(predictions[first : first + size], labels[first : first + size])
    return metric.result()


def log_softmax(x):
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


CHOSEN = SCORES.argmax(-1)
CASES = {
    "accuracy": (SCORES, LABELS, lambda sk: sk.accuracy_score(LABELS, CHOSEN)),
    "accuracy ": (SHARES, TRUTHS, lambda sk: sk.accuracy_score(TRUTHS, SHARES > 0.5)),
    "accuracy(threshold=0)": (
        SHARES - 0.3,
        TRUTHS,
        lambda sk: sk.accuracy_score(TRUTHS, SHARES > 0.3),
    ),
    "top_k(k=2)": (SCORES, LABELS, lambda sk: sk.top_k_accuracy_score(LABELS, SCORES, k=2)),
    "top_k(k=9)": (SCORES, LABELS, lambda sk: 1.0),
    "f1": (SCORES, LABELS, lambda sk: sk.f1_score(LABELS, CHOSEN, average="macro")),
    "f1(average='micro')": (
        SCORES,
        LABELS,
        lambda sk: sk.f1_score(LABELS, CHOSEN, average="micro"),
    ),
    "f1(average='weighted')": (
        SCORES,
        LABELS,
        lambda sk: sk.f1_score(LABELS, CHOSEN, average="weighted"),
    ),
    "f1 ": (SHARES, TRUTHS, lambda sk: sk.f1_score(TRUTHS[:, 0], SHARES[:, 0] > 0.5)),
    "mae": (REAL, TARGET, lambda sk: sk.mean_absolute_error(TARGET, REAL)),
    "mse": (REAL, TARGET, lambda sk: sk.mean_squared_error(TARGET, REAL)),
    "rmse": (
        REAL[:, :1],
        TARGET[:, :1],
        lambda sk: sk.root_mean_squared_error(TARGET[:, :1], REAL[:, :1]),
    ),
    "r2": (REAL, TARGET, lambda sk: sk.r2_score(TARGET, REAL)),
    "perplexity": (
        SCORES,
        LABELS,
        lambda sk: math.exp(sk.log_loss(LABELS, np.exp(log_softmax(SCORES)))),
    ),
}


@pytest.mark.parametrize("text", CASES)
@pytest.mark.parametrize("size", [1, 8, 50])
def test_metrics_are_those_of_scikit_learn(text, size, sk):
    predictions, labels, expected = CASES[text]
    assert result_of(text, predictions, labels, size) == pytest.approx(expected(sk), rel=1e-6)


def test_every_metric_has_a_case():
    assert {text.split("(")[0].strip() for text in CASES} == set(METRICS)


def test_classes_that_nobody_names_count_for_nothing(sk):
    """Of the classes of a macro average, only those that are predicted or labelled take part."""
    labels, scores = np.array([0, 1, 0]), np.eye(5, dtype=np.float32)[[0, 1, 1]]
    expected = sk.f1_score(labels, scores.argmax(-1), average="macro")
    assert result_of("f1", scores, labels) == pytest.approx(expected)


def test_texts_and_ignored_labels():
    """Scores (batch, words, classes) or, as torch has them, (batch, classes, words)."""
    scores = RNG.standard_normal((6, 7, 4)).astype(np.float32)
    labels = RNG.integers(0, 4, (6, 7))
    labels[0, :3] = -100
    kept = labels != -100
    expected = (scores.argmax(-1) == labels)[kept].mean()
    assert result_of("accuracy", scores, labels) == pytest.approx(expected)
    assert result_of("accuracy", scores.swapaxes(1, 2), labels) == pytest.approx(expected)
    nll = -log_softmax(scores.astype(np.float64))[kept][np.arange(kept.sum()), labels[kept]]
    assert result_of("perplexity", scores, labels) == pytest.approx(math.exp(nll.mean()))


def test_as_many_words_as_classes_need_an_axis():
    scores, labels = RNG.standard_normal((5, 4, 4)), RNG.integers(0, 4, (5, 4))
    with pytest.raises(FeedError, match=r"say which: accuracy\(axis=1\)"):
        result_of("accuracy", scores, labels)
    found = result_of("accuracy(axis=-1)", scores, labels)
    assert found == pytest.approx((scores.argmax(-1) == labels).mean())


def test_as_many_rows_as_classes():
    """The first axis is the batch's, whatever its size."""
    scores, labels = RNG.standard_normal((4, 4)), RNG.integers(0, 4, 4)
    assert result_of("accuracy", scores, labels) == (scores.argmax(-1) == labels).mean()
    scores, labels = RNG.standard_normal((4, 4, 6, 5)), RNG.integers(0, 4, (4, 6, 5))
    assert result_of("accuracy", scores, labels) == (scores.argmax(1) == labels).mean()


@pytest.mark.parametrize("text", CASES)
def test_what_was_gathered_can_be_kept(text):
    """As JSON, from which a metric goes on to the same bits."""
    predictions, labels, _ = CASES[text]
    (whole,), (first,), (second,) = (metrics_of(text) for _ in range(3))
    for rows in (slice(0, 20), slice(20, 50)):
        whole.update(predictions[rows], labels[rows])
    first.update(predictions[:20], labels[:20])
    second.restore(json.loads(json.dumps(first.state())))
    second.update(predictions[20:], labels[20:])
    assert second.result() == whole.result()


def test_labels_that_are_all_alike():
    assert result_of("r2", np.ones((4, 1)), np.ones((4, 1))) == 1.0
    assert result_of("r2", np.zeros((4, 1)), np.ones((4, 1))) == 0.0


def test_large_offsets_cost_no_digits(sk):
    assert result_of("r2", REAL + 1e6, TARGET.astype(np.float64) + 1e6, 3) == pytest.approx(
        sk.r2_score(TARGET.astype(np.float64) + 1e6, REAL + 1e6), rel=1e-9
    )


@pytest.mark.parametrize("text", METRICS)
def test_nothing_gives_no_number(text):
    assert math.isnan(metrics_of(text)[0].result())


@pytest.mark.parametrize(
    ("text", "predictions", "labels", "message"),
    [
        ("accuracy", SCORES, LABELS + 1, "the label 4 is no class of 4"),
        ("accuracy", SCORES, LABELS.astype(np.float32), "no class numbers"),
        ("accuracy", SCORES, TRUTHS, "one axis more"),
        ("accuracy", SHARES - 0.5, TRUTHS, "threshold=0"),
        ("mae", REAL, TARGET[:, 0], "the shape of the predictions"),
    ],
)
def test_what_does_not_fit_is_said(text, predictions, labels, message):
    with pytest.raises(FeedError, match=message):
        result_of(text, predictions, labels)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("acuracy", "there are accuracy"),
        ("top_k(n=3)", "it has k, axis"),
        ("top_k(k=0)", "at least 1"),
        ("mae(axis=1)", "no settings"),
        ("f1(average='all')", "macro, micro"),
        (["accuracy", "accuracy"], "two metrics"),
        (3, "no metric"),
    ],
)
def test_metrics_that_are_none(given, message):
    with pytest.raises(OptionsError, match=message):
        metrics_of(given)
