"""Result annotations, called synchronously; and the local blobs of calls without one."""

import copy
import pickle

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.api.results import LocalBlob
from flow2onnx.errors import AnnotationError, ArgumentError, JobError
from tests.api.support import f32, raises

X = tp.Numpy.Placeholder((2,))


def job_returning(annotation, body):
    def job(x):
        return body(x)

    job.__annotations__ = {"x": X}
    if annotation is not ...:
        job.__annotations__["return"] = annotation
    return flow.global_function()(job)


GIVEN = f32(1, 2)
ONE, TWO = [1, 2], [2, 4]


def plain(result):
    """Arrays as lists, containers as they are."""
    if isinstance(result, dict):
        return {k: plain(v) for k, v in result.items()}
    if isinstance(result, list | tuple):
        return type(result)(plain(v) for v in result)
    assert type(result) is np.ndarray
    return result.tolist()


@pytest.mark.parametrize(
    ("annotation", "body", "expected"),
    [
        (tp.Numpy, lambda x: x * 2, TWO),
        (tp.ListNumpy, lambda x: x * 2, [TWO]),
        (tp.ListListNumpy, lambda x: x * 2, [[TWO]]),
        (tuple[tp.Numpy, tp.ListNumpy], lambda x: (x, x * 2), (ONE, [TWO])),
        (tuple[tp.Numpy, tp.Numpy], lambda x: (x, x * 2), (ONE, TWO)),
        (list[tp.Numpy], lambda x: [x, x * 2], [ONE, TWO]),
        (list[tp.Numpy], lambda x: [x], [ONE]),
        (dict[str, tp.Numpy], lambda x: {"a": x, "b": x * 2}, {"a": ONE, "b": TWO}),
        (dict[int, tp.ListNumpy], lambda x: {3: x}, {3: [ONE]}),
        (tuple[list[tp.Numpy], dict[str, tp.Numpy]],
         lambda x: ([x], {"a": x * 2}), ([ONE], {"a": TWO})),
        (tp.Bundle[tp.Numpy], lambda x: x, ONE),
        (tp.Bundle[tp.Numpy], lambda x: {"a": [x, (x * 2,)]}, {"a": [ONE, (TWO,)]}),
        (tp.Bundle[tp.ListNumpy], lambda x: (x, [x]), ([ONE], [[ONE]])),
    ],
)  # fmt: skip
def test_forms(annotation, body, expected):
    assert plain(job_returning(annotation, body)(GIVEN)) == expected


def test_none():
    assert job_returning(None, lambda x: None)(GIVEN) is None
    flow.clear_default_session()
    assert job_returning(..., lambda x: None)(GIVEN) is None
    flow.clear_default_session()
    seen = []
    assert job_returning(None, lambda x: flow.watch(x, seen.append))(GIVEN) is None
    assert plain(seen[0].numpy()) == ONE


def test_scalar_results_have_rank_zero():
    out = job_returning(tp.Numpy, lambda x: flow.reshape(flow.math.reduce_sum(x), []))(GIVEN)
    assert type(out) is np.ndarray
    assert out.shape == ()
    assert out == 3


@pytest.mark.parametrize(
    ("annotation", "body", "text"),
    [
        (tp.Numpy, lambda x: 3.0, "type(ret): <class 'float'>"),
        (tp.Numpy, lambda x: (x, x), "type(ret): <class 'tuple'>"),
        (tp.Numpy, lambda x: None, "type(ret)"),
        (None, lambda x: x, "does not matched return annotation None of global_function job"),
        (tuple[tp.Numpy, tp.Numpy], lambda x: (x,), "length compare: 1 v.s. 2"),
        (tuple[tp.Numpy], lambda x: [x], "does not matched return annotation"),
        (list[tp.Numpy], lambda x: (x,), "does not matched return annotation"),
        (dict[str, tp.Numpy], lambda x: {1: x}, "does not matched return annotation"),
        (tp.Bundle[tp.Numpy], lambda x: [x, 1], "type(ret): <class 'int'>"),
        (tp.Callback[tp.Numpy], lambda x: (x,), "type(ret): <class 'tuple'>"),
    ],
)
def test_mismatch(annotation, body, text):
    job = job_returning(annotation, body)
    with raises(JobError, AssertionError, text, job="job", at="def job(x)"):
        job(GIVEN)


def test_unannotated_result_that_is_no_blob():
    job = job_returning(..., lambda x: [x, 5])
    with raises(AnnotationError, NotImplementedError, "RemoteBlob only", job="job", at="def job"):
        job(GIVEN)


@pytest.mark.parametrize("annotation", [int, tuple, tp.Callback[tp.Bundle[tp.Numpy]], "nowhere"])
def test_unknown_annotation_is_refused_at_decoration(annotation):
    with raises(AnnotationError, NotImplementedError, job="job", at="def job"):
        job_returning(annotation, lambda x: x)


def test_returned_values_are_those_before_the_update():
    @flow.global_function(type="train")
    def train() -> tuple[tp.Numpy, tp.Numpy]:
        w = flow.get_variable("w", (1,), initializer=flow.constant_initializer(3.0))
        loss = w * w
        flow.optimizer.SGD(
            flow.optimizer.PiecewiseConstantScheduler([], [0.5]), momentum=0
        ).minimize(loss)
        return w, loss

    assert plain(train()) == ([3.0], [9.0])
    assert plain(train()) == ([0.0], [0.0])


