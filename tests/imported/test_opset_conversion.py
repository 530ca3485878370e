"""Models of every opset the runtime takes compute after import what they did before."""

import itertools
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.defs import get_all_schemas_with_history

from flow2onnx.errors import UnsupportedError
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_bytes, model_of
from flow2onnx.onnx_io.append import add_output, append_model, input_dtype
from flow2onnx.onnx_io.foreign import foreign_model
from flow2onnx.onnx_io.opset_conversion import UPGRADES
from tests.imported import models

NEWEST = 26  # of the runtime


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


X = draw(2, 4, 6, 5)
ROWS = draw(3, 4)
I = np.int64  # noqa: E741  # as short as in papers


@dataclass
class Case:
    """One node, valid for opsets `first` to `last`; arrays under `feeds` are fed, others known."""

    op_type: str
    first: int
    last: int
    feeds: tuple
    known: tuple = ()
    attributes: dict = field(default_factory=dict)
    outputs: int = 1


def case(op_type, first, last, *feeds, known=(), outputs=1, **attributes):
    return Case(op_type, first, last, feeds, known, attributes, outputs)


def softmaxes():
    for name in ("Softmax", "LogSoftmax", "Hardmax"):
        for last, axes in ((12, (None, 0, 1, 2, 3)), (NEWEST, (None, 0, 1, 2, 3, -1, -2))):
            for axis in axes:
                attributes = {} if axis is None else {"axis": axis}
                yield case(name, 7 if last == 12 else 13, last, X, **attributes)
                if axis in (None, 0, 1):
                    yield case(name, 7 if last == 12 else 13, last, ROWS, **attributes)
        for axis in (-1, -2, -3):
            yield case(name, 11, 12, X, axis=axis)


def reductions():
    for name in (
        "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
        "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
    ):  # fmt: skip
        x = np.abs(X) + 0.5
        older = 12 if name == "ReduceSum" else 17
        for keepdims in (0, 1):
            yield case(name, 7, older, x, axes=[1, 3], keepdims=keepdims)
            yield case(name, 11, older, x, axes=[-1], keepdims=keepdims)
            yield case(name, 7, older, x, keepdims=keepdims)
            yield case(name, older + 1, NEWEST, x, known=(I([1, 3]),), keepdims=keepdims)
            yield case(name, older + 1, NEWEST, x, keepdims=keepdims, noop_with_empty_axes=0)
    for name in ("ArgMax", "ArgMin"):
        yield case(name, 7, NEWEST, X, axis=2)
        yield case(name, 12, NEWEST, np.round(X), axis=2, select_last_index=1)
    yield case("CumSum", 11, NEWEST, X, known=(np.int64(2),), reverse=1)


UP, DOWN, MIXED = ([1, 1, 2, 3], [1, 1, 0.6, 0.4], [1, 1, 2.5, 0.6])


def resizes():
    for mode in ("nearest", "linear"):
        for scales in (UP, [1, 1, 2.5, 1.3]):
            yield case("Upsample", 7, 8, X, mode=mode, scales=[float(s) for s in scales])
            yield case("Upsample", 9, 9, X, known=(np.float32(scales),), mode=mode)
            yield case("Upsample", 9, 9, X, np.float32(scales), mode=mode)
        for scales in (UP, DOWN, MIXED, [1, 1, 2.5, 1.3]):
            yield case("Resize", 10, 10, X, known=(np.float32(scales),), mode=mode)
            yield case("Resize", 10, 10, X, np.float32(scales), mode=mode)


