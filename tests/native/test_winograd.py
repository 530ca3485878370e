"""Convolutions by Winograd's algorithm: beside sums in float64, and when they take part."""

from dataclasses import replace

import numpy as np
import onnxruntime as ort
import pytest
from flow2onnx_native.abi import DOMAIN, ConvShape
from flow2onnx_native.convolution_methods import winograd_tile
from flow2onnx_native.library import NativeLibrary
from onnx import TensorProto, helper

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.engine.session import current_session
from flow2onnx.errors import ConfigError
from flow2onnx.graph.model import model_of
from tests.native.running import rewrite, run, session
from tests.native.test_convolutions import Case, convolution

TOLERANCE = 2e-5  # of the largest value
FIVE = Case((2, 3, 9, 11), 5, (5, 5), pads=(2, 2, 2, 2))
CASES = [
    Case((2, 3, 9, 11), 5),
    Case((1, 1, 5, 5), 1, pads=(0, 0, 0, 0)),
    Case((3, 7, 13, 10), 9, pads=(2, 2, 2, 2)),
    Case((1, 17, 3, 3), 33),
    Case((3, 20, 2, 2), 40),
    Case((1, 1, 1, 1), 1),
    Case((3, 33, 12, 7), 17, pads=(0, 1, 2, 1)),
    Case((1, 5, 70, 9), 18),
    Case((2, 5, 7, 271), 18, pads=(1, 2, 0, 1)),  # more tiles in a row than are taken at once
    Case((1, 3, 9, 270), 4, pads=(0, 0, 0, 0)),
    Case((40, 5, 4, 4), 6),
    Case((2, 64, 8, 8), 64),
    Case((1, 24, 40, 41), 160),
    Case((2, 200, 37, 39), 16),
    Case((2, 20, 6, 5), 260),  # blocks enough of the channels of the result alone
    Case((3, 150, 9, 9), 72),
    FIVE,
    replace(FIVE, x=(1, 1, 28, 28), out=32),
    replace(FIVE, x=(3, 20, 6, 5), out=9, pads=(0, 0, 0, 0)),
    replace(FIVE, x=(2, 18, 7, 7), out=30, pads=(4, 4, 4, 4)),
    replace(FIVE, x=(2, 4, 1, 1), out=3),
    replace(FIVE, x=(1, 9, 66, 67), out=3, pads=(0, 3, 1, 2)),
    replace(FIVE, x=(10, 32, 14, 14), out=64),
    replace(FIVE, x=(2, 9, 5, 139), out=8),
]


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it take part where it would not pay."""
    rule = "flow2onnx_native.convolution_methods"
    for channels in ("_FEWEST_CHANNELS", "_FEWEST_OF_LARGER"):
        monkeypatch.setattr(f"{rule}.{channels}", 1)
    monkeypatch.setattr(f"{rule}._FEWEST_TILES", 1)
    monkeypatch.setattr(f"{rule}._FEWEST_ADDED", 0)
    monkeypatch.setattr(f"{rule}._LEAST_FILLED", 0)
    monkeypatch.setattr(f"{rule}._OF_WEIGHTS", (0, 0))
    monkeypatch.setattr(f"{rule}._LEAST_OF_LARGER", (0, 0))


def exact(case: Case, feeds):
    """The convolution and its gradients in float64."""
    x, w, bias, g = (feeds[name].astype(np.float64) for name in ("x", "w", "bias", "g"))
    top, left, bottom, right = case.pads
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    y, dx, dw = np.zeros(g.shape), np.zeros(padded.shape), np.zeros(w.shape)
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            at = (..., slice(i, i + g.shape[2]), slice(j, j + g.shape[3]))
            y += np.einsum("nchw,kc->nkhw", padded[at], w[:, :, i, j], optimize=True)
            dx[at] += np.einsum("nkhw,kc->nchw", g, w[:, :, i, j], optimize=True)
            dw[:, :, i, j] = np.einsum("nkhw,nchw->kc", g, padded[at], optimize=True)
    dx = dx[:, :, top : top + x.shape[2], left : left + x.shape[3]]
    return {"y": y + bias[:, None, None], "dx": dx, "dw": dw, "dbias": g.sum((0, 2, 3))}


def tiles(model) -> list[int]:
    """The tiles of the native convolutions of a model."""
    nodes = [n for n in model.graph if n.domain == DOMAIN and n.op_type.startswith("Conv")]
    return [n.attributes["method"].value for n in nodes]


def outputs(case: Case, library: NativeLibrary, threads: int = 1, **changed):
    """The result of Winograd's algorithm, and its operands."""
    b, feeds = convolution(case)
    feeds |= changed
    model, used = rewrite(model_of(b.graph), library.operators, threads)
    assert used["Conv"] == used["ConvInputGradient"] == used["ConvWeightGradient"] == 1
    assert tiles(model) == [7 - case.kernel[0]] * 3
    return run(session(model, library, threads), feeds), feeds


