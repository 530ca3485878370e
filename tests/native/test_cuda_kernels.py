"""Kernels for CUDA beside float64: the texts that a GPU would get, run thread by thread here."""

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from flow2onnx_native.abi import DOMAIN, Operation
from flow2onnx_native.cuda_pipeline import rewrite_for_cuda
from flow2onnx_native.elementwise import OPERATIONS
from flow2onnx_native.fused_plan import parse_parts
from flow2onnx_native.library import NativeLibrary

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.api.session import current_session
from flow2onnx.dtypes import DType, bool_, float32
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_of
from tests.models.zoo import ROWS, Row
from tests.native.one_node import one_node
from tests.native.reference import run_channels, run_fused
from tests.native.running import ANALYSIS, Array, run, session
from tests.native.test_channels import layer

# Of the largest value: sums of a few thousand numbers in single precision.
TOLERANCE = 2e-6
# Halves are rounded once, when they are stored.
ROUNDING = {ir.DataType.FLOAT16: 2.0**-11, ir.DataType.BFLOAT16: 2.0**-8}


def rewrite(b: Builder, library: NativeLibrary) -> tuple[ir.Model, dict[str, int]]:
    return rewrite_for_cuda(model_of(b.graph), library.operators, ANALYSIS)


def numbers(shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


HALVES = {ir.DataType.FLOAT16: np.float16, ir.DataType.BFLOAT16: ml_dtypes.bfloat16}
FLOAT = ir.TensorType(ir.DataType.FLOAT)


def cast(value: ir.Value, name: str, dtype: ir.DataType) -> ir.Node:
    made = ir.node("Cast", [value], {"to": int(dtype)})
    (found,) = made.outputs
    found.name, found.type, found.shape = name, ir.TensorType(dtype), value.shape
    return made


def alone(node: ir.Node) -> ir.Model:
    """A model of one node of a graph, without the output of what it works in.

    What is half goes in and comes out in single precision, and is cast before and behind.
    """
    given = dict.fromkeys(v for v in node.inputs if v is not None)
    inputs = {v: ir.Value(name=v.name, shape=v.shape,
                          type=FLOAT if v.dtype in HALVES else v.type) for v in given}  # fmt: skip
    before = {v: cast(x, f"{v.name}/half", v.dtype) for v, x in inputs.items() if v.dtype in HALVES}
    operands = [None if v is None else before[v].outputs[0] if v in before else inputs[v]
                for v in node.inputs]  # fmt: skip
    made = ir.Node(DOMAIN, node.op_type, operands, node.attributes.values(),
                   num_outputs=len(node.outputs), name=node.name)  # fmt: skip
    for new, old in zip(made.outputs, node.outputs, strict=True):
        new.name, new.type, new.shape = old.name, old.type, old.shape
    shown = [v for v in made.outputs if not str(v.name).endswith("/partial_sums")]
    behind = [cast(v, f"{v.name}/single", ir.DataType.FLOAT) for v in shown if v.dtype in HALVES]
    ends = {n.inputs[0]: n.outputs[0] for n in behind}
    graph = ir.Graph(
        list(inputs.values()), [ends.get(v, v) for v in shown],
        nodes=[*before.values(), made, *behind], opset_imports={"": 18, DOMAIN: 1},
    )  # fmt: skip
    return ir.Model(graph, ir_version=9)


def feed(value: ir.Value, seed: int) -> Array:
    shape = tuple(value.shape.numpy())
    draw = np.random.default_rng(seed)
    if value.dtype == ir.DataType.BOOL:
        return np.asarray(draw.random(shape) < 0.5)
    found = draw.uniform(0.1, 1.0, shape).astype(np.float32)  # roots and quotients are numbers
    return found.astype(HALVES.get(value.dtype, np.float32)).astype(np.float32)


def expected(node: ir.Node, feeds: list[Array]) -> list[Array]:
    """The outputs of a program in float64."""
    values = node.attributes["values"].as_floats() if "values" in node.attributes else ()
    if node.op_type == "FusedChannels":
        return run_channels(node.attributes["plan"].as_ints(), values, feeds)
    found = list[Array]()
    for i, plan in enumerate(parse_parts(node)):
        each = len(plan.inputs)
        found += run_fused(plan, values, feeds[i * each : (i + 1) * each])
    return found


def check_node(node: ir.Node, library: NativeLibrary) -> None:
    """Run a program of a graph by its kernel, and in float64."""
    operands = list(dict.fromkeys(v for v in node.inputs if v is not None))
    feeds = {str(v.name): feed(v, i) for i, v in enumerate(operands)}
    given = [feeds[str(v.name)] for v in node.inputs if v is not None]
    found = run(session(alone(node), library), feeds).values()
    made = [v for v in node.outputs if not str(v.name).endswith("/partial_sums")]
    for value, got, wanted in zip(made, found, expected(node, given), strict=True):
        finite = abs(wanted[np.isfinite(wanted)])  # exponentials of drawn numbers may be infinite
        scale = max(1.0, np.max(finite, initial=0.0))
        np.testing.assert_allclose(
            got.astype(np.float64), wanted, rtol=1e-4 + ROUNDING.get(value.dtype, 0.0),
            atol=TOLERANCE * scale, err_msg=f"{node.name}: {value.name}",
        )  # fmt: skip


def check(b: Builder, library: NativeLibrary, **used: int) -> ir.Model:
    """See that a graph becomes these operators, and that each of them computes its plan."""
    model, found = rewrite(b, library)
    assert found == used
    for node in model.graph:
        if node.domain == DOMAIN:
            check_node(node, library)
    return model


def test_every_operation(cuda_on_host: NativeLibrary) -> None:
    b, shape = Builder(), (3, 700)
    x, y = b.input("x", shape, float32), b.input("y", shape, float32)
    for name, (_, arity) in OPERATIONS.items():
        if name in ("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Where", "Cast"):
            continue
        operands = [b.Sub(x, y), b.Mul(x, 0.7)]
        if name in ("And", "Or", "Not"):
            operands = [b.Greater(x, y), b.Less(x, 0.5)]
        made = b.emit(name, operands[:arity])[0]
        b.output(made, name)
    b.output(b.Where(b.Greater(x, y), x, b.Neg(y)), "Where")
    check(b, cuda_on_host, Fused=1)


def test_the_slope_of_gelu(cuda_on_host: NativeLibrary) -> None:
    b = Builder()
    x, g = b.input("x", (4, 300), float32), b.input("g", (4, 300), float32)
    u = b.Mul(x, np.float32(np.sqrt(0.5)))
    bell = b.Mul(b.Exp(b.Mul(b.Mul(x, x), -0.5)), np.float32(1 / np.sqrt(2 * np.pi)))
    slope = b.Add(b.Mul(b.Add(b.Erf(u), 1.0), 0.5), b.Mul(x, bell))
    b.output(b.Mul(g, slope), "y")
    model = check(b, cuda_on_host, Fused=1)
    (node,) = model.graph
    steps = [step.operation for plan in parse_parts(node) for step in plan.steps]
    assert steps == [Operation.GELU_SLOPE, Operation.MUL]


@pytest.mark.parametrize(
    "small", [(), (5,), (4, 1), (3, 1, 1), (2, 3, 1, 1), (2, 1, 1, 1), (3, 4, 5)], ids=str
)
def test_broadcasts(small: tuple[int, ...], cuda_on_host: NativeLibrary) -> None:
    b, shape = Builder(), (2, 3, 4, 5)
    x, y = b.input("x", shape, float32), b.input("y", small, float32)
    kept = b.input("kept", small, bool_)
    b.output(b.Where(kept, b.Mul(b.Neg(x), y), x), "y")
    check(b, cuda_on_host, Fused=1)


# rows of a warp and of a block; columns of one tile and several; sums that fit rows and do not
SHAPES = [(4, 7), (2, 5, 33), (3, 1030), (130, 64), (1030, 3), (2, 2, 9000), (7, 1), (6, 1, 2)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rows_and_sums(shape: tuple[int, ...], cuda_on_host: NativeLibrary) -> None:
    b, rank = Builder(), len(shape)
    x = b.input("x", shape, float32)
    square = b.Mul(x, x)
    level = b.ReduceMean(square, [rank - 1], keepdims=1)
    b.output(level, "level")
    b.output(b.Sub(square, level), "centred")
    for name, axes in (("columns", list(range(rank - 1))), ("all", list(range(rank))),
                       ("first", [0])):  # fmt: skip
        b.output(b.ReduceSum(square, axes, keepdims=0), name)
    model, used = rewrite(b, cuda_on_host)
    assert used["Fused"] >= 1
    for node in model.graph:
        if node.domain == DOMAIN:
            check_node(node, cuda_on_host)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((64, 10), [0]), ((50, 3000), [0]), ((6, 5, 63), [0, 2]), ((6, 5, 7), [0, 2]),
     ((3, 20, 9), [0]), ((4, 6, 5, 3), [0, 1]), ((9000,), [0]), ((2, 3, 5, 4), [0, 3])],
    ids=str,
)  # fmt: skip
def test_sums_without_rows(
    shape: tuple[int, ...], axes: list[int], cuda_on_host: NativeLibrary
) -> None:
    b = Builder()
    x = b.input("x", shape, float32)
    b.output(b.ReduceSum(b.Mul(x, b.Neg(x)), axes, keepdims=0), "sums")
    b.output(b.ReduceMean(b.Mul(x, b.Neg(x)), list(range(len(shape))), keepdims=0), "mean")
    check(b, cuda_on_host, Fused=1)


