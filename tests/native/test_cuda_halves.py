"""Programs on CUDA that read and write halves, and compute in single precision between."""

from collections import Counter

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from flow2onnx_native.abi import DOMAIN
from flow2onnx_native.cuda_pipeline import rewrite_for_cuda
from flow2onnx_native.elementwise import OPERATIONS
from flow2onnx_native.fused_plan import parse_parts
from flow2onnx_native.library import NativeLibrary

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.api.session import current_session
from flow2onnx.dtypes import DType, bfloat16, float16, float32
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_of
from tests.models.zoo import ROWS, Row
from tests.native.running import ANALYSIS, Array, run, session
from tests.native.test_cuda_kernels import adam, alone, check, check_node

# Kernels are compiled for the host; of most programs one type tells as much as both.
HALVES = pytest.mark.parametrize(
    "half", [float16, pytest.param(bfloat16, marks=pytest.mark.slow)], ids=str
)


@HALVES
def test_every_operation_in_halves(half: DType, cuda_on_host: NativeLibrary) -> None:
    b, shape = Builder(), (3, 200)
    x, y = b.input("x", shape, half), b.input("y", shape, half)
    scale, number = np.float32(0.7), b.like(0.5, x)
    operands = [b.Sub(x, b.Mul(y, b.like(0.7, y))), b.Mul(x, b.like(scale, x))]
    for name, (_, arity) in OPERATIONS.items():
        if name in ("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Where", "Cast"):
            continue
        given = operands
        if name in ("And", "Or", "Not"):
            given = [b.Greater(x, y), b.Less(x, number)]
        b.output(b.emit(name, given[:arity])[0], name)
    b.output(b.Where(b.Greater(x, y), x, b.Neg(y)), "Where")
    b.output(b.Cast(b.Neg(x), to=float32), "single")
    check(b, cuda_on_host, Fused=1)


@HALVES
def test_nothing_is_rounded_between(half: DType, cuda_on_host: NativeLibrary) -> None:
    b, shape = Builder(), (40,)
    x = b.input("x", shape, float32)
    large = b.Mul(b.Cast(x, to=half), b.like(256.0, b.Cast(x, to=half)))
    b.output(b.Cast(b.Mul(large, large), to=float32), "y")  # beyond the range of float16
    model, _ = rewrite_for_cuda(model_of(b.graph), cuda_on_host.operators, ANALYSIS)
    (node,) = model.graph
    found = run(session(alone(node), cuda_on_host), {"x": np.full(shape, 1.0009765, np.float32)})
    np.testing.assert_array_equal(found["y"], np.float32(256 * 1.0009765) ** 2)


def rounded(x: Array, half: DType) -> Array:
    kind = np.float16 if half == float16 else ml_dtypes.bfloat16
    return x.astype(kind).astype(np.float32)


@pytest.mark.parametrize("half", [float16, bfloat16], ids=str)
def test_every_half_is_read_and_every_edge_is_rounded(
    half: DType, cuda_on_host: NativeLibrary
) -> None:
    """As numpy's conversions do: ties to even, numbers below the normal ones, infinities, NaN."""
    kind = np.float16 if half == float16 else ml_dtypes.bfloat16
    with np.errstate(all="ignore"):
        every = np.arange(1 << 16, dtype=np.uint16).view(kind).astype(np.float32)
        whole = np.sort(every[np.isfinite(every)])
        ties = (whole[1:] / 2 + whole[:-1] / 2).astype(np.float32)
        edges = np.array([65519.9, 65520.0, 3.4e38, 1e-45], np.float32)
        above, below = (np.nextafter(ties, np.float32(end)) for end in (np.inf, -np.inf))
        given = np.concatenate([every, ties, above, below, edges])
    b = Builder()
    x = b.input("x", given.shape, float32)
    b.output(b.Neg(b.Neg(b.Cast(x, to=half))), "y")
    model, used = rewrite_for_cuda(model_of(b.graph), cuda_on_host.operators,
                                   ANALYSIS)  # fmt: skip
    assert used == {"Fused": 1}
    (node,) = model.graph
    with np.errstate(all="ignore"):
        found, wanted = run(session(alone(node), cuda_on_host), {"x": given}), rounded(given, half)
    np.testing.assert_array_equal(*found.values(), wanted)


@HALVES
@pytest.mark.parametrize("shape", [(4, 7), (130, 64), (2, 3, 70)], ids=str)
def test_rows_and_sums_of_halves(
    shape: tuple[int, ...], half: DType, cuda_on_host: NativeLibrary
) -> None:
    b, rank = Builder(), len(shape)
    x = b.input("x", shape, half)
    square = b.Mul(x, x)
    level = b.ReduceMean(square, [rank - 1], keepdims=1)
    b.output(b.Sub(square, level), "centred")
    b.output(level, "level")
    for name, axes in (("columns", list(range(rank - 1))), ("all", list(range(rank)))):
        b.output(b.ReduceSum(square, axes, keepdims=0), name)
    model, used = rewrite_for_cuda(model_of(b.graph), cuda_on_host.operators,
                                   ANALYSIS)  # fmt: skip
    assert used["Fused"] >= 1
    for node in model.graph:
        if node.domain == DOMAIN:
            check_node(node, cuda_on_host)


