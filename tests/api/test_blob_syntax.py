"""Python's syntax on blobs, beside numpy's on arrays; and what it refuses, with the user's line."""

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.errors import ArgumentError, DTypeError, FlowError, ShapeError, TracingError
from tests.api.support import raises

RNG = np.random.default_rng(11)
X = RNG.normal(size=(4, 5, 6)).astype(np.float32)
W = RNG.normal(size=(6, 2)).astype(np.float32)
V = RNG.normal(size=6).astype(np.float32)
I = np.array([[3, -7, 8]], np.int32)  # noqa: E741

SYNTAX = [
    lambda x: x[1],
    lambda x: x[-1],
    lambda x: x[np.int64(2)],
    lambda x: x[1:3],
    lambda x: x[::-1],
    lambda x: x[3:0:-2, 1],
    lambda x: x[-2:-1],
    lambda x: x[..., 0],
    lambda x: x[..., 4:1:-2],
    lambda x: x[:, None],
    lambda x: x[None, ..., None],
    lambda x: x[1, 2, 3:5],
    lambda x: x[1:, None, 0],
    lambda x: x[:, ::2, -3:],
    lambda x: x[[0, 2, -1]],
    lambda x: x[:, np.array([[0, 1], [2, 3]])],
    lambda x: x[0, [1, 2], None, 1:3],
    lambda x: x[np.array([True, False, True, True])],
    lambda x: -x,
    lambda x: +x,
    lambda x: abs(x),
    lambda x: abs(x) ** 0.5,
    lambda x: 2**x,
    lambda x: x // 0.3,
    lambda x: x @ W,
    lambda x: x @ V,
    lambda x: W.T @ x.transpose(0, 2, 1),
    lambda x: x.T,
    lambda x: x.reshape(4, -1),
    lambda x: x.reshape((20, 6)),
    lambda x: x.transpose((2, 0, 1)),
    lambda x: x.sum((0, 2), keepdims=True),
    lambda x: x.mean(1),
    lambda x: x.max(axis=-1),
    lambda x: x.min(0),
    lambda x: x.prod(2),
    lambda x: x.var(1),
    lambda x: x.std(1),
    lambda x: x.clip(0, 1),
    lambda x: (x > 0).any(1),
    lambda x: (x > 0).all((1, 2)),
    lambda x: x.argmax(-1),
    lambda x: (x > 0) & (x < 1),
    lambda x: (x > 1) | ~(x > 0) ^ (x > 2),
    lambda x: x + np.arange(6),
    lambda x: np.arange(6) * x,
    lambda x: x / (1 + np.arange(6.0)),
    lambda x: sum(x),
    lambda x: [*x[0]][-1] * len(x) * x.ndim * x.size,
]


def test_syntax_means_what_it_means_for_arrays():
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder(X.shape)) -> tp.Bundle[tp.Numpy]:
        return [syntax(x) for syntax in SYNTAX]

    for i, (syntax, got) in enumerate(zip(SYNTAX, job(X), strict=True)):
        wanted = syntax(X)
        assert got.shape == wanted.shape, i
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=1e-5, err_msg=str(i))


NUMPY = [
    lambda x: np.exp(x),
    lambda x: np.maximum(x, 0.5 * x),
    lambda x: np.sqrt(np.abs(x)),
    lambda x: np.add(x, 1),
    lambda x: np.arange(6) - x,
    lambda x: np.float32(2) * x,
    lambda x: np.arange(6) > x,
    lambda x: np.matmul(x, W),
    lambda x: np.arange(1, 7) % x,
]


def test_numpys_elementwise_functions_are_operators():
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder(X.shape)) -> tp.Bundle[tp.Numpy]:
        return [function(x) for function in NUMPY]

    for i, (function, got) in enumerate(zip(NUMPY, job(X), strict=True)):
        np.testing.assert_allclose(got, function(X), rtol=2e-5, atol=1e-5, err_msg=str(i))


