"""Forms for providers whose kernels take less: equal to what they stand for, on the CPU too."""

from types import SimpleNamespace

import numpy as np
import pytest
from flow2onnx_runtime import kernels
from onnx.reference import ReferenceEvaluator

from flow2onnx.dtypes import float32, int64
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_of, to_proto
from flow2onnx.passes.computed_outputs import ComputedOutputs, constant_outputs
from flow2onnx.passes.equal_batches import EqualBatches
from flow2onnx.passes.expand_unique import ExpandUnique
from flow2onnx.passes.narrow_concats import NarrowConcats
from flow2onnx.passes.splits_as_slices import SplitsAsSlices
from flow2onnx.passes.symmetric_pads import SymmetricPads

CUDA_LIKE = SimpleNamespace(
    pads_alike=lambda op_type: op_type == "ConvTranspose",
    leaves=lambda op_type: op_type == "Unique",
)


def run(b, feeds):
    return ReferenceEvaluator(to_proto(model_of(b.graph))).run(None, feeds)[0]


@pytest.mark.parametrize("pads", [(0, 1, 1, 1), (2, 0, 1, 1), (0, 0, 2, 1)])
@pytest.mark.parametrize("output_padding", [(0, 0), (1, 0)])
def test_a_crop_stands_for_unequal_pads(pads, output_padding):
    b, rng = Builder(21), np.random.default_rng(0)
    x, w = b.input("x", (2, 3, 5, 4), float32), b.input("w", (3, 2, 3, 3), float32)
    y = b.ConvTranspose(x, w, strides=[2, 1], pads=list(pads), output_padding=output_padding)
    b.output(y, "y")
    feeds = {v.name: rng.normal(size=tuple(v.shape)).astype(np.float32) for v in b.graph.inputs}
    before = run(b, feeds)
    assert SymmetricPads(CUDA_LIKE).run(b.graph)
    node = next(n for n in b.graph if n.op_type == "ConvTranspose")
    left = list(node.attributes["pads"].as_ints())
    assert left[:2] == left[2:]
    np.testing.assert_array_equal(run(b, feeds), before)
    assert not SymmetricPads(CUDA_LIKE).run(b.graph)


@pytest.mark.parametrize("count", [1, 2, 40])
def test_a_sort_stands_for_unique(count):
    b = Builder(21)
    x = b.input("x", (count,), int64)
    b.output(b.Reshape(b.emit("Unique", [x], outputs=4)[2], [count]), "ranks")
    feeds = {"x": np.random.default_rng(1).integers(-5, 5, count)}
    before = run(b, feeds)
    assert ExpandUnique(CUDA_LIKE).run(b.graph)
    assert "Unique" not in {n.op_type for n in b.graph}
    np.testing.assert_array_equal(run(b, feeds), before)
    np.testing.assert_array_equal(before, np.unique(feeds["x"], return_inverse=True)[1])


def test_different_values_themselves_are_kept():
    b = Builder(21)
    x = b.input("x", (4,), int64)
    b.output(b.Unique(x), "y")
    assert not ExpandUnique(CUDA_LIKE).run(b.graph)


def test_the_cpu_provider_keeps_both():
    table = kernels()
    assert not table.leaves("Unique")
    assert not table.pads_alike("ConvTranspose")


def test_a_next_value_that_is_a_constant_is_computed():
    b = Builder(21)
    count, x = b.input("count", (2,), int64), b.input("x", (2,), float32)
    b.output(b.Identity(b.const(np.array([5, 7]), int64)), "next/count")
    b.output(b.Identity(b.const(np.ones(2, np.float32))), "out/0")
    b.output(b.Neg(x), "out/1")
    assert constant_outputs(b.graph) == ["next/count", "out/0"]
    assert ComputedOutputs().run(b.graph)
    assert constant_outputs(b.graph) == ["out/0"]
    feeds = {"count": np.array([1, 2]), "x": np.ones(2, np.float32)}
    assert run(b, feeds).tolist() == [5, 7]
    assert [v.name for v in b.graph.outputs] == ["next/count", "out/0", "out/1"]
    assert count is b.graph.inputs[0]
    assert not ComputedOutputs().run(b.graph)


@pytest.mark.parametrize("count", [33, 65, 1100])
def test_joins_of_many_are_joins_of_few(count):
    b = Builder(21)
    parts = [b.input(f"x{i}", (2, 1 + i % 3), float32) for i in range(count)]
    b.output(b.Concat(*parts, axis=1), "y")
    feeds = {v.name: np.full(tuple(v.shape), i, np.float32) for i, v in enumerate(parts)}
    before = run(b, feeds)
    assert NarrowConcats().run(b.graph)
    assert max(len(n.inputs) for n in b.graph if n.op_type == "Concat") <= 32
    np.testing.assert_array_equal(run(b, feeds), before)
    assert not NarrowConcats().run(b.graph)


@pytest.mark.parametrize("sizes", [[1, 2, 3], [1] * 40])
def test_slices_stand_for_splits_whose_places_are_looked_up(sizes):
    b = Builder(21)
    x = b.input("x", (2, sum(sizes)), float32)
    parts = b.emit("Split", [x, b.const(np.array(sizes, np.int64))], {"axis": -1}, len(sizes))
    b.output(b.Concat(*reversed(parts), axis=1), "y")
    feeds = {"x": np.arange(2 * sum(sizes), dtype=np.float32).reshape(2, -1)}
    before = run(b, feeds)
    assert SplitsAsSlices().run(b.graph)
    assert "Split" not in {n.op_type for n in b.graph}
    np.testing.assert_array_equal(run(b, feeds), before)
    assert not SplitsAsSlices().run(b.graph)


def test_even_splits_stay():
    b = Builder(21)
    x = b.input("x", (2, 6), float32)
    parts = b.emit("Split", [x, b.const(np.array([3, 3], np.int64))], {"axis": 1}, 2)
    b.output(b.Add(*parts), "y")
    assert not SplitsAsSlices().run(b.graph)


@pytest.mark.parametrize(
    ("left", "right"),
    [((2, 3, 4, 5), (3, 5, 6)), ((2, 1, 4, 5), (3, 5, 6)), ((4, 5), (3, 5, 6))],
)
def test_products_have_as_many_matrices_on_both_sides(left, right):
    b = Builder(21)
    x, y = b.input("x", left, float32), b.input("w", right, float32)
    b.output(b.MatMul(x, y), "y")
    rng = np.random.default_rng(0)
    feeds = {"x": rng.normal(size=left), "w": rng.normal(size=right)}
    feeds = {name: value.astype(np.float32) for name, value in feeds.items()}
    before = run(b, feeds)
    assert EqualBatches().run(b.graph)
    product = next(n for n in b.graph if n.op_type == "MatMul")
    assert len({tuple(v.shape)[:-2] for v in product.inputs}) == 1
    np.testing.assert_allclose(run(b, feeds), before, rtol=1e-6)
    assert not EqualBatches().run(b.graph)


@pytest.mark.parametrize("right", [(5, 6), (2, 3, 5, 6)])
def test_products_by_one_matrix_or_as_many_stay(right):
    b = Builder(21)
    b.output(b.MatMul(b.input("x", (2, 3, 4, 5), float32), b.input("w", right, float32)), "y")
    assert not EqualBatches().run(b.graph)
