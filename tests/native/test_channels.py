"""Programs that read their own sums over channels, beside the nodes that they stand for."""

import numpy as np
import onnx_ir as ir
import pytest
from flow2onnx_native.library import NativeLibrary

from flow2onnx.dtypes import float32
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_of
from tests.native.running import both, rewrite, run, session
from tests.native.spoiling import refusals
from tests.native.test_fused import agree, numbers

# channels of one tile, of several, and several in one; examples more and fewer than channels
SHAPES = [(2, 3, 4, 4), (5, 37, 7, 7), (1, 4, 9, 30), (3, 2, 25, 25), (2, 5, 1100, 1), (4, 300, 16)]


def normalized(b: Builder, x: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """A normalisation over all but channels; what it centres, and its factor."""
    channels = [x.shape[1], *[1] * (len(x.shape) - 2)]
    axes = [0, *range(2, len(x.shape))]
    mean = b.Reshape(b.ReduceMean(x, axes, keepdims=0), channels)
    centred = b.Sub(x, mean)
    variance = b.ReduceMean(b.Mul(centred, centred), axes, keepdims=0)
    factor = b.Reshape(b.Reciprocal(b.Sqrt(b.Add(variance, 1e-3))), channels)
    return b.Mul(centred, factor), centred, factor


def layer(shape: tuple[int, ...], *, apart: bool) -> tuple[Builder, dict[str, np.ndarray]]:
    """A normalisation, a rectifier, something in between, and the gradient of the two."""
    b, count = Builder(), shape[1]
    x, g = b.input("x", shape, float32), b.input("g", shape, float32)
    shift = b.input("shift", (count, *[1] * (len(shape) - 2)), float32)
    y, centred, factor = normalized(b, x)
    shown = b.Relu(b.Add(y, shift))
    b.output(shown, "shown")
    between = b.Transpose(b.Transpose(shown)) if apart else shown
    masked = b.Mul(g, b.Cast(b.Greater(between, 0.0), to=float32))
    flat = [shape[0], count, int(np.prod(shape[2:]))]
    sums = [
        b.ReduceSum(b.ReduceSum(b.Reshape(v, flat), [2], keepdims=0), [0], keepdims=0)
        for v in (masked, b.Mul(masked, centred))
    ]
    share = b.const(np.float32(count / np.prod(shape)))
    first, second = (b.Reshape(b.Mul(s, share), factor.shape) for s in sums)
    squared = b.Mul(b.Mul(factor, factor), second)
    b.output(b.Mul(factor, b.Sub(b.Sub(masked, first), b.Mul(centred, squared))), "gradient")
    b.output(b.Sub(shift, b.Mul(b.Reshape(sums[0], shift.shape), 0.1)), "next_shift")
    feeds = {"x": numbers(shape) + 2, "g": numbers(shape, 1), "shift": numbers(tuple(shift.shape))}
    return b, feeds


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_normalisations(
    shape: tuple[int, ...], threads: int, apart: bool, library: NativeLibrary
) -> None:
    b, feeds = layer(shape, apart=apart)
    plain, fused, used = both(b, feeds, library, threads)
    assert used["FusedChannels"] == 1 + apart
    agree(plain, fused, 2e-5)


def test_threads_do_not_matter(library: NativeLibrary) -> None:
    b, feeds = layer((2, 64, 50, 50), apart=False)
    _, one, _ = both(b, feeds, library, threads=1)
    _, two, _ = both(b, feeds, library, threads=2)
    agree(one, two)


def test_what_is_read_again_is_not_kept(library: NativeLibrary) -> None:
    # the backward half has `x` and the means, and makes what the forward half centred itself
    b, _ = layer((2, 3, 8, 8), apart=True)
    model, used = rewrite(model_of(b.graph), library.operators)
    assert used["FusedChannels"] == 2
    first = next(n for n in model.graph if n.op_type == "FusedChannels")
    assert [v.name for v in first.outputs if v.shape == ir.Shape([2, 3, 8, 8])] == ["shown"]


def test_several_operands_become_one_for_later_stages(library: NativeLibrary) -> None:
    b = Builder()
    inputs = [b.input(f"x{i}", (3, 4, 600), float32) for i in range(3)]
    whole = b.Mul(b.Add(inputs[0], inputs[1]), inputs[2])
    b.output(whole, "whole")
    centred = b.Sub(whole, b.ReduceMean(whole, [0, 2], keepdims=1))
    b.output(b.Mul(centred, b.ReduceMean(b.Mul(centred, whole), [0, 2], keepdims=1)), "y")
    feeds = {f"x{i}": numbers((3, 4, 600), i) for i in range(3)}
    plain, fused, used = both(b, feeds, library)
    model, _ = rewrite(model_of(b.graph), library.operators)
    plans = [n.attributes["plan"].as_ints() for n in model.graph if n.op_type == "FusedChannels"]
    assert used["FusedChannels"] == len(plans) == 1
    assert plans[0][5] == 1  # kept: the product, of three
    agree(plain, fused, 2e-5)


def test_two_sums_stay_where_no_program_takes_them(library: NativeLibrary) -> None:
    b = Builder()
    x = b.input("x", (4, 5, 32), float32)
    b.output(b.ReduceSum(b.ReduceSum(x, [2], keepdims=0), [0], keepdims=0), "sums")
    model, _ = rewrite(model_of(b.graph), {"FusedChannels"})
    assert [n.op_type for n in model.graph] == ["ReduceSum", "ReduceSum"]
    assert not any("native" in name for name in model.graph.initializers)
    agree(*both(b, {"x": numbers((4, 5, 32))}, library)[:2], 1e-5)


def test_other_layouts_stay(library: NativeLibrary) -> None:
    # rows beside channels, and channels whose elements do not lie side by side
    b = Builder()
    x = b.input("x", (4, 4, 32), float32)
    means = b.ReduceMean(x, [0, 2], keepdims=0)
    b.output(b.Mul(x, b.Reshape(b.Neg(means), [4, 1, 1])), "examples")
    b.output(b.Sub(x, b.ReduceMean(x, [0, 1], keepdims=1)), "positions")
    plain, fused, used = both(b, {"x": numbers((4, 4, 32))}, library)
    assert "FusedChannels" not in used
    agree(plain, fused, 1e-5)


def random_layers(seed: int) -> tuple[Builder, dict[str, np.ndarray]]:
    """Nodes over all elements and over channels, with sums between the two."""
    draw = np.random.default_rng(seed)
    outer, count = int(draw.integers(1, 6)), int(draw.integers(2, 7))
    b, shape = Builder(), (outer, count, int(draw.choice([16, 20, 49, 300, 700])))
    full = [b.input(f"x{i}", shape, float32) for i in range(2)]
    cells = [b.input("c", (count, 1), float32), b.const(np.float32(0.5))]
    feeds = {"x0": numbers(shape, seed), "x1": numbers(shape, seed + 1)}
    feeds["c"] = numbers((count, 1), seed + 2)
    for _ in range(25):
        x, y = (full[int(i)] for i in draw.integers(0, len(full), 2))
        c, d = (cells[int(i)] for i in draw.integers(0, len(cells), 2))
        kind, name = int(draw.integers(0, 8)), str(draw.choice(["Add", "Sub", "Mul", "Max"]))
        if kind < 2:
            full.append(b.Sigmoid(b.emit(name, [x, y])[0]))
        elif kind < 4:
            full.append(b.emit(name, [x, c] if kind == 2 else [c, x])[0])
        elif kind == 4 and c.uses() and len(c.shape) == 2:
            cells.append(b.Erf(b.emit(name, [c, d])[0]))
        elif kind == 5:
            full.append(b.Transpose(b.Transpose(x, perm=[2, 1, 0]), perm=[2, 1, 0]))
        else:
            reduce = str(draw.choice(["ReduceMean", "ReduceSum", "ReduceSumSquare"]))
            sums = b.emit(reduce, [x, [0, 2]], {"keepdims": 0})[0]
            cells.append(b.Sigmoid(b.Reshape(sums, [count, 1])))
    for i, value in enumerate((*full[2:], *cells[2:])):
        if not value.uses() or draw.random() < 0.2:
            b.output(value, f"y{i}")
    return b, feeds


def test_random_layers(library: NativeLibrary) -> None:
    taken = 0
    for seed in range(60):
        b, feeds = random_layers(seed)
        plain, fused, used = both(b, feeds, library, threads=1 + seed % 2)
        agree({k: v for k, v in plain.items() if np.all(abs(v) < 1e5)}, fused, 1e-4)
        taken += used.get("FusedChannels", 0)
    assert taken > 40


def program() -> tuple[ir.Model, dict[str, np.ndarray]]:
    b, feeds = layer((2, 7, 40), apart=False)
    model, used = rewrite(model_of(b.graph), {"FusedChannels"})
    assert used == {"FusedChannels": 1}
    return model, feeds


def test_no_plan_reaches_beyond_its_tensors(library: NativeLibrary) -> None:
    others = [-1, 0, 1, 2, 3, 5, 7, 8, 40, 560, 2**20]
    assert refusals(program(), "FusedChannels", "plan", others, library, 400) > 150


@pytest.mark.parametrize("dtype", ["INT8", "BOOL", "DOUBLE", "STRING"])
def test_outputs_of_another_type_are_refused(dtype: str, library: NativeLibrary) -> None:
    model, feeds = program()
    for value in model.graph.outputs:
        value.type = ir.TensorType(ir.DataType[dtype])
    with pytest.raises(Exception, match=r"output 0 is of type [0-9]+, not of 1"):
        run(session(model, library), feeds)


def test_tensors_of_another_size_are_refused(library: NativeLibrary) -> None:
    model, feeds = program()
    for value in model.graph.inputs:
        value.shape = ir.Shape([None] * len(value.shape))
    for value in model.graph.outputs:
        value.shape = ir.Shape([None] * len(value.shape))
    opened = session(model, library)
    run(opened, feeds)
    with pytest.raises(Exception, match=r"FusedChannels: input \d has 280 elements"):
        run(opened, feeds | {"x": numbers((1, 7, 40))})