class TestFuture:
    def test_get_has_the_structure_of_the_body(self):
        out = job_returning(..., lambda x: {"a": [x, (x * 2,)]})(GIVEN).get()
        assert out["a"][0].numpy().tolist() == ONE
        assert out["a"][1][0].numpy_list()[0].tolist() == TWO

    def test_second_get_is_refused(self):
        future = job_returning(..., lambda x: x)(GIVEN)
        future.get()
        with raises(JobError, AssertionError, "delivered already", at="future.get()", job="job"):
            future.get()
        with raises(JobError, AssertionError, "delivered already", at="future.async", job="job"):
            future.async_get(print)

    def test_callback_has_to_be_callable(self):
        future = job_returning(..., lambda x: x)(GIVEN)
        with raises(ArgumentError, AssertionError, "a callback is", at="async_get(3)", job="job"):
            future.async_get(3)
        assert future.get().shape == (2,)  # it was not used up


class TestLocalBlob:
    blob = LocalBlob(np.array([[1.0, 2.0], [3.0, 4.0]], np.float32))
    one = LocalBlob(f32(2.5))

    def test_attributes_of_an_array(self):
        assert self.blob.mean() == 2.5
        assert (self.blob.shape, self.blob.ndim, self.blob.dtype) == ((2, 2), 2, np.float32)
        assert self.blob.T[0].tolist() == [1, 3]
        assert self.blob.argmax(axis=1).tolist() == [1, 1]
        with pytest.raises(AttributeError, match="nothing"):
            _ = self.blob.nothing

    def test_names_of_all_releases(self):
        for given in (
            self.blob.numpy(), self.blob.numpy(0), self.blob.ndarray(), self.blob.numpy_list()[0],
            self.blob.ndarray_list()[0],
        ):  # fmt: skip
            assert type(given) is np.ndarray
            assert given.shape == (2, 2)
        assert self.blob.is_dynamic is False
        assert self.blob.parallel_num() == 1

    def test_arithmetic_both_ways(self):
        array = self.blob.numpy()
        for out, expected in (
            (self.blob + 1, array + 1), (1 - self.blob, 1 - array), (2 * self.blob, 2 * array),
            (array / self.blob, array / array), (self.blob / array, array / array),
            (self.blob**2, array**2), (self.blob // 2, array // 2), (self.blob % 2, array % 2),
            (-self.blob, -array), (abs(self.blob), abs(array)), (self.blob @ array, array @ array),
            (array @ self.blob, array @ array), (self.blob + self.blob, array * 2),
            (np.float32(3) * self.blob, 3 * array), (divmod(self.blob, 2)[1], array % 2),
        ):  # fmt: skip
            assert type(out) is np.ndarray
            np.testing.assert_array_equal(out, expected)

    def test_in_place_arithmetic(self):
        array = f32(1, 2)
        blob = LocalBlob(array)
        blob += 1
        np.testing.assert_array_equal(blob, [2, 3])
        total = np.zeros(2, np.float32)
        total += LocalBlob(f32(1, 2))
        np.testing.assert_array_equal(total, [1, 2])

    def test_comparison(self):
        assert (self.blob > 2).tolist() == [[False, False], [True, True]]
        assert (self.blob == self.blob).all()
        assert (self.one >= 2.5).all()
        assert (self.blob != 1).sum() == 3

    def test_as_an_argument_of_numpy(self):
        assert np.array(self.blob).tolist() == [[1, 2], [3, 4]]
        assert np.asarray(self.blob, np.int32).dtype == np.int32
        assert np.mean(self.blob) == 2.5
        assert np.concatenate([self.blob, self.blob]).shape == (4, 2)
        assert np.exp(self.one)[0] == np.exp(np.float32(2.5))
        assert np.add.reduce(self.blob).tolist() == [4, 6]
        np.testing.assert_allclose(self.blob, self.blob.numpy())

    def test_copies(self):
        blob = LocalBlob(f32(1, 2))
        copied = np.array(blob)
        copied[0] = 9
        assert blob[0] == 1
        assert np.shares_memory(np.asarray(blob), blob.numpy())
        assert blob.__array__(np.float64).dtype == np.float64
        assert blob.__array__(copy=False) is blob.numpy()
        with pytest.raises(ValueError, match="only as a copy"):
            blob.__array__(np.float64, copy=False)

    def test_as_a_container(self):
        assert self.blob[1, 0] == 3
        assert self.blob[0].tolist() == [1, 2]
        assert self.blob[self.blob > 2].tolist() == [3, 4]
        assert len(self.blob) == 2
        assert [row.sum() for row in self.blob] == [3, 7]
        assert 4.0 in self.blob
        blob = LocalBlob(f32(1, 2))
        blob[0] = 5
        assert blob.numpy().tolist() == [5, 2]

    def test_as_a_number(self):
        assert float(self.one) == 2.5
        assert int(self.one) == 2
        assert round(float(self.one), 0) == 2
        assert bool(LocalBlob(f32(0))) is False
        assert range(LocalBlob(np.array(3)))[-1] == 2
        with pytest.raises(ValueError, match="ambiguous"):
            bool(self.blob)

    def test_as_text(self):
        assert f"{self.one:.2f}" == "2.50"
        assert f"{self.one}" == "[2.5]"
        assert str(self.blob) == str(self.blob.numpy())
        assert repr(self.blob) == repr(self.blob.numpy())
        assert "%.1f" % self.one == "2.5"  # noqa: UP031

    def test_copied_and_pickled(self):
        for twin in (copy.copy(self.blob), copy.deepcopy(self.blob),
                     pickle.loads(pickle.dumps(self.blob))):  # fmt: skip
            assert twin.numpy().tolist() == [[1, 2], [3, 4]]
