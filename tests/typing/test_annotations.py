"""Placeholders and result annotations: what is accepted, what it means, what is refused."""

import inspect
import types
import typing

import numpy as np
import pytest

import flow2onnx.typing as tp
from flow2onnx.dtypes import float16, float32, int32
from flow2onnx.errors import AnnotationError, ArgumentError, DTypeError, ShapeError

PLACEHOLDERS = [
    (tp.Numpy.Placeholder, "numpy"),
    (tp.ListNumpy.Placeholder, "list"),
    (tp.ListListNumpy.Placeholder, "listlist"),
]
NUMPY = tp.ArrayReturn("numpy")


def test_all_names_exist():
    assert all(hasattr(tp, name) for name in tp.__all__)
    assert sorted(tp.__all__) == tp.__all__


@pytest.mark.parametrize(("placeholder", "kind"), PLACEHOLDERS)
def test_a_placeholder_keeps_what_was_declared(placeholder, kind):
    spec = placeholder((2, 3), dtype=int32, batch_axis=1)
    assert (spec.kind, spec.shape, spec.dtype, spec.batch_axis) == (kind, (2, 3), int32, 1)
    assert isinstance(spec, tp.PlaceholderSpec)


@pytest.mark.parametrize(("placeholder", "_kind"), PLACEHOLDERS)
def test_placeholder_defaults(placeholder, _kind):
    spec = placeholder((2, 3))
    assert (spec.dtype, spec.batch_axis) == (float32, 0)
    assert spec == placeholder((2, 3))
    assert hash(spec) == hash(placeholder((2, 3)))


def test_placeholders_of_different_kinds_differ():
    assert tp.Numpy.Placeholder((2,)) != tp.ListNumpy.Placeholder((2,))


def test_batch_axis_counts_from_the_front():
    assert tp.Numpy.Placeholder((2, 3), batch_axis=-1).batch_axis == 1
    assert tp.Numpy.Placeholder((2, 3), batch_axis=None).batch_axis is None
    assert tp.Numpy.Placeholder(()).batch_axis is None


@pytest.mark.parametrize("axis", [2, -3, True, 0.0, np.int64(0), "0"])
def test_a_batch_axis_outside_the_shape_is_refused(axis):
    with pytest.raises(ArgumentError, match="batch_axis should be an axis of shape"):
        tp.Numpy.Placeholder((2, 3), batch_axis=axis)


def test_lists_need_a_batch_axis():
    with pytest.raises(AssertionError, match="None found"):
        tp.ListNumpy.Placeholder((2, 3), batch_axis=None)


@pytest.mark.parametrize(("shape", "text"), [([2, 3], r"\[2, 3\]"), (5, "5"), (None, "None")])
def test_a_shape_that_is_no_tuple_is_refused(shape, text):
    with pytest.raises(AssertionError, match=rf"shape should be a tuple\. {text} found") as info:
        tp.Numpy.Placeholder(shape)
    assert isinstance(info.value, ShapeError)


@pytest.mark.parametrize("dim", [0, -1, True, 2.0, np.int64(3), None, "3"])
def test_a_dimension_that_is_no_positive_int_is_named(dim):
    with pytest.raises(AssertionError, match="dimension 1 of shape") as info:
        tp.Numpy.Placeholder((4, dim))
    assert repr(dim) in str(info.value)


@pytest.mark.parametrize("dtype", [np.int32, np.dtype("int32"), "int32", int32])
def test_dtypes_have_names_and_are_numpys_too(dtype):
    assert tp.Numpy.Placeholder((4,), dtype).dtype is int32


@pytest.mark.parametrize(
    ("dtype", "hint"),
    [
        (float, r"write flow\.float32"),
        (None, r"write flow\.float32"),
        (3, r"write flow\.float32"),
        (bool, r"flow\.int8"),
        ("string", "there are float32"),
        ("flaot32", "did you mean float32"),
        (np.complex64, "convert to one of"),
    ],
)
def test_what_is_no_dtype_is_refused(dtype, hint):
    with pytest.raises(DTypeError, match=hint):
        tp.Numpy.Placeholder((4,), dtype)


