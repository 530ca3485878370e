"""Expansions of operators compute the same."""

import zlib

import numpy as np
import pytest

from flow2onnx.autodiff.registry import expansion_names
from flow2onnx.autodiff.walk import expand_node
from flow2onnx.dtypes import by_name, float32
from flow2onnx.errors import GradientError
from flow2onnx.graph import Builder
from tests.autodiff.cases import CASES
from tests.autodiff.graphs import as_tuple, open_graph

# control flow and sequences are more than one node
SINGLE = {"Attention", "DeformConv", "GRU", "LSTM", "MaxRoiPool", "RNN"}
EXPANDED = [case for case in CASES if case.op_type in SINGLE]
TOLERANCE = {"float64": 1e-12, "float32": 1e-5}


def outputs(case, dtype, is_expanded):
    """The node of a case, or what stands for it, as a function of arrays."""
    b = Builder(case.opset)
    inputs = [b.input(f"x{i}", s, by_name(dtype)) for i, s in enumerate(case.shapes)]
    made = as_tuple(case.make(b, *inputs))
    if is_expanded:
        made = expand_node(b, next(n for n in b.nodes if n.op_type == case.op_type))
    for i, y in enumerate(made):
        b.output(y, f"y{i}")
    return open_graph(b)


def test_what_is_expanded():
    assert set(expansion_names()) >= SINGLE == {case.op_type for case in EXPANDED}


@pytest.mark.parametrize("case", EXPANDED, ids=lambda c: c.id)
def test_an_expansion_computes_what_its_node_does(case):
    can_double = "float64" in case.dtypes and "float64" not in case.lacks
    dtype = "float64" if can_double else "float32"
    rng = np.random.default_rng(zlib.crc32(case.id.encode()))
    point = case.draw(rng, dtype)
    wanted = outputs(case, dtype, False)(*point)
    found = outputs(case, dtype, True)(*point)
    for y, z in zip(found, wanted, strict=True):
        np.testing.assert_allclose(y, z, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def numbers(*shapes):
    rng = np.random.default_rng(7)
    return [rng.uniform(-1, 1, shape).astype(np.float32) for shape in shapes]


def run(make, arrays, is_expanded=True, opset=21):
    """The outputs of the last node that `make` appends, or of its expansion."""
    b = Builder(opset)
    inputs = [b.input(f"x{i}", a.shape, float32) for i, a in enumerate(arrays)]
    made = as_tuple(make(b, *inputs))
    if is_expanded:
        node = b.nodes[-1]
        made = expand_node(b, node)
        b.graph.remove(node)
    for i, y in enumerate(made):
        b.output(y, f"y{i}")
    return open_graph(b)(*arrays)


@pytest.mark.parametrize("kind", ["numbers", "truths"])
def test_attention_hides_what_a_mask_does_not_reach(kind):
    # the runtime's own kernel refuses a mask that is shorter than the keys
    arrays = numbers((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4))
    if kind == "numbers":
        short = numbers((3, 4))[0]
        full = np.concatenate([short, np.full((3, 1), -np.inf, np.float32)], 1)
    else:
        short = np.arange(12).reshape(3, 4) % 5 != 1
        full = np.concatenate([short, np.zeros((3, 1), bool)], 1)
    (found,) = run(lambda b, *x: b.Attention(*x, short), arrays, opset=24)
    (wanted,) = run(lambda b, *x: b.Attention(*x, full), arrays, False, opset=24)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("op_type", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_recurrent_layers_take_the_batch_first(op_type, gates):
    # the runtime's own kernels do not
    x, w, r, bias, h = numbers(
        (3, 2, 4), (2, gates * 5, 4), (2, gates * 5, 5), (2, gates * 10), (2, 2, 5)
    )
    count = 3 if op_type == "LSTM" else 2

    def make(layout):
        def node(b, x, *others):
            *others, h = others
            attrs = {"hidden_size": 5, "direction": "bidirectional", "layout": layout}
            return b.emit(op_type, [x, *others, None, h], attrs, count)

        return node

    y, *ends = run(make(0), [x, w, r, bias, h], False)
    swapped = [x.transpose(1, 0, 2), w, r, bias, h.transpose(1, 0, 2)]
    found = run(make(1), [np.ascontiguousarray(a) for a in swapped])
    np.testing.assert_allclose(found[0], y.transpose(2, 0, 1, 3), rtol=1e-5, atol=1e-6)
    for z, end in zip(found[1:], ends, strict=True):
        np.testing.assert_allclose(z, end.transpose(1, 0, 2), rtol=1e-5, atol=1e-6)


def test_an_unknown_activation_says_so():
    def make(b, x, w, r):
        return b.emit("RNN", [x, w, r], {"hidden_size": 3, "activations": ["Gelu"]}, 2)

    with pytest.raises(GradientError, match="RNN with activation gelu has no gradient") as e:
        run(make, numbers((2, 1, 4), (1, 3, 4), (1, 3, 3)))
    assert e.value.hint