def adam(b: Builder, name: str, size: int, rate: ir.Value, half: DType = float32) -> None:
    """The update of a weight by a gradient of type `half`."""
    w, m, v = (b.input(f"{name}/{part}", (size,), float32) for part in "wmv")
    g = b.input(f"{name}/g", (size,), half)
    g = g if half == float32 else b.Cast(g, to=float32)
    mean = b.Add(b.Mul(m, 0.9), b.Mul(g, 0.1))
    square = b.Add(b.Mul(v, 0.999), b.Mul(b.Mul(g, g), 0.001))
    change = b.Mul(b.Div(mean, b.Add(b.Sqrt(square), 1e-8)), rate)
    for value, part in ((b.Sub(w, change), "w"), (mean, "m"), (square, "v")):
        b.output(value, f"next/{name}/{part}")


def test_updates_of_all_weights_are_one_node(cuda_on_host: NativeLibrary) -> None:
    b = Builder()
    rate = b.input("rate", (), float32)
    for i, size in enumerate((2, 5, 700, 1024, 1025, 5000)):
        adam(b, f"w{i}", size, rate)
    check(b, cuda_on_host, FusedParts=1)


UPDATES = {
    "adam": lambda rate: flow.optimizer.Adam(rate),
    "adamw": lambda rate: flow.optimizer.AdamW(rate, weight_decay=0.1, do_bias_correction=True),
    "momentum": lambda rate: flow.optimizer.SGD(rate, momentum=0.9),
    "lamb": lambda rate: flow.optimizer.LAMB(rate),
    "clipped": lambda rate: flow.optimizer.Adam(
        rate, grad_clipping=flow.optimizer.grad_clipping.by_global_norm(1.0)
    ),
}


