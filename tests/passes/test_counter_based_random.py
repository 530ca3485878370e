"""Draws that depend on seed, counter and position: spread, independence, equality."""

import numpy as np
import onnxruntime as ort
import pytest

from flow2onnx.dtypes import bool_, float16, float32, float64, int64
from flow2onnx.errors import UnsupportedError
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_bytes, model_of
from flow2onnx.graph.types import dims, dtype_of
from flow2onnx.graph.verify import verify
from flow2onnx.passes import CounterBasedRandom

SHAPE = (100, 512)


def session(build, counters=("step",)):
    """A function that runs what `build` makes of a counter, with its draws counted."""
    b = Builder(21)
    for name in counters:
        b.input(name, (1,), int64)
    x = b.input("x", SHAPE, float32)
    for i, value in enumerate(build(b, x)):
        b.output(value, f"y{i}")
    before = [(dims(v), dtype_of(v)) for v in b.graph.outputs]
    assert CounterBasedRandom(counters).run(b.graph)
    assert [(dims(v), dtype_of(v)) for v in b.graph.outputs] == before
    model = model_of(b.graph)
    verify(model)
    opened = ort.InferenceSession(model_bytes(model))

    ones = np.ones(SHAPE, np.float32)

    def run(*steps, x=ones):
        numbers = {n: np.array([s], np.int64) for n, s in zip(counters, steps, strict=True)}
        return opened.run(None, {"x": x, **numbers})

    return run


def uniform(b, x, seed=7.0, **more):
    return (b.RandomUniform(dtype=float32, shape=list(SHAPE), seed=seed, **more),)


def test_numbers_are_spread_evenly():
    draw = session(uniform)
    whole = np.concatenate([draw(step)[0].ravel() for step in range(20)])
    assert whole.min() >= 0
    assert whole.max() < 1
    counts, _ = np.histogram(whole, bins=100, range=(0, 1))
    expected = whole.size / 100
    chi = ((counts - expected) ** 2 / expected).sum()
    assert 40 < chi < 180  # 99 degrees of freedom: beyond six deviations on either side


@pytest.mark.parametrize("lag", [1, 2, 512, 513])
def test_neighbours_are_independent(lag):
    draw = session(uniform)
    centred = np.concatenate([draw(step)[0].ravel() for step in range(10)]) - 0.5
    correlation = np.mean(centred[:-lag] * centred[lag:]) / np.mean(centred**2)
    assert abs(correlation) < 6 / np.sqrt(centred.size)


def test_steps_and_seeds_are_independent():
    draws = [session(lambda b, x, s=s: uniform(b, x, s))(step)[0].ravel() - 0.5
             for s in (0.0, 1.0, 2.0**24 - 1) for step in (0, 1, 2, 10**6, 2**40)]  # fmt: skip
    table = np.corrcoef(draws)
    assert np.abs(table - np.eye(len(draws))).max() < 6 / np.sqrt(draws[0].size)


def test_equal_steps_draw_equal_numbers():
    first, second = session(uniform), session(uniform)
    wanted = first(5)[0]
    first(6)
    np.testing.assert_array_equal(first(5)[0], wanted)
    np.testing.assert_array_equal(second(5)[0], wanted)


def test_every_counter_counts():
    draw = session(uniform, ("step", "batch"))
    assert len({draw(s, k)[0].tobytes() for s in range(3) for k in range(3)}) == 9


def test_bounds_and_types():
    def build(b, x):
        like = b.RandomUniformLike(x, dtype=float64, seed=1.0)
        return (*uniform(b, x, low=-2.0, high=3.0), like,
                b.RandomUniform(dtype=float16, shape=[50], seed=2.0))  # fmt: skip

    wide, double, half = session(build)(0)
    assert -2 <= wide.min() < -1.9 < 2.9 < wide.max() < 3
    assert (double.dtype, half.dtype) == (np.float64, np.float16)
    assert abs(double.mean() - 0.5) < 0.01


def test_dropout_drops_its_share():
    def build(b, x):
        return b.several("Dropout", x, 0.3, b.const(True, bool_), seed=3.0, outputs=2)

    run = session(build)
    x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    kept = []
    for step in range(5):
        y, mask = run(step, x=x)
        np.testing.assert_allclose(y, np.where(mask, x / np.float32(0.7), 0), rtol=1e-6)
        kept.append(mask.ravel())
    share, size = np.mean(kept), np.size(kept)
    assert abs(share - 0.7) < 6 * np.sqrt(0.21 / size)
    assert np.abs(np.corrcoef(kept) - np.eye(5)).max() < 6 / np.sqrt(kept[0].size)
    per_unit = np.mean([k.reshape(SHAPE).mean(0) for k in kept], axis=0)
    assert np.abs(per_unit - 0.7).max() < 6 * np.sqrt(0.21 / 500)


def test_dropout_that_drops_nothing():
    def build(b, x):
        return b.several("Dropout", x, 0.3, seed=3.0, outputs=2)

    y, mask = session(build)(0)
    np.testing.assert_array_equal(y, np.ones(SHAPE, np.float32))
    assert mask.all()


def test_other_draws_are_refused():
    with pytest.raises(UnsupportedError, match=r"RandomNormal .*\n.*uniform draws"):
        session(lambda b, x: (b.RandomNormal(shape=[3], dtype=float32, seed=1.0),))


def test_a_rate_that_is_computed_is_refused():
    def build(b, x):
        rate = b.ReduceMean(x, keepdims=0)
        return b.several("Dropout", x, rate, b.const(True, bool_), seed=3.0, outputs=2)

    with pytest.raises(UnsupportedError, match=r"is computed\n.*constant"):
        session(build)
