"""Products of few columns, and sums of the columns of masked ones."""

import numpy as np
import onnx_ir as ir
import pytest
from flow2onnx_native import matmul
from flow2onnx_native.library import NativeLibrary

from flow2onnx.dtypes import float32
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_of
from tests.native.running import Array, rewrite, run, session
from tests.native.spoiling import refusals
from tests.native.test_products import agree, evaluate, numbers


@pytest.mark.parametrize("depth", [1, 15, 16, 17, 33, 256, 1000])
@pytest.mark.parametrize("columns", [1, 2, 3, 4, 5, 7, 8, 9])
@pytest.mark.parametrize("rows", [1, 3, 4, 37])
def test_few_columns(rows, columns, depth, multiplying: NativeLibrary) -> None:
    b = Builder()
    x, w = b.input("x", (rows, depth), float32), b.input("w", (columns, depth), float32)
    b.output(b.Gemm(x, w, b.input("c", (columns,), float32), transB=1, alpha=2.0), "y")
    feeds = {str(v.name): numbers(v.shape.numpy(), i) for i, v in enumerate(b.graph.inputs)}
    doubles = {k: v.astype(np.float64) for k, v in feeds.items()}
    got = evaluate(b, multiplying, feeds)["y"]
    terms = abs(doubles["x"]) @ abs(doubles["w"]).T * 2 + abs(doubles["c"])
    wanted = 2 * doubles["x"] @ doubles["w"].T + doubles["c"]
    assert got.shape == wanted.shape
    assert (abs(got - wanted) / terms).max() < 1e-6


@pytest.mark.parametrize("depth", [3, 300])
@pytest.mark.parametrize("shape", [(2, 3, 40, 7), (5, 100, 8)], ids=str)
def test_batches(shape, depth, multiplying: NativeLibrary) -> None:
    *batch, rows, columns = shape
    b = Builder()
    x, w = (
        b.input("x", (*batch, rows, depth), float32),
        b.input("w", (*batch, columns, depth), float32),
    )
    order = [*range(len(batch)), len(batch) + 1, len(batch)]
    b.output(b.MatMul(x, b.Transpose(w, perm=order)), "y")
    feeds = {"x": numbers(x.shape.numpy()), "w": numbers(w.shape.numpy(), 1)}
    wanted = feeds["x"].astype(np.float64) @ feeds["w"].astype(np.float64).swapaxes(-1, -2)
    agree(evaluate(b, multiplying, feeds)["y"], wanted)


@pytest.mark.parametrize(("rows", "columns", "depth"), [(131, 7, 300), (4, 8, 700), (130, 3, 7)])
def test_threads_do_not_change_the_results(
    rows, columns, depth, multiplying: NativeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matmul, "_FEWEST_SHARED", 1)
    b = Builder()
    x, w = b.input("x", (rows, depth), float32), b.input("w", (columns, depth), float32)
    b.output(b.Gemm(x, w, transB=1), "y")
    feeds = {"x": numbers((rows, depth)), "w": numbers((columns, depth), 1)}
    alone, shared = (evaluate(b, multiplying, feeds, n)["y"] for n in (1, 4))
    np.testing.assert_array_equal(alone, shared)


@pytest.mark.parametrize(
    ("columns", "trans_b", "is_taken"), [(2, 1, True), (8, 1, True), (9, 1, False), (2, 0, False)]
)
def test_few_columns_pay_where_they_are_products_of_rows(
    columns: int, trans_b: int, is_taken: bool, convolving: NativeLibrary
) -> None:
    b = Builder()
    w = b.input("w", (columns, 256) if trans_b else (256, columns), float32)
    b.output(b.Gemm(b.input("x", (512, 256), float32), w, transB=trans_b), "y")
    assert bool(rewrite(model_of(b.graph), convolving.operators)[1]) is is_taken