def resizes_by_coordinates():
    none = np.float32([])
    for how in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"):
        for scales in (UP, DOWN, MIXED):
            for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
                yield case(
                    "Resize",
                    11,
                    NEWEST,
                    X,
                    known=(none, np.float32(scales)),
                    coordinate_transformation_mode=how,
                    nearest_mode=rounding,
                )
            yield case(
                "Resize",
                11,
                NEWEST,
                X,
                known=(none, np.float32(scales)),
                coordinate_transformation_mode=how,
                mode="linear",
            )
            yield case(
                "Resize",
                11,
                NEWEST,
                X,
                known=(none, np.float32(scales)),
                mode="cubic",
                coordinate_transformation_mode=how,
                exclude_outside=1,
                cubic_coeff_a=-0.5,
            )
        yield case(
            "Resize",
            11,
            NEWEST,
            X,
            known=(none, none, I([2, 4, 7, 9])),
            mode="linear",
            coordinate_transformation_mode=how,
        )


def resizes_by_tensorflow():
    none = np.float32([])
    for scales in (UP, DOWN, [1, 1, 2.5, 1.3]):
        yield case(
            "Resize",
            11,
            12,
            X,
            known=(none, np.float32(scales)),
            nearest_mode="floor",
            coordinate_transformation_mode="tf_half_pixel_for_nn",
        )
    roi = np.float32([0, 0, 0.1, 0.2, 1, 1, 0.8, 0.9])
    yield case(
        "Resize",
        11,
        NEWEST,
        X,
        known=(roi, none, I([2, 4, 5, 5])),
        mode="linear",
        coordinate_transformation_mode="tf_crop_and_resize",
        extrapolation_value=2.0,
    )


def windows():
    w, b = draw(6, 4, 3, 3, seed=1), draw(6, seed=2)
    yield case("Conv", 7, NEWEST, X, w, b, pads=[1, 1, 1, 1], strides=[2, 1])
    yield case("Conv", 7, NEWEST, X, w, auto_pad="SAME_UPPER", strides=[2, 2])
    yield case("Conv", 7, NEWEST, X, w, auto_pad="SAME_LOWER", strides=[2, 2])
    t = draw(4, 3, 3, 3, seed=1)
    for auto in ("SAME_UPPER", "SAME_LOWER"):
        yield case("ConvTranspose", 7, NEWEST, X, t, auto_pad=auto, strides=[2, 2])
    yield case("ConvTranspose", 7, NEWEST, X, t, output_shape=[11, 10], strides=[2, 2])
    yield case(
        "ConvTranspose", 7, NEWEST, X, t, output_padding=[1, 1], strides=[2, 2], pads=[1, 0, 0, 1]
    )
    for kind in ("AveragePool", "MaxPool", "LpPool"):
        pool = {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}
        yield case(kind, 7, NEWEST, X, **pool)
        yield case(kind, 7, NEWEST, X, kernel_shape=[3, 2], strides=[2, 2], auto_pad="SAME_LOWER")
        yield case(kind, 7, NEWEST, X, kernel_shape=[3, 2], strides=[2, 2], auto_pad="SAME_UPPER")
        first = {"AveragePool": 10, "MaxPool": 10, "LpPool": 18}[kind]
        yield case(kind, first, NEWEST, X, ceil_mode=1, **pool)
        yield case(kind, first, NEWEST, X, ceil_mode=1, kernel_shape=[2, 2], strides=[3, 3])
    yield case(
        "AveragePool",
        7,
        NEWEST,
        X,
        count_include_pad=1,
        kernel_shape=[3, 3],
        strides=[2, 2],
        pads=[1, 1, 1, 1],
    )
    yield case(
        "AveragePool",
        10,
        NEWEST,
        X,
        count_include_pad=1,
        ceil_mode=1,
        kernel_shape=[3, 3],
        strides=[2, 2],
        pads=[1, 1, 1, 1],
    )
    yield case("MaxPool", 8, NEWEST, X, kernel_shape=[2, 2], outputs=2)
    yield case("GlobalLpPool", 7, 21, X, p=3)  # the runtime has no newer one
    yield case("LRN", 7, NEWEST, X, size=3)
    yield case(
        "RoiAlign",
        10,
        21,
        X,
        known=(np.float32([[0, 0, 3, 3], [1, 1, 4, 5]]), I([0, 1])),
        output_height=2,
        output_width=3,
        sampling_ratio=2,
        spatial_scale=0.8,
    )
    points = np.random.default_rng(3).uniform(-1.2, 1.2, (2, 3, 3, 2)).astype(np.float32)
    for mode, newer in (("bilinear", "linear"), ("bicubic", "cubic"), ("nearest", "nearest")):
        yield case("GridSample", 16, 19, X, points, mode=mode)
        yield case("GridSample", 20, NEWEST, X, points, mode=newer)
    yield case("GridSample", 16, 19, X, points)