@pytest.mark.parametrize("name", UPDATES)
def test_a_job_updates_all_its_weights_at_once(name: str, cuda_on_host: NativeLibrary) -> None:
    flow.clear_default_session()

    @flow.global_function(type="train")
    def train(x: tp.Numpy.Placeholder((4, 6))) -> tp.Numpy:
        y = x
        for i in range(3):
            y = flow.layers.dense(y, 5 + i, flow.nn.relu, name=f"dense{i}")
        loss = flow.math.reduce_mean(flow.math.square(y))
        UPDATES[name](flow.optimizer.PiecewiseConstantScheduler([], [0.01])).minimize(loss)
        return loss

    job = current_session().opening("train").job
    model, _ = rewrite_for_cuda(job.model, cuda_on_host.operators, ANALYSIS)
    parts = [n for n in model.graph if n.op_type == "FusedParts"]
    update = parts[-1]
    assert update.attributes["parts"].as_int() == 6
    wanted = {f"next/dense{i}-{kind}" for i in range(3) for kind in ("weight", "bias")}
    assert wanted <= {str(v.name) for v in update.outputs}
    for node in model.graph:
        if node.domain == DOMAIN and node.op_type.startswith("Fused"):
            check_node(node, cuda_on_host)


@pytest.mark.slow
def test_more_parts_than_a_launch_takes(cuda_on_host: NativeLibrary) -> None:
    b = Builder()
    for i in range(520):  # one takes 499 of them
        x, y, z = (b.input(f"{name}{i}", (2 + i % 3,), float32) for name in "xyz")
        b.output(b.ReduceSum(b.Mul(x, b.Neg(x)), [0], keepdims=0), f"sum{i}")
        b.output(b.Abs(b.Mul(b.Add(y, z), x)), f"y{i}")
    check(b, cuda_on_host, FusedParts=1)


