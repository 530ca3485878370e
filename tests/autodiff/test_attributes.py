"""Attributes that a gradient does not honour are refused; attention honours its windows."""

import numpy as np
import onnxruntime as ort
import pytest
from onnx.defs import SchemaError, get_schema

from flow2onnx.autodiff import attributes, gradients
from flow2onnx.autodiff.registry import contrib_rule_names, expansion_names, rule_names
from flow2onnx.autodiff.walk import expand_node
from flow2onnx.dtypes import float32
from flow2onnx.errors import GradientError
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_bytes, model_of
from flow2onnx.passes import run_passes

NEWEST, OLDEST = 28, 18  # the opsets that jobs are compiled for


def test_every_attribute_of_the_standard_is_looked_at():
    names = {*rule_names(), *expansion_names()}
    assert set(attributes.HONOURED) <= {*names, *contrib_rule_names()}
    for name in names:
        try:
            known = set(get_schema(name, NEWEST, "").attributes)
        except SchemaError:
            continue
        honoured = attributes.HONOURED.get(name, frozenset())
        assert known <= honoured, name
        if honoured != known:  # an attribute that became an input
            assert honoured - known <= set(get_schema(name, OLDEST, "").attributes), name


def softmax_gradient(**given):
    b = Builder(21)
    x = b.input("x", (2, 3), float32)
    y = b.Softmax(x, **given)
    return gradients(b, {y: b.const(np.ones((2, 3), np.float32))}, [x])


def test_an_attribute_that_a_rule_does_not_know_is_refused(monkeypatch):
    assert softmax_gradient(axis=0)
    monkeypatch.setattr(attributes, "HONOURED", {**attributes.HONOURED, "Softmax": frozenset()})
    with pytest.raises(GradientError, match="Softmax with axis=0 has no gradient"):
        softmax_gradient(axis=0)
    assert softmax_gradient(axis=-1)  # its default


def test_an_attribute_that_an_expansion_does_not_know_is_refused(monkeypatch):
    known = attributes.HONOURED["Attention"] - {"left_window_size"}
    monkeypatch.setattr(attributes, "HONOURED", {**attributes.HONOURED, "Attention": known})
    with pytest.raises(GradientError, match="Attention with left_window_size=2"):
        attended(left_window_size=2)
    attended(left_window_size=-1)


Q, K, V = (np.random.default_rng(0).standard_normal((2, 1, n, 4)).astype("f") for n in (4, 6, 6))


def attended(counts=None, mask=None, opset=25, **given):
    """The output of the nodes that stand for Attention, and its gradient in the values."""
    b = Builder(opset)
    q, k, v = (b.input(n, x.shape, float32) for n, x in (("q", Q), ("k", K), ("v", V)))
    operands = [q, k, v, mask, None, None, counts]
    while operands[-1] is None:
        operands.pop()
    y = b.Attention(*operands, **given)
    (y,) = expand_node(b, y.producer())
    g = gradients(b, {y: b.const(np.ones((2, 1, 4, 4), np.float32))}, [q, k, v])
    b.output(y, "y")
    for x in (q, k, v):
        b.output(g[x], f"d{x.name}")
    run_passes(b.graph)
    session = ort.InferenceSession(model_bytes(model_of(b.graph)))
    return session.run(None, {"q": Q, "k": K, "v": V})


def expected(offset, left, right, mask=0.0):
    places, keys = np.arange(4)[:, None] + np.reshape(offset, (-1, 1, 1, 1)), np.arange(6)
    seen = np.ones((2, 1, 4, 6), bool)
    if left >= 0:
        seen &= keys >= places - left
    if right >= 0:
        seen &= keys <= places + right
    scores = np.where(seen, Q @ K.swapaxes(2, 3) / 2 + mask, -np.inf)
    top = scores.max(3, keepdims=True)
    powers = np.where(seen, np.exp(scores - np.where(np.isfinite(top), top, 0)), 0)
    total = powers.sum(3, keepdims=True)
    return powers / np.where(total, total, 1) @ V


@pytest.mark.parametrize(("left", "right"), [(2, 1), (1, -1), (-1, 0), (0, 0)])
def test_windows_of_attention(left, right):
    y, *gradient = attended(left_window_size=left, right_window_size=right)
    np.testing.assert_allclose(y, expected(0, left, right), rtol=1e-5, atol=1e-6)
    assert all(np.isfinite(g).all() for g in gradient)


def test_windows_of_attention_over_counted_keys():
    counts = np.array([5, 3])
    y = attended(counts=counts, left_window_size=1, right_window_size=0)[0]
    # a query whose place is before the first key looks at none, and gives 0
    wanted = expected(counts - 4, 1, 0)
    np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-6)
    assert not y[1, 0, 0].any()


@pytest.mark.parametrize("lowest", [-np.inf, np.finfo(np.float32).min])
@pytest.mark.parametrize("opset", [23, 24])
def test_a_row_that_looks_at_nothing_gives_0_as_on_the_runtime(lowest, opset):
    mask = np.zeros((4, 6), np.float32)
    mask[1] = lowest
    y, dq, dk, dv = attended(mask=mask, opset=opset)
    assert not y[:, :, 1].any()
    assert not dq[:, :, 1].any()
    assert all(np.isfinite(g).all() for g in (dq, dk, dv))
    b = Builder(opset)
    q, k, v = (b.input(n, x.shape, float32) for n, x in (("q", Q), ("k", K), ("v", V)))
    b.output(b.Attention(q, k, v, mask), "y")
    (own,) = ort.InferenceSession(model_bytes(model_of(b.graph))).run(
        None, {"q": Q, "k": K, "v": V}
    )
    np.testing.assert_allclose(y, own, rtol=1e-5, atol=1e-6)
