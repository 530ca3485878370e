"""Graphs inside nodes, sequences, and operators that others stand for."""

import numpy as np
import onnx_ir as ir
import pytest

from flow2onnx.autodiff import gradients
from flow2onnx.autodiff.registry import expansion
from flow2onnx.dtypes import bool_, float32, int64
from flow2onnx.errors import GradientError, UnsupportedError
from flow2onnx.graph import Builder
from flow2onnx.graph.functions import inline_nodes
from flow2onnx.graph.types import dims
from tests.autodiff.cases.composed import body, branch, imported
from tests.autodiff.graphs import open_graph


@pytest.fixture
def b():
    return Builder()


def ones(b, value):
    return b.const(np.ones(dims(value), np.float32))


def run(b, found, wanted, *arrays):
    for i, v in enumerate(wanted):
        b.output(found[v], f"d{i}")
    return open_graph(b)(*arrays)


@pytest.mark.parametrize("taken", [True, False])
def test_only_the_branch_that_is_taken_counts(b, taken):
    # what the other branch would make of it is not a number, nor is its slope
    x, which = b.input("x", (3,), float32), b.input("which", (), bool_)
    y = b.If(
        which,
        then_branch=branch(b, "then", lambda i: [i.Mul(x, 3.0)]),
        else_branch=branch(b, "else", lambda i: [i.Sqrt(x)]),
    )
    found = gradients(b, {y: ones(b, y)}, [x])
    (dx,) = run(b, found, [x], np.float32([-1, 0, 4]), np.asarray(taken))
    if taken:
        np.testing.assert_array_equal(dx, [3, 3, 3])
    else:
        assert np.isnan(dx[0])
        assert dx[2] == 0.25


def test_a_branch_that_reads_nothing_that_varies(b):
    x, which = b.input("x", (2,), float32), b.input("which", (), bool_)
    y = b.If(
        which,
        then_branch=branch(b, "then", lambda i: [i.Mul(x, x)]),
        else_branch=branch(b, "else", lambda i: [i.Identity(i.const(np.float32([5, 6])))]),
    )
    found = gradients(b, {y: ones(b, y)}, [x])
    b.output(found[x], "dx")
    function = open_graph(b)
    np.testing.assert_array_equal(function(np.float32([2, 3]), np.asarray(True))[0], [4, 6])
    np.testing.assert_array_equal(function(np.float32([2, 3]), np.asarray(False))[0], [0, 0])


def test_two_outputs_that_are_one_value(b):
    x, which = b.input("x", (2,), float32), b.input("which", (), bool_)

    def twice(inner):
        y = inner.Mul(x, x)
        return [y, inner.Identity(y)]

    first, second = b.several(
        "If", which, outputs=2,
        then_branch=branch(b, "then", twice),
        else_branch=branch(b, "else", lambda i: [i.Identity(x), i.Identity(x)]),
    )  # fmt: skip
    seeds = {first: b.const(np.float32([1, 1])), second: b.const(np.float32([10, 10]))}
    (dx,) = run(b, gradients(b, seeds, [x]), [x], np.float32([1, 2]), np.asarray(True))
    np.testing.assert_array_equal(dx, [22, 44])


def nested(b, x, which, depth):
    if not depth:
        return [b.Mul(x, 2.0)]
    then = branch(b, "then", lambda i: nested(i, x, which, depth - 1))
    other = branch(b, "else", lambda i: [i.Identity(x)])
    return [b.If(which, then_branch=then, else_branch=other)]


def test_choices_five_deep(b):
    x, which = b.input("x", (2,), float32), b.input("which", (), bool_)
    (y,) = nested(b, x, which, 5)
    (dx,) = run(b, gradients(b, {y: ones(b, y)}, [x]), [x], np.float32([1, 2]), np.asarray(True))
    np.testing.assert_array_equal(dx, [2, 2])


