"""Bodies against their annotations, and results in the annotated form."""

import inspect
import typing
from dataclasses import dataclass

import numpy as np
import pytest

import flow2onnx.typing as tp
from flow2onnx.errors import AnnotationError, JobError


@dataclass
class Blob:
    is_dynamic: bool = False

    def __repr__(self):
        return "blob"


B, D = Blob(), Blob(is_dynamic=True)
ABSENT = inspect.Signature.empty


def check(annotation, returned):
    spec = tp.parse_return(annotation)
    tp.check_return(spec, returned, "train_job", lambda x: isinstance(x, Blob))


def failure(annotation, returned):
    with pytest.raises(AssertionError) as info:
        check(annotation, returned)
    assert isinstance(info.value, JobError)
    assert info.value.job == "train_job"
    return str(info.value)


@pytest.mark.parametrize(
    ("annotation", "returned"),
    [
        (ABSENT, None),
        (ABSENT, B),
        (ABSENT, D),
        (ABSENT, [B, (B, {"x": D})]),
        (ABSENT, ()),
        (None, None),
        (tp.Numpy, B),
        (tp.ListNumpy, D),
        (tp.ListListNumpy, B),
        (tuple[tp.Numpy, tp.ListNumpy], (B, D)),
        (list[tp.Numpy], [B, B]),
        (list[tp.Numpy], []),
        (dict[str, tp.Numpy], {"a": B}),
        (dict[str, list[tuple[tp.Numpy]]], {"a": [(B,)]}),
        (tp.Bundle[tp.Numpy], B),
        (tp.Bundle[tp.Numpy], {"a": [B, (B,)]}),
        (tp.Callback[tp.Numpy], B),
        (tp.Callback[tuple[tp.Numpy, tp.Numpy]], (B, B)),
    ],
)
def test_matching_bodies_pass(annotation, returned):
    check(annotation, returned)


@pytest.mark.parametrize(
    ("annotation", "returned", "text"),
    [
        (None, B, "blob does not matched return annotation None"),
        (tuple[tp.Numpy], [B], "[blob] does not matched return annotation typing.Tuple["),
        (tuple[tp.Numpy], B, "blob does not matched return annotation typing.Tuple["),
        (tuple[tp.Numpy], (B, B), "length compare: 2 v.s. 1"),
        (list[tp.Numpy], (B,), "(blob,) does not matched return annotation typing.List["),
        (dict[str, tp.Numpy], [B], "does not matched return annotation typing.Dict[str,"),
        (dict[str, tp.Numpy], {1: B}, "key 1 is no str"),
        (list[tuple[tp.Numpy]], [B], "does not matched return annotation typing.Tuple["),
        (tp.Callback[list[tp.Numpy]], (B,), "does not matched return annotation typing.List["),
        (tp.Numpy, 1.5, "type(ret): <class 'float'>"),
        (tp.Numpy, None, "type(ret): <class 'NoneType'>"),
        (tp.Numpy, (B,), "type(ret): <class 'tuple'>"),
        (list[tp.Numpy], [[B]], "type(ret): <class 'list'>"),
        (tp.Bundle[tp.Numpy], [B, None], "type(ret): <class 'NoneType'>"),
        (tp.Bundle[tp.Numpy], [B, D], "only fixed shaped blob compatible to"),
        (tp.Numpy, D, "only fixed shaped blob compatible to oneflow.typing.Numpy. you can"),
        (tuple[tp.Numpy, tp.Numpy], (B, D), "change annotation to oneflow.typing.ListNumpy"),
    ],
)
def test_other_bodies_are_refused(annotation, returned, text):
    assert text in failure(annotation, returned)


@pytest.mark.parametrize("value", [1.5, "x", np.zeros(2), object()])
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [B, x], lambda x: {"a": (x, None)}])
def test_only_blobs_come_out_of_an_unannotated_job(value, wrap):
    with pytest.raises(NotImplementedError, match="list/tuple/dict nested RemoteBlob only") as info:
        check(ABSENT, wrap(value))
    assert isinstance(info.value, AnnotationError)


def test_none_inside_a_structure_is_no_result():
    with pytest.raises(NotImplementedError, match="NoneType"):
        check(ABSENT, [B, None])


@pytest.mark.parametrize(
    ("returned", "fitting"),
    [
        ((B, D), "typing.Tuple[oneflow.typing.Numpy, oneflow.typing.ListNumpy]"),
        ([B, [B]], "oneflow.typing.Bundle[oneflow.typing.Numpy]"),
        (None, "None"),
    ],
)
def test_the_message_says_what_would_fit(returned, fitting):
    text = failure(dict[str, tp.Numpy], returned)
    assert f"the body returns {fitting}" in text
    assert text.count("typing.Dict[str, oneflow.typing.Numpy]") == 2


@pytest.mark.parametrize(("returned", "kind"), [(3, "int"), ((4, 3), "int"), ([B, "x"], "str")])
def test_what_is_no_blob_is_named(returned, kind):
    hint = f"return what operators give: a value of {kind} is known before the call"
    assert hint in failure(tp.Numpy, returned)


ONE, TWO = np.ones(3), np.full((2, 2), 2)


def shown(annotation, body, *arrays):
    _, tree = tp.flatten(body)
    return tp.present(tp.parse_return(annotation), tree, arrays)


@pytest.mark.parametrize(
    ("annotation", "body", "expected"),
    [
        (tp.Numpy, B, ONE),
        (tp.ListNumpy, B, [ONE]),
        (tp.ListListNumpy, B, [[ONE]]),
        (ABSENT, B, ONE),
        (ABSENT, [B], [ONE]),
        (typing.Tuple[tp.Numpy], (B,), (ONE,)),  # noqa: UP006
        (list[tp.ListNumpy], [B], [[ONE]]),
        (dict[str, tp.Numpy], {"a": B}, {"a": ONE}),
        (tp.Bundle[tp.ListNumpy], {"a": (B,)}, {"a": ([ONE],)}),
        (tp.Bundle[tp.Numpy], B, ONE),
        (tp.Callback[tuple[tp.ListNumpy]], (B,), ([ONE],)),
    ],
)
def test_results_have_the_annotated_form(annotation, body, expected):
    assert repr(shown(annotation, body, ONE)) == repr(expected)


def test_results_keep_their_order():
    assert shown(tuple[tp.Numpy, tp.Numpy], (B, B), ONE, TWO) == (ONE, TWO)
    assert shown(dict[str, tp.Numpy], {"b": B, "a": B}, ONE, TWO) == {"b": ONE, "a": TWO}


def test_a_job_without_result_gives_none():
    assert shown(None, None) is None
    assert shown(ABSENT, None) is None


def test_a_rank_0_result_is_an_array():
    result = shown(tp.Numpy, B, np.float32(3))
    assert isinstance(result, np.ndarray)
    assert result.shape == ()