def test_programs_that_depend_on_each_other_stay_apart(cuda_on_host: NativeLibrary) -> None:
    b = Builder()
    x = b.input("x", (40,), float32)
    for i in range(3):
        x = b.Add(b.Mul(b.ReduceSum(b.Mul(b.Neg(x), x), [0], keepdims=1), 0.1), b.Neg(x))
        x = b.Transpose(b.Reshape(x, [8, 5]), perm=[1, 0])
        x = b.Reshape(x, [40])
        b.output(x, f"y{i}")
    model, _ = rewrite(b, cuda_on_host)
    assert "FusedParts" not in [n.op_type for n in model.graph]


def test_parts_that_are_not_alike_are_refused(cuda_on_host: NativeLibrary) -> None:
    b = Builder()
    for i, size in enumerate((4, 6)):
        x = b.input(f"x{i}", (size,), float32)
        b.output(b.Abs(b.Neg(x)), f"y{i}")
    model, _ = rewrite(b, cuda_on_host)
    (node,) = model.graph
    plan = list(node.attributes["plan"].as_ints())
    plan[-5] = int(Operation.EXP)
    node.attributes["plan"] = ir.AttrInt64s("plan", plan)
    with pytest.raises(Exception, match="program 1 cannot run beside the others"):
        session(model, cuda_on_host)


@pytest.mark.parametrize("shape", [(2, 3, 4, 4), (5, 37, 7, 7), (2, 5, 1100, 1), (3, 2, 70, 70)],
                         ids=str)  # fmt: skip
@pytest.mark.parametrize("apart", [False, True])
def test_normalisations_over_a_batch(
    shape: tuple[int, ...], apart: bool, cuda_on_host: NativeLibrary
) -> None:
    b, _ = layer(shape, apart=apart)
    model, used = rewrite(b, cuda_on_host)
    assert used["FusedChannels"] == 1 + apart
    for node in model.graph:
        if node.domain == DOMAIN:
            check_node(node, cuda_on_host)


def run_one(library: NativeLibrary, op_type: str, feeds: dict[str, Array], outputs: int = 1,
            **attributes: int | list[int]) -> list[Array]:  # fmt: skip
    model = one_node(op_type, feeds, outputs, **attributes)
    return list(run(session(model, library), feeds).values())


