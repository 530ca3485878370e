"""Vectors of values as slices of one memory."""

import numpy as np
import onnxruntime as ort
import pytest

from flow2onnx.dtypes import float32
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_bytes, model_of
from flow2onnx.passes.slices import slice_inputs, slice_outputs, vector_of

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def run(model, feeds):
    """The outputs by name."""
    session = ort.InferenceSession(model_bytes(model))
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))


def flat(b, *values):
    return b.Concat(*(b.Reshape(v, [-1]) for v in values), axis=0)


def joined_again(found, vector):
    slices = [v for name, v in found.items() if vector_of(name) == vector]
    return np.concatenate([v.reshape(-1) for v in slices])


@pytest.mark.parametrize(
    ("vector", "count"),
    [
        (lambda b, x, y: flat(b, y, b.Exp(x)), 2),
        (lambda b, x, y: flat(b, y, y), 2),  # one value twice
        (lambda b, x, y: flat(b, x, y), 2),  # an input, as it is
        (lambda b, x, y: b.Reshape(y, [-1]), 1),
        (lambda b, x, y: b.ReduceSum(y, [1], keepdims=0), 1),  # flat as it is made
        (lambda b, x, y: b.Concat(flat(b, y), b.const([1.0, 2.0], float32), axis=0), 2),
    ],
)
def test_slices_of_outputs_are_the_vector(vector, count):
    b = Builder(21)
    x = b.input("x", (2, 3), float32)
    y = b.Neg(x)
    b.output(vector(b, x, y), "bucket/0")
    b.output(y, "y")
    whole = model_of(b.graph)
    sliced = slice_outputs(whole, {"bucket/0"})
    before, after = (run(model, {"x": X}) for model in (whole, sliced))
    assert list(after) == ["y", *(f"slice/{k}/bucket/0" for k in range(count))]
    assert np.array_equal(joined_again(after, "bucket/0"), before["bucket/0"])
    assert np.array_equal(after["y"], before["y"])
    assert list(run(whole, {"x": X})) == ["bucket/0", "y"]  # the model is as it was


def test_a_value_that_is_joined_needs_no_copy():
    b = Builder(21)
    x = b.input("x", (2, 3), float32)
    b.output(flat(b, b.Neg(x), b.Exp(x)), "bucket/0")
    sliced = slice_outputs(model_of(b.graph), {"bucket/0"})
    assert sorted(n.op_type for n in sliced.graph) == ["Exp", "Neg"]


@pytest.mark.parametrize(
    ("read", "shapes"),
    [
        (lambda b, v: [b.Reshape(p, [2, 2]) for p in b.several("Split", v, [4, 4], outputs=2)],
         [(2, 2), (2, 2)]),
        (lambda b, v: [*b.several("Split", v, [5, 3], outputs=2)], [(5,), (3,)]),
        (lambda b, v: [b.Reshape(v, [4, 2])], [(4, 2)]),
        (lambda b, v: [b.Neg(v), b.Reshape(v, [4, 2])], [(8,)]),  # read in two shapes
    ],
)  # fmt: skip
def test_slices_of_inputs_are_read_in_place(read, shapes):
    b = Builder(21)
    vector = b.input("bucket/0", (8,), float32)
    other = b.input("other", (1,), float32)
    for i, value in enumerate(read(b, vector)):
        b.output(b.Add(value, other), f"y{i}")
    whole = model_of(b.graph)
    sliced = slice_inputs(whole, {"bucket/0"})
    numbers, one = np.arange(8, dtype=np.float32), np.ones(1, np.float32)
    given = {v.name: tuple(v.shape.numpy()) for v in sliced.graph.inputs if v.name != "other"}
    assert list(given.values()) == shapes
    ends = np.cumsum([np.prod(shape) for shape in shapes])[:-1]
    parts = np.split(numbers, ends.astype(int))
    feeds = {n: p.reshape(s) for (n, s), p in zip(given.items(), parts, strict=True)}
    before = run(whole, {"bucket/0": numbers, "other": one})
    after = run(sliced, {**feeds, "other": one})
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[n], after[n]) for n in before)
    if len(shapes) == 2:
        assert "Split" not in {n.op_type for n in sliced.graph}