def normalizations():
    four = [draw(4, seed=s) for s in range(3)] + [np.abs(draw(4, seed=4)) + 0.5]
    yield case("BatchNormalization", 7, NEWEST, X, *four, epsilon=1e-3)
    each = [draw(4, 6, 5, seed=s) for s in range(3)] + [np.abs(draw(4, 6, 5, seed=4)) + 0.5]
    yield case("BatchNormalization", 7, 8, X, *each, spatial=0)
    yield case("BatchNormalization", 14, NEWEST, X, *four, training_mode=1, outputs=3)
    yield case("InstanceNormalization", 7, NEWEST, X, *four[:2])
    yield case("LayerNormalization", 17, NEWEST, X, draw(5, seed=5), draw(5, seed=6))
    yield case("LpNormalization", 7, NEWEST, X, axis=1, p=1)
    yield case("MeanVarianceNormalization", 9, NEWEST, X)
    yield case("GroupNormalization", 18, 20, X, draw(2, seed=5), draw(2, seed=6), num_groups=2)
    yield case("GroupNormalization", 21, NEWEST, X, *four[:2], num_groups=2)


def movements():
    yield case("Slice", 7, 9, X, starts=[1, -3], ends=[4, 100], axes=[1, 3])
    yield case("Slice", 7, 9, X, starts=[0, 1], ends=[1, -1])
    yield case("Slice", 10, NEWEST, X, known=(I([1, -3]), I([4, 100]), I([1, 3])))
    yield case("Squeeze", 7, 12, X[:1], axes=[0])
    yield case("Squeeze", 7, 12, X[:1])
    yield case("Squeeze", 13, NEWEST, X[:1], known=(I([0]),))
    yield case("Unsqueeze", 7, 12, X, axes=[0, 3])
    yield case("Unsqueeze", 13, NEWEST, X, known=(I([0, 3]),))
    yield case("Split", 7, 12, X, axis=1, outputs=2)
    yield case("Split", 7, 12, X, axis=2, split=[1, 5], outputs=2)
    yield case("Split", 13, 17, X, axis=1, outputs=2)
    yield case("Split", 13, NEWEST, X, known=(I([1, 5]),), axis=2, outputs=2)
    for mode in ("constant", "edge", "reflect"):
        yield case("Pad", 7, 10, X, pads=[0, 1, 2, 3, 0, 0, 1, 1], mode=mode)
        yield case("Pad", 11, NEWEST, X, known=(I([0, 1, 2, 3, 0, 0, 1, 1]),), mode=mode)
    yield case("Pad", 7, 10, X, pads=[0, 1, -1, 2, 0, 0, 1, -1], value=2.5)
    yield case("Pad", 11, NEWEST, X, known=(I([0, 1, -1, 2, 0, 0, 1, -1]), np.float32(2.5)))
    yield case("TopK", 7, 9, X, k=2, outputs=2, axis=2)
    yield case("TopK", 10, NEWEST, X, known=(I([2]),), outputs=2, axis=2)
    yield case("TopK", 11, NEWEST, X, known=(I([2]),), outputs=2, largest=0)
    at = I([[0, 2, 1, 0], [2, 0, 0, 1], [1, 1, 2, 2]])
    yield case("GatherElements", 11, NEWEST, ROWS, known=(at,), axis=0)
    yield case("Scatter", 9, 10, ROWS, known=(at[:2], draw(2, 4, seed=8)), axis=0)
    yield case("ScatterElements", 11, NEWEST, ROWS, known=(at[:2], draw(2, 4, seed=8)), axis=0)
    yield case("ScatterND", 11, NEWEST, ROWS, known=(I([[2], [0]]), draw(2, 4, seed=8)))
    yield case("Gather", 7, NEWEST, ROWS, known=(I([2, 0]),))
    yield case("Gather", 11, NEWEST, ROWS, known=(I([-1, 0]),))
    yield case("GatherND", 11, NEWEST, ROWS, known=(I([[2, 0]]),))
    yield case("Compress", 9, NEWEST, ROWS, known=(np.array([True, False, True]),), axis=0)
    yield case("OneHot", 9, NEWEST, I([1, 0, 2]), known=(np.int64(3), np.float32([0, 1])))
    yield case("OneHot", 11, NEWEST, I([1, -1, 2]), known=(np.int64(3), np.float32([0, 1])), axis=0)
    yield case("DepthToSpace", 7, NEWEST, X, blocksize=2)
    yield case("DepthToSpace", 11, NEWEST, X, blocksize=2, mode="CRD")
    yield case("SpaceToDepth", 7, NEWEST, draw(2, 3, 6, 4), blocksize=2)
    yield case("Tile", 7, NEWEST, ROWS, known=(I([2, 3]),))
    yield case("Expand", 8, NEWEST, ROWS, known=(I([2, 3, 4]),))
    yield case("Flatten", 7, NEWEST, X, axis=2)
    yield case("Flatten", 7, NEWEST, X, axis=0)
    yield case("Reshape", 7, NEWEST, X, known=(I([0, -1, 5]),))
    yield case("Transpose", 7, NEWEST, X, perm=[0, 3, 1, 2])
    yield case("Concat", 7, NEWEST, ROWS, ROWS + 1, axis=1)
    yield case("Shape", 7, NEWEST, X)
    yield case("Shape", 15, NEWEST, X, start=1, end=-1)
    yield case("Trilu", 14, NEWEST, ROWS)
    yield case("Where", 9, NEWEST, ROWS > 0, ROWS, ROWS * 2)
    yield case("EyeLike", 9, NEWEST, ROWS, k=1)
    yield case("ReverseSequence", 10, NEWEST, ROWS, known=(I([1, 2, 3, 1]),))


