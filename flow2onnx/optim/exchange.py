"""Gradients that processes exchange: one half of a step sends them in buckets, one receives sums.

A bucket is one vector of gradients end to end. The gradients that the way back gives first, those
of the last layers, come first, so that they can be on their way while it goes on. Of variables
whose optimizer state is divided, a bucket has one part for each process behind the other.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from flow2onnx_runtime.divided import part_size

from flow2onnx.dtypes import DType, float32, int64
from flow2onnx.errors import UnsupportedError
from flow2onnx.graph import Builder, Node, Value
from flow2onnx.graph.types import dims, dtype_of, is_static, size_of
from flow2onnx.optim.base import Step
from flow2onnx.trace.job import Job

__all__ = [
    "BUCKET",
    "MOVED",
    "OWN",
    "PARTIAL",
    "RANK",
    "ROWS",
    "SHARD",
    "SUM",
    "group_of",
    "own_parts",
    "receive_gradients",
    "receive_own",
    "receive_rows",
    "send_gradients",
    "send_moved",
    "send_own",
    "send_rows",
    "sum_over_ranks",
]

BUCKET = "bucket/"  # begins the names of what is summed up over the processes
SHARD = "shard/"  # of what is summed up, and of whose sum each process receives its part
ROWS = "rows/"  # of what is gathered from them
OWN = "own/"  # of what a process keeps for its own update
MOVED = "moved/"  # of next values in parts, which are gathered
PARTIAL, SUM = "partial/", "sum/"  # of numbers that the update half needs the sums of, and these
RANK = "process/rank"  # the number of the process, which the update half is fed with
_MEBIBYTE = 2**20
_SLACK = 0.5  # of the size of a group, within which it may end where little is kept


@dataclass(frozen=True)
class _Bucket:
    """Gradients of one element type, by the names of their variables, with their shapes.

    Of a bucket in `parts` above 1 each process receives one.
    """

    name: str
    dtype: DType
    shapes: dict[str, tuple[int, ...]]
    parts: int

    @property
    def sizes(self) -> list[int]:
        """The elements of each gradient that a process receives."""
        return [part_size(shape, self.parts) for shape in self.shapes.values()]


def group_of(name: str) -> int:
    """The number of the group that a bucket or shard is of: those of a group are sent together."""
    return int(name.split("/")[1])


def send_gradients(job: Job, grads: dict[str, Value]) -> None:
    """Put the gradients of a batch into buckets, as outputs of the job.

    Those of half precision are summed up in float32.
    """
    b = job.b
    with b.under("send"):
        for bucket in _buckets(job, grads):
            wide = [_wide(job, grads[n], bucket.dtype) for n in bucket.shapes]
            if bucket.parts == 1:
                flat = [b.Reshape(g, [-1]) for g in wide]
                joined = flat[0] if len(flat) == 1 else b.Concat(*flat, axis=0)
            else:
                rows = [_in_parts(b, g, bucket.parts) for g in wide]
                whole = rows[0] if len(rows) == 1 else b.Concat(*rows, axis=1)
                joined = b.Reshape(whole, [-1])
            job.sent[bucket.name] = joined


def receive_gradients(
    job: Job, step: Step, grads: dict[str, Value], rounds: int
) -> dict[str, Value]:
    """The sums of all processes' gradients over `rounds` batches, from inputs, as a mean of these.

    `grads` are those of this process, whose types they have; of divided variables they are this
    process's part, a vector.
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
                g = b.Reshape(part, list(shape)) if bucket.parts == 1 else part
                found[name] = step.scale(_wide(job, g, dtype_of(grads[name])), 1.0 / rounds)
    return {name: found[name] for name in grads}


def send_own(job: Job, grads: dict[str, Value]) -> None:
    """Hand the gradients of what this process keeps to its own update."""
    with job.b.under("send"):
        job.sent |= {f"{OWN}{name}": g for name, g in grads.items()}


def receive_own(job: Job, step: Step, grads: dict[str, Value], rounds: int) -> dict[str, Value]:
    """The gradients of what this process keeps, summed up over `rounds` batches, as a mean."""
    b, found = job.b, dict[str, Value]()
    with b.under("receive"):
        for name, g in grads.items():
            given = b.input(f"{OWN}{name}", dims(g), dtype_of(g))
            found[name] = step.scale(given, 1.0 / rounds)
    return found


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


def own_parts(job: Job, names: list[str]) -> dict[str, Value]:
    """The parts of variables that this process moves, which it is told its number for."""
    b = job.b
    with b.under("part"):
        rank = b.input(RANK, [1], int64)
        return {n: _own_part(b, job.values[n], rank, job.ranks) for n in names}


def send_moved(job: Job, names: list[str]) -> None:
    """Let parts of next values, end to end for each element type, be outputs that all gather."""
    kinds = dict.fromkeys(dtype_of(job.updates[n]) for n in names)
    with job.b.under("send"):
        for dtype in kinds:
            mine = tuple(n for n in names if dtype_of(job.updates[n]) == dtype)
            parts = [job.updates.pop(n) for n in mine]
            name = f"{MOVED}{dtype.name}"
            job.moved[name] = mine
            job.sent[name] = parts[0] if len(parts) == 1 else job.b.Concat(*parts, axis=0)


def sum_over_ranks(job: Job, number: Value) -> Value:
    """A number added up over the processes: an input, as that happens between two graphs."""
    index = sum(name.startswith(PARTIAL) for name in job.sent)
    job.sent[f"{PARTIAL}{index}"] = number
    return job.b.input(f"{SUM}{index}", dims(number), dtype_of(number))


