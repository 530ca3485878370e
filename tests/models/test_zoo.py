"""Every network: it has as many parameters as published, trains, and tells what it learned."""

import re
from pathlib import Path

import numpy as np
import pytest
from flow2onnx_runtime import Predictor

import flow2onnx as flow
from models import dcgan, vgg16
from tests.models.zoo import ROWS, draw, parameters, sgd, variables

ROOT = Path(__file__).parents[2]
BY_NAME = {row.name: row for row in ROWS}
# what has another name than its module is a variant of it
COUNTED = [pytest.param(r, id=r.name, marks=[pytest.mark.slow] * ("-" in r.name)) for r in ROWS]
TRAINED = [pytest.param(r, id=r.name, marks=[pytest.mark.slow] * r.is_slow) for r in ROWS]


def mean_of(result):
    """The loss: what a job gives first."""
    return float(np.mean(result[0] if isinstance(result, tuple) else result))


def values():
    return {name: blob.numpy() for name, blob in flow.get_all_variables().items()}


@pytest.mark.parametrize("row", COUNTED)
def test_parameters(row):
    job = row.full().train
    assert parameters(job) == row.count
    found = {name: v.shape for name, v in variables(job).items()}
    assert {name: found.get(name) for name in row.names} == row.names


@pytest.mark.parametrize("row", TRAINED)
def test_trains(row):
    jobs, batch = row.small(), row.feed()
    trained = [n for n, v in variables(jobs.train).items() if v.is_trainable]
    before = values()
    losses = [mean_of(jobs.train(*batch)) for _ in range(row.steps)]
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0], losses
    after = values()
    assert [n for n in trained if np.array_equal(before[n], after[n])] == []


def asked(row, jobs):
    """The part of a batch that the predict job takes."""
    known = dict(zip(jobs.train.spec.names, row.feed(), strict=True))
    if row.name == "gpt":
        known["tokens"] = known["text"][:, :-1]
    if row.name == "yolov3":  # its moving statistics say nothing yet: sizes, an exponent, overflow
        known["images"] = known["images"] * np.float32(1e-3)
    return [known[name] for name in jobs.predict.spec.names]


@pytest.mark.slow
@pytest.mark.parametrize("row", [pytest.param(r, id=r.name) for r in ROWS if "-" not in r.name])
def test_exports_for_batches_of_any_size(row, tmp_path):
    jobs = row.small()
    arrays = asked(row, jobs)
    expected = jobs.predict(*arrays)
    jobs.predict.export(tmp_path / "model.onnx", dynamic_batch=True)
    found = Predictor(tmp_path / "model.onnx")(*(a[:1] for a in arrays))
    whole = expected if isinstance(expected, tuple) else (expected,)
    for i, value in enumerate(whole):
        np.testing.assert_allclose(found[f"out/{i}"], value[:1], rtol=1e-3, atol=1e-5)


def test_classifier_says_what_it_scores():
    jobs, (images, labels) = BY_NAME["alexnet"].small(), BY_NAME["alexnet"].feed()
    shares = jobs.predict(images)
    losses, is_right = jobs.evaluate(images, labels)
    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-5)
    own = -np.log(shares[np.arange(len(labels)), labels])
    np.testing.assert_allclose(losses.ravel(), own, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(is_right.astype(bool), shares.argmax(1) == labels)


@pytest.mark.parametrize("is_training", [True, False])
def test_moving_statistics_move_in_training(is_training):
    images, labels = BY_NAME["vgg16"].feed()
    jobs = vgg16.jobs(
        8, 32, 4, optimizer=sgd(), multiplier=1 / 16, is_training=is_training
    )  # fmt: skip
    before = values()["conv0_bn-moving_mean"]
    jobs.train(images, labels)
    assert np.array_equal(values()["conv0_bn-moving_mean"], before) != is_training


def test_bert_ignores_what_the_mask_hides():
    jobs, (ids, mask, segments, *_) = BY_NAME["bert"].small(), BY_NAME["bert"].feed()
    mask = mask.copy()
    mask[:, 5:] = 0
    changed = ids.copy()
    changed[:, 5:] = (changed[:, 5:] + 1) % 50
    first, second = jobs.predict(ids, mask, segments), jobs.predict(changed, mask, segments)
    np.testing.assert_allclose(first[0][:, :5], second[0][:, :5], rtol=1e-5, atol=1e-6)
    assert np.abs(first[0][:, 5:] - second[0][:, 5:]).max() > 1e-3


def test_bert_leaves_out_words_without_weight():
    jobs, batch = BY_NAME["bert"].small(), BY_NAME["bert"].feed()
    changed = list(batch)
    changed[4] = batch[4].copy()
    changed[4][0, 2] = (changed[4][0, 2] + 1) % 50  # its weight is 0
    of_words = jobs.evaluate(*batch)[1]
    np.testing.assert_allclose(jobs.evaluate(*changed)[1], of_words, rtol=1e-6)
    changed[4][0, 1] = (changed[4][0, 1] + 1) % 50
    assert np.abs(jobs.evaluate(*changed)[1] - of_words).max() > 1e-4


def test_gpt_sees_nothing_that_follows():
    jobs, (text,) = BY_NAME["gpt"].small(), BY_NAME["gpt"].feed()
    tokens = text[:, :-1]
    changed = tokens.copy()
    changed[:, 5:] += 1
    first, second = jobs.predict(tokens), jobs.predict(changed)
    np.testing.assert_allclose(first[:, :5], second[:, :5], rtol=1e-5, atol=1e-6)
    assert np.abs(first[:, 5:] - second[:, 5:]).max() > 1e-3


def test_wide_deep_moves_only_the_rows_it_reads():
    jobs, batch = BY_NAME["wide_deep"].small(), BY_NAME["wide_deep"].feed()
    before = values()["deep_embedding"]
    jobs.train(*batch)
    moved = np.flatnonzero((values()["deep_embedding"] != before).any(1))
    np.testing.assert_array_equal(moved, np.unique(batch[3]))


def test_dcgan_counts():
    jobs = dcgan.jobs(batch=2)
    drawn, both = parameters(jobs.predict), parameters(jobs.train_discriminator)
    assert (drawn, both - drawn) == (2_305_472, 212_864)


def test_dcgan_trains_one_network_at_a_time():
    jobs = dcgan.jobs(batch=4, rate=1e-3, channels=16)
    noise, images = draw(4, dcgan.NOISE), np.tanh(draw(4, 1, 28, 28))
    start = values()
    told = [mean_of(jobs.train_discriminator(noise, images)) for _ in range(4)]
    between = values()
    made = [mean_of(jobs.train_generator(noise)) for _ in range(4)]
    end = values()
    assert told[-1] < told[0]
    assert made[-1] < made[0]
    own = {*dcgan.GENERATOR, *dcgan.DISCRIMINATOR}

    def moved(a, b):
        return {n for n in own if not np.array_equal(a[n], b[n])}

    assert moved(start, between) == set(dcgan.DISCRIMINATOR)
    assert moved(between, end) == set(dcgan.GENERATOR)


def test_the_table_of_the_readme():
    text = (ROOT / "models" / "README.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|.*?\| ([\d,]+) \|", text, re.MULTILINE)
    told = {name: int(count.replace(",", "")) for name, count in rows}
    expected = {row.name: row.count for row in ROWS if "-" not in row.name}
    assert told == {**expected, "dcgan": 2_305_472 + 212_864}