def elementwise():
    positive = np.abs(ROWS) + 0.1
    for name in ("Abs", "Ceil", "Cos", "Elu", "Exp", "Floor", "HardSigmoid", "Identity",
                 "LeakyRelu", "Neg", "Reciprocal", "Relu", "Selu", "Sigmoid", "Sin", "Softplus",
                 "Softsign", "Tan", "Tanh"):  # fmt: skip
        yield case(name, 7, NEWEST, ROWS)
    for name, first in (("Log", 7), ("Sqrt", 7), ("Sinh", 9), ("Cosh", 9), ("Asinh", 9),
                        ("Erf", 9), ("Sign", 9), ("Round", 11), ("HardSwish", 14), ("Celu", 12),
                        ("Gelu", 20), ("Mish", 18), ("ThresholdedRelu", 10)):  # fmt: skip
        yield case(name, first, NEWEST, positive)
    for name in ("Add", "Sub", "Mul", "Div", "Greater", "Less", "Max", "Min", "Sum", "Mean",
                 "PRelu"):  # fmt: skip
        yield case(name, 7, NEWEST, ROWS, ROWS[::-1] * 2)
        first = 8 if name in ("Max", "Min", "Sum", "Mean") else 7
        yield case(name, first, NEWEST, X, draw(6, 1, seed=4))
    yield case("Pow", 7, NEWEST, positive, ROWS)
    yield case("Mod", 10, NEWEST, ROWS, positive, fmod=1)
    yield case("Clip", 7, 10, X, min=-0.5, max=0.7)
    yield case("Clip", 7, 10, X, max=0.7)
    yield case("Clip", 7, 10, X, min=0.0)
    yield case("Clip", 11, NEWEST, X, known=(np.float32(-0.5), np.float32(0.7)))
    yield case("Dropout", 7, 11, X, ratio=0.3)
    yield case("Dropout", 12, NEWEST, X, known=(np.float32(0.3),))
    yield case("Cast", 7, NEWEST, X * 10, to=TensorProto.INT32)
    yield case("MatMul", 7, NEWEST, X, draw(5, 3, seed=1))
    yield case("Gemm", 7, NEWEST, ROWS, draw(4, 2, seed=1), draw(2, seed=2), alpha=0.5, beta=2.0)
    yield case("Gemm", 11, NEWEST, ROWS, draw(4, 2, seed=1))
    yield case("Einsum", 12, NEWEST, ROWS, draw(4, 2, seed=1), equation="ij,jk->ik")
    yield case("IsNaN", 9, NEWEST, ROWS)
    yield case("QuantizeLinear", 10, NEWEST, X, known=(np.float32(0.1), np.uint8(12)))
    yield case("DequantizeLinear", 10, NEWEST, (X * 5).astype(np.int8), known=(np.float32(0.1),))
    yield case("DFT", 17, 19, draw(2, 6, 4, 1), axis=1)
    yield case("DFT", 17, 19, draw(2, 6, 4, 1), axis=2, onesided=1)
    yield case("DFT", 17, 19, draw(2, 6, 4, 1))
    yield case("DFT", 20, NEWEST, draw(2, 6, 4, 1), known=(I(6), I(1)))


