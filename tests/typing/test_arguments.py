"""The values of a call against the placeholders of the job."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import flow2onnx.typing as tp
from flow2onnx.dtypes import bfloat16, dtypes, float16, float32, float64, int8, int32, int64
from flow2onnx.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError

ONE = tp.Numpy.Placeholder((2, 3))
LIST = tp.ListNumpy.Placeholder((4, 3))
LISTLIST = tp.ListListNumpy.Placeholder((4, 3))
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def fed(spec, *values):
    return tp.check_arguments((spec,) * len(values), ["images"] * len(values), values, "train_job")


def failure(kind, spec, value):
    with pytest.raises(kind) as info:
        fed(spec, value)
    assert info.value.job == "train_job"
    assert "argument images" in info.value.message
    assert info.value.hint
    return str(info.value)


def test_arrays_come_back_in_order():
    params = (ONE, (LIST, {"a": ONE, "b": [LISTLIST]}))
    args = (X, [[X + 1], {"b": ([[X + 3]],), "a": X + 2}])
    arrays = tp.check_arguments(params, ("images", "rest"), args, "train_job")
    assert [a[0, 0] for a in arrays] == [0, 1, 2, 3]


def test_a_fitting_array_is_not_copied():
    assert fed(ONE, X)[0] is X


def test_any_memory_order_is_taken():
    for x in (np.asfortranarray(X), np.zeros((2, 6), np.float32)[:, ::2], X[::-1]):
        (array,) = fed(ONE, x)
        assert array.flags.c_contiguous
        assert np.array_equal(array, x)


def test_a_rank_0_argument_stays_rank_0():
    assert fed(tp.Numpy.Placeholder(()), np.array(3, np.float32))[0].shape == ()


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_number_of_arguments(count):
    with pytest.raises(AssertionError, match=rf"2 arguments .*\(x, y\), {count} were passed") as e:
        tp.check_arguments((ONE, ONE), ("x", "y"), (X,) * count, "train_job")
    assert isinstance(e.value, ArgumentError)
    assert "in job train_job" in str(e.value)


def test_a_job_without_parameters():
    assert tp.check_arguments((), (), (), "train_job") == []
    with pytest.raises(ArgumentError, match=r"\(none\), 1 were passed"):
        tp.check_arguments((), (), (X,), "train_job")


@pytest.mark.parametrize("value", [X.tolist(), 3.0, None, [X], "text"])
def test_only_arrays_are_arrays(value):
    text = failure(ArgumentError, ONE, value)
    assert f"shape (2, 3) is asked for, {type(value).__name__} was passed" in text
    assert "numpy.asarray" in text


@pytest.mark.parametrize("shape", [(3, 2), (6,), (2, 3, 1), (), (1, 3), (0, 3)])
def test_the_shape_is_exact(shape):
    text = failure(ShapeError, ONE, np.zeros(shape, np.float32))
    assert f"shape (2, 3) is declared, {shape} was passed" in text


def test_a_short_batch_is_told_about_lists():
    assert "tp.ListNumpy.Placeholder" in failure(ShapeError, ONE, X[:1])
    assert "tp.ListNumpy.Placeholder" not in failure(ShapeError, ONE, X[:, :1])


@pytest.mark.parametrize("shape", [(4, 3), (1, 3), (0, 3), (2, 6), (12, 1)])
@pytest.mark.parametrize(("spec", "depth"), [(LIST, 1), (LISTLIST, 2)])
def test_lists_take_up_to_the_declared_size(spec, depth, shape):
    x = np.zeros(shape, np.float32)
    value = [x] if depth == 1 else [[x]]
    assert fed(spec, value)[0].shape == shape
    assert fed(spec, tuple(value))[0].shape == shape


@pytest.mark.parametrize("shape", [(5, 3), (12,), (3, 2, 2)])
@pytest.mark.parametrize(("spec", "wrap"), [(LIST, lambda x: [x]), (LISTLIST, lambda x: [[x]])])
def test_lists_take_no_more_and_no_other_rank(spec, wrap, shape):
    text = failure(ShapeError, spec, wrap(np.zeros(shape, np.float32)))
    assert f"at most shape (4, 3) is declared, {shape} was passed" in text


@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize("spec", [LIST, LISTLIST])
def test_one_list_element_per_device(spec, count):
    assert f"{count} were passed" in failure(ArgumentError, spec, [X] * count)


@pytest.mark.parametrize(
    ("spec", "value", "text"),
    [
        (LIST, X, "a list of one array per device is asked for, ndarray was passed"),
        (LIST, [[X]], "images[0]: a numpy.ndarray is asked for, list was passed"),
        (LIST, [np.ma.masked_array(X)], "MaskedArray was passed"),
        (LISTLIST, X, "a list of one list per device is asked for, ndarray was passed"),
        (LISTLIST, [X], "images[0]: a list of numpy.ndarray is asked for, ndarray was passed"),
        (LISTLIST, [(X,)], "a list of numpy.ndarray is asked for, tuple was passed"),
        (LISTLIST, [[3]], "a list of numpy.ndarray is asked for, list was passed"),
        ((ONE, ONE), X, "a tuple or list is asked for, ndarray was passed"),
        ((ONE, ONE), (X,), "2 elements are declared, 1 were passed"),
        ((ONE, (ONE,)), (X, [3]), "images[1][0]: a numpy.ndarray of shape (2, 3) is asked for"),
        ({"a": ONE}, X, "a dict is asked for, ndarray was passed"),
        ({"a": ONE}, {"b": X}, "keys ['a'] are declared, ['b'] were passed"),
        ({"a": ONE}, {"a": X, "b": X}, "keys ['a'] are declared, ['a', 'b'] were passed"),
        ({"a": ONE}, {"a": 3}, "images['a']: a numpy.ndarray"),
    ],
)
def test_the_nesting_is_as_declared(spec, value, text):
    assert text in failure(ArgumentError, spec, value)


def test_a_tensor_list_of_several_arrays_is_unsupported():
    assert "pass one array per call" in failure(UnsupportedError, LISTLIST, [[X[:1], X[:1]]])


@pytest.mark.parametrize(
    ("given_dtype", "wanted"),
    [
        (np.int32, int64),
        (np.int32, float64),
        (np.float16, float32),
        (np.float32, float64),
        (ml_dtypes.bfloat16, float32),
        (np.int8, float16),
        (np.uint8, int32),
        (np.bool_, int8),
        (">f4", float32),
    ],
)
def test_conversions_that_keep_values_are_made(given_dtype, wanted):
    x = np.array([0, 1, 1, 0]).astype(given_dtype)
    (array,) = fed(tp.Numpy.Placeholder((4,), wanted), x)
    assert array.dtype == wanted.numpy
    assert array.tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize(
    ("given_dtype", "wanted"),
    [
        (np.float64, float32),
        (np.float32, float16),
        (np.float32, bfloat16),
        (np.float32, int32),
        (np.int64, int32),
        (np.int64, float64),
        (np.uint64, float64),
        (np.int32, float32),
    ],
)
def test_other_conversions_are_refused(given_dtype, wanted):
    x = np.zeros((4,), given_dtype)
    text = failure(DTypeError, tp.Numpy.Placeholder((4,), wanted), x)
    assert f"{wanted.name} is declared, {x.dtype} was passed" in text
    assert f"pass images.astype({wanted.name!r})" in text
    with pytest.raises(TypeError):
        fed(tp.Numpy.Placeholder((4,), wanted), x)


@pytest.mark.parametrize(
    ("given_dtype", "hint"),
    [
        ("U1", "numpy.unique(images, return_inverse=True)[1] numbers the texts"),
        ("S3", "digits are read by images.astype('float32')"),
        (object, "rows of different lengths: pad them"),
        ("datetime64[s]", "images.astype('int64') counts units"),
        (np.complex64, "images.real and images.imag"),
    ],
)
def test_what_is_no_number_says_how_to_make_one(given_dtype, hint):
    x = np.zeros((4,), given_dtype)
    text = failure(DTypeError, tp.Numpy.Placeholder((4,), float32), x)
    assert f"float32 is declared, {x.dtype} was passed" in text
    assert hint in text


def test_dtypes_are_checked_in_lists_too():
    assert "images[0].astype" in failure(DTypeError, LIST, [X.astype(np.float64)])


@given(st.data())
def test_an_accepted_array_arrives_unchanged(data):
    wanted = data.draw(st.sampled_from(dtypes()))
    source = data.draw(hnp.boolean_dtypes() | hnp.integer_dtypes() | hnp.floating_dtypes())
    x = data.draw(hnp.arrays(source, hnp.array_shapes()))
    try:
        (array,) = fed(tp.Numpy.Placeholder(x.shape, wanted), x)
    except DTypeError:
        return
    assert array.dtype == wanted.numpy
    assert array.shape == x.shape
    assert np.array_equal(array.astype(source), x, equal_nan=source.kind == "f")


def test_the_float_name_of_flow_is_float32():
    assert ONE.dtype is float32
