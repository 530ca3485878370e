"""The gradients of operators beside the standard against differences of the runtime's own."""

import re
import zlib

import numpy as np
import onnx_ir as ir
import pytest

from flow2onnx.autodiff.registry import contrib_rule_names, rule_for, rule_names
from flow2onnx.dtypes import float32
from flow2onnx.errors import GradientError, ShapeError
from flow2onnx.graph import Builder
from flow2onnx.graph.contrib import CONTRIB
from tests.autodiff.cases.case import Case
from tests.autodiff.cases.contrib import CONTRIB_CASES
from tests.autodiff.graphs import differentiate, forward, slope


def test_every_operator_has_a_rule_and_every_rule_a_case():
    assert set(contrib_rule_names()) == set(CONTRIB) == {case.op_type for case in CONTRIB_CASES}
    assert not set(rule_names()) & set(CONTRIB)


@pytest.mark.parametrize("case", CONTRIB_CASES, ids=lambda c: c.id)
def test_gradient(case):
    rng = np.random.default_rng(zlib.crc32(case.id.encode()))
    function = forward(case, float32)
    gradient, kinds = differentiate(case, float32)
    point = case.draw(rng, "float32")
    outputs = function(*point)
    seeds = [rng.uniform(0.5, 1.5, y.shape).astype(k) for y, k in zip(outputs, kinds, strict=True)]
    found = gradient(*point, *seeds)
    for g, x in zip(found, point, strict=True):
        assert (g.shape, g.dtype) == (x.shape, x.dtype)
    for at in range(len(point)):  # one input at a time: a small gradient hides behind no large one
        direction = [rng.choice([-1, 1], x.shape) * (i == at) for i, x in enumerate(point)]
        direction[at] = direction[at] * rng.uniform(0.5, 1, point[at].shape)
        wanted = slope(function, point, direction, seeds, case.step)
        got = float((found[at].astype(np.float64) * direction[at]).sum())
        scale = 0.05 + float(np.abs(found[at].astype(np.float64) * direction[at]).sum())
        assert abs(got - wanted) <= 2e-3 * scale, f"input {at}: {got}, expected {wanted}"


@pytest.mark.parametrize(
    ("name", "operands", "attrs", "what"),
    [
        ("MatMulNBits", [(2, 32), np.zeros((4, 2, 4), np.uint8), np.ones((4, 2), np.float32)],
         {"K": 32, "N": 4, "bits": 2, "block_size": 16}, "of 2 bits"),
        ("GroupQueryAttention", [(1, 2, 64), None, None, np.zeros((1, 2, 3, 16), np.float32),
         np.zeros((1, 2, 3, 16), np.float32), np.int32([4]), np.int32(5)],
         {"num_heads": 2, "kv_num_heads": 1}, "of the past"),
        ("GroupQueryAttention", [(1, 2, 64), None, None, None, None, np.int32([1]), np.int32(2)],
         {"num_heads": 2, "kv_num_heads": 1, "causal": 0}, "not causal"),
    ],
)  # fmt: skip
def test_what_has_no_gradient_is_named(name, operands, attrs, what):
    from flow2onnx.autodiff import gradients

    b = Builder(22)
    x = b.input("x", operands[0], float32)
    given = [None if v is None else b.const(v) for v in operands[1:]]
    y = b.emit(f"com.microsoft::{name}", [x, *given], attrs)[0]
    with pytest.raises(GradientError, match=what):
        gradients(b, {y: y}, [x])


def test_a_node_without_its_operands_is_named():
    b = Builder(22)
    x = b.input("x", (6, 8), float32)
    with pytest.raises(ShapeError, match="reads 3 values or more"):
        b.emit("com.microsoft::GatherBlockQuantized", [x, np.asarray([0])], {"bits": 4})


def test_an_expert_that_counts_0_has_a_gradient_and_one_below_0_none():
    rng, sizes = np.random.default_rng(1), {"x": (6, 64), "weights": (6, 4)}
    stored = [rng.integers(0, 256, s).astype(np.uint8) for s in ((4, 128, 32), (4, 64, 32))]
    scales = [np.full(s, 0.01, np.float32) for s in ((4, 128, 2), (4, 64, 2))]
    biases = [rng.uniform(-0.4, 0.4, s).astype(np.float32) for s in ((4, 128), (4, 64))]
    choice = rng.uniform(-1, 1, (6, 4)).astype(np.float32)
    attrs = {"k": 2, "expert_weight_bits": 4, "block_size": 32, "activation_type": "swiglu",
             "swiglu_fusion": 1}  # fmt: skip

    def make(b, x, weights):
        parts = [v for three in zip(stored, scales, biases, strict=True) for v in three]
        rest = [None] * 6
        return b.emit("com.microsoft::QMoE", [b.Mul(x, 0.05), choice, *parts, *rest, weights],
                      attrs)[0]  # fmt: skip

    case = Case("com.microsoft::QMoE", make, list(sizes.values()), opset=22)
    function, (gradient, _) = forward(case, float32), differentiate(case, float32)
    x, weights = case.draw(rng, "float32")
    weights = np.abs(weights)
    weights[:3] = 0
    weights[5] *= -1
    y, step = function(x, weights)[0], np.float32(0.5)
    found = gradient(x, weights, np.ones_like(y))[1]
    best = np.argsort(choice, 1)[:, -2:]
    for row in range(6):
        for expert in best[row]:
            moved = weights.copy()
            moved[row, expert] += step * np.sign(weights[row, expert] + 0.1)
            change = float((function(x, moved)[0] - y).sum(dtype=np.float64))
            slope = change / float(moved[row, expert] - weights[row, expert])
            assert abs(found[row, expert] - slope) < 1e-3 * (1 + abs(slope))
    assert np.count_nonzero(found) == 10  # those below 0 are left out by the runtime


@pytest.mark.parametrize(
    ("name", "attrs", "count", "what"),
    [
        ("MoE", {"activation_type": "tanh"}, 6, "with activation_type='tanh'"),
        ("MoE", {"use_sparse_mixer": 1}, 6, "with use_sparse_mixer"),
        ("MoE", {"activation_type": "swiglu"}, 6, "with gates that are not beside"),
        ("MoE", {}, 8, "with a third product"),
        ("QMoE", {"expert_weight_bits": 2}, 8, "of 2 bits"),
        ("QMoE", {"quant_type": "fp4"}, 8, "of weights of type 'fp4'"),
        ("QMoE", {"weights_prepacked": 1}, 8, "with weights_prepacked=1"),
        ("QMoE", {}, 11, "with a third product"),
    ],
)
def test_experts_that_have_no_gradient_are_named(name, attrs, count, what):
    b = Builder(22)
    x = b.input("x", (6, 8), float32)
    y = b.input("y", (6, 8), float32)
    node = ir.node(name, [x] * count, attrs, domain="com.microsoft")
    with pytest.raises(GradientError, match=re.escape(what)):
        rule_for(f"com.microsoft::{name}")(b, node, y)