def summed(rows: int, columns: int, depth: int, how: str = "product") -> Builder:
    """A gradient before Relu and the sums of its columns, as dense layers have them."""
    b = Builder()
    g, w = b.input("g", (rows, depth), float32), b.input("w", (depth, columns), float32)
    kept = b.Relu(b.input("x", (rows, columns), float32))
    truth = b.Cast(b.Greater(kept, b.const(np.float32(0))), to=ir.DataType.FLOAT)
    masked = b.Mul(b.MatMul(g, w), truth)
    b.output(masked, "y")
    if how == "product":
        row = b.MatMul(b.const(np.ones((1, rows), np.float32)), masked)
    elif how == "weighted":
        row = b.MatMul(b.const(np.full((1, rows), 2, np.float32)), masked)
    else:
        row = b.ReduceSum(masked, [0], keepdims=1)
    b.output(b.Reshape(row, [columns]), "sums")
    return b


def feeds_of(rows: int, columns: int, depth: int) -> dict[str, Array]:
    shapes = {"g": (rows, depth), "w": (depth, columns), "x": (rows, columns)}
    return {name: numbers(shape, i) for i, (name, shape) in enumerate(shapes.items())}


@pytest.mark.parametrize("how", ["product", "sum"])
@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (16, 5, 3), (100, 512, 10), (130, 77, 40), (33, 700, 2), (1000, 3, 2)],
    ids=str,
)  # fmt: skip
def test_sums_of_columns(
    sizes, how, multiplying: NativeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matmul, "_FEWEST_SHARED", 1)
    feeds = feeds_of(*sizes)
    wanted = (feeds["g"].astype(np.float64) @ feeds["w"]) * (feeds["x"] > 0)
    for threads in (1, 4):
        model, used = rewrite(model_of(summed(*sizes, how).graph), ["Product"], threads)
        assert used == {"Product": 1}
        assert {n.op_type for n in model.graph} == {"Relu", "Product"}
        made = run(session(model, multiplying, threads), feeds)
        agree(made["y"], wanted)
        assert abs(made["sums"] - wanted.sum(0)).max() <= 1e-6 * abs(wanted).sum(0).max()


def test_other_sums_stay(multiplying: NativeLibrary) -> None:
    model, used = rewrite(model_of(summed(20, 9, 4, "weighted").graph), ["Product"])
    assert used["Product"] == 2
    assert [len(n.outputs) for n in model.graph if n.op_type == "Product"] == [1, 1]


def test_no_shape_reaches_beyond_its_tensors(multiplying: NativeLibrary) -> None:
    program = rewrite(model_of(summed(70, 40, 5).graph), ["Product"], 2)[0], feeds_of(70, 40, 5)
    others = [-1, 0, 1, 2, 5, 16, 40, 70, 2**30, 2**62]
    assert refusals(program, "Product", "shape", others, multiplying, 200) > 100


@pytest.mark.parametrize(("at", "number"), [(6, 0), (6, 2), (7, 1), (8, 2), (8, -1)])
def test_sums_belong_to_masks(at: int, number: int, multiplying: NativeLibrary) -> None:
    """Of other products, and of what Relu cuts off afterwards, there are none."""
    model, _ = rewrite(model_of(summed(70, 40, 5).graph), ["Product"])
    (node,) = (n for n in model.graph if n.op_type == "Product")
    shape = list(node.attributes["shape"].as_ints())
    shape[at] = number
    node.attributes["shape"] = ir.AttrInt64s("shape", shape)
    with pytest.raises(Exception, match="the shape is that of no product"):
        session(model, multiplying)


def test_sums_that_nobody_takes(multiplying: NativeLibrary) -> None:
    model, _ = rewrite(model_of(summed(70, 40, 5).graph), ["Product"])
    (node,) = (n for n in model.graph if n.op_type == "Product")
    shape = list(node.attributes["shape"].as_ints())
    values = [v for v in node.inputs if v is not None]
    made = ir.Node(node.domain, "Product", values, node.attributes.values(), num_outputs=1)
    made.outputs[0].name, made.outputs[0].type = "alone", node.outputs[0].type
    model.graph.insert_after(node, made)
    model.graph.outputs.append(made.outputs[0])
    assert shape[8] == 1
    with pytest.raises(Exception, match="output 1 is missing"):
        run(session(model, multiplying), feeds_of(70, 40, 5))