@HALVES
def test_a_layer_norm_between_products_of_halves(half: DType, cuda_on_host: NativeLibrary) -> None:
    b, shape, row = Builder(), (6, 33), 33
    x, more = b.input("x", shape, half), b.input("more", shape, half)
    scale, shift = b.input("scale", (row,), float32), b.input("shift", (row,), float32)
    added = b.Add(b.Cast(x, to=float32), b.Cast(more, to=float32))
    y, *_ = b.emit("LayerNormalization", [added, scale, shift], {"epsilon": 1e-3}, outputs=1)
    b.output(b.Relu(b.Cast(y, to=half)), "y")
    model = check(b, cuda_on_host, Fused=1)
    (node,) = model.graph
    (plan,) = parse_parts(node)
    assert [o.element for o in plan.outputs] == [int(ir_type(half))]
    assert Counter(o.element for o in plan.inputs) == {int(ir_type(half)): 2, 1: 2}


def ir_type(half: DType) -> ir.DataType:
    return ir.DataType.FLOAT16 if half == float16 else ir.DataType.BFLOAT16


@HALVES
def test_weights_are_single_and_their_updates_read_halves(
    half: DType, cuda_on_host: NativeLibrary
) -> None:
    b = Builder()
    rate = b.input("rate", (), float32)
    for i, size in enumerate((5, 700, 1025)):
        adam(b, f"w{i}", size, rate, half)
        weight = next(v for v in b.graph.inputs if v.name == f"w{i}/w")
        b.output(b.Reshape(b.Cast(weight, to=half), [size, 1]), f"cast{i}")
    model = check(b, cuda_on_host, FusedParts=1)
    for node in model.graph:
        for value in node.outputs:
            is_master = str(value.name).startswith("next/")
            assert not is_master or value.dtype == ir.DataType.FLOAT


def mixed(half: str):
    flow.clear_default_session()
    config = flow.function_config()
    config.enable_auto_mixed_precision(True)
    config.runtime.mixed_precision_dtype(half)

    @flow.global_function(type="train", function_config=config)
    def train(x: tp.Numpy.Placeholder((4, 6))) -> tp.Numpy:
        y = x
        for i in range(3):
            y = flow.layers.dense(y, 8, name=f"dense{i}")
            y = flow.math.gelu(flow.layers.layer_norm(y, name=f"norm{i}"))
        loss = flow.math.reduce_mean(flow.math.square(y))
        flow.optimizer.Adam(flow.optimizer.PiecewiseConstantScheduler([], [0.01])).minimize(loss)
        return loss

    return current_session().opening("train").job.model


@pytest.mark.parametrize("half", ["float16", pytest.param("bfloat16", marks=pytest.mark.slow)])
def test_a_job_casts_all_its_weights_at_once(half: str, cuda_on_host: NativeLibrary) -> None:
    model, _ = rewrite_for_cuda(mixed(half), cuda_on_host.operators, ANALYSIS)
    weights = {f"dense{i}-weight" for i in range(3)}
    casts = [n for n in model.graph if weights & {str(v.name) for v in n.inputs if v is not None}
             and not any(str(v.name).startswith("next/") for v in n.outputs)]  # fmt: skip
    assert [n.op_type for n in casts] == ["FusedParts"]
    for node in model.graph:
        if node.domain == DOMAIN and node.op_type.startswith("Fused"):
            check_node(node, cuda_on_host)


@HALVES
def test_a_normalisation_over_a_batch_between_halves(
    half: DType, cuda_on_host: NativeLibrary
) -> None:
    b, shape = Builder(), (5, 7, 6, 6)
    given, more = b.input("given", shape, half), b.input("more", shape, half)
    x = b.Cast(given, to=float32)
    mean = b.ReduceMean(x, [0, 2, 3], keepdims=1)
    centred = b.Sub(x, mean)
    variance = b.ReduceMean(b.Mul(centred, centred), [0, 2, 3], keepdims=1)
    unit = b.Div(centred, b.Sqrt(b.Add(variance, 1e-3)))
    y = b.Relu(b.Add(b.Cast(unit, to=half), more))
    b.output(y, "y")
    b.output(mean, "mean")
    model = check(b, cuda_on_host, FusedChannels=1)
    (node,) = model.graph
    assert [v.dtype for v in node.inputs if v is not None] == [ir_type(half)] * 2


# Compiled for the CPU, whose kernels convolve no bfloat16: such nets stay in single precision.
IN_HALVES = [
    pytest.param(row, half, id=f"{row.name}-{half}")
    for half, names in {"float16": ("bert", "gpt", "resnet50"), "bfloat16": ("bert", "gpt")}.items()
    for row in ROWS
    if row.name in names
]


@pytest.mark.slow
@pytest.mark.parametrize(("row", "half"), IN_HALVES)
def test_every_program_of_the_zoo_in_halves(
    row: Row, half: str, cuda_on_host: NativeLibrary
) -> None:
    flow.clear_default_session()
    train = row.small().train
    train.spec.config.enable_auto_mixed_precision(True)
    train.spec.config.runtime.mixed_precision_dtype(half)
    job = current_session().opening(train.spec.name).job
    model, _ = rewrite_for_cuda(job.model, cuda_on_host.operators, ANALYSIS)
    halves = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
    checked = 0
    for node in model.graph:
        if node.domain == DOMAIN and node.op_type.startswith("Fused"):
            check_node(node, cuda_on_host)
            checked += any(
                v.dtype in halves for v in (*node.inputs, *node.outputs) if v is not None
            )
    assert checked


def test_the_library_for_cpus_refuses_halves(
    library: NativeLibrary, cuda_on_host: NativeLibrary
) -> None:
    b = Builder()
    x = b.input("x", (40,), float16)
    b.output(b.Abs(b.Neg(x)), "y")
    model, _ = rewrite_for_cuda(model_of(b.graph), cuda_on_host.operators, ANALYSIS)
    (node,) = model.graph
    with pytest.raises(Exception, match="no sound program"):
        session(alone(node), library)
