"""Optimizers by name: twenty steps equal torch's, or the formula of the paper in numpy."""

from pathlib import Path

import numpy as np
import pytest

import flow2onnx as flow
from flow2onnx.optim.named import OPTIMIZERS
from tests.optim import networks
from tests.optim.papers import PAPERS
from tests.optim.torch_cases import CASES, batches, weights

RECORDED = np.load(Path(__file__).with_name("torch_optimizers.npz"))
TEXTS = {name: case[0] for name, case in {**CASES, **PAPERS}.items()}


def group_of(text):
    """A group of an optimizer; one that says no rate would have that of all, not its default."""
    rule = OPTIMIZERS[text.partition("(")[0]]
    return {"optimizer": text} | ({} if "(lr=" in text else {"lr": rule.lr})


@pytest.fixture(scope="module")
def trained():
    """The weights of a copy of the network for each optimizer, all in one step model."""
    groups = {f"{name}.*": group_of(text) for name, text in TEXTS.items()}
    optimizer = flow.optimizer.named("sgd", groups=groups)
    model = networks.copies(TEXTS, weights())
    made = flow.make_trainable(model, "loss", optimizer, trained="*")
    trainer = made.trainer()
    for x, y in batches():
        trainer.step(x, y)
    return trainer.state_dict()


@pytest.mark.parametrize("case", CASES)
def test_steps_equal_torch(case, trained):
    for name in weights():
        expected = RECORDED[f"{case}/{name}"]
        np.testing.assert_allclose(trained[f"{case}.{name}"], expected, rtol=1e-6, atol=1e-6)
        assert np.abs(expected - weights()[name]).max() > 1e-4, "it has moved"


@pytest.mark.parametrize("case", PAPERS)
def test_steps_equal_the_paper(case, trained):
    expected = PAPERS[case][1](weights(), batches())
    for name in weights():
        got = trained[f"{case}.{name}"]
        np.testing.assert_allclose(got, expected[name], rtol=1e-6, atol=1e-6)
        assert np.abs(expected[name] - weights()[name]).max() > 1e-4, "it has moved"


def test_every_optimizer_has_a_reference():
    assert {text.partition("(")[0] for text in TEXTS.values()} == set(OPTIMIZERS)
