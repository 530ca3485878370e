"""`flow.user_op_builder`: operators by OneFlow's type names."""

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.api.op_types import OP_TYPES
from flow2onnx.api.surface import NAMES
from flow2onnx.errors import ArgumentError, ContextError, FlowError, UnsupportedError
from flow2onnx.trace.symbols import symbols
from tests.api.support import raises
from tests.ops.jobs import define, predict, run

X = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
V = np.array([1, 2, 3, 4], np.float32)
IMAGE = np.arange(32, dtype=np.float32).reshape(1, 2, 4, 4)
LABELS = np.array([0, 3, 1], np.int32)


def build(type_name, inputs, name="my", **attributes):
    builder = flow.user_op_builder(name).Op(type_name)
    for key, blobs in inputs.items():
        builder.Input(key, blobs)
    builder.Output("out")
    for key, value in attributes.items():
        builder.Attr(key, value)
    return builder.Build().InferAndTryRun()


CASES = [
    ("relu", {"in": [X]}, {}, lambda x: flow.math.relu(x)),
    ("sigmoid", {"x": [X]}, {}, lambda x: flow.math.sigmoid(x)),
    ("broadcast_add", {"x": [X], "y": [V]}, {}, lambda x, y: x + y),
    ("broadcast_floor_mod", {"x": [X], "y": [V]}, {}, lambda x, y: x % y),
    ("add_n", {"in": [X, X, X]}, {}, lambda x, y, z: flow.math.add_n([x, y, z])),
    ("matmul", {"a": [X], "b": [X]}, {"transpose_b": True, "transpose_a": False},
     lambda x, y: flow.matmul(x, y, transpose_b=True)),
    ("scalar_mul", {"in": [X]}, {"has_int_operand": False, "float_operand": 2.5},
     lambda x: x * 2.5),
    ("scalar_add", {"in": [X]}, {"has_int_operand": True, "int_operand": 3}, lambda x: x + 3),
    ("clip_by_scalar_min", {"x": [X]}, {"floating_min": -1.0, "integral_min": -1},
     lambda x: flow.clip_by_value(x, min_value=-1.0)),
    ("clip_by_scalar", {"x": [X]},
     {"floating_min": -1.0, "integral_min": -1, "floating_max": 2.0, "integral_max": 2},
     lambda x: flow.clip_by_value(x, -1.0, 2.0)),
    ("reduce_sum", {"input_tensor": [X]}, {"axis": [1], "keepdims": True},
     lambda x: flow.math.reduce_sum(x, [1], keepdims=True)),
    ("multi_square_sum", {"x": [X, V]}, {},
     lambda x, y: flow.math.reduce_sum(x * x) + flow.math.reduce_sum(y * y)),
    ("fused_cast_scale", {"x": [LABELS], "scale_by_tensor": [V[:1]]}, {"scale": 3.0},
     lambda x, y: flow.cast(x, flow.float32) * y * 3.0),
    ("concat", {"in": [X, X]}, {"axis": 1, "max_dim_size": 8},
     lambda x, y: flow.concat([x, y], axis=1)),
    ("cast", {"in": [X]}, {"dtype": flow.int32}, lambda x: flow.cast(x, flow.int32)),
    ("constant", {}, {"floating_value": 2.0, "integer_value": 0, "is_floating_value": True,
                      "dtype": flow.float32, "shape": [2, 3]},
     lambda: flow.constant(2.0, flow.float32, [2, 3])),
    ("squeeze", {"in": [IMAGE]}, {"axes": [0]}, lambda x: flow.squeeze(x, [0])),
    ("transpose", {"input": [X]}, {"perm": [1, 0]}, lambda x: flow.transpose(x, [1, 0])),
    ("slice", {"x": [X]}, {"start": [0, 1], "stop": [2, 4], "step": [1, 2]},
     lambda x: flow.slice_v2(x, [(0, 2, 1), (1, 4, 2)])),
    ("gather", {"in": [X], "indices": [LABELS]}, {"axis": 1},
     lambda x, i: flow.gather(x, i, axis=1)),
    ("one_hot", {"indices": [LABELS]},
     {"depth": 4, "dtype": flow.float32, "floating_on_value": 2.0, "floating_off_value": -1.0,
      "integer_on_value": 0, "integer_off_value": 0},
     lambda i: flow.one_hot(i, 4, 2.0, -1.0, dtype=flow.float32)),
    ("bias_add", {"a": [X], "b": [V]}, {"axis": 1}, lambda x, y: flow.nn.bias_add(x, y)),
    ("leaky_relu", {"x": [X]}, {"alpha": 0.3}, lambda x: flow.nn.leaky_relu(x, 0.3)),
    ("softmax", {"in": [X]}, {}, lambda x: flow.nn.softmax(x)),
    ("sparse_softmax_cross_entropy", {"prediction": [X], "label": [LABELS]}, {"depth": 4},
     lambda x, i: flow.nn.sparse_softmax_cross_entropy_with_logits(i, x)),
    ("conv2d", {"in": [IMAGE], "weight": [np.ones((3, 2, 3, 3), np.float32)]},
     {"filters": 3, "padding_before": [1, 1], "data_format": "channels_first",
      "kernel_size": [3, 3], "strides": [1, 1], "dilation_rate": [1, 1], "groups": 1},
     lambda x, w: flow.nn.conv2d(x, w, 1, [(0, 0), (0, 0), (1, 1), (1, 1)])),
    ("max_pool_2d", {"x": [IMAGE]},
     {"padding": "valid", "padding_before": [0, 0], "padding_after": [0, 0], "strides": [2, 2],
      "data_format": "channels_first", "pool_size": [2, 2], "ceil_mode": False},
     lambda x: flow.nn.max_pool2d(x, 2, 2, "VALID")),
    ("avg_pool_2d", {"x": [IMAGE]},
     {"padding": "customized", "padding_before": [1, 1], "padding_after": [1, 1],
      "strides": [2, 2], "data_format": "channels_first", "pool_size": [2, 2],
      "ceil_mode": False},
     lambda x: flow.nn.avg_pool2d(x, 2, 2, [(0, 0), (0, 0), (1, 1), (1, 1)])),
]  # fmt: skip