def test_a_parameter_is_a_placeholder_or_a_tuple_of_them():
    a, b = tp.Numpy.Placeholder((2, 3)), tp.ListNumpy.Placeholder((4,), dtype=float16)
    assert tp.parse_parameter(a) is a
    assert tp.parse_parameter(typing.Tuple[a, b]) == (a, b)  # noqa: UP006 the form in use then
    assert tp.parse_parameter(tuple[a, tuple[b]]) == (a, (b,))


def test_string_annotations_resolve():
    namespace = {"tp": tp, "typing": typing}
    code = (
        "def job(x: 'tp.Numpy.Placeholder((2, 3))',"
        " y: 'typing.Tuple[tp.ListNumpy.Placeholder((4,)), tp.Numpy.Placeholder((1,))]')"
        " -> 'tp.Callback[typing.Dict[str, tp.Numpy]]': ..."
    )
    exec(code, namespace)
    hints = typing.get_type_hints(namespace["job"])
    assert tp.parse_parameter(hints["x"]) == tp.Numpy.Placeholder((2, 3))
    assert tp.parse_parameter(hints["y"]) == (
        tp.ListNumpy.Placeholder((4,)),
        tp.Numpy.Placeholder((1,)),
    )
    assert tp.parse_return(hints["return"]) == tp.CallbackReturn(tp.DictReturn(str, NUMPY))


def test_direct_annotations_survive_get_type_hints():
    def job(x: tp.Numpy.Placeholder((2, 3))) -> typing.Tuple[tp.Numpy, tp.Numpy]: ...  # noqa: UP006

    hints = typing.get_type_hints(job)
    assert tp.parse_parameter(hints["x"]) == tp.Numpy.Placeholder((2, 3))
    assert tp.parse_return(hints["return"]) == tp.TupleReturn((NUMPY, NUMPY))


@pytest.mark.parametrize(
    "annotation",
    [int, tp.Numpy, tp.Numpy.Placeholder, "x", None, typing.List[int], {}, tuple[int, ...], 5],  # noqa: UP006
)
def test_other_parameter_annotations_are_refused(annotation):
    with pytest.raises(NotImplementedError, match=r"invalid parameter annotation .* found") as info:
        tp.parse_parameter(annotation)
    assert isinstance(info.value, AnnotationError)


def test_the_text_of_a_bad_parameter_annotation():
    with pytest.raises(
        AnnotationError, match=r"^invalid parameter annotation <class 'int'> found\n"
    ):
        tp.parse_parameter(int)


