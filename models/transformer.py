"""Parts of transformers: affine maps, layer normalization, attention by heads."""

import math

import flow2onnx as flow
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.initializers import Initializer


def affine(x: Blob, units: int, name: str, kernel: Initializer) -> Blob:
    """x W + b of rows, with variables ``name-weight`` (in, units) and ``name-bias``, 0 at first."""
    weight = flow.get_variable(f"{name}-weight", (x.shape[-1], units), initializer=kernel)
    bias = flow.get_variable(f"{name}-bias", (units,), initializer=flow.zeros_initializer())
    return flow.nn.bias_add(flow.matmul(x, weight), bias)


def layer_norm(x: Blob, name: str = "LayerNorm") -> Blob:
    """The last axis normalised, with variables ``name-gamma`` and ``name-beta``."""
    return flow.layers.layer_norm(x, begin_norm_axis=-1, begin_params_axis=-1, name=name)


def dropout(x: Blob, rate: float) -> Blob:
    """`x` with a share of `rate` dropped in train jobs."""
    return flow.nn.dropout(x, rate=rate) if rate else x


def scores(queries: Blob, keys: Blob) -> Blob:
    """How well queries match keys, both (batch, heads, length, width), scaled by width."""
    return flow.matmul(queries, keys, transpose_b=True, alpha=1 / math.sqrt(queries.shape[-1]))


def attended(shares: Blob, values: Blob) -> Blob:
    """The mean of `values` by `shares`, heads side by side again: (batch * length, units)."""
    _, heads, _, width = values.shape
    x = flow.transpose(flow.matmul(shares, values), perm=[0, 2, 1, 3])
    return flow.reshape(x, (-1, heads * width))
