"""Sizes known at run time only: as numbers to reckon with, and through exporters' shape nodes."""

import numpy as np
import pytest
from onnx import helper

from flow2onnx.dtypes import float32
from flow2onnx.graph import Builder
from flow2onnx.graph.dimension import Dimension, at_least, extents, is_known
from flow2onnx.graph.size_text import (
    difference,
    names_in,
    product,
    quotient,
    remainder,
    total,
    value_at,
)
from flow2onnx.graph.types import sizes_of
from flow2onnx.onnx_io.append import append_model
from flow2onnx.onnx_io.foreign import foreign_model
from tests.autodiff.graphs import open_graph
from tests.imported import models


@pytest.fixture
def b():
    return Builder()


def test_dimensions_reckon_in_the_graph(b):
    x = b.input("x", ("rows", 3, "columns"), float32)
    rows, three, columns = extents(b, x)
    assert three == 3
    assert is_known(three)
    assert not is_known(rows)
    reckoned = [
        rows + 1, 1 + rows, rows - columns, 9 - rows, rows * columns, 2 * rows, rows // 2,
        7 // rows, rows % 2, -rows, at_least(rows - 4, 0), at_least(5, 2),
    ]  # fmt: skip
    b.output(b.vector(reckoned), "y")
    (y,) = open_graph(b)(np.zeros((3, 3, 5), np.float32))
    assert y.tolist() == [4, 4, -2, 6, 15, 6, 1, 2, 1, -3, 0, 5]


def test_what_is_equal_in_any_case_is_known_to_be(b):
    rows, columns = extents(b, b.input("x", ("rows", "columns"), float32))
    assert rows + 0 is rows
    assert rows * 1 is rows
    assert rows // 1 is rows
    assert (rows - rows, rows * 0, rows // rows, rows % 1) == (0, 0, 1, 0)
    assert rows == extents(b, b.Exp(b.graph.inputs[0]))[0]
    assert rows != columns
    assert rows * columns == columns * rows
    assert hash(rows * columns) == hash(columns * rows)
    assert repr(rows * 2) == "2*rows"
    assert isinstance(rows * columns, Dimension)
    assert not b.nodes[1:], "what nobody asks for is not computed"


def test_texts_of_sizes():
    assert product("a", 2, "b", 3) == "6*a*b"
    assert product("6*a*b", "a") == "6*a*a*b"
    assert quotient("6*a*b", "2*b") == "3*a"
    assert quotient("6*a", 4) == "(6*a/4)"
    assert quotient("a", "2*b") == "(a/(2*b))"
    assert quotient(12, 4) == 3
    assert (remainder(7, 4), remainder("a", 2)) == (3, "(a%2)")
    assert names_in("(6*a/4)") == ("a",)
    assert names_in("no name") == ("no name",)
    sizes = {"a": 6, "b": 3, "no name": 5}
    assert value_at("((a+1)/(2*b)+1)", sizes) == 2
    assert value_at("max(a,(b%2))", sizes) == 6
    assert value_at("no name", sizes) == 5
    assert value_at("c*2", sizes) is None
    assert value_at("a.real", sizes) is None
    assert value_at("(a/(b-3))", sizes) is None
    assert (total("a", 0), total(2, 3), total("a", 1)) == ("a", 5, "(a+1)")
    assert (difference("a", "a"), difference("a", 0), difference(3, "a")) == (0, "a", "(3-a)")


def shapes(nodes, tensors=(), shape=("batch", "length", 8)):
    """The shape of each value that a model makes of an input of three axes."""
    made_by = {n.output[0]: n.input[1] for n in nodes if n.op_type == "Reshape"}
    ranks = {"split": 4, "joined": 2, "flat": 2, "chosen": 3}
    outputs = [models.info(y, [None] * ranks[s]) for y, s in made_by.items()]
    foreign = foreign_model(
        models.model(nodes, [models.info("x", shape)], outputs, tensors, checks=False)
    )
    b = Builder()
    made = append_model(b, foreign, {"x": b.input("x", shape, float32)})
    return [sizes_of(made[o.name]) for o in outputs], [n.op_type for n in b.nodes]


def part(name, axis):
    """One size of x as a vector, as torch exports it."""
    return [
        helper.make_node("Shape", ["x"], [f"{name}_shape"]),
        helper.make_node("Gather", [f"{name}_shape", f"{name}_at"], [f"{name}_size"]),
        helper.make_node("Unsqueeze", [f"{name}_size", "zero"], [name]),
    ], [models.tensor(f"{name}_at", axis)]


def test_heads_are_split_by_computed_sizes():
    batch, first = part("batch", 0)
    length, second = part("length", 1)
    width, third = part("width", 2)
    tensors = [*first, *second, *third, models.tensor("zero", [0]), models.tensor("two", [2]),
               models.tensor("rest", [-1]), models.tensor("flat", [0, -1])]  # fmt: skip
    nodes = [
        *batch, *length, *width,
        helper.make_node("Div", ["width", "two"], ["each"]),
        helper.make_node("Concat", ["batch", "length", "two", "each"], ["split"], axis=0),
        helper.make_node("Reshape", ["x", "split"], ["heads"]),
        helper.make_node("Mul", ["batch", "length"], ["rows"]),
        helper.make_node("Concat", ["rows", "rest"], ["joined"], axis=0),
        helper.make_node("Reshape", ["heads", "joined"], ["matrix"]),
        helper.make_node("Reshape", ["x", "flat"], ["by_batch"]),
    ]  # fmt: skip
    found, operators = shapes(nodes, tensors)
    assert found == [("batch", "length", 2, 4), ("batch*length", 8), ("batch", "8*length")]
    assert "Div" not in operators, "what turns out to be known is a constant"


def test_sizes_through_choices():
    tensors = [
        models.tensor("minus", [-1]), models.tensor("shape", [-1, -1, 8]),
        models.tensor("start", [0]), models.tensor("end", [2]), models.tensor("eight", [8]),
    ]  # fmt: skip
    nodes = [
        helper.make_node("Shape", ["x"], ["all"]),
        helper.make_node("Slice", ["all", "start", "end"], ["two"]),
        helper.make_node("Concat", ["two", "eight"], ["own"], axis=0),
        helper.make_node("Equal", ["shape", "minus"], ["is_open"]),
        helper.make_node("Where", ["is_open", "own", "shape"], ["chosen"]),
        helper.make_node("Reshape", ["x", "chosen"], ["y"]),
    ]
    found, _ = shapes(nodes, tensors)
    assert found == [("batch", "length", 8)]


@pytest.mark.parametrize(
    ("op_type", "attributes", "length"),
    [
        ("Conv", {"pads": [1, 1]}, "length"),
        ("Conv", {}, "(length-2)"),
        ("Conv", {"strides": [2], "pads": [1, 1]}, "((length-1)/2+1)"),
        ("Conv", {"auto_pad": "SAME_UPPER"}, "length"),
        ("Conv", {"auto_pad": "SAME_LOWER", "strides": [2]}, "((length+1)/2)"),
        ("MaxPool", {"kernel_shape": [3], "pads": [1, 1]}, "length"),
        ("AveragePool", {"kernel_shape": [3], "strides": [3]}, "((length-3)/3+1)"),
    ],
)
def test_windows_name_what_they_make(b, op_type, attributes, length):
    x = b.input("x", ("batch", 2, "length"), float32)
    w = [b.const(np.zeros((4, 2, 3), np.float32))] if op_type == "Conv" else []
    y = b.emit(op_type, (x, *w), attributes)[0]
    assert sizes_of(y) == ("batch", 4 if w else 2, length)
