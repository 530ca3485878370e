"""Nested values: taking apart and putting together is the identity."""

import collections

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow2onnx.typing as tp

nested = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2) | st.integers(), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(nested)
def test_unflatten_undoes_flatten(value):
    leaves, tree = tp.flatten(value)
    again = tp.unflatten(tree, leaves)
    assert again == value
    assert repr(again) == repr(value)  # tells a list from a tuple and keeps the order of keys
    assert tree.leaf_count == len(leaves)


def test_leaves_come_in_order():
    leaves, tree = tp.flatten({"b": [1, (2, None)], "a": 3})
    assert leaves == [1, 2, 3]
    assert tp.unflatten(tree, "xyz") == {"b": ["x", ("y", None)], "a": "z"}


def test_subclasses_become_plain():
    point = collections.namedtuple("point", "x y")
    value = collections.OrderedDict(a=point(1, 2))
    leaves, tree = tp.flatten(value)
    assert repr(tp.unflatten(tree, leaves)) == "{'a': (1, 2)}"


def test_a_wrong_number_of_leaves_is_our_own_error():
    _, tree = tp.flatten([1, 2])
    with pytest.raises(AssertionError, match="1 leaves for"):
        tp.unflatten(tree, [1])
