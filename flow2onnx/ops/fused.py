"""Operators that OneFlow fuses for speed, composed of what they stand for."""

from typing import Any

from flow2onnx.dtypes import float32, int8
from flow2onnx.errors import ShapeError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dims, rank_of
from flow2onnx.ops import nn, unary
from flow2onnx.ops.arguments import check_rate, check_seed
from flow2onnx.trace.context import current_job
from flow2onnx.trace.op import op


@op("nn.fused_bias_add_gelu")
def fused_bias_add_gelu(
    b: Builder, value: Value, bias: Value, data_format: str | None = None, name: str | None = None
) -> Value:
    """math.gelu(nn.bias_add(value, bias))."""
    return unary.gelu.lower(b, nn.bias_add.lower(b, value, bias, data_format))


@op("nn.fused_bias_add_dropout")
def fused_bias_add_dropout(
    b: Builder,
    value: Value,
    bias: Value,
    data_format: str | None = None,
    rate: float = 0.0,
    noise_shape: Any = None,
    seed: int | None = None,
    name: str | None = None,
) -> Value:
    """nn.dropout(nn.bias_add(value, bias))."""
    biased = nn.bias_add.lower(b, value, bias, data_format)
    return nn.dropout.lower(b, biased, rate, noise_shape, seed, name)


@op("nn.random_mask_like", catalogued=True)
def random_mask_like(
    b: Builder, like: Value, rate: float, seed: int | None, noise_shape: Any, name: str | None
) -> Value:
    """In the shape of `like` 0 with probability `rate`, else 1, int8; drawn anew at each call."""
    check_rate(rate, noise_shape)
    check_seed(seed, name)
    seeded = current_job("nn.random_mask_like").random_seed(b.prefix, seed)
    draws = b.RandomUniformLike(like, dtype=float32, seed=seeded)
    return b.Cast(b.Greater(draws, float(rate)), to=int8)


@op("nn.fused_self_attention_query_mul_key_and_value")
def fused_self_attention_query_mul_key_and_value(
    b: Builder, x: Value, head_size: int, alpha: float = 1.0, name: str | None = None
) -> tuple[Value, Value]:
    """alpha q kᵀ and v by batch and head, of x (sequence, batch, heads x (q, k, v) x size)."""
    if rank_of(x) != 3 or dims(x)[2] % (3 * head_size):
        raise ShapeError(f"{dims(x)} is not (sequence, batch, heads x 3 x {head_size})")
    length, batch, hidden = dims(x)
    heads = hidden // (3 * head_size)
    parts = b.Reshape(x, [length, batch, heads, 3, head_size])
    q, k, v = (
        b.Squeeze(part, [3]) for part in b.several("Split", parts, axis=3, num_outputs=3, outputs=3)
    )
    scores = b.MatMul(b.Transpose(q, perm=[1, 2, 0, 3]), b.Transpose(k, perm=[1, 2, 3, 0]))
    scaled = scores if alpha == 1.0 else b.Mul(scores, b.like(alpha, scores))
    return scaled, b.Transpose(v, perm=[1, 2, 0, 3])
