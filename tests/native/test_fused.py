"""Fused programs beside the nodes that they stand for."""

import math
import platform
from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest
from flow2onnx_native.abi import FusedHead, Operation
from flow2onnx_native.elementwise import OPERATIONS
from flow2onnx_native.library import NativeLibrary
from flow2onnx_native.pipeline import LARGE

from flow2onnx.dtypes import bool_, float32, float64, int32
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_of
from flow2onnx.graph.types import constant_of
from tests.native.running import both, rewrite, run, session
from tests.native.spoiling import refusals

SHAPES = [(1,), (3,), (7, 5), (2, 3, 4, 5), (33, 129), (5, 1, 1031), (3, 70001)]
# how a smaller operand stands beside (n, c, h, w)
SMALL = [(), (1,), (5,), (4, 1), (3, 1, 1), (2, 3, 1, 1), (2, 1, 1, 1), (3, 4, 5), (1, 3, 4, 1)]
# exp and erf are series of our own
SERIES = {"Exp": 4e-7, "Erf": 4e-7, "Sigmoid": 4e-7}
if platform.machine() == "aarch64":
    SERIES["Reciprocal"] = 2e-7  # the runtime's own is approximate there
LOGIC = ("And", "Or", "Not")
RENAMING = ("Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Cast", "Where")
UNARY = [n for n, (_, arity) in OPERATIONS.items() if arity == 1 and n not in (*RENAMING, *LOGIC)]
BINARY = [n for n, (_, arity) in OPERATIONS.items() if arity == 2 and n not in LOGIC]
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -3e38, 88.8, -87.4, 1.0], "f")