@pytest.mark.parametrize(("name", "inputs", "attributes", "same"), CASES, ids=[c[0] for c in CASES])
def test_type(name, inputs, attributes, same):
    arrays = [a for given in inputs.values() for a in given] or [X]

    def body(*blobs):
        rest, given = list(blobs), {}
        for key, wanted in inputs.items():
            given[key], rest = rest[: len(wanted)], rest[len(wanted) :]
        built = build(name, given, **attributes).SoleOutputBlob()
        return built, same(*blobs[: sum(map(len, inputs.values()))])

    built, plain = predict(body, *arrays)
    assert built.dtype == plain.dtype
    np.testing.assert_array_equal(built, plain)


def build_outputs(type_name, outputs, arrays, **attributes):
    """An operator on blobs of these arrays, with several outputs."""
    blobs = [a if not isinstance(a, np.ndarray) else filled(a) for a in arrays]
    builder = flow.user_op_builder("my").Op(type_name)
    for (key, *_), blob in zip(OP_TYPES[type_name].inputs, blobs, strict=False):
        builder.Input(key, [blob])
    for output in outputs:
        builder.Output(output)
    for key, value in attributes.items():
        builder.Attr(key, value)
    return builder.Build().InferAndTryRun().RemoteBlobList()


def filled(array):
    """A blob of the shape of an array; what is in it does not matter."""
    return flow.constant(1.0, flow.float32, array.shape)


def normal(x):
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)