def _in_parts(b: Builder, value: Value, parts: int) -> Value:
    """The elements of a value, then zeros, as a matrix with a row for each process."""
    flat, size = b.Reshape(value, [-1]), part_size(dims(value), parts)
    lacking = parts * size - size_of(value)
    if lacking:
        flat = b.Concat(flat, b.const([0] * lacking, dtype_of(value)), axis=0)
    matrix: Value = b.Reshape(flat, [parts, size])
    return matrix


def _own_part(b: Builder, value: Value, rank: Value, parts: int) -> Value:
    row: Value = b.Reshape(b.Gather(_in_parts(b, value, parts), rank, axis=0), [-1])
    return row


def _wide(job: Job, g: Value, dtype: DType) -> Value:
    value: Value = g if dtype_of(g) == dtype else job.b.Cast(g, to=dtype)
    return value


def _buckets(job: Job, grads: dict[str, Value]) -> list[_Bucket]:
    """The plan of the job's flags, the same on all processes.

    Gradients fall into groups; a group has a bucket for each element type, and one for what is
    divided.
    """
    for name, g in grads.items():
        if not is_static(g):
            raise UnsupportedError(
                f"the gradient of {name} has a shape known at a call only",
                job=job.spec.name,
                hint="give the variable a fixed shape",
            )
    found: dict[str, _Bucket] = {}
    for i, group in enumerate(_groups(job, grads)):
        for name in group:
            dtype, parts = _sum_type(grads[name]), job.ranks if name in job.divided else 1
            key = f"{BUCKET if parts == 1 else SHARD}{i}"
            key += "" if dtype == float32 else f"/{dtype.name}"
            found.setdefault(key, _Bucket(key, dtype, {}, parts)).shapes[name] = dims(grads[name])
    return list(found.values())


def _groups(job: Job, grads: dict[str, Value]) -> list[list[str]]:
    """The names of gradients in the order in which they are made, in groups to be sent together."""
    if not grads:  # all are tables of which rows are sent
        return []
    names = list(reversed(grads))
    sizes = [size_of(grads[n]) * _sum_type(grads[n]).numpy.itemsize for n in names]
    kept = _kept_bytes([grads[n] for n in names])
    wish = job.spec.config.value("runtime.gradient_segments")
    ends = _even_ends(sizes, kept, wish) if isinstance(wish, int) else _ends(job, sizes, kept)
    return [names[a:b] for a, b in zip([0, *ends], [*ends, len(names)], strict=True) if a < b]


def _ends(job: Job, sizes: list[int], kept: list[int]) -> list[int]:
    """Where groups end of as many bytes as the flags say.

    Of the places at which one is nearly full it ends where the fewest bytes are kept for what is
    left of the way back.
    """
    ends, start, limit = list[int](), 0, _limit(job, sum(sizes), is_first=True)
    while (end := _full(sizes, start, limit)) < len(sizes):
        least = _SLACK * sum(sizes[start:end])
        near = [e for e in range(start + 1, end + 1) if sum(sizes[start:e]) > least]
        ends.append(min(reversed(near), key=lambda e: kept[e - 1]))
        start, limit = ends[-1], _limit(job, sum(sizes), is_first=False)
    return ends


def _full(sizes: list[int], start: int, limit: float) -> int:
    """The end of the smallest group from `start` on that has `limit` bytes."""
    total = 0
    for end, size in enumerate(sizes[start:], start + 1):
        total += size
        if total >= limit:
            return end
    return len(sizes)


def _even_ends(sizes: list[int], kept: list[int], count: int) -> list[int]:
    """Where `count` groups of about equal bytes end, or fewer where single gradients are larger."""
    share, ends, total = sum(sizes) / count, list[int](), 0
    places = list[tuple[int, int]]()  # end, bytes up to there
    for end, size in enumerate(sizes, 1):
        total += size
        places.append((end, total))
    for k in range(1, count):
        near = [e for e, t in places[:-1] if abs(t - k * share) <= share * _SLACK]
        near = [e for e in near if not ends or e > ends[-1]]
        if near:
            ends.append(min(near, key=lambda e: kept[e - 1]))
    return ends


def _kept_bytes(made: list[Value]) -> list[int]:
    """For each of `made` the bytes that, once it and those before are there, others need later."""
    stages: dict[Node, int] = {}
    for i, value in enumerate(made):
        pending = [value.producer()]
        while pending:
            node = pending.pop()
            if node is not None and node not in stages:
                stages[node] = i
                pending += [v.producer() for v in node.inputs if v is not None]
    change = [0] * (len(made) + 1)
    for node, stage in stages.items():
        for value in node.outputs:
            last = max((stages.get(u.node, stage) for u in value.uses()), default=stage)
            change[stage] += _nbytes(value)
            change[last] -= _nbytes(value)
    return list(_running_sums(change[:-1]))


def _running_sums(numbers: list[int]) -> Iterator[int]:
    total = 0
    for number in numbers:
        total += number
        yield total


def _sum_type(g: Value) -> DType:
    """The type in which gradients travel and are summed up."""
    dtype: DType = dtype_of(g)
    return dtype if dtype.name == "float64" else float32


def _nbytes(value: Value) -> int:
    """The bytes of a value; 0 where its type or a size is not known."""
    if value.shape is None or value.dtype is None or not is_static(value):
        return 0
    return prod(dims(value)) * dtype_of(value).numpy.itemsize


def _limit(job: Job, total: int, *, is_first: bool) -> float:
    """The bytes of one group: a share of all, and not less than the flag says.

    The first is smaller, as nothing can be sent before it is full.
    """
    value = job.spec.config.value
    if not value("enable_all_reduce_group"):
        return 0.0
    least = value("all_reduce_group_min_mbyte") * _MEBIBYTE
    limit = float(max(total / value("all_reduce_group_num"), least))
    return limit / max(value("all_reduce_group_size_warmup"), 1.0) if is_first else limit
