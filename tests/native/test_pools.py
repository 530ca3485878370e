"""Pools of maxima and their gradient beside loops in float64, and when they take part."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir
import pytest
from flow2onnx_native.abi import DOMAIN
from flow2onnx_native.library import NativeLibrary
from flow2onnx_runtime.extensions import accelerator

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.autodiff import gradients
from flow2onnx.dtypes import float32, float64
from flow2onnx.engine.session import current_session
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_of
from tests.native.running import both, in_place, rewrite, run, session

NATIVE = {"MaxPool": 1, "MaxPoolGradient": 1}


@dataclass(frozen=True)
class Case:
    x: tuple[int, ...]
    kernel: tuple[int, ...] = (3, 3)
    strides: tuple[int, ...] = (2, 2)
    pads: tuple[int, ...] = (1, 1, 1, 1)
    ceil: int = 0


CASES = [
    Case((2, 3, 12, 12), (2, 2), pads=(0, 0, 0, 0)),
    Case((2, 3, 28, 28), (2, 2), pads=(0, 0, 0, 0)),
    Case((2, 3, 28, 112)),
    Case((1, 2, 9, 131), (3, 3), (1, 1)),
    Case((1, 2, 9, 131), (3, 5), (1, 3), (1, 2, 1, 2)),
    Case((1, 2, 9, 70), (2, 2), (2, 2), (0, 0, 1, 1)),
    Case((1, 1, 1, 1), (1, 1), (1, 1), (0, 0, 0, 0)),
    Case((3, 1, 1, 1), (3, 3), (5, 5)),
    Case((1, 3, 17, 19), (1, 1), (3, 2), (0, 0, 0, 0)),
    Case((1, 2, 40, 40), (15, 17), (4, 6), (7, 3, 9, 16)),
    Case((1, 1, 300, 3), (255, 1), (1, 1), (254, 0, 9, 0)),
    Case((1, 1, 3, 300), (1, 255), (1, 2), (0, 9, 0, 200)),
    Case((1, 2, 7, 700), (2, 3), (2, 256), (0, 0, 0, 0)),
]


def drawn() -> Iterator[Case]:
    """Small cases of all kinds, the same each time."""
    draw = np.random.default_rng(17)
    while True:
        kernel, strides, extents = (tuple(map(int, draw.integers(1, n, 2))) for n in (6, 6, 24))
        before, after = (tuple(int(draw.integers(0, k)) for k in kernel) for _ in range(2))
        pads = (*before, *after)
        reached = (d + p + q >= k for d, p, q, k in zip(extents, before, after, kernel))  # noqa: B905
        if all(reached):
            yield Case((2, 3, *extents), kernel, strides, pads, int(draw.integers(0, 2)))


DRAWN = [case for _, case in zip(range(170), drawn(), strict=False)]


def numbers(shape: tuple[int, ...], kind: str) -> np.ndarray:
    draw = np.random.default_rng(abs(hash((shape, len(kind)))) % 1000)
    if kind == "ties":  # and no number above the padding
        return draw.integers(-3, 0, shape).astype(np.float32)
    return draw.standard_normal(shape).astype(np.float32)


def pool(case: Case, dtype=float32, **attributes):
    """A graph with a pool and its gradient."""
    b = Builder()
    x = b.input("x", case.x, dtype)
    given = {"kernel_shape": case.kernel, "strides": case.strides, "pads": case.pads}
    y = b.MaxPool(x, ceil_mode=case.ceil, **given, **attributes)
    g = b.input("g", tuple(y.shape.numpy()), dtype)
    b.output(gradients(b, {y: g}, [x])[x], "dx")
    b.output(y, "y")
    return b, tuple(y.shape.numpy())


def exact(case: Case, x: np.ndarray, g: np.ndarray, chosen=None):
    """Maxima, their places in their windows, and the gradient in float64, by a loop.

    `chosen`: other places, for the gradient.
    """
    (top, left), (height, width) = case.pads[:2], case.x[2:]
    y, places = np.full(g.shape, -np.inf, np.float32), np.full(g.shape, -1)
    dx = np.zeros(case.x)
    for at in np.ndindex(*g.shape):
        start = [at[2] * case.strides[0] - top, at[3] * case.strides[1] - left]
        inside = [
            (i * case.kernel[1] + j, (*at[:2], start[0] + i, start[1] + j))
            for i, j in np.ndindex(*case.kernel)
            if 0 <= start[0] + i < height and 0 <= start[1] + j < width
        ]
        places[at] = inside[0][0]
        for place, element in inside:
            if x[element] > y[at] or np.isnan(x[element]):
                y[at], places[at] = x[element], place
        wanted = places[at] if chosen is None else chosen[at]
        for place, element in inside:
            if place == wanted:
                dx[element] += np.float64(g[at])
    return y, places, dx


def covered(case: Case, shape: tuple[int, ...]) -> bool:
    """True if each window has an element of the image."""
    return all(
        (o - 1) * s - p < d
        for o, s, p, d in zip(shape[2:], case.strides, case.pads, case.x[2:], strict=False)
    )


@pytest.mark.parametrize("kind", ["plain", "ties"])
@pytest.mark.parametrize("case", CASES + DRAWN, ids=str)
def test_pools(case: Case, kind: str, library: NativeLibrary) -> None:
    b, shape = pool(case)
    if not covered(case, shape):  # the runtime drops such windows, of which nobody else knows
        assert not NATIVE.keys() & rewrite(model_of(b.graph), NATIVE)[1].keys()
        return
    feeds = {"x": numbers(case.x, kind), "g": numbers(shape, "plain")}
    apart, native, used = both(b, feeds, library)
    assert used == NATIVE
    y, _, dx = exact(case, feeds["x"], feeds["g"])
    np.testing.assert_array_equal(native["y"], y)
    np.testing.assert_allclose(native["dx"], dx, rtol=1e-5, atol=1e-5)
    for name, value in apart.items():
        np.testing.assert_array_equal(native[name], value, err_msg=name)


def test_the_sweep_has_all_kinds() -> None:
    cases = [case for case in DRAWN if covered(case, pool(case)[1])]
    assert len(cases) > 100
    assert any(case.ceil and pool(case)[1] != pool(replace(case, ceil=0))[1] for case in cases)
    assert any(case.kernel > case.strides for case in cases)
    assert any(case.pads[:2] != case.pads[2:] for case in cases)


@pytest.mark.parametrize(
    "case", [Case((3, 13, 56, 58)), Case((5, 7, 64, 60), (2, 2), pads=(0,) * 4)]
)
def test_any_number_of_tasks(case: Case, library: NativeLibrary) -> None:
    b, shape = pool(case)
    feeds = {"x": numbers(case.x, "plain"), "g": numbers(shape, "plain")}
    _, alone, _ = both(b, feeds, library)
    for threads in (2, 4, 64):
        _, shared, used = both(b, feeds, library, threads)
        assert used == NATIVE
        for name, value in alone.items():
            np.testing.assert_array_equal(shared[name], value, err_msg=name)


@pytest.mark.parametrize("case", [CASES[0], CASES[2], CASES[4]], ids=str)
def test_values_that_are_not_finite(case: Case, library: NativeLibrary) -> None:
    """A NaN is never hidden; nothing but negative infinity is at the first place."""
    b, shape = pool(case)
    x = numbers(case.x, "plain")
    x[0, 0, :6, :9], x[0, 1, :6, :9], x[1 % len(x), 1, 7, 5] = np.nan, -np.inf, np.inf
    x[0, 1, 3, 2] = np.nan
    feeds = {"x": x, "g": numbers(shape, "plain")}
    made = run(session(rewrite(model_of(b.graph), NATIVE)[0], library), feeds)
    y, _, dx = exact(case, x, feeds["g"])
    assert np.isnan(y).any()
    assert np.isposinf(y).any()
    assert np.isneginf(y).any()
    np.testing.assert_array_equal(made["y"], y)
    np.testing.assert_allclose(made["dx"], dx, rtol=1e-5, atol=1e-5)


def test_gradients_that_are_not_finite(library: NativeLibrary) -> None:
    case = Case((1, 2, 9, 20))
    b, shape = pool(case)
    feeds = {"x": numbers(case.x, "plain"), "g": numbers(shape, "plain")}
    feeds["g"][0, 0, 1, 3], feeds["g"][0, 1, 2, 2] = np.nan, np.inf
    apart, native, _ = both(b, feeds, library)
    assert np.isnan(native["dx"]).sum() == 1
    np.testing.assert_array_equal(native["dx"], apart["dx"])


# A single native operator, as no graph of ours has it.

SHAPE = [2, 3, 9, 8, 5, 4, 3, 3, 2, 2, 1, 1]
LITTLE = Case((2, 3, 9, 8))
RESULTS = (2, 3, 5, 4)
FLOAT, BYTES = ir.DataType.FLOAT, ir.DataType.UINT8


def native_graph(op_type, inputs, shape=SHAPE, tasks=1):
    """A model of one native node, whose inputs may be of any size."""
    values = [ir.val(name, dtype, [None] * rank) for name, dtype, rank in inputs]
    attributes = [ir.AttrInt64s("shape", shape), ir.AttrInt64("tasks", tasks)]
    is_forward = op_type == "MaxPool"
    node = ir.Node(DOMAIN, op_type, values, attributes, num_outputs=2 if is_forward else 1)
    for value, name, dtype in zip(node.outputs, ("made", "places"), (FLOAT, BYTES), strict=False):
        value.name, value.type = name, ir.TensorType(dtype)
    graph = ir.Graph(values, node.outputs, nodes=[node], opset_imports={"": 18, DOMAIN: 1})
    return ir.Model(graph, ir_version=9)


FORWARD = [("x", FLOAT, 4)]
GRADIENT = [("g", FLOAT, 4), ("places", BYTES, 4)]


def test_places(library: NativeLibrary) -> None:
    x = numbers(LITTLE.x, "ties")
    made = run(session(native_graph("MaxPool", FORWARD), library), {"x": x})
    y, places, _ = exact(LITTLE, x, np.zeros(RESULTS, np.float32))
    np.testing.assert_array_equal(made["made"], y)
    np.testing.assert_array_equal(made["places"], places.astype(np.uint8), strict=True)


def test_any_places(library: NativeLibrary) -> None:
    """Whatever bytes come: those of elements in the padding, or of none, count for nothing."""
    opened = session(native_graph("MaxPoolGradient", GRADIENT), library)
    draw, g = np.random.default_rng(0), numbers(RESULTS, "plain")
    for most in (9, 256):
        places = draw.integers(0, most, RESULTS).astype(np.uint8)
        made = run(opened, {"g": g, "places": places})["made"]
        _, _, dx = exact(LITTLE, numbers(LITTLE.x, "plain"), g, places)
        np.testing.assert_allclose(made, dx, rtol=1e-5, atol=1e-5)


def changed(**numbers_at: int) -> list[int]:
    names = ("images", "channels", "height", "width", "out_height", "out_width", "kernel",
             "kernel_width", "stride", "stride_x", "top", "left")  # fmt: skip
    return [numbers_at.get(name, number) for name, number in zip(names, SHAPE, strict=True)]


BAD = [
    [], SHAPE[:-1], [*SHAPE, 1], changed(images=0), changed(channels=-1), changed(height=2**40),
    changed(images=2**62), changed(out_width=0), changed(kernel=0), changed(kernel=86),
    changed(kernel_width=2**33), changed(stride=0), changed(stride_x=257), changed(top=-1),
    changed(top=3), changed(left=2**31), changed(out_height=6), changed(out_width=2**14),
]  # fmt: skip


@pytest.mark.parametrize("shape", BAD, ids=str)
@pytest.mark.parametrize("name", ["MaxPool", "MaxPoolGradient"])
def test_shapes_of_no_pool(name: str, shape: list[int], library: NativeLibrary) -> None:
    inputs = FORWARD if name == "MaxPool" else GRADIENT
    with pytest.raises(Exception, match=f"{name}: shape is none of a pool"):
        session(native_graph(name, inputs, shape), library)


@pytest.mark.parametrize("tasks", [0, -1, 1025, 2**40])
def test_numbers_of_tasks(tasks: int, library: NativeLibrary) -> None:
    with pytest.raises(Exception, match=f"MaxPool: {tasks} tasks, wanted are 1 to 1024"):
        session(native_graph("MaxPool", FORWARD, tasks=tasks), library)


@pytest.mark.parametrize("size", [(2, 3, 9, 7), (3, 2, 9, 8), (0, 3, 9, 8), (432,), (2, 3, 8, 9)])
def test_planes_of_another_size(size: tuple[int, ...], library: NativeLibrary) -> None:
    opened = session(native_graph("MaxPool", [("x", FLOAT, len(size))]), library)
    with pytest.raises(
        Exception, match=r"MaxPool: input 0 .* wanted are type 1 and \[2, 3, 9, 8\]"
    ):
        opened.run(None, {"x": np.zeros(size, np.float32)})


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("size", [(2, 3, 9, 8), (2, 3, 5, 5), (2, 0, 5, 4), (120,)])
def test_results_of_another_size(size, which, library: NativeLibrary) -> None:
    inputs = [(n, d, len(size) if i == which else 4) for i, (n, d, _) in enumerate(GRADIENT)]
    opened = session(native_graph("MaxPoolGradient", inputs), library)
    sizes = [size if i == which else RESULTS for i in range(2)]
    feeds = {"g": np.zeros(sizes[0], np.float32), "places": np.zeros(sizes[1], np.uint8)}
    with pytest.raises(Exception, match=rf"MaxPoolGradient: input {which} .*\[2, 3, 5, 4\]"):
        opened.run(None, feeds)


def test_places_of_another_type(library: NativeLibrary) -> None:
    model = native_graph("MaxPoolGradient", [GRADIENT[0], ("places", ir.DataType.INT64, 4)])
    with pytest.raises(Exception, match=r"INVALID|Type"):
        session(model, library)


# What takes part in graphs and jobs.


@pytest.mark.parametrize(
    "case",
    [
        Case((1, 1, 40, 40), (16, 16), (4, 4), (0, 0, 0, 0)),  # more places than a byte has
        Case((1, 2, 30), (3,), (2,), (1, 1)),
        Case((1, 2, 9, 9, 9), (3,) * 3, (2,) * 3, (1,) * 6),
        Case((1, 1, 600, 3), (2, 2), (257, 1), (0, 0, 0, 0)),
        Case((1, 1, 4, 20000), (2, 2), pads=(0, 0, 0, 0)),
    ],
    ids=str,
)
def test_sizes_that_stay(case: Case, library: NativeLibrary) -> None:
    assert not NATIVE.keys() & rewrite(model_of(pool(case)[0].graph), library.operators)[1].keys()


@pytest.mark.parametrize("attributes", [{"dilations": (2, 2)}, {"storage_order": 1}])
def test_attributes_that_stay(attributes, library: NativeLibrary) -> None:
    b, _ = pool(LITTLE, **attributes)
    assert not NATIVE.keys() & rewrite(model_of(b.graph), library.operators)[1].keys()


def test_what_else_stays(library: NativeLibrary) -> None:
    def used(b: Builder, operators=library.operators) -> set[str]:
        return NATIVE.keys() & rewrite(model_of(b.graph), operators)[1].keys()

    alone = Builder()
    alone.output(alone.MaxPool(alone.input("x", LITTLE.x, float32), kernel_shape=[2, 2]), "y")
    assert not used(alone), "without a gradient the runtime's is as good"
    assert not used(pool(LITTLE, float64)[0])
    b, _ = pool(LITTLE)
    assert used(b) == NATIVE.keys()
    assert not used(b, {"MaxPool"})
    shown, _ = pool(LITTLE)
    positions = next(n for n in shown.graph if n.op_type == "MaxPool").outputs[1]
    shown.output(shown.Neg(positions), "positions")
    assert not used(shown)


@pytest.mark.parametrize("axes", [[2, 3], [0, 2, 3], [-1, -2], [0, 1, 2, 3], [2], [0, 3]])
@pytest.mark.parametrize("case", [LITTLE, CASES[0]], ids=str)
def test_sums_of_what_is_spread(case: Case, axes: list[int], library: NativeLibrary) -> None:
    b, shape = pool(case)
    spread = next(o for o in b.graph.outputs if o.name == "dx")
    b.output(b.ReduceSum(spread, axes, keepdims=0), "sum")
    feeds = {"x": numbers(case.x, "plain"), "g": numbers(shape, "plain")}
    model, _ = rewrite(model_of(b.graph), NATIVE)
    reader = next(n for n in model.graph if n.op_type == "ReduceSum")
    is_before = str(reader.inputs[0].name) == "g"
    assert is_before is ({a % 4 for a in axes} >= {2, 3})
    made, apart = run(session(model, library), feeds), run(session(model_of(b.graph)), feeds)
    np.testing.assert_allclose(made["sum"], apart["sum"], rtol=2e-5, atol=2e-5)


def test_nothing_can_fail_beside_an_update(library: NativeLibrary) -> None:
    b = Builder()
    x, w = b.input("x", LITTLE.x, float32), b.input("w", LITTLE.x, float32)
    y = b.MaxPool(b.Mul(x, 2.0), kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
    b.output(gradients(b, {y: y}, [x])[x], "dx")
    b.output(b.Add(w, x), "next/w")
    model = model_of(b.graph)
    assert "ScatterElements" in in_place(model.graph, ["w"])[0].reason
    assert in_place(rewrite(model, NATIVE)[0].graph, ["w"])[0].is_safe


def training(library: NativeLibrary | None, monkeypatch: pytest.MonkeyPatch):
    """The losses of some steps, the state that was updated in place, and what took part."""
    flow.clear_default_session()
    wish = library is not None
    monkeypatch.setattr(
        "flow2onnx.engine.opening.accelerator", lambda _, **settings: accelerator(wish, **settings)
    )
    monkeypatch.setattr("flow2onnx_native.accelerator.open_library", lambda: library)

    @flow.global_function(type="train")
    def job(
        x: tp.Numpy.Placeholder((4, 3, 24, 24)), labels: tp.Numpy.Placeholder((4,), flow.int32)
    ) -> tp.Numpy:
        init = flow.random_normal_initializer(0, 0.1)
        y = flow.layers.conv2d(x, 32, 3, padding="SAME", name="first", kernel_initializer=init)
        y = flow.nn.relu(y)
        y = flow.nn.max_pool2d(y, 3, 2, "SAME")
        y = flow.layers.conv2d(y, 48, 3, padding="SAME", name="second", kernel_initializer=init)
        y = flow.nn.relu(y)
        y = flow.nn.max_pool2d(y, 2, 2, "VALID")
        y = flow.reshape(y, [4, -1])
        y = flow.layers.dense(y, 10, name="last", kernel_initializer=init)
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, y)
        rate = flow.optimizer.PiecewiseConstantScheduler([], [0.01])
        flow.optimizer.SGD(rate, momentum=0.9).minimize(loss)
        return loss

    draw = np.random.default_rng(0)
    x = draw.standard_normal((4, 3, 24, 24)).astype(np.float32)
    labels = draw.integers(0, 10, 4).astype(np.int32)
    losses = np.array([job(x, labels).mean() for _ in range(6)])
    (executable,) = current_session()._executables.values()
    return losses, set(executable.program.in_place), job.explain()


def test_jobs_with_and_without(library: NativeLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    losses, without, _ = training(None, monkeypatch)
    pools = NativeLibrary(library.path, tuple(NATIVE))
    native, within, told = training(pools, monkeypatch)
    assert told.native == {"MaxPool": 2, "MaxPoolGradient": 2}
    np.testing.assert_allclose(native, losses, rtol=1e-5)
    assert native[-1] < native[0]
    assert "last-weight-momentum" in within
    assert not without, "ScatterElements may fail"
    assert {v.name for v in told.state if v.is_safe} == within
