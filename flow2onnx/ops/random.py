"""Random blobs, drawn anew at each call."""

from flow2onnx.dtypes import DType, float32, float64, int8, int32
from flow2onnx.errors import ArgumentError, DTypeError
from flow2onnx.graph import Builder, Value, dims, dtype_of
from flow2onnx.ops.axes import element_type
from flow2onnx.trace.context import current_job
from flow2onnx.trace.op import composite, op


def _seed(b: Builder, kind: str, seed: int | None, name: str | None) -> float:
    """The seed of a node: the user's, who then names the operator too, or one of the job's."""
    if seed is not None and name is None:
        raise ArgumentError("a seed needs a name", hint="pass name= beside seed=")
    if seed is not None and not isinstance(seed, int):
        raise ArgumentError(f"seed is an int, got {seed!r}")
    return current_job(kind).random_seed(b.prefix, seed)


@op("random.bernoulli", earlier={"0.1.8": "(x, seed=None, dtype=None, name=None)"})
def bernoulli(
    b: Builder,
    x: Value,
    seed: int | None = None,
    dtype: DType | None = None,
    name: str | None = "Bernoulli",
) -> Value:
    """1 with the probability that each element of `x` is, else 0."""
    if not dtype_of(x).is_floating_point:
        raise DTypeError(f"probabilities are real numbers, got {dtype_of(x).name}")
    kind = float64 if dtype_of(x) == float64 else float32
    chances = x if dtype_of(x) == kind else b.Cast(x, to=kind)
    seeded = _seed(b, "random.bernoulli", seed, name)
    draws = b.RandomUniformLike(chances, dtype=kind, seed=seeded)
    return b.Cast(b.Less(draws, chances), to=element_type(dtype, dtype_of(x)))


@op(
    "random.coin_flip",
    "random.CoinFlip",
    earlier={"0.1.8": "(batch_size=1, seed=None, probability=0.5, name=None)"},
)
def coin_flip(
    b: Builder,
    batch_size: int = 1,
    seed: int | None = None,
    probability: float = 0.5,
    name: str | None = "CoinFlip",
) -> Value:
    """1 with `probability` for each sample, else 0, int8."""
    if not isinstance(batch_size, int) or batch_size < 1:
        raise ArgumentError(f"batch_size is a positive int, got {batch_size!r}")
    if not isinstance(probability, int | float) or not 0 <= probability <= 1:
        raise ArgumentError(f"probability is a number in [0, 1], got {probability!r}")
    return b.Cast(b.Less(_draws(b, batch_size, seed, name), float(probability)), to=int8)


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


@composite("random.gen_seed")
def gen_seed(seed: int | None = None) -> tuple[int, bool]:
    """A seed, and whether it is one: -1 and False in a mirrored view that is given none."""
    job = current_job("random.gen_seed")
    if seed is not None:
        return seed, True
    if job.views[-1] == "mirrored":
        return -1, False
    return int(job.random_seed(job.name_op(None, "gen_seed"))), True
