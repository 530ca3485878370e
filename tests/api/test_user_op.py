"""`flow.user_op_builder`: operators by OneFlow's type names."""

import numpy as np
import pytest

import flow2onnx as flow
from flow2onnx.api.op_types import OP_TYPES
from flow2onnx.api.surface import NAMES
from flow2onnx.api.symbols import symbols
from flow2onnx.errors import ArgumentError, ContextError, UnsupportedError
from tests.api.support import raises
from tests.ops.jobs import define, predict

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
        assert row.operator in NAMES or row.operator in symbols(), row
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
    (lambda x: flow.user_op_builder("a").Op("softmax_cross_entropy").Output("prob"),
     ArgumentError, "there is one output out of one blob, not prob"),
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
