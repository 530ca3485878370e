"""Bad arguments of layers, normalisations, losses and image operators."""

import re
from pathlib import Path

import pytest

import flow2onnx as flow
from flow2onnx.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError
from tests.ops.test_errors import raised

n, layers = flow.nn, flow.layers
NONE, VALID = "none", "VALID"
OUT = (1, 2, 7, 7)

# operator, call on the blobs by name, error, what its message says
BAD = [
    ("nn.moments", lambda b: n.moments(b["x"], 0), ArgumentError, "list of axes"),
    ("nn.moments", lambda b: n.moments(b["x"], [2]), ArgumentError, "axis 2"),
    ("nn.layer_norm", lambda b: n.layer_norm(b["x"], b["z"]), ShapeError, "gamma and beta"),
    ("nn.layer_norm", lambda b: n.layer_norm(b["x"], None, None, 2), ArgumentError, "axis 2"),
    ("nn.layer_norm", lambda b: n.layer_norm(b["i"]), DTypeError, "type"),
    (
        "nn.batch_normalization",
        lambda b: n.batch_normalization(b["x"], b["v"], b["v"], axis=0),
        ShapeError,
        "does not fit axis 0",
    ),
    (
        "nn.batch_normalization",
        lambda b: n.batch_normalization(b["x"], b["v"], b["v"], axis=3),
        ArgumentError,
        "axis 3",
    ),
    ("nn.GroupNorm", lambda b: n.GroupNorm(b["image"], 3), ArgumentError, "3 groups"),
    ("nn.GroupNorm", lambda b: n.GroupNorm(b["x"], 2), ArgumentError, "3 dimensions"),
    ("nn.GroupNorm", lambda b: n.GroupNorm(b["image"], 0), ArgumentError, "0 groups"),
    ("nn.InstanceNorm1d", lambda b: n.InstanceNorm1d(b["x"]), ArgumentError, "3 dimensions"),
    ("nn.InstanceNorm2d", lambda b: n.InstanceNorm2d(b["t"]), ArgumentError, "4 dimensions"),
    ("nn.InstanceNorm3d", lambda b: n.InstanceNorm3d(b["t"]), ArgumentError, "5 dimensions"),
    ("nn.elu", lambda b: n.elu(b["i"]), DTypeError, "type"),
    ("nn.hardtanh", lambda b: n.hardtanh(b["x"], "low"), ArgumentError, "holds no 'low'"),
    ("nn.swish", lambda b: n.swish(b["i"]), DTypeError, "type"),
    ("nn.softmax_grad", lambda b: n.softmax_grad(b["x"], b["x"], 2), ArgumentError, "axis 2"),
    (
        "nn.fused_bias_add_gelu",
        lambda b: n.fused_bias_add_gelu(b["x"], b["z"]),
        ArgumentError,
        "bias",
    ),
    (
        "nn.fused_bias_add_dropout",
        lambda b: n.fused_bias_add_dropout(b["x"], b["v"], rate=1.5),
        ArgumentError,
        "rate",
    ),
    ("nn.random_mask_like", lambda b: n.random_mask_like(b["x"], 1.0), ArgumentError, "rate"),
    (
        "nn.random_mask_like",
        lambda b: n.random_mask_like(b["x"], 0.5, noise_shape=[1]),
        UnsupportedError,
        "noise_shape",
    ),
    (
        "nn.random_mask_like",
        lambda b: n.random_mask_like(b["x"], 0.5, seed=1),
        ArgumentError,
        "name",
    ),
    (
        "nn.fused_self_attention_query_mul_key_and_value",
        lambda b: n.fused_self_attention_query_mul_key_and_value(b["t"], 2),
        ShapeError,
        "heads x 3",
    ),
    (
        "nn.conv2d_transpose",
        lambda b: n.conv2d_transpose(b["image"], b["kernel"], OUT, 1),
        ShapeError,
        "4 channels|gives",
    ),
    (
        "nn.conv2d_transpose",
        lambda b: n.conv2d_transpose(b["image"], None, OUT, 1),
        ArgumentError,
        "value and filter",
    ),
    (
        "nn.conv2d_transpose",
        lambda b: n.conv2d_transpose(b["image"], b["kernel"], None, 1),
        ArgumentError,
        "output_shape",
    ),
    (
        "nn.conv2d_transpose",
        lambda b: n.conv2d_transpose(b["image"], b["kernel"], OUT, 1, "FULL"),
        ArgumentError,
        "VALID or SAME",
    ),
    (
        "nn.conv2d_transpose",
        lambda b: n.conv2d_transpose(b["x"], b["kernel"], OUT, 1),
        ShapeError,
        "rank 4",
    ),
    (
        "nn.conv2d_transpose",
        lambda b: n.conv2d_transpose(b["image"], b["kernel"], (1, 4, 99, 7), 1),
        ShapeError,
        "no VALID convolution",
    ),
    (
        "nn.ctc_greedy_decoder",
        lambda b: n.ctc_greedy_decoder(b["t"], b["v"]),
        ShapeError,
        "time, batch, classes",
    ),
    (
        "nn.torch_conv2d_transpose",
        lambda b: n.torch_conv2d_transpose(b["image"], b["kernel"], [0, -1], 1, 0),
        ArgumentError,
        "output_padding",
    ),
    ("nn.avg_pool1d", lambda b: n.avg_pool1d(b["t"], 2, 2, VALID), UnsupportedError, "never"),
    ("nn.max_pool1d", lambda b: n.max_pool1d(b["t"], 2, 2, VALID), UnsupportedError, "max_pool2d"),
    ("nn.PixelShuffle", lambda b: n.PixelShuffle(b["image"], 3), ShapeError, "no multiple"),
    ("nn.PixelShuffle", lambda b: n.PixelShuffle(b["image"], 0), ArgumentError, "positive"),
    ("nn.PixelShufflev2", lambda b: n.PixelShufflev2(b["x"], 1, 1), ShapeError, "no multiple"),
    ("layers.upsample_2d", lambda b: layers.upsample_2d(b["x"]), ShapeError, "rank 4"),
    (
        "layers.upsample_2d",
        lambda b: layers.upsample_2d(b["image"], interpolation="cubic"),
        ArgumentError,
        "'nearest' or 'bilinear'",
    ),
    (
        "layers.upsample_2d",
        lambda b: layers.upsample_2d(b["image"], align_corners=True),
        ArgumentError,
        "align_corners",
    ),
    ("layers.upsample_2d", lambda b: layers.upsample_2d(b["image"], 0), ArgumentError, "size"),
    (
        "layers.upsample_2d",
        lambda b: layers.upsample_2d(b["image"], data_format="NCW"),
        ArgumentError,
        "data_format",
    ),
    ("layers.prelu", lambda b: layers.prelu(b["t"], shared_axes=[0]), ArgumentError, "axis 0"),
    ("layers.prelu", lambda b: layers.prelu(b["t"], shared_axes=[3]), ArgumentError, "axis 3"),
    ("nn.L1Loss", lambda b: n.L1Loss(b["x"], b["y"]), ShapeError, "shapes differ"),
    ("nn.MSELoss", lambda b: n.MSELoss(b["x"], b["x"], "all"), ArgumentError, "reduction"),
    ("nn.BCELoss", lambda b: n.BCELoss(b["x"], b["x"], b["v"]), ShapeError, "shapes differ"),
    (
        "nn.BCEWithLogitsLoss",
        lambda b: n.BCEWithLogitsLoss(b["x"], b["x"], None, b["z"]),
        ShapeError,
        "pos_weight",
    ),
    ("nn.KLDivLoss", lambda b: n.KLDivLoss(b["x"], b["d"]), DTypeError, "float64 and float32"),
    (
        "nn.MarginRankingLoss",
        lambda b: n.MarginRankingLoss(b["x"], b["v"], b["x"]),
        ShapeError,
        "shapes differ",
    ),
    (
        "nn.MarginRankingLoss",
        lambda b: n.MarginRankingLoss(b["x"], b["x"], b["y"]),
        ShapeError,
        "is not broadcast to it",
    ),
    (
        "nn.TripletMarginLoss",
        lambda b: n.TripletMarginLoss(b["x"], b["x"], b["x"], swap=True),
        UnsupportedError,
        "swap",
    ),
    ("smooth_l1_loss", lambda b: flow.smooth_l1_loss(b["x"], b["v"]), ShapeError, "differ"),
    (
        "combined_margin_loss",
        lambda b: flow.combined_margin_loss(b["x"], b["v"]),
        DTypeError,
        "class numbers",
    ),
    (
        "nn.conv2d",
        lambda b: n.conv2d(b["image"], b["kernel"], 1, VALID, bias=b["x"], wrong=1),
        ArgumentError,
        "unexpected keyword",
    ),
]


@pytest.mark.parametrize(
    ("name", "call", "kind", "says"), BAD, ids=[f"{n}-{i}" for i, (n, *_) in enumerate(BAD)]
)
def test_bad_argument(name, call, kind, says):
    error = raised(call)
    assert isinstance(error, kind), repr(error)
    assert re.search(says, str(error)), str(error)
    assert error.op == name or error.op.startswith(name.rpartition(".")[2])
    assert Path(error.source.rsplit(":", 1)[0]).name == Path(__file__).name
