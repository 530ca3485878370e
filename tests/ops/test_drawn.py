"""Random operators, by what their draws have in common."""

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from tests.ops.jobs import define, predict, run


def twice(body, *arrays):
    """The results of two calls of one job."""
    flow.clear_default_session()
    job = define(body, arrays)
    return [run(job, *arrays)[0] for _ in range(2)]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_bernoulli(dtype):
    chances = np.linspace(0, 1, 5, dtype=dtype).repeat(2000)
    first, second = twice(flow.random.bernoulli, chances)
    for y in (first, second):
        assert (y.shape, y.dtype) == (chances.shape, chances.dtype)
        assert set(np.unique(y)) == {0, 1}
        shares = y.reshape(5, 2000).mean(1, dtype=np.float64)
        np.testing.assert_allclose(shares, np.linspace(0, 1, 5), atol=0.06)
        assert (shares[0], shares[-1]) == (0, 1)
    assert (first != second).any()


def test_bernoulli_in_another_type():
    (y,) = predict(lambda x: flow.random.bernoulli(x, dtype=flow.int8), np.ones(3, np.float32))
    assert y.dtype == np.int8
    assert y.tolist() == [1, 1, 1]


@pytest.mark.parametrize("name", ["coin_flip", "CoinFlip"])
def test_coin_flip(name):
    flip = getattr(flow.random, name)
    first, second = twice(lambda x: flip(4000, probability=0.25), np.zeros(1, np.float32))
    assert (first.shape, first.dtype) == ((4000,), np.int8)
    assert abs(first.mean() - 0.25) < 0.05
    assert (first != second).any()
    (y,) = predict(lambda x: flip(), np.zeros(1, np.float32))
    assert y.shape == (1,)


def test_two_coins_need_names():
    def body(x):
        return [flow.random.CoinFlip(3), flow.random.CoinFlip(3)]

    with pytest.raises(AssertionError, match="CoinFlip already exist"):
        predict(body, np.zeros(1, np.float32))


def test_coins_named():
    def body(x):
        first = flow.random.CoinFlip(500, seed=7, name="one")
        return [first, flow.random.CoinFlip(500, seed=7, name="two"), flow.random.CoinFlip(500)]

    one, two, other = predict(body, np.zeros(1, np.float32))
    np.testing.assert_array_equal(one, two)
    assert (one != other).any()


def test_permutation():
    body = flow.random.generate_random_batch_permutation_indices
    first, second = twice(body, np.zeros((50, 2), np.float32))
    assert first.dtype == np.int32
    assert sorted(first) == sorted(second) == list(range(50))
    assert (first != second).any()


@pytest.mark.parametrize("dtype", ["float32", "int8", "int64"])
def test_shuffle(dtype):
    rows = np.arange(60).reshape(20, 3).astype(dtype)
    first, second = twice(flow.random.shuffle, rows)
    assert first.dtype == rows.dtype
    for y in (first, second):
        np.testing.assert_array_equal(y[np.argsort(y[:, 0])], rows)
    assert (first != second).any()


def test_seed_needs_a_name():
    with pytest.raises(AssertionError, match="a seed needs a name"):
        predict(lambda x: flow.random.shuffle(x, seed=3), np.zeros(3, np.float32))


def test_gen_seed():
    seen = []

    @flow.global_function()
    def consistent(x: tp.Numpy.Placeholder((1,))) -> tp.Numpy:
        seen.extend([flow.random.gen_seed(5), flow.random.gen_seed(), flow.random.gen_seed()])
        return x

    consistent(np.zeros(1, np.float32))
    assert seen[0] == (5, True)
    assert seen[1][1] is seen[2][1] is True
    assert seen[1] != seen[2]

    def mirrored(x):
        with flow.scope.mirrored_view():
            seen.append(flow.random.gen_seed())
        return x

    predict(mirrored, np.zeros(1, np.float32))
    assert seen[-1] == (-1, False)
