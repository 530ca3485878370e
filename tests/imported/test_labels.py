"""Labels of losses by name: those left out of the mean, and those that are no classes."""

import numpy as np
import pytest
from flow2onnx_runtime import FlowError

import flow2onnx as flow
from tests.imported import models

X = models.random(7, 4, 4)


def trainer_of(loss):
    return flow.make_trainable(models.perceptron(4), loss, "sgd", lr=0.1).trainer()


def step(trainer, labels):
    return float(trainer.step(x=X, labels=np.asarray(labels, np.int64))["loss"])


def mean_of_kept(labels, ignored):
    """-log softmax[label], its mean over the labels that are not ignored, as torch defines it."""
    tensors = {t.name: models.numpy_helper.to_array(t)
               for t in models.perceptron(4).graph.initializer}  # fmt: skip
    hidden = np.tanh(X @ tensors["fc1.weight"] + tensors["fc1.bias"])
    scores = hidden @ tensors["fc2.weight"] + tensors["fc2.bias"]
    logs = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    return -np.mean([logs[i, n] for i, n in enumerate(labels) if n != ignored])


@pytest.mark.parametrize(("text", "ignored"), [
    ("cross_entropy", -100), ("cross_entropy(ignore_index=-1)", -1),
    ("cross_entropy(ignore_index=2)", 2), ("cross_entropy(ignore_index=255)", 255),
])  # fmt: skip
def test_labels_that_are_left_out(text, ignored):
    labels = [0, ignored, 1, ignored]
    assert step(trainer_of(text), labels) == pytest.approx(mean_of_kept(labels, ignored), rel=1e-5)


@pytest.mark.parametrize("wrong", [-1, -3, 3, 1000])
def test_labels_that_are_no_classes(wrong):
    trainer = trainer_of("cross_entropy")
    before = {n: v.copy() for n, v in trainer.state_dict().items()}
    with pytest.raises(FlowError):
        step(trainer, [0, 1, wrong, 2])
    after = trainer.state_dict()
    assert all((after[n] == v).all() for n, v in before.items())
    assert np.isfinite(step(trainer, [0, 1, 2, 2]))
