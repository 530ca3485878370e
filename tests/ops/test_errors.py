"""Bad arguments: the error names the operator and the user's line."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import flow2onnx as flow
from flow2onnx.errors import (
    ArgumentError,
    ContextError,
    DTypeError,
    FlowError,
    ShapeError,
    UnsupportedError,
)
from flow2onnx.trace.registry import entries
from tests.ops.jobs import define
from tests.ops.table import ROWS

INPUTS = {
    "x": np.ones((3, 4), np.float32),
    "y": np.ones((3, 5), np.float32),
    "d": np.ones((3, 4), np.float64),
    "i": np.ones((3, 4), np.int32),
    "z": np.ones((3,), np.int32),
    "v": np.ones((4,), np.float32),
    "t": np.ones((2, 3, 4), np.float32),
    "image": np.ones((1, 4, 5, 5), np.float32),
    "kernel": np.ones((2, 4, 3, 3), np.float32),
}

# operator, call, error, what its message says
BAD = [
    ("math.add", lambda b: flow.math.add(b["x"], b["y"]), ShapeError, "do not fit"),
    ("math.add", lambda b: b["x"] + b["d"], DTypeError, "float32 and float64"),
    ("math.add", lambda b: b["x"] + "one", ArgumentError, "holds no 'one'"),
    ("math.add", lambda b: flow.math.add(1, 2), ArgumentError, "has to be a blob"),
    ("math.add", lambda b: flow.math.add(b["x"]), ArgumentError, "missing a required argument"),
    ("math.add", lambda b: flow.math.add(b["x"], 1, z=2), ArgumentError, "unexpected keyword"),
    ("math.divide", lambda b: b["x"] / b["i"], DTypeError, "float32 and int32"),
    ("math.mod", lambda b: flow.math.mod(b["x"], 2), UnsupportedError, "two blobs"),
    ("math.less", lambda b: b["x"] < b["i"], DTypeError, "float32 and int32"),
    ("math.maximum", lambda b: flow.math.maximum(b["x"], b["y"]), ShapeError, "Incompatible"),
    ("math.exp", lambda b: flow.math.exp(b["i"]), DTypeError, "real numbers"),
    ("math.sqrt", lambda b: flow.math.sqrt(b["z"]), DTypeError, "real numbers"),
    ("math.softplus", lambda b: flow.math.softplus(b["i"]), DTypeError, "real numbers"),
    ("math.rsqrt", lambda b: flow.math.rsqrt(b["i"]), DTypeError, "real numbers"),
    ("math.log1p", lambda b: flow.math.log1p(b["i"]), DTypeError, "real numbers"),
    ("math.expm1", lambda b: flow.math.expm1(b["i"]), DTypeError, "real numbers"),
    ("math.gelu", lambda b: flow.math.gelu(b["i"]), DTypeError, "real numbers"),
    ("nn.leaky_relu", lambda b: flow.nn.leaky_relu(b["i"]), DTypeError, "unsupported type"),
    ("nn.softmax", lambda b: flow.nn.softmax(b["i"]), DTypeError, "unsupported type"),
    ("nn.logsoftmax", lambda b: flow.nn.logsoftmax(b["i"]), DTypeError, "unsupported type"),
    ("clip", lambda b: flow.clip(b["x"]), ArgumentError, "min_value, max_value"),
    ("math.reduce_sum", lambda b: flow.math.reduce_sum(b["x"], 2), ArgumentError, "axis 2"),
    ("math.reduce_mean", lambda b: flow.math.reduce_mean(b["x"], -3), ArgumentError, "axis -3"),
    ("math.reduce_max", lambda b: flow.math.reduce_max(b["x"], [0, 5]), ArgumentError, "axis 5"),
    ("math.reduce_min", lambda b: flow.math.reduce_min(b["x"], "0"), ArgumentError, "axis"),
    (
        "math.reduce_variance",
        lambda b: flow.math.reduce_variance(b["x"], 2),
        ArgumentError,
        "axis 2",
    ),
    ("math.argmax", lambda b: flow.math.argmax(b["x"], 2), ArgumentError, "axis 2"),
    ("cast", lambda b: flow.cast(b["x"], "real"), DTypeError, "no element type"),
    ("cast", lambda b: flow.cast(b["x"]), ArgumentError, "missing a required argument"),
    ("constant", lambda b: flow.constant(1), AssertionError, "dtype"),
    ("reshape", lambda b: flow.reshape(b["x"], (5, 2)), ShapeError, "12 elements"),
    ("reshape", lambda b: flow.reshape(b["x"], (-1, -1)), ShapeError, "not a shape"),
    ("reshape", lambda b: flow.reshape(b["x"], (0, 12)), ShapeError, "not a shape"),
    ("reshape", lambda b: flow.reshape(b["x"], 12), ArgumentError, "shape"),
    ("reshape_like", lambda b: flow.reshape_like(b["x"], b["v"]), ShapeError, "12 elements"),
    ("flatten", lambda b: flow.flatten(b["t"], 2, 1), ArgumentError, "lies behind"),
    ("flatten", lambda b: flow.flatten(b["t"], 3), ArgumentError, "axis 3"),
    ("transpose", lambda b: flow.transpose(b["x"]), ArgumentError, "perm"),
    ("transpose", lambda b: flow.transpose(b["x"], (0, 0)), ArgumentError, "perm"),
    ("transpose", lambda b: flow.transpose(b["x"], (0, 2)), ArgumentError, "axis 2"),
    ("transpose", lambda b: flow.transpose(b["x"], (0, 1, 2)), ArgumentError, "axis 2"),
    ("transpose", lambda b: flow.transpose(b["x"], (1, 0), True), UnsupportedError, "complex"),
    ("expand_dims", lambda b: flow.expand_dims(b["x"], 3), ArgumentError, "axis 3"),
    ("squeeze", lambda b: flow.squeeze(b["x"], [0]), ShapeError, "Squeeze"),
    ("squeeze", lambda b: flow.squeeze(b["x"], [5]), ArgumentError, "axis 5"),
    ("concat", lambda b: flow.concat([]), ArgumentError, "at least one"),
    ("concat", lambda b: flow.concat([b["x"], b["y"]]), ShapeError, "differ along another axis"),
    ("concat", lambda b: flow.concat([b["x"], b["y"]], axis=2), ArgumentError, "axis 2"),
    ("concat", lambda b: flow.concat([b["x"], b["d"]]), DTypeError, "float32 and float64"),
    ("stack", lambda b: flow.stack([b["x"], b["y"]]), ShapeError, "Concat"),
    ("stack", lambda b: flow.stack([b["x"]], axis=4), ArgumentError, "axis 4"),
    ("stack", lambda b: flow.stack([]), ArgumentError, "at least one"),
    ("math.add_n", lambda b: flow.math.add_n([]), ArgumentError, "at least one"),
    ("math.add_n", lambda b: flow.math.add_n([b["x"], b["v"]]), ShapeError, "one shape"),
    ("matmul", lambda b: flow.matmul(b["x"], b["y"]), ShapeError, "inner dimensions"),
    ("matmul", lambda b: flow.matmul(b["x"], b["v"]), ShapeError, "rank 2"),
    ("matmul", lambda b: flow.matmul(b["x"], b["t"]), ShapeError, "no more than a"),
    ("matmul", lambda b: flow.matmul(b["x"], b["d"], False, True), DTypeError, "float32 and"),
    ("slice", lambda b: flow.slice(b["x"], [0], [1]), ArgumentError, "one entry for each"),
    ("slice", lambda b: flow.slice(b["x"], [0, 3], [1, 2]), ArgumentError, "axis 1"),
    ("slice", lambda b: flow.slice(b["x"], [-4, 0], [1, 2]), ArgumentError, "axis 0"),
    ("slice_v2", lambda b: flow.slice_v2(b["x"], [(0, 1, 0)]), ArgumentError, "step of 0"),
    (
        "slice_v2",
        lambda b: flow.slice_v2(b["v"], [(0, 1, 1), (0, 1, 1)]),
        ArgumentError,
        "more slices",
    ),
    ("gather", lambda b: flow.gather(b["x"], b["z"], axis=2), ArgumentError, "axis 2"),
    ("gather", lambda b: flow.gather(b["x"], b["v"]), DTypeError, "indices"),
    (
        "gather",
        lambda b: flow.gather(b["x"], b["i"], axis=0, batch_dims=1),
        UnsupportedError,
        "batch_dims",
    ),
    ("one_hot", lambda b: flow.one_hot(b["z"], 3, axis=4), ArgumentError, "axis 4"),
    ("one_hot", lambda b: flow.one_hot(b["v"], 3), DTypeError, "indices"),
    ("where", lambda b: flow.where(b["i"], b["x"]), ArgumentError, "both x and y"),
    ("where", lambda b: flow.where(b["i"], b["x"], b["d"]), DTypeError, "float32 and float64"),
    ("where", lambda b: flow.where(b["i"], b["x"], b["y"]), ShapeError, "Incompatible"),
    ("nn.bias_add", lambda b: flow.nn.bias_add(b["x"], b["z"]), ArgumentError, "bias"),
    ("nn.bias_add", lambda b: flow.nn.bias_add(b["v"], b["v"]), ArgumentError, "dimensions"),
    ("nn.softmax", lambda b: flow.nn.softmax(b["x"], 2), ArgumentError, "axis 2"),
    ("nn.logsoftmax", lambda b: flow.nn.logsoftmax(b["x"], -3), ArgumentError, "axis -3"),
    ("nn.dropout", lambda b: flow.nn.dropout(b["x"], 1.0), ArgumentError, "rate"),
    ("nn.dropout", lambda b: flow.nn.dropout(b["x"], None), ArgumentError, "rate"),
    ("nn.dropout", lambda b: flow.nn.dropout(b["x"], 0.5, [3, 1]), UnsupportedError, "noise_shape"),
    ("nn.dropout", lambda b: flow.nn.dropout(b["x"], 0.5, seed=1), ArgumentError, "name"),
    (
        "nn.conv2d",
        lambda b: flow.nn.conv2d(b["x"], b["kernel"], 1, "VALID"),
        ShapeError,
        "needs rank 4",
    ),
    (
        "nn.conv2d",
        lambda b: flow.nn.conv2d(b["image"], b["kernel"], 0, "VALID"),
        ArgumentError,
        "strides",
    ),
    (
        "nn.conv2d",
        lambda b: flow.nn.conv2d(b["image"], b["kernel"], 1, "FULL"),
        ArgumentError,
        "padding",
    ),
    (
        "nn.conv2d",
        lambda b: flow.nn.conv2d(b["image"], b["kernel"], 1, "SAME", "NCW"),
        ArgumentError,
        "data_format",
    ),
    (
        "nn.conv2d",
        lambda b: flow.nn.conv2d(b["image"], b["kernel"], 1, "SAME", "NHWC"),
        ShapeError,
        "channels",
    ),
    (
        "nn.conv2d",
        lambda b: flow.nn.conv2d(b["image"], b["kernel"], 1, "VALID", groups=2),
        ShapeError,
        "channels",
    ),
    (
        "nn.conv2d",
        lambda b: flow.nn.conv2d(b["image"], b["kernel"], 1, "VALID", dilations=3),
        ArgumentError,
        "window of 7",
    ),
    ("nn.max_pool2d", lambda b: flow.nn.max_pool2d(b["x"], 2, 2, "VALID"), ShapeError, "rank 4"),
    (
        "nn.max_pool2d",
        lambda b: flow.nn.max_pool2d(b["image"], [2, 2, 2], 2, "VALID"),
        ArgumentError,
        "ksize",
    ),
    (
        "nn.avg_pool2d",
        lambda b: flow.nn.avg_pool2d(b["image"], 6, 1, "VALID"),
        ArgumentError,
        "window of 6",
    ),
    (
        "nn.avg_pool2d",
        lambda b: flow.nn.avg_pool2d(b["image"], 2, 2, [[0, 0], [1, 0], [0, 0], [0, 0]]),
        ArgumentError,
        "channel",
    ),
    (
        "nn.sparse_softmax_cross_entropy_with_logits",
        lambda b: flow.nn.sparse_softmax_cross_entropy_with_logits(b["v"], b["x"]),
        DTypeError,
        "class numbers",
    ),
    (
        "nn.sparse_softmax_cross_entropy_with_logits",
        lambda b: flow.nn.sparse_softmax_cross_entropy_with_logits(b["i"], b["x"]),
        ShapeError,
        "do not fit",
    ),
    (
        "nn.sparse_cross_entropy",
        lambda b: flow.nn.sparse_cross_entropy(b["z"], b["v"]),
        ShapeError,
        "do not fit",
    ),
    (
        "nn.softmax_cross_entropy_with_logits",
        lambda b: flow.nn.softmax_cross_entropy_with_logits(b["x"], b["y"]),
        ShapeError,
        "differ",
    ),
    (
        "nn.sigmoid_cross_entropy_with_logits",
        lambda b: flow.nn.sigmoid_cross_entropy_with_logits(b["x"], b["v"]),
        ShapeError,
        "differ",
    ),
    ("layers.dense", lambda b: flow.layers.dense(b["v"], 3), ArgumentError, "two dimensions"),
    ("layers.dense", lambda b: flow.layers.dense(b["x"]), ArgumentError, "missing a required"),
    (
        "layers.conv2d",
        lambda b: flow.layers.conv2d(b["image"], 3, groups=2),
        ArgumentError,
        "groups",
    ),
    ("get_variable", lambda b: flow.get_variable("v"), FlowError, "shape should be"),
    ("assign", lambda b: flow.assign(b["x"], b["x"]), ArgumentError, "not a variable"),
    ("losses.add_loss", lambda b: flow.losses.add_loss(b["x"]), FlowError, "predict job"),
]


def raised(call):
    """The error that a call in the body of a job leads to."""

    def body(*blobs):
        call(dict(zip(INPUTS, blobs, strict=True)))
        return blobs[0]

    flow.clear_default_session()
    job = define(body, list(INPUTS.values()))
    with pytest.raises(FlowError) as info:
        job(*INPUTS.values())
    return info.value


@pytest.mark.parametrize(
    ("name", "call", "kind", "says"), BAD, ids=[f"{n}-{i}" for i, (n, *_) in enumerate(BAD)]
)
def test_bad_argument(name, call, kind, says):
    error = raised(call)
    assert isinstance(error, kind), repr(error)
    assert re.search(says, str(error)), str(error)
    assert error.op == name or error.op.startswith(name.rpartition(".")[2])
    assert error.job == "job"
    file, line = error.source.rsplit(":", 1)
    assert Path(file).name == Path(__file__).name
    lines, first = inspect.getsourcelines(call)
    assert first <= int(line) < first + len(lines)


def test_operators_exist_only_in_jobs():
    for name, entry in entries().items():
        if name in {row.name for row in ROWS}:
            with pytest.raises(ContextError, match="only inside a job") as info:
                entry.function()
            assert entries()[info.value.op].function is entry.function
            assert "test_errors.py" in info.value.source


@pytest.mark.parametrize("junk", ["text", None, np.array(["text"])], ids=type)
def test_every_operator_refuses_what_is_no_blob(junk):
    """A text, nothing, or an array of texts where a blob belongs."""
    quiet = []
    for row in ROWS:
        if not row.shapes or row.takes_list:
            continue
        try:
            raised(lambda b, row=row: row.call(junk, *[b["x"]] * (len(row.shapes) - 1)))
        except (Exception, pytest.fail.Exception) as error:  # another error, or none at all
            quiet.append(f"{row.id}: {type(error).__name__}")
    assert quiet == []
