"""Parts of a graph, run in turn, compute to the bit what the whole does."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from flow2onnx.dtypes import float32, int64
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_bytes, model_of
from flow2onnx.passes.cut import (
    LINK,
    cut,
    output_bytes,
    parts_by_ends,
    parts_by_inputs,
    passed_bytes,
)

X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


def run(model, arrays):
    """The outputs of a model by name, for those of `arrays` that are its inputs."""
    content = model_bytes(model)
    onnx.checker.check_model(content)
    session = ort.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [arg.name for arg in session.get_inputs()]
    found = session.run(None, {name: arrays[name] for name in names})
    return dict(zip((arg.name for arg in session.get_outputs()), found, strict=True))


def check_same(model, parts, arrays):
    """The outputs of the parts, which are those of the whole, and the values between them."""
    expected, known = run(model, arrays), dict(arrays)
    pieces = cut(model, parts)
    outputs = [v.name for piece in pieces for v in piece.graph.outputs]
    assert len(outputs) == len(set(outputs))
    for piece in pieces:
        known |= run(piece, known)
    assert {n for n in outputs if not n.startswith(LINK)} == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(known[name], value, name)
    return {name for name in outputs if name.startswith(LINK)}


def chain(width):
    """A way there and back: every `h` is read by the gradient of its layer."""
    b = Builder()
    h = b.input("x", [3, width], float32)
    weights = [b.input(f"w{i}", [width, width], float32) for i in range(4)]
    kept = []
    for w in weights:
        kept.append(h)
        h = b.Tanh(b.MatMul(h, w))
    g = b.Mul(h, 2.0)
    b.output(b.ReduceSum(h, keepdims=0), "loss")
    for i in reversed(range(4)):
        b.output(b.Gemm(kept[i], g, transA=1), f"g{i}")
        if i:
            g = b.MatMul(g, b.Transpose(weights[i], perm=[1, 0]))
    return model_of(b.graph)


def fed(width=4):
    rng = np.random.default_rng(1)
    return {"x": X[:, :width]} | {
        f"w{i}": rng.normal(size=(width, width)).astype(np.float32) for i in range(4)
    }


@pytest.mark.parametrize(
    "ends", [[["g3"], ["g2"], ["g1"], ["g0"]], [["g3", "g2"], ["g1", "g0"]], [["g3"], ["g0", "g1"]]]
)
def test_the_way_back_in_segments(ends):
    model = chain(4)
    parts = parts_by_ends(model.graph, ends)
    check_same(model, parts, fed())
    makers = {v.name: parts[v.producer()] for v in model.graph.outputs}
    assert makers["loss"] == 0
    for part, names in enumerate(ends):
        assert all(makers[name] == part for name in names)


def test_what_passes_is_counted():
    model = chain(4)
    parts = parts_by_ends(model.graph, [["g3", "g2"], ["g1", "g0"]])
    links = check_same(model, parts, fed())
    assert passed_bytes(model.graph, parts) == [len(links) * 3 * 4 * 4, 0]
    assert output_bytes(model.graph, ["g1", "loss"]) == 4 * 4 * 4 + 4


def test_views_and_constants_are_made_again():
    b = Builder()
    x = b.input("x", [3, 4], float32)
    flat = b.Reshape(b.Neg(x), [12])
    b.output(b.Exp(flat), "y")
    b.output(b.Mul(b.Abs(flat), b.Reshape(x, [12])), "z")
    model = model_of(b.graph)
    parts = parts_by_ends(model.graph, [["y"], ["z"]])
    links = check_same(model, parts, {"x": X})
    assert len(links) == 1  # of Neg


def test_a_value_that_is_shown_is_passed_on_too():
    b = Builder()
    x = b.input("x", [3, 4], float32)
    h = b.Relu(x)
    b.output(b.Exp(h), "y")
    b.output(h, "h")
    b.output(b.Neg(h), "z")
    model = model_of(b.graph)
    check_same(model, parts_by_ends(model.graph, [["y"], ["z"]]), {"x": X})


def test_state_is_written_behind_its_last_reader():
    b = Builder()
    x, v = b.input("x", [3, 4], float32), b.input("v", [3, 4], float32)
    b.output(b.Add(x, v), "y")
    b.output(b.Mul(v, 0.5), "next/v")
    b.output(b.Exp(b.Reshape(v, [12])), "z")
    model = model_of(b.graph)
    parts = parts_by_ends(model.graph, [["y"], ["z"]])
    check_same(model, parts, {"x": X, "v": X})
    first, last = cut(model, parts)
    assert "next/v" not in {v.name for v in first.graph.outputs}
    assert "next/v" in {v.name for v in last.graph.outputs}


def test_branches_read_across_a_cut():
    then, other = Builder(), Builder()
    b = Builder()
    x = b.input("x", [3, 4], float32)
    h = b.Neg(x)
    then.output(then.Identity(h), "then")
    other.output(other.Exp(h), "other")
    b.output(b.ReduceSum(h, keepdims=0), "y")
    truth = b.Greater(b.ReduceMax(x, keepdims=0), 0.0)
    z = b.If(truth, then_branch=then.graph, else_branch=other.graph)
    b.output(z, "z")
    model = model_of(b.graph)
    links = check_same(model, parts_by_ends(model.graph, [["y"], ["z"]]), {"x": X})
    assert links


def test_sums_come_between_parts():
    """Two levels: the second partial number depends on the first sum."""
    b = Builder()
    x, rank = b.input("x", [3, 4], float32), b.input("rank", [1], int64)
    b.output(b.ReduceSumSquare(x, keepdims=0), "partial/0")
    total = b.input("sum/0", [], float32)
    y = b.Div(b.Exp(x), total)
    b.output(b.ReduceSum(y, keepdims=0), "partial/1")
    second = b.input("sum/1", [], float32)
    b.output(b.Mul(y, second), "z")
    b.output(b.Add(rank, 1), "count")
    model = model_of(b.graph)
    parts = parts_by_inputs(model.graph, {"sum/0": "partial/0", "sum/1": "partial/1"})
    arrays = {"x": X, "rank": np.array([2]), "sum/0": np.float32(3), "sum/1": np.float32(4)}
    check_same(model, parts, {n: np.asarray(a) for n, a in arrays.items()})
    pieces = cut(model, parts)
    feeds = [{v.name for v in piece.graph.inputs} for piece in pieces]
    assert [("sum/0" in f, "sum/1" in f) for f in feeds] == [
        (False, False), (True, False), (False, True),
    ]  # fmt: skip
    assert "rank" in feeds[0]


def test_what_can_be_made_waits_for_no_later_input():
    """As an update does: variables whose gradients come first move first."""
    b = Builder()
    scale = b.Neg(b.input("rate", [], float32))
    unread = b.input("late", [2], float32)
    for k in (2, 0):
        gradient, w = b.input(f"g{k}", [4], float32), b.input(f"w{k}", [4], float32)
        b.output(b.Add(w, b.Mul(gradient, scale)), f"next/w{k}")
    b.output(b.Exp(unread), "last")
    model = model_of(b.graph)
    parts = parts_by_inputs(model.graph, {}, {"g0": 0, "g2": 2, "late": 2})
    rng = np.random.default_rng(3)
    arrays = {n: rng.normal(size=4).astype(np.float32) for n in ("g0", "g2", "w0", "w2")}
    arrays |= {"rate": np.float32(0.5), "late": np.ones(2, np.float32)}
    links = check_same(model, parts, {n: np.asarray(a) for n, a in arrays.items()})
    assert len(links) == 1  # of the scale
    made = [{v.name for v in piece.graph.outputs} - links for piece in cut(model, parts)]
    assert made == [{"next/w0"}, {"next/w2", "last"}]


def test_a_norm_of_all_leaves_one_part():
    b = Builder()
    gradients = [b.input(f"g{k}", [4], float32) for k in range(3)]
    norm = b.ReduceSum(b.Concat(*gradients, axis=0))
    for k, g in enumerate(gradients):
        b.output(b.Div(g, norm), f"next/w{k}")
    model = model_of(b.graph)
    parts = parts_by_inputs(model.graph, {}, {f"g{k}": k for k in range(3)})
    assert set(parts.values()) == {0}