LIST = tp.ArrayReturn("list")
RETURNS = [
    (inspect.Signature.empty, tp.AbsentReturn(), "(absent)"),
    (None, tp.NoneReturn(), "None"),
    (types.NoneType, tp.NoneReturn(), "None"),
    (tp.Numpy, NUMPY, "oneflow.typing.Numpy"),
    (tp.ListNumpy, LIST, "oneflow.typing.ListNumpy"),
    (tp.ListListNumpy, tp.ArrayReturn("listlist"), "oneflow.typing.ListListNumpy"),
    (
        typing.Tuple[tp.Numpy, tp.ListNumpy],  # noqa: UP006
        tp.TupleReturn((NUMPY, LIST)),
        "typing.Tuple[oneflow.typing.Numpy, oneflow.typing.ListNumpy]",
    ),
    (tuple[tp.Numpy], tp.TupleReturn((NUMPY,)), "typing.Tuple[oneflow.typing.Numpy]"),
    (typing.List[tp.Numpy], tp.ListReturn(NUMPY), "typing.List[oneflow.typing.Numpy]"),  # noqa: UP006
    (list[tp.Numpy], tp.ListReturn(NUMPY), "typing.List[oneflow.typing.Numpy]"),
    (
        typing.Dict[str, tp.Numpy],  # noqa: UP006
        tp.DictReturn(str, NUMPY),
        "typing.Dict[str, oneflow.typing.Numpy]",
    ),
    (
        dict[int, list[tp.Numpy]],
        tp.DictReturn(int, tp.ListReturn(NUMPY)),
        "typing.Dict[int, typing.List[oneflow.typing.Numpy]]",
    ),
    (
        tp.Bundle[tp.ListNumpy],
        tp.BundleReturn(LIST),
        "oneflow.typing.Bundle[oneflow.typing.ListNumpy]",
    ),
    (
        tp.Callback[tp.Numpy],
        tp.CallbackReturn(NUMPY),
        "oneflow.typing.Callback[oneflow.typing.Numpy]",
    ),
    (
        tp.Callback[typing.Tuple[tp.Numpy, typing.List[tp.Numpy]]],  # noqa: UP006
        tp.CallbackReturn(tp.TupleReturn((NUMPY, tp.ListReturn(NUMPY)))),
        "oneflow.typing.Callback[typing.Tuple[oneflow.typing.Numpy, "
        "typing.List[oneflow.typing.Numpy]]]",
    ),
]


@pytest.mark.parametrize(("annotation", "spec", "text"), RETURNS)
def test_return_annotations(annotation, spec, text):
    assert tp.parse_return(annotation) == spec
    assert str(spec) == text


@pytest.mark.parametrize(
    "annotation",
    [
        int,
        "tp.Numpy",
        5,
        [tp.Numpy],
        np.ndarray,
        tp.Numpy.Placeholder((2,)),
        typing.Any,
        typing.Optional[tp.Numpy],  # noqa: UP045
        tuple[tp.Numpy, ...],
        tuple[tp.Numpy, None],
        tp.Callback[None],
        tp.Callback[tp.Bundle[tp.Numpy]],
        tp.Callback[tp.Callback[tp.Numpy]],
        tp.Bundle[list[tp.Numpy]],
        list[tp.Bundle[tp.Numpy]],
        list[tp.Callback[tp.Numpy]],
        dict[3, tp.Numpy],
        set[tp.Numpy],
    ],
)
def test_other_return_annotations_are_refused(annotation):
    with pytest.raises(NotImplementedError, match=r"invalid return annotation .* found") as info:
        tp.parse_return(annotation)
    assert isinstance(info.value, AnnotationError)


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (typing.Tuple, "T in typing.Tuple[T, ...] cannot be omitted"),  # noqa: UP006
        (tuple, "T in typing.Tuple[T, ...] cannot be omitted"),
        (tuple[()], "T in typing.Tuple[T, ...] cannot be omitted"),
        (list[tuple], "T in typing.Tuple[T, ...] cannot be omitted"),
        (typing.List, "T in typing.List[T] cannot be omitted"),  # noqa: UP006
        (typing.Dict, "(K, V) in typing.Dict[K,V] cannot be omitted"),  # noqa: UP006
        (tp.Callback, "T in oneflow.typing.Callback[T] cannot be omitted"),
        (tp.Bundle, "T in oneflow.typing.Bundle[T] cannot be omitted"),
        (list[tp.Numpy, tp.Numpy], "T in typing.List[T]: 1 type arguments expected, 2 found"),
        (dict[str], "(K, V) in typing.Dict[K,V]: 2 type arguments expected, 1 found"),
    ],
)
def test_type_arguments_cannot_be_omitted(annotation, text):
    with pytest.raises(AssertionError) as info:
        tp.parse_return(annotation)
    assert text in str(info.value)


def test_a_parameter_tuple_needs_elements():
    with pytest.raises(AssertionError, match="cannot be omitted"):
        tp.parse_parameter(tuple)