def test_remainders_are_exact():
    """As C's fmod gives them, with the sign of the divisor, however large the quotient is."""
    rng = np.random.default_rng(3)
    x = (rng.normal(size=500) * 10.0 ** rng.integers(-3, 9, 500)).astype(np.float32)
    y = (rng.normal(size=500) * 10.0 ** rng.integers(-3, 3, 500)).astype(np.float32)
    x[:6], y[:6] = [5.5, -5.5, 1e10, 7, -7, 0], [2, 2, 0.1, np.inf, 3.5, -3]

    @flow.global_function()
    def job(
        x: tp.Numpy.Placeholder(x.shape), y: tp.Numpy.Placeholder(y.shape)
    ) -> tp.Bundle[tp.Numpy]:
        return [x % y, flow.math.mod(x, y), x % 0.3, 3.0 % y]

    third = np.float32(0.3)
    for got, wanted in zip(job(x, y), [x % y, x % y, x % third, np.float32(3) % y], strict=True):
        assert np.array_equal(got, wanted)
    same = (x > 0) == (y > 0)
    assert np.array_equal(job(x, y)[0][same], np.fmod(x, y)[same])


def test_whole_numbers_divide_as_pythons():
    @flow.global_function()
    def job(i: tp.Numpy.Placeholder(I.shape, flow.int32)) -> tp.Bundle[tp.Numpy]:
        return [i // 3, i // -3, i % 3, i[0, 1], flow.gather(i, np.array([2, 0]), axis=1)]

    for got, wanted in zip(job(I), [I // 3, I // -3, I % 3, I[0, 1:2], I[:, [2, 0]]], strict=True):
        assert got.dtype == np.int32
        assert np.array_equal(got, wanted)


def test_parts_have_gradients():
    @flow.global_function(type="train")
    def job(x: tp.Numpy.Placeholder((3,))) -> tp.Numpy:
        w = flow.get_variable("w", (3, 4), initializer=flow.ones_initializer())
        y = w[::-1, 1:3] @ np.ones((2, 3)) + w[[0, 0], 1].mean()
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [1.0]), momentum=0
                           ).minimize((y * x).sum())  # fmt: skip
        return w

    x = np.array([1, 2, 3], np.float32)
    job(x)
    moved = np.zeros((3, 4), np.float32)
    moved[:, 1:3] = 6
    moved[0, 1] += 18  # nine elements of y, each with the mean
    np.testing.assert_allclose(job(x), 1 - moved, rtol=1e-6)


def test_arrays_are_constants():
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2, 3))) -> tp.Bundle[tp.Numpy]:
        return [
            flow.math.maximum(x, np.zeros(3)),
            flow.concat([x, np.ones((1, 3))], 0),
            flow.where(np.array([[True], [False]]), x, np.zeros((2, 3))),
            flow.constant([[1, 2], [3, 4]]),
            flow.constant(np.arange(4), shape=(2, 2), dtype=flow.float32),
            flow.gather(x, flow.constant([1]), axis=1),
        ]

    x = np.array([[1, -2, 3], [4, 5, -6]], np.float32)
    got = job(x)
    assert [g.dtype.name for g in got] == ["float32"] * 3 + ["int64", "float32", "float32"]
    wanted = [np.maximum(x, 0), [*x, [1, 1, 1]], [x[0], [0, 0, 0]], [[1, 2], [3, 4]],
              [[0, 1], [2, 3]], x[:, 1:2]]  # fmt: skip
    for g, w in zip(got, wanted, strict=True):
        assert np.array_equal(g, w)


def traced(body):
    @flow.global_function()
    def job(
        x: tp.Numpy.Placeholder((2, 3)), i: tp.Numpy.Placeholder((2, 3), flow.int32)
    ) -> tp.Numpy:
        return body(x, i)

    return job(np.ones((2, 3), np.float32), np.ones((2, 3), np.int32))


