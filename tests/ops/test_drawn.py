"""Random operators, by what their draws have in common."""

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.errors import JobError
from tests.ops.jobs import define, predict, run, watched_gradients


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


def test_partial_fc_sample():
    weight = np.arange(40, dtype=np.float32).reshape(10, 4)
    label = np.array([7, 2, 7, 9], np.int32)

    def body(w, y):
        return flow.distributed_partial_fc_sample(w, y, 6)

    flow.clear_default_session()
    job = define(body, [weight, label])
    seen = set()
    for _ in range(4):
        mapped, classes, rows = run(job, weight, label)
        assert [a.dtype for a in (mapped, classes, rows)] == [np.int32, np.int32, np.float32]
        assert (mapped.shape, classes.shape, rows.shape) == ((4,), (6,), (6, 4))
        assert len(set(classes)) == 6
        np.testing.assert_array_equal(classes[mapped], label)
        np.testing.assert_array_equal(rows, weight[classes])
        seen.add(tuple(classes))
    assert len(seen) > 1


def test_partial_fc_sample_of_all_classes_has_the_gradient_of_them():
    weight = np.arange(6, dtype=np.float32).reshape(3, 2)
    label = np.array([1, 1], np.int32)
    found = watched_gradients(
        lambda w, y: flow.distributed_partial_fc_sample(w, y, 3)[2], [weight, label], [0],
        [np.full((3, 2), 2, np.float32)],
    )  # fmt: skip
    np.testing.assert_array_equal(found["in0"], np.full((3, 2), 2))


@pytest.mark.parametrize("count", [1, 11, 2.5])
def test_partial_fc_sample_of_too_few_or_many(count):
    with pytest.raises(ValueError, match="num_sample is from 2 to 10"):
        predict(
            lambda w, y: flow.distributed_partial_fc_sample(w, y, count)[1],
            np.zeros((10, 4), np.float32), np.zeros(2, np.int64),
        )  # fmt: skip


@pytest.mark.parametrize(
    "call",
    [
        lambda x: flow.random.CoinFlip(2),
        lambda x: flow.random.bernoulli(x),
        lambda x: flow.range(3),
    ],
    ids=["CoinFlip", "bernoulli", "range"],
)
def test_a_default_name_is_used_once(call):
    def twice_unnamed(x):
        return [call(x), call(x)]

    with pytest.raises(JobError, match="already exist in job") as info:
        predict(twice_unnamed, np.zeros(3, np.float32))
    assert "pass another name=" in info.value.hint
