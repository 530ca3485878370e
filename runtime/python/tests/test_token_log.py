"""Counts beside the steps of a language model: means over tokens, not over batches."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from flow2onnx_runtime.errors import BundleError, OptionsError
from flow2onnx_runtime.token_log import TokenLog, peak_bytes


def batch(counted, tokens, width=8):
    labels, mask = np.full((1, width), -100), np.zeros((1, width), np.int64)
    labels[0, :counted], mask[0, :tokens] = 1, 1
    return {"labels": labels, "attention_mask": mask, "loss": np.zeros(1)}


FEEDS = tuple(SimpleNamespace(name=n) for n in ("labels", "attention_mask", "loss"))


class Learner:
    """A learner whose loss is in its batch, and of which two batches make a step."""

    losses, rate, feeds = ("loss",), 0.5, FEEDS
    accumulated = 0

    def evaluate(self, arrays):
        return {"loss": arrays[2]}, {}


def loop(**values):
    made = SimpleNamespace(epoch=1, epochs=1, batch=0, step=0, learner=Learner(), **values)
    made.numbers = lambda results: {"loss": float(results["loss"])}
    return made


def train(log, way, losses):
    for loss in losses:
        way.batch += 1
        way.learner.accumulated = way.batch % 2
        way.step += way.batch % 2 == 0
        log.on_batch_end(way, {"loss": loss})
    way.step += way.learner.accumulated
    way.learner.accumulated = 0


def test_means_are_of_tokens(tmp_path):
    batches = [batch(1, 4), batch(3, 5), batch(4, 6)]
    held = [{**batch(1, 4), "loss": np.array([2.0])}, {**batch(3, 4), "loss": np.array([6.0])}]
    log = TokenLog(batches, tmp_path / "steps.csv", validation=held)
    way, row = loop(), {"epoch": 1, "step": 2, "loss": 0.0}
    log.on_fit_begin(way)
    train(log, way, [1.0, 3.0, 5.0])
    log.on_epoch_end(way, row)
    log.on_fit_end(way)
    assert [r["loss"] for r in log.steps] == [(1 + 9) / 4, 5.0]
    assert [r["tokens"] for r in log.steps] == [9, 15]
    assert row["loss"] == (1 + 9 + 20) / 8
    assert row["perplexity"] == math.exp(row["loss"])
    assert (tmp_path / "steps.csv").read_text().startswith("step,epoch,loss,lr,tokens,")
    assert row["val_loss"] == log.steps.last["val_loss"] == (2 + 18) / 4


def test_it_goes_on_where_it_was(tmp_path):
    batches = [batch(1, 4), batch(3, 5)] * 2
    whole, first = TokenLog(batches), TokenLog(batches)
    for log in (whole, first):
        way = loop()
        log.on_fit_begin(way)
        train(log, way, [1.0, 3.0, 5.0])
    first.write(tmp_path)
    second = TokenLog(batches)
    second.restore(first.state())
    second.read(tmp_path)
    for log in (whole, second):
        way = loop()
        way.step, way.batch, way.learner.accumulated = 2, 4, 0
        log.on_batch_end(way, {"loss": 7.0})
        log.on_epoch_end(way, {"epoch": 1, "step": 2})
    for name in ("loss", "tokens", "step"):
        assert whole.steps[name] == second.steps[name]
    with pytest.raises(OptionsError, match="other data"):
        TokenLog(batches[:1]).restore(first.state())
    (tmp_path / "steps.csv").write_text("step,loss\n1,2,3\n")
    with pytest.raises(BundleError, match="damaged"):
        second.read(tmp_path)


def test_losses_that_are_not_finite_do_not_count():
    log = TokenLog([batch(1, 4), batch(3, 5)])
    way, row = loop(), {"epoch": 1, "step": 1}
    log.on_fit_begin(way)
    train(log, way, [math.nan, 2.0])
    log.on_epoch_end(way, row)
    assert row["loss"] == 2.0
    assert peak_bytes() is None or peak_bytes() > 1 << 20