DATA = [
    (lambda x, i: 1 if x else 2, "flow.where"),
    (lambda x, i: x and i, "flow.where"),
    (lambda x, i: not x, "flow.where"),
    (lambda x, i: max(x, x + 1), "flow.math.maximum"),
    (lambda x, i: min(x, 0), "flow.math.minimum"),
    (lambda x, i: sorted([x, x * 2]), "flow.math.maximum"),
    (lambda x, i: bool(x), "reduce_any"),
    (lambda x, i: 0 < x < 1, "flow.where"),
    (lambda x, i: 1.0 in x, "reduce_any"),
    (lambda x, i: x in [x + 1], "reduce_any"),
    (lambda x, i: int(x), "flow.cast"),
    (lambda x, i: float(x), "return the blob"),
    (lambda x, i: round(x), "flow.math.rint"),
    (lambda x, i: list(range(i)), "x.shape[0]"),
    (lambda x, i: np.asarray(x), "flow.math"),
    (lambda x, i: np.mean(x), "x.mean(...)"),
    (lambda x, i: np.concatenate([x, x]), "flow.math"),
    (lambda x, i: np.cumsum(x), "numpy.triu"),
    (lambda x, i: np.spacing(x), "flow.math"),
    (lambda x, i: np.add(x, 1, out=np.ones((2, 3))), "x + y"),
    (lambda x, i: divmod(x, 2), "x // y"),
    (lambda x, i: x.__setitem__(0, 1), "flow.where"),
]


@pytest.mark.parametrize(("body", "text"), DATA, ids=range(len(DATA)))
def test_data_is_refused(body, text):
    with raises(TracingError, TypeError, text, job="job", at="lambda x, i:"):
        traced(body)


def test_assertions_are_refused():
    def body(x, i):
        assert x > 0, "all are positive"  # here

    with raises(TracingError, TypeError, "reduce_any", job="job", at="# here"):
        traced(body)


BAD = [
    (lambda x, i: x[2], IndexError, "position 2 is outside axis 0 of (2, 3)"),
    (lambda x, i: x[0, 0, 0], IndexError, "3 positions"),
    (lambda x, i: x[..., ...], ArgumentError, "one '...'"),
    (lambda x, i: x[1:1], ShapeError, "is empty"),
    (lambda x, i: x[::0], ArgumentError, "step of 0"),
    (lambda x, i: x[0.5], DTypeError, "0.5"),
    (lambda x, i: x["a"], DTypeError, "'a'"),
    (lambda x, i: x[True], DTypeError, "True"),
    (lambda x, i: x[:i], DTypeError, "flow.gather"),
    (lambda x, i: x[0.5:], DTypeError, "whole numbers"),
    (lambda x, i: x[[0], [1]], ArgumentError, "flow.gather_nd"),
    (lambda x, i: x[None][0, :, [1]], ArgumentError, "index twice"),
    (lambda x, i: x[x > 0], DTypeError, "flow.argwhere"),
    (lambda x, i: x[[0, 5]], IndexError, "position 5"),
    (lambda x, i: x[[i, i]], DTypeError, "flow.stack"),
    (lambda x, i: x[x], DTypeError, "whole numbers"),
    (lambda x, i: x[np.array([True])], ShapeError, "flow.argwhere"),
    (lambda x, i: x & x, DTypeError, "compare first"),
    (lambda x, i: x @ 3, ArgumentError, "x * number"),
    (lambda x, i: i + np.array([0.5]), DTypeError, "fractions"),
    (lambda x, i: x + np.array(["a"]), ArgumentError, "holds no"),
    (lambda x, i: flow.math.maximum(x, np.array(["a"])), DTypeError, "array of numbers"),
    (lambda x, i: x.unsqueeze(0), AttributeError, "flow.expand_dims"),
    (lambda x, i: x.numpy(), AttributeError, "return the blob"),
    (lambda x, i: x.rsqrt(), AttributeError, "flow.math.rsqrt(x)"),
    (lambda x, i: x.nonsense, AttributeError, "no attribute 'nonsense'"),
    (lambda x, i: x.dot(x), AttributeError, "x @ y"),
    (lambda x, i: x.split(2), AttributeError, "x[:, :n]"),
    (lambda x, i: x.reshap(6), AttributeError, "did you mean x.reshape?"),
]


@pytest.mark.parametrize(("body", "kind", "text"), BAD, ids=range(len(BAD)))
def test_bad_syntax(body, kind, text):
    with pytest.raises(kind) as caught:
        traced(body)
    assert isinstance(caught.value, FlowError)
    assert text in str(caught.value)
    assert "test_blob_syntax.py:" in str(caught.value)


def test_sizes_of_a_call_are_no_length():
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((5,))) -> tp.ListNumpy:
        found = flow.argwhere(x)
        return found[: len(found)]

    with raises(TracingError, TypeError, "a call decides", job="job"):
        job(np.ones(5, np.float32))