def shares(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def nll(x, labels):
    return -np.log(shares(x))[np.arange(len(x)), labels]


def rate(x):
    return 1 / np.sqrt(x.var(1) + 1e-5)


MASK = np.array([[1, 0, 1, 0]] * 3, np.int8)
COS = (np.arange(12, dtype=np.float32).reshape(3, 4) - 5) / 7
MARGIN = np.where(np.arange(4) == LABELS[:, None], COS - np.float32(0.25), COS)
SEVERAL = [
    ("layer_norm", ["y", "mean", "inv_variance"], [X],
     {"center": False, "scale": False, "epsilon": 1e-5}, [normal(X), X.mean(1), rate(X)]),
    ("layer_norm", ["normalized", "y"], [X, V, V], {"center": True, "scale": True},
     [normal(X), normal(X) * V + V]),
    ("normalization", ["y"], [X, V, V, V, V], {"axis": 1, "epsilon": 0.5},
     [(X - V) / np.sqrt(V + 0.5) * V + V]),
    ("normalization_add_relu", ["y"], [X, V, V, V, V, X], {"axis": 1, "epsilon": 0.5},
     [np.maximum((X - V) / np.sqrt(V + 0.5) * V + V + X, 0)]),
    ("dropout", ["out"], [X, MASK], {"scale": 2.0}, [X * MASK * 2]),
    ("dropout", ["out"], [X, MASK, X], {"scale": 2.0}, [X * MASK * 2 + X]),
    ("upsample", ["y"], [IMAGE], {"height_scale": 2.0, "width_scale": 1.0,
                                  "data_format": "channels_first", "interpolation": "nearest"},
     [np.repeat(IMAGE, 2, 2)]),
    ("prelu", ["y"], [X, V], {}, [np.where(X > 0, X, X * V)]),
    ("softmax_cross_entropy", ["prob", "out"], [X, shares(X)], {},
     [shares(X), -(shares(X) * np.log(shares(X))).sum(-1)]),
    ("sparse_softmax_cross_entropy", ["prob", "out"], [X, LABELS], {"depth": 4},
     [shares(X), nll(X, LABELS)]),
    ("l2_normalize", ["y", "square_x_sum"], [X], {"axis": 1, "epsilon": 1e-10},
     [X / np.sqrt((X * X).sum(1, keepdims=True)), (X * X).sum(1, keepdims=True)]),
    ("combined_margin_loss", ["y", "theta"], [COS, LABELS],
     {"m1": 1.0, "m2": 0.0, "m3": 0.25, "depth": 4},
     [MARGIN, np.arccos(COS[np.arange(3), LABELS])]),
    ("layer_norm_param_grad", ["normalized_diff", "beta_diff", "gamma_diff"], [X, X, V],
     {"begin_params_axis": 1}, [X * V, X.sum(0), (X * X).sum(0)]),
    ("unique_with_counts", ["y", "idx", "count", "num_unique"],
     [np.array([4, 2, 4, 4], np.int32)], {"out_idx": flow.int32},
     [[4, 2, 0, 0], [0, 1, 0, 0], [3, 1, 0, 0], [2]]),
    ("argwhere", ["output", "output_size"], [np.array([[0, 2], [3, 0]], np.int32)],
     {"dtype": flow.int32}, [[[0, 1], [1, 0]], [2]]),
    ("deconv2d", ["out"], [IMAGE, np.ones((2, 1, 2, 2), np.float32)],
     {"filters": 1, "padding_before": [0, 0], "data_format": "channels_first",
      "kernel_size": [2, 2], "strides": [2, 2], "dilation_rate": [1, 1],
      "output_padding": [0, 0]}, [IMAGE.sum(1, keepdims=True).repeat(2, 2).repeat(2, 3)]),
    ("batch_gather", ["out"], [X, np.array([[0, 3], [1, 1], [2, 0]], np.int32)], {},
     [np.take_along_axis(X, np.array([[0, 3], [1, 1], [2, 0]]), 1)]),
    ("ctc_loss", ["loss"],
     [np.log(np.full((2, 1, 2), 0.5, np.float32)), np.array([[1]], np.int32),
      np.array([2], np.int32), np.array([1], np.int32)],
     {"blank": 0, "max_target_length": 1}, [[-np.log(0.75)]]),
    ("fused_self_attention_query_mul_key_and_value", ["query_mul_key", "value"],
     [np.arange(6, dtype=np.float32).reshape(1, 1, 6)], {"head_size": 2, "alpha": 0.5},
     [[[[[1.5]]]], [[[[4, 5]]]]]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "outputs", "arrays", "attributes", "wanted"),
    SEVERAL,
    ids=[f"{c[0]}-{len(c[1])}-{len(c[2])}" for c in SEVERAL],
)
def test_outputs(name, outputs, arrays, attributes, wanted):
    found = predict(lambda *blobs: build_outputs(name, outputs, blobs, **attributes), *arrays)
    assert len(found) == len(wanted)
    for y, want in zip(found, wanted, strict=True):
        assert y.shape == np.shape(want)
        np.testing.assert_allclose(y, want, 1e-4, 1e-5)


def test_normalization_moves_its_statistics():
    def body(x):
        mean, variance = (
            flow.get_variable(n, (4,), initializer=flow.ones_initializer(), trainable=False)
            for n in ("mean", "variance")
        )
        one, zero = filled(V), flow.constant(0.0, flow.float32, (4,))
        y, seen, rate = build_outputs(
            "normalization", ["y", "mean", "inv_variance"], [x, mean, variance, one, zero],
            axis=1, training=True, momentum=0.75,
        )  # fmt: skip
        return y, seen, rate

    flow.clear_default_session()
    y, seen, found = run(define(body, [X]), X)
    deviation = np.sqrt(X.var(0) + 1e-5)
    np.testing.assert_allclose(y, (X - X.mean(0)) / deviation, 1e-4, 1e-5)
    np.testing.assert_allclose(seen, X.mean(0), 1e-5)
    np.testing.assert_allclose(found, 1 / deviation, 1e-5)
    kept = flow.get_all_variables()
    np.testing.assert_allclose(kept["mean"].numpy(), 0.75 + 0.25 * X.mean(0), 1e-5)
    np.testing.assert_allclose(kept["variance"].numpy(), 0.75 + 0.25 * X.var(0), 1e-5)


def test_results_and_name():
    seen = {}

    def body(x):
        op = build("relu", {"in": [x]}, name="mine")
        (blob,), by_output = op.RemoteBlobList(), op.RemoteBlobDict()
        assert by_output["out"][0] is blob
        seen["name"] = blob.op_name
        return op.SoleOutputBlob()

    predict(body, X)
    assert seen == {"name": "mine"}


def test_every_type_is_an_operator_of_ours():
    for row in OP_TYPES.values():
        if isinstance(row.operator, str):
            assert row.operator in NAMES or row.operator in symbols(), row
        assert callable(row.function)
        assert not (row.results and row.outputs), row
        assert len(row.parameters) in (0, len(row.inputs)), row
        assert not (row.attributes and row.translate is not dict), row


def test_the_third_argument_of_attr_is_of_the_past():
    def body(x):
        builder = flow.user_op_builder("my").Op("leaky_relu").Input("x", [x])
        with pytest.warns(DeprecationWarning, match="third argument"):
            builder.Attr("alpha", 0.5, "AttrTypeFloat")
        return builder.Build().InferAndTryRun().SoleOutputBlob()

    np.testing.assert_array_equal(predict(body, X)[0], np.where(X > 0, X, X / 2))


BAD = [
    (lambda x: build("conv2e", {"in": [x]}), UnsupportedError, "no operator of type 'conv2e'"),
    (lambda x: build("relu", {"y": [x]}), ArgumentError, "input x is missing; given are y"),
    (lambda x: build("relu", {"x": [x, x]}), ArgumentError, "input x is one blob, got 2"),
    (lambda x: build("relu", {"x": x}), ArgumentError, "input x is a list of blobs, got Blob"),
    (lambda x: build("leaky_relu", {"x": [x]}, beta=1), ArgumentError, "no attribute is called"),
    (lambda x: build("scalar_add", {"x": [x]}), ArgumentError, "attribute 'float_operand'"),
    (lambda x: flow.user_op_builder("a").Input("x", [1]), ArgumentError, "Op comes first"),
    (lambda x: flow.user_op_builder("a").Op("relu").Input("x", [x]).InputSize("x", 2),
     ArgumentError, "input x has not 2 blobs"),
    (lambda x: flow.user_op_builder("a").Op("relu").Output("y").Output("z"), ArgumentError,
     "there is one output of one blob, not y, z"),
    (lambda x: flow.user_op_builder("a").Op("ctc_loss").Output("alpha"),
     ArgumentError, "there is one output loss of one blob, not alpha"),
    (lambda x: flow.user_op_builder("a").Op("layer_norm").Output("z"), ArgumentError,
     "outputs are one blob each of y, mean, inv_variance, normalized, not z"),
    (lambda x: flow.user_op_builder("a").Op("layer_norm").Output("y", 2), ArgumentError,
     "outputs are one blob each of"),
    (lambda x: build_outputs("normalization", ["y", "mean"], [X, V, V, V, V], axis=1),
     ArgumentError, "there is no mean without training"),
    (lambda x: build_outputs("normalization", ["y"], [X, V, V, V, V], axis=1, training=True),
     ArgumentError, "is no variable"),
    (lambda x: flow.user_op_builder("a").Op("relu").Input("x", [x]).Build().RemoteBlobList(),
     ArgumentError, "InferAndTryRun comes before"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "text"), BAD, ids=[text for *_, text in BAD])
def test_mistakes(call, kind, text):
    def body(x):
        call(x)
        return x

    flow.clear_default_session()
    job = define(body, [X])
    with raises(kind, kind.__mro__[2], text):
        job(X)


def test_outside_a_job():
    with raises(ContextError, NotImplementedError, "only inside a job function"):
        flow.user_op_builder("a")


def test_an_output_of_several_blobs():
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2, 5))) -> tp.Bundle[tp.Numpy]:
        builder = flow.user_op_builder("cut").Op("split_like").Input("in", [x])
        like = [flow.zeros((2, 3), flow.float32), flow.zeros((9, 2), flow.float32)]
        return (
            builder.Input("like", like).InputSize("like", 2).Output("out", 2).Attr("axis", 1)
            .Build().InferAndTryRun().RemoteBlobList()
        )  # fmt: skip

    x = np.arange(10, dtype=np.float32).reshape(2, 5)
    first, second = job(x)
    assert np.array_equal(first, x[:, :3])
    assert np.array_equal(second, x[:, 3:])