def test_choices_two_hundred_deep_are_refused(b):
    x, which = b.input("x", (2,), float32), b.input("which", (), bool_)
    graph = branch(b, "innermost", lambda i: [i.Mul(x, 2.0)])
    other = branch(b, "other", lambda i: [i.Identity(x)])
    for depth in range(200):
        node = ir.Node("", "If", [which], [ir.AttrGraph("then_branch", graph),
                                           ir.AttrGraph("else_branch", other)])  # fmt: skip
        value = node.outputs[0]
        value.name, value.type, value.shape = f"deep/{depth}", x.type, x.shape
        graph = ir.Graph([], [value], nodes=[node], name=f"level/{depth}")
        other = branch(b, f"other/{depth}", lambda i: [i.Identity(x)])
    graph.remove(node)
    b.graph.append(node)
    b.nodes.append(node)
    with pytest.raises(GradientError, match="200 deep"):
        gradients(b, {value: ones(b, value)}, [x])


def test_a_loop_of_unknown_length_says_so(b):
    x, count = b.input("x", (2,), float32), b.input("count", (), int64)
    y = b.Reshape(imported_loop(b, x, count), [2])
    with pytest.raises(GradientError, match="how often the loop runs is known only at run time"):
        gradients(b, {y: ones(b, y)}, [x])


def imported_loop(b, x, count):
    graph = body(
        b, "turn", [((), int64), ((), bool_), ((2,), float32)],
        lambda i, n, on, v: [i.Identity(on), i.Mul(v, v)],
    )  # fmt: skip
    node = ir.Node("", "Loop", [count, b.const(np.bool_(True)), x], [ir.AttrGraph("body", graph)])
    value = node.outputs[0]
    value.name, value.type, value.shape = "looped", x.type, x.shape
    b.graph.append(node)
    b.nodes.append(node)
    return value


def test_a_loop_that_ends_itself(b):
    x = b.input("x", (2,), float32)
    graph = body(
        b, "turn", [((), int64), ((), bool_), ((2,), float32)],
        lambda i, n, on, v: [i.Less(n, 2), i.Mul(v, 2.0)],
    )  # fmt: skip
    operands = (np.int64(100), np.bool_(True), x)
    (y,) = imported(b, "Loop", operands, 1, [ir.AttrGraph("body", graph)])
    (dx,) = run(b, gradients(b, {y: ones(b, y)}, [x]), [x], np.float32([1, 2]))
    np.testing.assert_array_equal(dx, [8, 8])


def test_a_sequence_from_elsewhere_says_so(b):
    x, place = b.input("x", (2,), float32), b.input("place", (), int64)
    parts = b.SequenceConstruct(x, b.Mul(x, 2.0))
    y = b.SequenceAt(parts, place)
    with pytest.raises(GradientError, match="known only at run time"):
        gradients(b, {y: ones(b, y)}, [x])


def test_what_stands_for_a_node_is_read_in_its_place(b):
    x = b.input("x", (2,), float32)
    y = b.Softsign(x)
    node = y.producer()
    z = b.Mul(y, 2.0)
    found = gradients(b, {z: ones(b, z)}, [x])
    assert not y.uses()
    assert y in found
    assert b.nodes.index(z.producer().inputs[0].producer()) < b.nodes.index(z.producer())
    assert list(b.graph) == b.nodes
    (dx,) = run(b, found, [x], np.float32([-1, 1]))
    np.testing.assert_allclose(dx, [0.5, 0.5], rtol=1e-6)
    assert node in b.nodes


def test_an_operator_has_one_expansion():
    with pytest.raises(AssertionError, match="there twice"):
        expansion("Loop")(lambda b, n: None)


def test_unrolling_has_a_limit(b):
    x = b.input("x", (2,), float32)
    graph = body(
        b, "turn", [((), int64), ((), bool_), ((2,), float32)],
        lambda i, n, on, v: [i.Identity(on), i.Identity(v), i.Identity(v)],
    )  # fmt: skip
    node = ir.Node("", "Loop", [None, b.const(np.bool_(True)), x], [ir.AttrGraph("body", graph)],
                   num_outputs=2)  # fmt: skip
    with pytest.raises(UnsupportedError, match="4097 iterations to unroll; 4096 are the most"):
        inline_nodes(b, [node], [], [], node.outputs)