@pytest.mark.parametrize("case", CASES, ids=str)
def test_winograd(case: Case, always: None, convolving: NativeLibrary) -> None:
    found, feeds = outputs(case, convolving)
    for name, expected in exact(case, feeds).items():
        error = abs(found[name] - expected).max() / abs(expected).max()
        assert error < TOLERANCE, (name, error)
    shared, _ = outputs(case, convolving, threads=2)
    for name in ("y", "dx", "dw"):
        np.testing.assert_array_equal(shared[name], found[name])


@pytest.mark.parametrize("case", [Case((2, 5, 13, 11), 6), replace(FIVE, x=(2, 5, 13, 11), out=6)])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite(
    value: float, case: Case, always: None, convolving: NativeLibrary
) -> None:
    _, feeds = convolution(case)
    feeds["x"][1, 3, 6, 5] = value
    feeds["g"][0, 2, 7, 9] = value
    found, _ = outputs(case, convolving, **feeds)
    with np.errstate(invalid="ignore"):
        expected = exact(case, feeds)
    tile, kernel = 7 - case.kernel[0], case.kernel[0]
    for name, row, column, image in (("y", 6, 5, 1), ("dx", 7, 9, 0)):
        reached = ~np.isfinite(expected[name])
        assert reached.any()
        assert not np.isfinite(found[name][reached]).any()
        within = tile + kernel  # as far as a tile that has the element reaches
        beyond = np.ones(reached.shape, bool)
        area = [slice(max(at - within, 0), at + within) for at in (row, column)]
        beyond[image, :, area[0], area[1]] = False
        assert np.isfinite(found[name][beyond]).all()
    assert not np.isfinite(found["dw"][:, 3]).any()
    assert not np.isfinite(found["dw"][2]).any()
    assert np.isfinite(np.delete(np.delete(found["dw"], 3, 1), 2, 0)).all()


def single(name: str, operands, result, **attributes):
    """The bytes of a model of one native operator, whose operands may be of any size."""
    names = [f"i{i}" for i in range(operands)]
    node = helper.make_node(name, names, ["o"], domain=DOMAIN, **attributes)
    unknown = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None] * 4) for n in names]
    made = [helper.make_tensor_value_info("o", TensorProto.FLOAT, result)]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    graph = helper.make_graph([node], "single", unknown, made)
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def opened(content: bytes, library: NativeLibrary):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.register_custom_ops_library(library.path)
    return ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])


PLAIN = ConvShape(
    images=2, in_=3, depth=1, height=8, width=8, out=5, kernel_depth=1, kernel_height=3,
    kernel_width=3, out_depth=1, out_height=8, out_width=8, stride_z=1, stride_y=1, stride_x=1,
    dilation_z=1, dilation_y=1, dilation_x=1, front=0, top=1, left=1, back=0, bottom=1, right=1,
    groups=1, axes=2, tasks=1,
)  # fmt: skip
GROUPED = PLAIN._replace(in_=4, out=6, groups=2)
STRIDED = PLAIN._replace(out_height=4, out_width=4, stride_y=2, stride_x=2)
DILATED = PLAIN._replace(out_height=6, out_width=6, dilation_y=2, dilation_x=2)
OBLONG = PLAIN._replace(kernel_width=5, left=2, right=2)
PADDED = PLAIN._replace(out_height=12, out_width=12, top=3, left=3, bottom=3, right=3)
HUGE = PLAIN._replace(height=5000, out_height=5000)
ROW = PLAIN._replace(height=1, kernel_height=1, out_height=1, top=0, bottom=0, axes=1)
SOLID = PLAIN._replace(depth=2, out_depth=2, axes=3)


def square(kernel: int, pad: int) -> dict[str, int]:
    """Windows of this side, with so many zeros on all sides."""
    pads = dict.fromkeys(("top", "left", "bottom", "right"), pad)
    return {"kernel_height": kernel, "kernel_width": kernel, **pads}


def sides(image: int, made: int) -> dict[str, int]:
    """The sides of an image and of what is made of it."""
    return {"height": image, "width": image, "out_height": made, "out_width": made}


@pytest.mark.parametrize(
    ("shape", "tile"),
    [(PLAIN, 2), (PLAIN, 99), (PLAIN, -4), (PLAIN, 2**40), (GROUPED, 4), (STRIDED, 4), (DILATED, 4),
     (OBLONG, 4), (OBLONG, 2), (PADDED, 4), (HUGE, 4), (ROW, 4), (SOLID, 4)],
)  # fmt: skip
@pytest.mark.parametrize("name", ["Conv", "ConvInputGradient", "ConvWeightGradient"])
def test_tiles_that_a_shape_has_not(
    name: str, shape: ConvShape, tile: int, convolving: NativeLibrary
) -> None:
    attributes = {"form": [0] * 4} if name == "Conv" else {}
    content = single(name, 2, [None] * 4, shape=shape, method=tile, **attributes)
    tiles = f"Winograd's tiles of {tile} are not"
    words = tiles if tile in (2, 4) else f"there is no method {tile}"
    with pytest.raises(Exception, match=f"{name}: {words}"):
        opened(content, convolving)


