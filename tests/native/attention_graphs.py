"""Graphs of attention as jobs have them, and what they compute in float64."""

import numpy as np
import onnx_ir as ir

from flow2onnx.dtypes import DType, bool_, float32, int64
from flow2onnx.graph import Builder
from flow2onnx.passes.counter_based_random import CounterBasedRandom
from tests.native.running import Array

SEED, RATE = 7, 0.3


def numbers(shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def attention_in_float64(
    q: Array, k: Array, v: Array, slope: Array, mask: Array | None, kept: Array | float = 1.0,
    fill: float = -np.inf,
) -> list[Array]:  # fmt: skip
    """The result, and the gradients of queries, keys and values; `kept`: factors of shares."""
    q, k, v, slope = (x.astype(np.float64) for x in (q, k, v, slope))
    scale = 1 / np.sqrt(q.shape[-1])
    scores = scale * q @ k.swapaxes(-1, -2)
    if mask is not None:
        scores = np.where(mask, scores, fill) if mask.dtype == bool else scores + mask
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    direct = slope @ v.swapaxes(-1, -2) * kept
    inner = shares * (direct - (direct * shares).sum(-1, keepdims=True))
    inner = np.where(mask, inner, 0) if mask is not None and mask.dtype == bool else inner
    return [shares * kept @ v, scale * inner @ k, scale * inner.swapaxes(-1, -2) @ q,
            (shares * kept).swapaxes(-1, -2) @ slope]  # fmt: skip


def attention(
    shape: tuple[int, ...], keys: int, mask: Array | None, *, rate: float = 0.0,
    counters: tuple[str, ...] = ("step",), is_chosen: bool = False, half: DType = float32,
    fill: float = -np.inf, in_rows: bool = False,
) -> Builder:  # fmt: skip
    """A graph as jobs have it, with the gradients of all three operands.

    `is_chosen`: gradients that go through dropout are chosen by a Where, not multiplied by truths.
    `half`: the type of products, between which scores are of single precision. `in_rows`: heads
    are within rows in all that goes in and out.
    """
    b, swap = Builder(), [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    scale = np.float32(1 / np.sqrt(shape[-1]))
    other = (*shape[:-2], keys, shape[-1])

    def rounded(x: ir.Value) -> ir.Value:
        return x if half == float32 else b.Cast(x, to=half)

    def single(x: ir.Value) -> ir.Value:
        return x if half == float32 else b.Cast(x, to=float32)

    def given_as(name: str, shape: tuple[int, ...]) -> ir.Value:
        if not in_rows:
            return b.input(name, shape, float32)
        batch, heads, rows, width = shape
        return b.Transpose(b.input(name, (batch, rows, heads, width), float32), perm=[0, 2, 1, 3])

    def found_as(value: ir.Value, name: str) -> None:
        b.output(b.Transpose(value, perm=[0, 2, 1, 3]) if in_rows else value, name)

    q, k, v, slope = (rounded(given_as(n, s)) for n, s in
                      (("q", shape), ("k", other), ("v", other), ("slope", shape)))  # fmt: skip
    transposed = b.Transpose(k, perm=swap)
    scores = b.Mul(single(b.MatMul(q, transposed)), scale)
    given = None
    if mask is not None:
        given = b.input("mask", mask.shape, bool_ if mask.dtype == bool else float32)
        scores = (
            b.Where(given, scores, np.float32(fill)) if mask.dtype == bool else b.Add(scores, given)
        )
    shares = b.Softmax(scores, axis=-1)
    weights, thin = _dropout(b, shares, rate, is_chosen)
    weights = rounded(weights)
    found_as(single(b.MatMul(weights, v)), "result")
    direct = thin(single(b.MatMul(slope, b.Transpose(v, perm=swap))))
    sums = b.ReduceSum(b.Mul(direct, shares), [-1], keepdims=1)
    inner = b.Mul(shares, b.Sub(direct, sums))
    if mask is not None and mask.dtype == bool:
        inner = b.Where(given, inner, np.float32(0))
    inner = rounded(b.Mul(inner, scale))
    found_as(single(b.MatMul(inner, b.Transpose(transposed, perm=swap))), "dq")
    of_keys = b.MatMul(b.Transpose(q, perm=swap), inner)
    found_as(single(b.Transpose(of_keys, perm=swap)), "dk")
    found_as(single(b.MatMul(b.Transpose(weights, perm=swap), slope)), "dv")
    if rate:
        for name in counters:
            b.input(name, (1,), int64)
        CounterBasedRandom(counters).run(b.graph)
    return b


def _dropout(b: Builder, shares: ir.Value, rate: float, is_chosen: bool):
    if not rate:
        return shares, lambda slope: slope
    kept, mask = b.several(
        "Dropout", shares, np.float32(rate), b.const(True, bool_), seed=float(SEED), outputs=2
    )
    factor = np.float32(1 / (1 - rate))

    def thin(slope: ir.Value) -> ir.Value:
        zero = np.float32(0)
        chosen = b.Where(mask, slope, zero) if is_chosen else b.Mul(slope, b.Cast(mask, to=float32))
        return b.Mul(chosen, factor)

    return kept, thin


def triangle(count: int) -> Array:
    return np.tril(np.ones((count, count), bool))