def numbers(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    draw = np.random.default_rng(seed)
    return np.asarray(draw.standard_normal(shape) * 3, np.float32)


def agree(apart: dict[str, np.ndarray], fused: dict[str, np.ndarray], rtol: float = 0.0) -> None:
    for name, expected in apart.items():
        assert fused[name].dtype == expected.dtype
        np.testing.assert_allclose(
            fused[name], expected, rtol=rtol, atol=rtol, equal_nan=True, err_msg=name
        )


def as_float(b: Builder, value: ir.Value) -> ir.Value:
    return value if value.dtype == ir.DataType.FLOAT else b.Cast(value, to=float32)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("op_type", UNARY)
def test_of_one_operand(op_type: str, shape: tuple[int, ...], library: NativeLibrary) -> None:
    b = Builder()
    x = b.input("x", shape, float32)
    b.output(b.Neg(b.emit(op_type, [x])[0]), "y")
    apart, fused, used = both(b, {"x": numbers(shape)}, library)
    assert used == {"Fused": 1}
    agree(apart, fused, SERIES.get(op_type, 0.0))


@pytest.mark.parametrize("small", SMALL, ids=str)
@pytest.mark.parametrize("op_type", BINARY)
def test_of_two_operands(op_type: str, small: tuple[int, ...], library: NativeLibrary) -> None:
    b, shape = Builder(), (2, 3, 4, 5)
    x, y = b.input("x", shape, float32), b.input("y", small, float32)
    b.output(as_float(b, b.emit(op_type, [x, b.Neg(b.Abs(x))])[0]), "plain")
    b.output(b.Neg(as_float(b, b.emit(op_type, [x, y])[0])), "right")
    b.output(b.Neg(as_float(b, b.emit(op_type, [y, x])[0])), "left")
    apart, fused, used = both(b, {"x": numbers(shape), "y": numbers(small, 1)}, library)
    assert used == {"Fused": 1}
    agree(apart, fused)


@pytest.mark.parametrize("op_type", [*UNARY, *BINARY])
def test_special_numbers(op_type: str, library: NativeLibrary) -> None:
    b = Builder()
    x = b.input("x", (10, 10), float32)
    operands = [x, b.Transpose(x, perm=[1, 0])][: OPERATIONS[op_type][1]]
    b.output(b.Neg(as_float(b, b.emit(op_type, operands)[0])), "y")
    feeds = {"x": np.broadcast_to(SPECIAL, (10, 10)).copy()}
    if op_type in ("Max", "Min", "Sign", "Relu"):  # the standard leaves NaN open
        feeds["x"] = np.nan_to_num(feeds["x"], nan=2.0)
    if op_type == "Reciprocal" and platform.machine() == "aarch64":
        feeds["x"][:, np.float32(1e-40) == SPECIAL] = 2.0  # the runtime has -inf for 1 / 1e-40
    apart, fused, _ = both(b, feeds, library)
    agree(apart, fused, SERIES.get(op_type, 0.0))


@pytest.mark.parametrize("threads", [1, 2])
def test_truths_go_in_and_out(threads: int, library: NativeLibrary) -> None:
    b, shape = Builder(), (3, 50001)
    x, y = b.input("x", shape, float32), b.input("y", shape, float32)
    kept, one = b.input("kept", shape, bool_), b.input("one", (3, 1), bool_)
    larger = b.And(b.Greater(x, y), b.Or(kept, one))
    b.output(larger, "larger")
    b.output(b.Where(b.Not(larger), x, b.Mul(y, 2.0)), "chosen")
    draw = np.random.default_rng(3)
    feeds = {"x": numbers(shape), "y": numbers(shape, 1), "kept": draw.random(shape) < 0.5,
             "one": draw.random((3, 1)) < 0.5}  # fmt: skip
    apart, fused, used = both(b, feeds, library, threads)
    assert used == {"Fused": 1}
    agree(apart, fused)


@pytest.mark.parametrize(
    "shape", [(4, 7), (2, 5, 33), (3, 1030), (1030, 3), (2, 2, 20000)], ids=str
)
@pytest.mark.parametrize("threads", [1, 2])
def test_reductions(shape: tuple[int, ...], threads: int, library: NativeLibrary) -> None:
    b, rank = Builder(), len(shape)
    x = b.input("x", shape, float32)
    square = b.Mul(x, x)
    level = b.ReduceMean(square, [rank - 1], keepdims=1)
    b.output(level, "level")
    b.output(b.Sub(square, level), "centred")
    b.output(b.ReduceSum(square, list(range(rank - 1)), keepdims=0), "columns")
    b.output(b.ReduceMean(b.Neg(x), list(range(rank - 1)), keepdims=1), "means")
    b.output(b.ReduceSum(square, list(range(rank)), keepdims=0), "all")
    b.output(b.ReduceSumSquare(x, keepdims=0), "length")
    b.output(b.ReduceSumSquare(x, [rank - 1], keepdims=1), "lengths")
    apart, fused, used = both(b, {"x": numbers(shape)}, library, threads)
    assert used == {"Fused": 1}
    agree(apart, fused, 2e-5)


def test_sums_of_channels(library: NativeLibrary) -> None:
    b, shape = Builder(), (6, 5, 9, 7)
    x, a = b.input("x", shape, float32), b.input("a", (5,), float32)
    ones = b.const(np.full(5, 1 - 1e-5, np.float32))
    y = b.BatchNormalization(b.Relu(x), a, a, b.const(np.zeros(5, np.float32)), ones)
    b.output(b.ReduceSum(y, [0, 2, 3], keepdims=0), "sum")
    b.output(b.Neg(y), "y")
    apart, fused, used = both(b, {"x": numbers(shape), "a": numbers((5,), 1)}, library)
    assert used == {"Fused": 1}
    agree(apart, fused, 1e-5)


def test_sums_alone(library: NativeLibrary) -> None:
    b = Builder()
    x = b.input("x", (6, 5, 9), float32)
    b.output(b.ReduceSum(x, [0, 1], keepdims=0), "columns")
    b.output(b.ReduceMean(x, [0, 1], keepdims=1), "means")
    apart, fused, used = both(b, {"x": numbers((6, 5, 9))}, library)
    assert used == {"Fused": 1}
    agree(apart, fused, 1e-5)


def test_gelu_and_clamps(library: NativeLibrary) -> None:
    b, shape = Builder(), (17, 333)
    x = b.input("x", shape, float32)
    y = b.HardSigmoid(x, alpha=0.3, beta=0.25)
    b.output(b.Mul(y, b.HardSigmoid(x, alpha=3e38, beta=0.0)), "clamped")
    b.output(b.Neg(b.Gelu(x)), "gelu")
    apart, fused, used = both(b, {"x": numbers(shape)}, library)
    assert used == {"Fused": 1}
    agree(apart, fused, 1e-6)


def clamped_slope(b: Builder, x: ir.Value) -> ir.Value:
    u = b.Mul(x, math.sqrt(0.5))
    bell = b.Mul(b.Div(u, b.Exp(b.Mul(u, u))), 1 / math.sqrt(math.pi))
    return b.Add(bell, b.HardSigmoid(b.Erf(u), alpha=0.5, beta=0.5))


def summed_slope(b: Builder, x: ir.Value) -> ir.Value:
    u = b.Mul(x, math.sqrt(0.5))
    bell = b.Mul(b.Div(u, b.Exp(b.Mul(u, u))), 2 / math.sqrt(math.pi))
    return b.Mul(b.Add(b.Add(b.Erf(u), 1.0), bell), 0.5)


def slope_by_density(b: Builder, x: ir.Value) -> ir.Value:
    density = b.Mul(b.Exp(b.Mul(b.Mul(x, x), -0.5)), 1 / math.sqrt(2 * math.pi))
    return b.Add(b.Mul(b.Add(b.Erf(b.Mul(x, 2.0**-0.5)), 1.0), 0.5), b.Mul(x, density))


SLOPES = [clamped_slope, summed_slope, slope_by_density]


def operations(model: ir.Model) -> list[int]:
    """The operations of the one program."""
    node = next(n for n in model.graph if n.op_type == "Fused")
    plan = list(node.attributes["plan"].as_ints())
    return plan[len(plan) - 5 * FusedHead(*plan[:7]).steps :: 5]


@pytest.mark.parametrize("slope", SLOPES)
def test_slopes_of_gelu(
    slope: Callable[[Builder, ir.Value], ir.Value], library: NativeLibrary
) -> None:
    x = np.concatenate([np.linspace(-15, 15, 60001), [1e-40, -1e-30, 3e38, -3e38]]).astype("f")
    b = Builder()
    b.output(b.Neg(slope(b, b.input("x", x.shape, float32))), "y")
    assert operations(rewrite(model_of(b.graph), {"Fused"})[0]).count(Operation.GELU_SLOPE) == 1
    _, fused, _ = both(b, {"x": x}, library)
    wide = x[:-2].astype(np.float64)
    distribution = np.array([math.erfc(-v * math.sqrt(0.5)) / 2 for v in wide])
    exact = distribution + wide * np.exp(-wide * wide / 2) / math.sqrt(2 * math.pi)
    assert np.max(abs(-fused["y"][:-2] - exact)) < 2e-7
    assert fused["y"][-2:].tolist() == [-1.0, 0.0]


def test_slopes_of_special_numbers(library: NativeLibrary) -> None:
    b = Builder()
    b.output(b.Neg(clamped_slope(b, b.input("x", SPECIAL.shape, float32))), "y")
    apart, fused, _ = both(b, {"x": SPECIAL}, library)
    agree(apart, fused, 2e-7)


@pytest.mark.parametrize("slope", SLOPES)
def test_what_is_shown_beside_a_slope_stays(
    slope: Callable[[Builder, ir.Value], ir.Value], library: NativeLibrary
) -> None:
    b, shape = Builder(), (31, 65)
    x, g = b.input("x", shape, float32), b.input("g", shape, float32)
    gradient = b.Mul(g, slope(b, x))
    b.output(gradient, "gradient")
    b.output(b.ReduceSum(gradient, [0], keepdims=1), "sums")
    b.output(b.Erf(b.Mul(x, math.sqrt(0.5))), "erf")
    feeds = {"x": numbers(shape), "g": numbers(shape, 1)}
    apart, fused, used = both(b, feeds, library)
    assert used == {"Fused": 1}
    agree(apart, fused, 1e-5)


def test_other_slopes_stay_as_they_are(library: NativeLibrary) -> None:
    b, shape = Builder(), (7, 9)
    x, z = b.input("x", shape, float32), b.input("z", shape, float32)
    u, v = b.Mul(x, math.sqrt(0.5)), b.Mul(z, math.sqrt(0.5))
    half = b.HardSigmoid(b.Erf(u), alpha=0.5, beta=0.5)
    for i, (w, factor) in enumerate([(u, 0.56), (v, 1 / math.sqrt(math.pi))]):
        b.output(b.Add(b.Mul(b.Div(w, b.Exp(b.Mul(w, w))), factor), half), f"y{i}")
    assert Operation.GELU_SLOPE not in operations(rewrite(model_of(b.graph), {"Fused"})[0])
    apart, fused, _ = both(b, {"x": numbers(shape), "z": numbers(shape, 1)}, library)
    agree(apart, fused, 1e-6)


def adam_like(kind: str, shape: tuple[int, ...]) -> Builder:
    """An update by Adam, or one that differs in one step or in what it shows."""
    b = Builder()
    g, m, v, w = (b.input(name, shape, float32) for name in ("g", "m", "v", "w"))
    rate = b.input("rate", shape if kind == "rates" else (1,), float32)
    square, kept = b.Mul(g, m if kind == "product" else g), b.Mul(v, 0.999)
    mean = b.Add(b.Mul(m, 0.9), b.Mul(g, 0.1))
    average = b.Add(kept, b.Mul(square, 0.001))
    root = b.Add(b.Sqrt(b.Abs(average) if kind == "abs" else average), 1e-8)
    quotient = b.Div(root, mean) if kind == "turned" else b.Div(mean, root)
    change = b.Mul(quotient, rate)
    b.output(mean, "mean")
    b.output(average, "average")
    b.output(b.Add(w, change) if kind == "added" else b.Sub(w, change), "weight")
    if kind == "shown":
        b.output(change, "change")
    if kind == "summed":
        b.output(b.ReduceSum(change, [0], keepdims=1), "sums")
    return b


KINDS = ["plain", "rates", "product", "abs", "turned", "added", "shown", "summed"]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(1,), (7, 37), (3, 70001)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_updates_by_adam(
    kind: str, shape: tuple[int, ...], threads: int, library: NativeLibrary
) -> None:
    b = adam_like(kind, shape)
    feeds = {name: numbers(shape, i) for i, name in enumerate(("g", "m", "v", "w"))}
    if kind != "product":
        feeds["v"] = abs(feeds["v"])
    feeds["rate"] = numbers(shape if kind == "rates" else (1,), 9)
    apart, fused, used = both(b, feeds, library, threads)
    assert used == {"Fused": 1}
    agree(apart, fused, 1e-4 if kind == "summed" else 0.0)


@pytest.mark.parametrize("mode", [0, 1], ids=["full", "spread"])
def test_adam_beside_an_operand_that_has_room_for_a_tile_alone(
    mode: int, library: NativeLibrary
) -> None:
    shape = (3, 70001)
    b = adam_like("plain", shape)
    model, _ = rewrite(model_of(b.graph), {"Fused"})
    node = next(n for n in model.graph if n.op_type == "Fused")
    head, *operands = _plan_of(node)
    size = math.prod(shape) if mode == 0 else 3
    truths = ir.val("truths", ir.DataType.BOOL, [size])
    model.graph.inputs.append(truths)
    head[2], head[3] = head[2] + 1, head[3] + 1  # a register and an input more
    operands.insert(head[3] - 1, [head[2] - 1, mode, size, 1, 9])
    plan = [n for part in (head, *operands) for n in part]
    node.attributes["plan"] = ir.AttrInt64s("plan", plan)
    node.resize_inputs(len(node.inputs) + 1)
    node.replace_input_with(len(node.inputs) - 1, truths)
    feeds = {name: abs(numbers(shape, i)) for i, name in enumerate(("g", "m", "v", "w"))}
    feeds["rate"] = numbers((1,), 9)
    expected = run(session(model_of(b.graph)), feeds)
    feeds["truths"] = numbers((size,)) > 0
    agree(expected, run(session(model, library), feeds), 0.0)


def _plan_of(node: ir.Node) -> list[list[int]]:
    """The head of a plan, each input, and the rest."""
    plan = list(node.attributes["plan"].as_ints())
    ends = [7 + 5 * i for i in range(plan[3] + 1)]
    return [plan[:7], *(plan[i : i + 5] for i in ends[:-1]), plan[ends[-1] :]]


def test_nothing_waits_for_itself(library: NativeLibrary) -> None:
    # what lies between two nodes of one program would have to run in the middle of it
    b = Builder()
    x = b.input("x", (16, 16), float32)
    first = b.Neg(b.Abs(x))
    product = b.MatMul(first, x)
    b.output(b.Add(b.Exp(first), b.Abs(product)), "y")
    apart, fused, used = both(b, {"x": numbers((16, 16))}, library)
    assert used["Fused"] >= 1
    agree(apart, fused, 1e-5)


def test_a_sum_is_read_behind_the_program(library: NativeLibrary) -> None:
    b = Builder()
    x = b.input("x", (8, 6), float32)
    b.output(b.Sub(b.Neg(x), b.ReduceMean(b.Abs(x), [0], keepdims=1)), "y")
    apart, fused, _ = both(b, {"x": numbers((8, 6))}, library)
    agree(apart, fused, 1e-6)


def test_sums_of_rows_beside_columns(library: NativeLibrary) -> None:
    # a square: only the layout tells the sums of rows from an operand for columns
    b = Builder()
    x = b.input("x", (9, 9), float32)
    sums = b.ReduceSum(b.Neg(x), [1], keepdims=1)
    cube = b.Reshape(b.Abs(x), [9, 9, 1])
    b.output(b.Mul(cube, sums), "columns")
    b.output(b.Mul(x, sums), "rows")
    apart, fused, _ = both(b, {"x": numbers((9, 9))}, library)
    agree(apart, fused, 1e-5)


def test_signed_zeros_are_two_constants(library: NativeLibrary) -> None:
    b = Builder()
    x = b.input("x", (5,), float32)
    zeros = b.const(np.float32(0.0)), b.const(np.float32(-0.0))
    b.output(b.Add(b.Div(b.Abs(x), zeros[0]), b.Neg(b.Div(b.Abs(x), zeros[1]))), "y")
    apart, fused, used = both(b, {"x": numbers((5,))}, library)
    assert used == {"Fused": 1}
    agree(apart, fused)


def test_other_types_stay(library: NativeLibrary) -> None:
    b = Builder()
    x, i = b.input("x", (4,), float64), b.input("i", (4,), int32)
    b.output(b.Neg(b.Abs(x)), "y")
    b.output(b.Add(b.Neg(i), i), "j")
    _, used = rewrite(model_of(b.graph), library.operators)
    assert used == {}


def test_sizes_known_at_run_time_stay(library: NativeLibrary) -> None:
    b = Builder()
    x = b.input("x", ("n", 4), float32)
    b.output(b.Neg(b.Abs(x)), "y")
    _, used = rewrite(model_of(b.graph), library.operators)
    assert used == {}


def random_graph(seed: int) -> tuple[Builder, dict[str, np.ndarray]]:
    """Nodes over a few shapes, in and out of what a program can hold."""
    draw = np.random.default_rng(seed)
    b, shape = Builder(), tuple(int(d) for d in draw.integers(1, 9, 3))
    smaller = [shape, shape[1:], (shape[0], 1, 1), (shape[0], shape[1], 1), (shape[2],), (1,)]
    values = [b.input(f"x{i}", s, float32) for i, s in enumerate(smaller)]
    feeds = {
        str(v.name): numbers(s, seed + i)
        for i, (v, s) in enumerate(zip(values, smaller, strict=True))
    }
    for _ in range(25):
        x, y = (values[int(i)] for i in draw.integers(0, len(values), 2))
        kind = int(draw.integers(0, 12))
        if kind < 5:
            values.append(b.emit(("Add", "Sub", "Mul", "Max", "Min")[kind], [x, y])[0])
        elif kind == 5:
            values.append(b.Where(b.Greater(x, 0.0), x, b.Neg(x)))
        elif kind in (6, 7) and len(x.shape) == 3:
            axes = [[2], [0, 1], [1], [0, 2]][int(draw.integers(0, 4))]
            values.append(
                b.emit(("ReduceSum", "ReduceMean")[kind - 6], [x, axes], {"keepdims": 1})[0]
            )
        elif kind == 8 and len(x.shape) == 3:
            values.append(b.Transpose(b.Transpose(x, perm=[2, 1, 0]), perm=[2, 1, 0]))
        elif kind == 9:
            values.append(b.Sigmoid(x))
        else:
            values.append(b.Mul(b.Erf(x), 0.5))
    for i, value in enumerate(v for v in values[6:] if not v.uses() or draw.random() < 0.2):
        b.output(value, f"y{i}")
    return b, feeds


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs(seed: int, library: NativeLibrary) -> None:
    b, feeds = random_graph(seed)
    apart, fused, _ = both(b, feeds, library, threads=1 + seed % 2)
    agree({k: v for k, v in apart.items() if np.all(abs(v) < 1e6)}, fused, 1e-4)


def program() -> tuple[ir.Model, dict[str, np.ndarray]]:
    b = Builder()
    x, y = b.input("x", (6, 40), float32), b.input("y", (6, 1), float32)
    z = b.Mul(b.Add(x, y), b.Exp(x))
    b.output(b.Sub(z, b.ReduceMean(z, [1], keepdims=1)), "z")
    b.output(b.ReduceSum(z, [0], keepdims=0), "sums")
    model, used = rewrite(model_of(b.graph), {"Fused"})
    assert used == {"Fused": 1}
    return model, {"x": numbers((6, 40)), "y": numbers((6, 1))}


def test_no_plan_reaches_beyond_its_tensors(library: NativeLibrary) -> None:
    others = [-1, 0, 1, 2, 3, 5, 9, 39, 41, 240, 4096, 2**40]
    assert refusals(program(), "Fused", "plan", others, library, 400) > 200


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
        value.shape = ir.Shape(["a", "b"])
    for value in model.graph.outputs:
        value.shape = ir.Shape([None] * len(value.shape))
    opened = session(model, library)
    run(opened, feeds)
    with pytest.raises(Exception, match="Fused: input 0 has 200 elements"):
        run(opened, feeds | {"x": numbers((5, 40))})


def test_constants_become_part_of_the_program(library: NativeLibrary) -> None:
    model, _ = program()
    node = next(n for n in model.graph if n.op_type == "Fused")
    assert all(v is not None and constant_of(v) is None for v in node.inputs)


def test_programs_that_do_not_pay_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flow2onnx_native.pipeline.FEWEST", 10)
    for size, nodes, expected in [(LARGE - 1, 2, 0), (LARGE, 2, 1), (LARGE, 1, 0), (4, 10, 1)]:
        b = Builder()
        y = b.input("x", (size,), float32)
        for _ in range(nodes):
            y = b.Sigmoid(y)
        b.output(y, "y")
        _, used = rewrite(model_of(b.graph), {"Fused"})
        assert used.get("Fused", 0) == expected


@pytest.mark.parametrize("seed", range(6))
def test_beside_branches_that_read_what_programs_make(seed: int, library: NativeLibrary) -> None:
    """Values that only nodes within a branch read are results of their program; nothing waits."""
    draw = np.random.default_rng(seed)
    b, shape = Builder(), (2, LARGE)
    values = [b.input("x", shape, float32), b.input("y", shape, float32)]
    choice = b.input("choice", (), bool_)

    def pick() -> ir.Value:
        return values[draw.integers(max(0, len(values) - 5), len(values))]

    def branch(name: str) -> ir.Graph:
        inner = Builder.inside(b, name)
        inner.output(inner.Sub(inner.Mul(pick(), pick()), pick()), f"{name}/result")
        return inner.graph

    for i in range(24):
        if i % 8 == 5:
            branches = {f"{kind}_branch": branch(f"{kind}{i}") for kind in ("then", "else")}
            found = b.emit("If", [choice], branches)[0]
            found.shape, found.type = ir.Shape(shape), ir.TensorType(ir.DataType.FLOAT)
            values.append(found)
        else:
            values.append(b.emit(draw.choice(["Add", "Sub", "Max"]), [pick(), pick()])[0])
    b.output(values[-1], "z")
    feeds = {"x": numbers(shape), "y": numbers(shape, 1), "choice": np.array(seed % 2 == 0)}
    apart, fused, used = both(b, feeds, library)
    assert used["Fused"] > 1
    agree(apart, fused)
