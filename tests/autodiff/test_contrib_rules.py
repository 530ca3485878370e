"""The gradients of operators beside the standard against differences of the runtime's own."""

import zlib

import numpy as np
import pytest

from flow2onnx.autodiff.registry import contrib_rule_names, rule_names
from flow2onnx.dtypes import float32
from flow2onnx.errors import GradientError, ShapeError
from flow2onnx.graph import Builder
from flow2onnx.graph.contrib import CONTRIB
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