@pytest.mark.parametrize("name", ["Conv", "ConvInputGradient", "ConvWeightGradient"])
def test_operands_of_another_size(name: str, convolving: NativeLibrary) -> None:
    attributes = {"form": [0] * 4} if name == "Conv" else {}
    asked = opened(single(name, 2, [None] * 4, shape=PLAIN, method=4, **attributes), convolving)
    with pytest.raises(Exception, match=f"{name}: input 0 has 96 elements"):
        asked.run(None, {n: np.ones((2, 3, 4, 4), np.float32) for n in ("i0", "i1")})


@pytest.mark.parametrize(
    ("tile", "name", "changed"),
    [
        (4, "Conv", {}),
        (4, "ConvInputGradient", {}),
        (4, "ConvWeightGradient", {}),
        (2, "Conv", square(5, 2)),
        (0, "Conv", {"in_": 8}),  # channels
        (2, "Conv", {"in_": 16, **square(5, 2)}),
        (0, "ConvWeightGradient", {"in_": 16, **square(5, 2)}),
        (0, "ConvWeightGradient", {**square(5, 2), **sides(11, 11)}),  # a sixth is beyond the edge
        (0, "Conv", {"images": 3, **sides(8, 8)}),  # twelve tiles
        (0, "Conv", square(1, 0)),
        (0, "Conv", square(7, 3)),
        (0, "Conv", {"out_height": 4, "out_width": 4, "stride_y": 2, "stride_x": 2}),
        (0, "Conv", sides(2, 2)),  # four of sixteen results count
        (4, "Conv", {**sides(9, 7), **square(3, 0)}),
        (0, "ConvInputGradient", {**sides(9, 7), **square(3, 0)}),
        (0, "Conv", {"height": 5000, "out_height": 5000}),
        (0, "Conv", {"images": 1 << 17}),
        (0, "Conv", {"groups": 2}),
    ],
)
def test_where_it_is_faster(tile: int, name: str, changed: dict[str, int]) -> None:
    shape = PLAIN._replace(images=32, in_=64, out=64, **sides(32, 32))
    assert winograd_tile(name, shape._replace(**changed)) == tile


def training(*, winograd: bool | None):
    """The losses of some steps, and the tiles of the convolutions that were run."""
    flow.clear_default_session()
    config = flow.FunctionConfig()
    config.runtime.native(True)
    if winograd is not None:
        config.runtime.winograd(winograd)

    @flow.global_function(type="train", function_config=config)
    def job(
        x: tp.Numpy.Placeholder((4, 3, 12, 12)), labels: tp.Numpy.Placeholder((4,), flow.int32)
    ) -> tp.Numpy:
        init = flow.random_normal_initializer(0, 0.1)
        y = flow.layers.conv2d(x, 32, 3, padding="SAME", name="first", kernel_initializer=init)
        y = flow.nn.relu(y)
        y = flow.layers.conv2d(y, 48, 3, padding="SAME", name="second", kernel_initializer=init)
        y = flow.nn.relu(y)
        y = flow.layers.conv2d(y, 32, 5, padding="SAME", name="third", kernel_initializer=init)
        y = flow.nn.relu(y)
        y = flow.layers.dense(flow.reshape(y, [4, -1]), 10, name="last", kernel_initializer=init)
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, y)
        rate = flow.optimizer.PiecewiseConstantScheduler([], [0.002])
        flow.optimizer.SGD(rate, momentum=0.9).minimize(loss)
        return loss

    draw = np.random.default_rng(0)
    x = draw.standard_normal((4, 3, 12, 12)).astype(np.float32)
    labels = draw.integers(0, 10, 4).astype(np.int32)
    losses = np.array([job(x, labels).mean() for _ in range(5)])
    (executable,) = current_session()._executables.values()
    return losses, sorted(tiles(executable.opening.model))


def test_jobs_with_and_without(convolving: NativeLibrary) -> None:
    by_default, tiles_by_default = training(winograd=None)
    on, tiles_on = training(winograd=True)
    off, tiles_off = training(winograd=False)
    assert tiles_by_default == tiles_on == [0, 0, 2, 2, 4, 4, 4]
    assert tiles_off == [0] * 7
    np.testing.assert_array_equal(on, by_default)
    np.testing.assert_allclose(on, off, rtol=1e-4)
    assert on[-1] < on[0]


def test_the_flag_takes_truths() -> None:
    with pytest.raises(ConfigError, match=r"runtime\.winograd"):
        flow.FunctionConfig().runtime.winograd("fast")