@pytest.mark.parametrize(
    ("sizes", "num", "text"),
    [((3, 3), 2, "pieces of 3 + 3 do not make the 5"), ((3, 2), 1, "out has 2 blobs, 1 were")],
)
def test_pieces_that_do_not_fit(sizes, num, text):
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((5,))) -> tp.Bundle[tp.Numpy]:
        like = [flow.zeros((n,), flow.float32) for n in sizes]
        builder = flow.user_op_builder("cut").Op("split_like").Input("in", [x])
        return builder.Input("like", like).Output("out", num).Build().InferAndTryRun()

    with pytest.raises(FlowError) as caught:
        job(np.zeros(5, np.float32))
    assert text in str(caught.value)


def test_a_loss_scale_follows_its_schedule():
    @flow.global_function(type="predict")
    def job(bad: tp.Numpy.Placeholder((1,), flow.int64)) -> tp.Numpy:
        scale = flow.get_variable("scale", (1,), initializer=flow.constant_initializer(8.0))
        good = flow.get_variable("good", (1,), flow.int64, initializer=flow.zeros_initializer())
        builder = flow.user_op_builder("schedule").Op("dynamic_loss_scale_schedule")
        for name, blob in (("count_not_finite", bad), ("loss_scale", scale),
                           ("good_step_counter", good)):  # fmt: skip
            builder.Input(name, [blob])
        builder.Attr("increment_period", 2).Attr("multiplier", 4.0).Build().InferAndTryRun()
        return scale

    counts = [0, 0, 1, 0, 1, 1, 1]
    seen = [job(np.array([n])).item() for n in counts]
    assert seen == [8, 8, 32, 8, 8, 2, 1]