@pytest.mark.parametrize(
    ("classes", "label"), [(1, np.int32), (10, np.int64), (33, np.int32), (1500, np.int64),
                           (9000, np.int32)],
)  # fmt: skip
def test_cross_entropies(classes: int, label: type, cuda_on_host: NativeLibrary) -> None:
    draw = np.random.default_rng(classes)
    logits = (draw.standard_normal((5, classes)) * 4).astype(np.float32)
    labels = draw.integers(-classes, classes, (5, 1)).astype(label)
    for factors in (numbers((1,)), numbers((5, 1), 1)):
        losses, slopes = run_one(
            cuda_on_host, "CrossEntropy", {"x": logits, "labels": labels, "factor": factors}, 2,
            tasks=1, shape=[5],
        )  # fmt: skip
        wide = logits.astype(np.float64)
        shares = np.exp(wide - wide.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        at = labels.reshape(-1) % classes
        wanted = (shares - np.eye(classes)[at]) * factors.astype(np.float64)
        np.testing.assert_allclose(losses, -np.log(shares[np.arange(5), at]), rtol=2e-6, atol=2e-6)
        np.testing.assert_allclose(slopes, wanted, rtol=1e-5, atol=2e-6)


def test_a_label_that_names_no_class_gives_nan(cuda_on_host: NativeLibrary) -> None:
    feeds = {"x": numbers((3, 7)), "labels": np.array([2, 7, -8], np.int32), "f": numbers((1,))}
    losses, slopes = run_one(cuda_on_host, "CrossEntropy", feeds, 2, tasks=1, shape=[3])
    assert np.isnan(losses).tolist() == [False, True, True]
    assert np.isnan(slopes).all(axis=1).tolist() == [False, True, True]


@pytest.mark.parametrize(("width", "index"), [(1, np.int64), (5, np.int32), (300, np.int64)])
def test_rows_of_a_table(width: int, index: type, cuda_on_host: NativeLibrary) -> None:
    draw = np.random.default_rng(width)
    table = numbers((9, width))
    at = draw.integers(-9, 9, 300).astype(index)
    rows = numbers((300, width), 1)
    (found,) = run_one(cuda_on_host, "Rows", {"t": table, "i": at}, tasks=1, shape=[300, width])
    np.testing.assert_array_equal(found, table[at])
    added, put = table.copy(), table.copy()
    for i, row in zip(at, rows, strict=True):
        added[i] += row
        put[i] = row
    feeds = {"t": table, "i": at, "rows": rows}
    np.testing.assert_array_equal(run_one(cuda_on_host, "AddRows", feeds, tasks=1)[0], added)
    np.testing.assert_array_equal(run_one(cuda_on_host, "PutRows", feeds, tasks=1)[0], put)


def test_rows_that_a_table_does_not_have(cuda_on_host: NativeLibrary) -> None:
    table, at = numbers((4, 3)), np.array([3, 4, -5, -4], np.int64)
    (found,) = run_one(cuda_on_host, "Rows", {"t": table, "i": at}, tasks=1, shape=[4, 3])
    np.testing.assert_array_equal(found[[0, 3]], table[[3, 0]])
    assert np.isnan(found[1:3]).all()
    feeds = {"t": table, "i": at, "rows": numbers((4, 3), 1)}
    (added,) = run_one(cuda_on_host, "AddRows", feeds, tasks=1)
    np.testing.assert_array_equal(added[1:3], table[1:3])


@pytest.mark.parametrize(
    ("op_type", "feeds", "attributes", "words"),
    [
        ("CrossEntropy", {"x": (3, 4), "l": (2,), "f": (1,)}, {"shape": [3]}, "do not fit 3 rows"),
        ("CrossEntropy", {"x": (3, 4), "l": (3,), "f": (2,)}, {"shape": [3]}, "do not fit 3 rows"),
        ("CrossEntropy", {"x": (3, 4), "l": (3,), "f": (1,)}, {"shape": [4]}, "not of the shape"),
        ("Rows", {"t": (3, 4), "i": (2,)}, {"shape": [2, 5]}, "do not fit"),
        ("AddRows", {"t": (3, 4), "i": (2,), "r": (2, 5)}, {}, "do not fit"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(
    op_type: str, feeds: dict[str, tuple[int, ...]], attributes: dict[str, list[int]], words: str,
    cuda_on_host: NativeLibrary,
) -> None:  # fmt: skip
    given = {n: numbers(s) if n in "xftr" else np.zeros(s, np.int32) for n, s in feeds.items()}
    with pytest.raises(Exception, match=words):
        run_one(cuda_on_host, op_type, given, 1 + (op_type == "CrossEntropy"), tasks=1,
                **attributes)  # fmt: skip


@pytest.mark.parametrize("row", [33, 1500])
def test_layer_norms_and_their_gradients(row: int, cuda_on_host: NativeLibrary) -> None:
    b, shape = Builder(), (6, 5, row)
    x, g = b.input("x", shape, float32), b.input("g", shape, float32)
    scale, shift = b.input("scale", (row,), float32), b.input("shift", (row,), float32)
    y, mean, factor = b.emit(
        "LayerNormalization", [b.Add(x, g), scale, shift], {"epsilon": 1e-3}, outputs=3
    )
    b.output(b.Relu(y), "y")
    b.output(mean, "mean")
    b.output(b.Transpose(factor, perm=[1, 0, 2]), "factor")
    unit = b.Mul(b.Sub(x, mean), factor)
    slope = b.Mul(g, scale)
    inner = b.Sub(slope, b.ReduceMean(slope, [2], keepdims=1))
    inner = b.Sub(inner, b.Mul(unit, b.ReduceMean(b.Mul(slope, unit), [2], keepdims=1)))
    b.output(b.Mul(inner, factor), "dx")
    for name, value in (("dscale", b.Mul(g, unit)), ("dshift", b.Neg(g))):
        b.output(b.ReduceSum(value, [0, 1], keepdims=0), name)
    check(b, cuda_on_host, Fused=1)


@pytest.mark.slow
@pytest.mark.parametrize("row", [r for r in ROWS if r.name in ("bert", "gpt", "wide_deep")],
                         ids=lambda r: r.name)  # fmt: skip
def test_every_program_of_the_zoo(row: Row, cuda_on_host: NativeLibrary) -> None:
    flow.clear_default_session()
    job = current_session().opening(row.small().train.spec.name).job
    model, used = rewrite_for_cuda(job.model, cuda_on_host.operators, ANALYSIS)
    assert used["FusedParts"] >= 1
    for node in model.graph:
        if node.domain == DOMAIN and node.op_type.startswith("Fused"):
            check_node(node, cuda_on_host)
