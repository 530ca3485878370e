"""Random blobs, drawn anew at each call."""

from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from flow2onnx.dtypes import DType, element_type, float32, float64, int8, int32, int64
from flow2onnx.errors import ArgumentError, DTypeError, ShapeError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dims, dtype_of, rank_of
from flow2onnx.lowering.scatters import zeros
from flow2onnx.ops.arguments import check_seed
from flow2onnx.trace.context import current_job
from flow2onnx.trace.host import Draw
from flow2onnx.trace.op import composite, op


def _seed(b: Builder, kind: str, seed: int | None, name: str | None) -> float:
    """The seed of a node: the user's, who then names the operator too, or one of the job's."""
    check_seed(seed, name)
    if seed is not None and not isinstance(seed, int):
        raise ArgumentError(f"seed is an int, got {seed!r}")
    return current_job(kind).random_seed(b.prefix, seed)


@op("random.bernoulli", catalogued=True)
def bernoulli(
    b: Builder, x: Value, seed: int | None, dtype: DType | None, name: str | None
) -> Value:
    """1 with the probability that each element of `x` is, else 0."""
    if not dtype_of(x).is_floating_point:
        raise DTypeError(f"probabilities are real numbers, got {dtype_of(x).name}")
    kind = float64 if dtype_of(x) == float64 else float32
    chances = x if dtype_of(x) == kind else b.Cast(x, to=kind)
    seeded = _seed(b, "random.bernoulli", seed, name)
    draws = b.RandomUniformLike(chances, dtype=kind, seed=seeded)
    return b.Cast(b.Less(draws, chances), to=element_type(dtype, dtype_of(x)))


@op("random.coin_flip", "random.CoinFlip", catalogued=True)
def coin_flip(
    b: Builder, batch_size: int, seed: int | None, probability: float, name: str | None
) -> Value:
    """1 with `probability` for each sample, else 0, int8."""
    if not isinstance(batch_size, int) or batch_size < 1:
        raise ArgumentError(f"batch_size is a positive int, got {batch_size!r}")
    if not isinstance(probability, int | float) or not 0 <= probability <= 1:
        raise ArgumentError(f"probability is a number in [0, 1], got {probability!r}")
    flips = b.Cast(b.Less(_draws(b, batch_size, seed, name), float(probability)), to=int8)
    job, number = current_job("random.CoinFlip"), int(_seed(b, "random.CoinFlip", seed, name))
    flipped = partial(_flips, batch_size, float(probability), number)
    job.host.may_draw(flips, Draw(b.prefix, int8, flipped))
    return flips


def _flips(count: int, probability: float, seed: int) -> Iterator[tuple[NDArray[np.int8]]]:
    """The draws of the host, where an operator there needs them."""
    random = np.random.default_rng(seed)
    while True:
        yield ((random.random(count) < probability).astype(np.int8),)


def _draws(b: Builder, count: int, seed: int | None, name: str | None) -> Value:
    """`count` numbers in [0, 1)."""
    seeded = _seed(b, "random", seed, name)
    return b.RandomUniform(dtype=float32, shape=[count], seed=seeded)


@op("random.generate_random_batch_permutation_indices")
def generate_random_batch_permutation_indices(
    b: Builder, value: Value, seed: int | None = None, name: str | None = None
) -> Value:
    """The numbers of the samples of `value` in random order, int32."""
    count = dims(value)[0]
    order = b.several("TopK", _draws(b, count, seed, name), [count], axis=0, outputs=2)[1]
    return b.Cast(order, to=int32)


@op("random.shuffle")
def shuffle(b: Builder, value: Value, seed: int | None = None, name: str | None = None) -> Value:
    """The samples of `value` in random order."""
    order = generate_random_batch_permutation_indices.lower(b, value, seed, name)
    return b.Gather(value, order, axis=0)


@op("distributed_partial_fc_sample")
def distributed_partial_fc_sample(
    b: Builder, weight: Value, label: Value, num_sample: int, name: str | None = None
) -> tuple[Value, Value, Value]:
    """Of all classes those in `label`, and others drawn anew at each call, `num_sample` in all.

    Gives the position of each label among them, their numbers, and their rows of `weight`.
    """
    if rank_of(weight) < 2 or rank_of(label) != 1 or dtype_of(label).is_floating_point:
        raise ShapeError(
            f"weight is {dims(weight)}, label {dtype_of(label).name}{dims(label)}",
            hint="weight has a row for each class, label one class number for each sample",
        )
    classes, batch = dims(weight)[0], dims(label)[0]
    if not isinstance(num_sample, int) or not min(batch, classes) <= num_sample <= classes:
        raise ArgumentError(
            f"num_sample is from {min(batch, classes)} to {classes}, got {num_sample!r}",
            hint="every class of the batch is among the samples, and none twice",
        )
    index = b.Cast(label, to=int64)
    first = b.Expand(b.const(2.0, float32), [batch])
    draws = b.ScatterElements(_draws(b, classes, None, name), index, first, axis=0)
    chosen = b.several("TopK", draws, [num_sample], axis=0, outputs=2)[1]
    places = b.ScatterElements(
        zeros(b, [classes], int64), chosen, np.arange(num_sample, dtype=np.int64), axis=0
    )
    kind = dtype_of(label)
    return (
        b.Cast(b.Gather(places, index, axis=0), to=kind),
        b.Cast(chosen, to=kind),
        b.Gather(weight, chosen, axis=0),
    )


@composite("random.gen_seed")
def gen_seed(seed: int | None = None) -> tuple[int, bool]:
    """A seed, and whether it is one: -1 and False in a mirrored view that is given none."""
    job = current_job("random.gen_seed")
    if seed is not None:
        return seed, True
    if job.views[-1] == "mirrored":
        return -1, False
    return int(job.random_seed(job.name_op(None, "gen_seed"))), True