def recurrent():
    x = draw(5, 2, 3, seed=9)
    for name, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        for direction, count in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
            w, r = draw(count, gates * 4, 3, seed=1), draw(count, gates * 4, 4, seed=2)
            b = draw(count, 2 * gates * 4, seed=3)
            yield case(name, 7, NEWEST, x, w, r, b, hidden_size=4, direction=direction, outputs=2)
    w, r, b = draw(1, 12, 3, seed=1), draw(1, 12, 4, seed=2), draw(1, 24, seed=3)
    yield case("GRU", 7, NEWEST, x, w, r, b, hidden_size=4, linear_before_reset=1)


CASES = [
    *softmaxes(), *reductions(), *resizes(), *resizes_by_coordinates(),
    *resizes_by_tensorflow(), *windows(), *normalizations(), *movements(),
    *elementwise(), *recurrent(),
]  # fmt: skip


def assembled(cases, opset):
    """A model of all the cases' nodes, and its feeds."""
    nodes, inputs, outputs, tensors, feeds = [], [], [], [], {}
    for i, c in enumerate(cases):
        names = []
        for j, array in enumerate([*c.feeds, *c.known]):
            name = f"in{i}_{j}"
            names.append(name)
            if j < len(c.feeds):
                kind = helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype)
                inputs.append(models.info(name, list(np.shape(array)), kind))
                feeds[name] = np.asarray(array)
            else:
                tensors.append(numpy_helper.from_array(np.asarray(array), name))
        made = [f"out{i}_{j}" for j in range(c.outputs)]
        nodes.append(helper.make_node(c.op_type, names, made, f"n{i}", **c.attributes))
        outputs += [onnx.ValueInfoProto(name=n) for n in made]
    graph = helper.make_graph(nodes, "cases", inputs, outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    inferred = onnx.shape_inference.infer_shapes(model)
    known = {v.name: v for v in (*inferred.graph.value_info, *inferred.graph.output)}
    del model.graph.output[:]
    for output in outputs:  # onnx infers no shape of a few
        kind = known[output.name].type.tensor_type
        if not kind.HasField("shape"):
            about = cases[int(output.name[3:].partition("_")[0])]
            known[output.name] = models.info(output.name, [None] * about.feeds[0].ndim)
        model.graph.output.append(known[output.name])
    return model, feeds


def run(content, feeds):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = ort.InferenceSession(content, options, ["CPUExecutionProvider"])
    return session.run(None, feeds)


def imported(model, opset=None):
    """The model after import, as it is built into a graph."""
    foreign = foreign_model(model, None, opset)
    b = Builder(foreign.opset)
    values = {
        str(v.name): b.input(str(v.name), [int(d) for d in v.shape], input_dtype(v))
        for v in foreign.inputs
    }
    made = append_model(b, foreign, values)
    for name in foreign.outputs:
        add_output(b, made[name], name)
    return model_bytes(model_of(b.graph))


def assert_same(found, wanted, cases):
    about = [c for c in cases for _ in range(c.outputs)]
    for x, y, c in zip(found, wanted, about, strict=True):
        assert x.dtype == y.dtype, c
        np.testing.assert_allclose(x, y, 1e-4, 1e-5, err_msg=f"{c.op_type} {c.attributes}")


@pytest.mark.parametrize("opset", range(7, NEWEST + 1))
def test_import_changes_no_output(opset):
    cases = [c for c in CASES if c.first <= opset <= c.last]
    model, feeds = assembled(cases, opset)
    assert_same(run(imported(model), feeds), run(model.SerializeToString(), feeds), cases)


@pytest.mark.parametrize("opset", [18, 22])
def test_another_opset_changes_no_output(opset):
    cases = [c for c in CASES if c.first <= opset and c.last >= NEWEST]
    model, feeds = assembled(cases, opset)
    wanted = run(model.SerializeToString(), feeds)
    assert_same(run(imported(model, NEWEST), feeds), wanted, cases)


@pytest.mark.parametrize(("have", "want"), [(26, 18), (24, 21), (28, 26)])
def test_an_older_opset_changes_no_output_where_it_can_be_said(have, want):
    older = {"DFT", "GridSample", "GroupNormalization"}
    cases = [
        c for c in CASES
        if c.first <= want and c.last >= NEWEST and c.op_type not in older
    ]  # fmt: skip
    model, feeds = assembled(cases, have)
    wanted, _ = assembled(cases, min(have, NEWEST))
    wanted = run(wanted.SerializeToString(), feeds)
    assert_same(run(imported(model, want), feeds), wanted, cases)


def test_groups_of_opset_18_scale_each_group():
    x, scale, offset = draw(2, 4, 3), draw(2, seed=1), draw(2, seed=2)
    cases = [case("GroupNormalization", 18, 20, x, scale, offset, num_groups=2)]
    model, feeds = assembled(cases, 18)
    rows = x.reshape(2, 2, 6)
    normal = (rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + 1e-5)
    expected = (normal * scale[:, None] + offset[:, None]).reshape(x.shape)
    (found,) = run(imported(model), feeds)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_graphs_inside_nodes_and_bodies_of_functions_are_converted():
    node = helper.make_node
    yes = helper.make_graph(
        [node("Upsample", ["x"], ["large"], mode="nearest", scales=[1.0, 1.0, 2.0, 2.5])],
        "yes", [], [models.info("large", [None] * 4)],
    )  # fmt: skip
    no = helper.make_graph(
        [node("Softmax", ["x"], ["soft"], axis=1), node("Pad", ["soft"], ["p"],
         pads=[0, 0, 0, 0, 0, 0, 6, 7])],
        "no", [], [models.info("p", [None] * 4)],
    )  # fmt: skip
    branch = node("If", ["c"], ["y"], then_branch=yes, else_branch=no)
    model = models.model(
        [branch], [models.info("x", X.shape), models.info("c", [], TensorProto.BOOL)],
        [models.info("y", None)], opset=8, checks=False,
    )  # fmt: skip
    model.ir_version = 8
    model.graph.output[0].CopyFrom(models.info("y", [None] * 4))
    for chosen in (True, False):
        feeds = {"x": X, "c": np.array(chosen)}
        expected = run(model.SerializeToString(), feeds)
        np.testing.assert_allclose(run(imported(model), feeds)[0], expected[0], rtol=1e-5)


def test_a_function_of_another_opset_is_converted():
    function = helper.make_function(
        "mine", "Fit", ["x"], ["y"],
        [
            helper.make_node("Clip", ["x"], ["c"], min=-0.5, max=0.5),
            helper.make_node("ReduceSum", ["c"], ["y"], axes=[1]),
        ],
        [helper.make_opsetid("", 9)],
    )  # fmt: skip
    model = models.model(
        [helper.make_node("Fit", ["x"], ["y"], domain="mine")], [models.info("x", [3, 4])],
        [models.info("y", [3, 1])], opset=17, domains=["mine"], functions=[function],
        checks=False,
    )  # fmt: skip
    (found,) = run(imported(model), {"x": ROWS})
    np.testing.assert_allclose(found, ROWS.clip(-0.5, 0.5).sum(1, keepdims=True), rtol=1e-5)


REFUSED = {
    "spatial": (8, helper.make_node(
        "Scan", ["", "x", "x"], ["y", "z"], num_scan_inputs=1, body=helper.make_graph(
            [helper.make_node("Add", ["s", "i"], ["t"]),
             helper.make_node("Identity", ["t"], ["u"])],
            "body", [models.info("s", [4]), models.info("i", [4])],
            [models.info("t", [4]), models.info("u", [4])])), "Scan"),
    "resize": (11, helper.make_node(
        "Resize", ["x", "none", "scales"], ["y"], mode="linear",
        coordinate_transformation_mode="tf_half_pixel_for_nn"), "tf_half_pixel_for_nn"),
    "saved": (9, helper.make_node(
        "BatchNormalization", ["x", "w", "w", "w", "w"], ["y", "m", "v", "s", "t"]), "saved_mean"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_opset_says_any_more_is_refused(name):
    opset, node, message = REFUSED[name]
    tensors = [
        models.tensor("none", np.float32([])), models.tensor("scales", np.float32([1, 2])),
        models.tensor("w", np.ones(4, np.float32)),
    ]  # fmt: skip
    outputs = [models.info(n, None if n == "y" else [4]) for n in node.output]
    model = models.model(
        [node], [models.info("x", [3, 4])], outputs, tensors, opset=opset, checks=False
    )
    model.graph.output[0].CopyFrom(models.info("y", [None, None]))
    with pytest.raises(UnsupportedError, match=message):
        foreign_model(model)


def signature(schema):
    inputs = [(i.option.name) for i in schema.inputs]
    outputs = [o.option.name for o in schema.outputs]
    attributes = {n: (a.required, str(a.default_value)) for n, a in schema.attributes.items()}
    return inputs, outputs, attributes


# Changed in more than types, and yet what was valid before means the same: what is new may be left
# out, and then is what there was.
GREW = {
    "ArgMax", "ArgMin", "Attention", "AveragePool", "Cast", "CastLike", "Constant", "DepthToSpace",
    "DequantizeLinear", "GRU", "GatherND", "Gemm", "LSTM", "LpPool", "MaxPool",
    "OptionalHasElement", "Pad", "QuantizeLinear", "RNN", "Range", "Reshape", "Resize",
    "ScatterElements", "ScatterND", "Shape", "SpaceToDepth", "TopK",
}  # fmt: skip


def test_every_change_of_the_standard_is_known():
    history = {}
    for schema in get_all_schemas_with_history():
        if schema.domain == "":
            history.setdefault(schema.name, {})[schema.since_version] = schema
    for name, versions in history.items():
        numbers = sorted(versions)
        for old, new in itertools.pairwise(numbers):
            if new <= 7 or (name, new) in UPGRADES or name in GREW:
                continue
            assert not versions[new].deprecated or name == "Scatter", (name, new)
            assert signature(versions[old]) == signature(versions[new]), (name, old, new)
