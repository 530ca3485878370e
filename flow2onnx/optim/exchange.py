"""Gradients that processes exchange: one half of a step sends them in buckets, one receives sums.

A bucket is one vector of gradients end to end. The gradients that the way back gives first, those
of the last layers, come first, so that they can be on their way while it goes on.
"""

from dataclasses import dataclass
from math import prod

from flow2onnx.dtypes import DType, float32
from flow2onnx.errors import UnsupportedError
from flow2onnx.graph import Value
from flow2onnx.graph.types import dims, dtype_of, is_static
from flow2onnx.optim.base import Step
from flow2onnx.trace.job import Job

__all__ = ["BUCKET", "ROWS", "receive_gradients", "receive_rows", "send_gradients", "send_rows"]

BUCKET = "bucket/"  # begins the names of what is summed up over the processes
ROWS = "rows/"  # begins the names of what is gathered from them
_MEBIBYTE = 2**20


@dataclass(frozen=True)
class _Bucket:
    """Gradients of one element type, by the names of their variables, with their shapes."""

    name: str
    dtype: DType
    shapes: dict[str, tuple[int, ...]]

    @property
    def sizes(self) -> list[int]:
        return [prod(shape) for shape in self.shapes.values()]


def send_gradients(job: Job, grads: dict[str, Value]) -> None:
    """Put the gradients of a batch into buckets, as outputs of the job.

    Those of half precision are summed up in float32.
    """
    b = job.b
    with b.under("send"):
        for bucket in _buckets(job, grads):
            flat = [b.Reshape(_wide(job, grads[n], bucket.dtype), [-1]) for n in bucket.shapes]
            job.sent[bucket.name] = flat[0] if len(flat) == 1 else b.Concat(*flat, axis=0)


def receive_gradients(
    job: Job, step: Step, grads: dict[str, Value], rounds: int
) -> dict[str, Value]:
    """The sums of all processes' gradients over `rounds` batches, from inputs, as a mean of these.

    `grads` are those of this process, whose types they have.
    """
    b, found = job.b, dict[str, Value]()
    job.updates.clear()  # what the body writes happened in the other half
    with b.under("receive"):
        for bucket in _buckets(job, grads):
            sizes = bucket.sizes
            flat = b.input(bucket.name, [sum(sizes)], bucket.dtype)
            parts = (
                [flat] if len(sizes) == 1 else b.several("Split", flat, sizes, outputs=len(sizes))
            )
            for (name, shape), part in zip(bucket.shapes.items(), parts, strict=True):
                g = b.Reshape(part, list(shape))
                found[name] = step.scale(_wide(job, g, dtype_of(grads[name])), 1.0 / rounds)
    return {name: found[name] for name in grads}


def send_rows(job: Job, reads: dict[str, tuple[Value, Value]]) -> None:
    """Send the rows that each table was read at, and their gradients: never a table of zeros."""
    for name, (index, g) in reads.items():
        job.sent |= {f"{ROWS}{name}/index": index, f"{ROWS}{name}/gradient": g}


def receive_rows(job: Job, name: str, index: Value, gradient: Value) -> tuple[Value, Value]:
    """The rows of all processes, from inputs of the types that those of this one have."""
    parts = [
        job.b.input(f"{ROWS}{name}/{what}", [dims(v)[0] * job.ranks, *dims(v)[1:]], dtype_of(v))
        for what, v in (("index", index), ("gradient", gradient))
    ]
    return parts[0], parts[1]


def _wide(job: Job, g: Value, dtype: DType) -> Value:
    value: Value = g if dtype_of(g) == dtype else job.b.Cast(g, to=dtype)
    return value


def _buckets(job: Job, grads: dict[str, Value]) -> list[_Bucket]:
    """The plan of the job's flags, the same on all processes."""
    for name, g in grads.items():
        if not is_static(g):
            raise UnsupportedError(
                f"the gradient of {name} has a shape known at a call only",
                job=job.spec.name,
                hint="give the variable a fixed shape",
            )
    found: list[_Bucket] = []
    limit, size = _first_limit(job, grads), 0
    for name in reversed(grads):
        shape, dtype = dims(grads[name]), dtype_of(grads[name])
        dtype = dtype if dtype.name == "float64" else float32
        nbytes = prod(shape) * dtype.numpy.itemsize
        if not found or found[-1].dtype != dtype or size + nbytes > limit:
            limit = _limit(job, grads) if found else limit
            found.append(_Bucket(f"{BUCKET}{len(found)}", dtype, {}))
            size = 0
        found[-1].shapes[name] = shape
        size += nbytes
    return found


def _limit(job: Job, grads: dict[str, Value]) -> float:
    """The bytes of one bucket: a share of all, and not less than the flag says."""
    value = job.spec.config.value
    if not value("enable_all_reduce_group"):
        return 0.0
    total = sum(prod(dims(g)) * float32.numpy.itemsize for g in grads.values())
    least = value("all_reduce_group_min_mbyte") * _MEBIBYTE
    return float(max(total / value("all_reduce_group_num"), least))


def _first_limit(job: Job, grads: dict[str, Value]) -> float:
    """The first bucket is smaller, as nothing can be sent before it is full."""
    warmup: float = job.spec.config.value("all_reduce_group_size_warmup")
    return _limit(job, grads) / max(warmup, 1.0)
