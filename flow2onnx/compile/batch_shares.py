"""The part of a train job that one of several processes does, and what its results are of all."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from flow2onnx.compile.divide import Divided, divide
from flow2onnx.errors import FlowError, UnsupportedError
from flow2onnx.graph import Value
from flow2onnx.graph.types import dims, is_static, rank_of
from flow2onnx.passes.row_shares import Share
from flow2onnx.passes.share_rows import share_rows
from flow2onnx.trace.job import Job
from flow2onnx.trace.trace import Traced, pieces_of

__all__ = ["BatchShares", "feeds_with_rows", "micro_share", "output_shares", "share_batch"]

_PIECE = Share("piece")


@dataclass(frozen=True)
class BatchShares:
    """The feeds that processes divide, each with the axis, and the share of each value.

    A mirrored job, which is fed with lists, divides none: an item is the piece of one process.
    """

    split: Mapping[str, int]
    of: Mapping[Value, Share]
    is_mirrored: bool
    variables: frozenset[Value]
    divided: Divided | None = None

    def of_output(self, value: Value, primals: Mapping[Value, Value]) -> Share | None:
        """The share of an output; `primals` has, for a gradient, what it is the gradient of."""
        maker = value.producer()
        known = {*self.of, *primals}
        if value not in known and maker is not None and maker.op_type == "Identity":
            value = maker.inputs[0] or value
        if value in primals and value not in self.of:
            if self.divided is not None:
                return _gradient_share(self.of.get(primals[value]))
            return self._of_gradient(primals[value])
        return _PIECE if self.is_mirrored else self.of.get(value)

    def _of_gradient(self, primal: Value) -> Share | None:
        if primal in self.variables:
            return Share("sum")
        if self.is_mirrored:
            return _PIECE
        share = self.of.get(primal, Share("sum"))
        return share if share.kind in ("rows", "own") else Share("sum")


def _divide_job(
    traced: Traced, split: Mapping[Value, int], variables: frozenset[Value]
) -> BatchShares:
    found = divide(traced, split)
    axes = {str(v.name): axis for v, axis in split.items()} if found.micro == 1 else {}
    axes = {} if found.is_pipeline else axes
    return BatchShares(axes, found.shares, False, variables, found)


def share_batch(traced: Traced) -> BatchShares:
    """Divide the batch of a job that was traced as a whole among its processes, in place.

    A mirrored job was traced for one device, and stays as it is. Raises `UnsupportedError` where
    a loss, a result or an update depends on the rows of all in another way than by mean or sum.
    """
    job = traced.job
    variables = frozenset(job.values.values())
    if pieces_of(job.spec, job.ranks) > 1:
        _check_fed(job)
        return BatchShares({}, {}, True, variables)
    split = feeds_with_rows(job)
    if job.is_divided:
        return _divide_job(traced, split, variables)
    shares = share_rows(job.b, split, job.ranks)
    watched = [v for w in job.watches for v in w.values]
    _check(job, shares, [*job.losses, *traced.results, *watched], "mean sum rows own")
    _check(job, shares, job.updates.values(), "own")
    job.summed |= {v for v in job.losses if v in shares and shares[v].kind == "sum"}
    return BatchShares({str(v.name): axis for v, axis in split.items()}, shares, False, variables)


def _gradient_share(share: Share | None) -> Share | None:
    """The share of a gradient in a divided job: of a copy a part of a sum, of that a copy."""
    if share is None or share.kind == "mean":
        return Share("sum")
    return None if share.kind == "sum" else share


def micro_share(found: BatchShares, value: Value, primals: Mapping[Value, Value]) -> Share | None:
    """The share of an output of one part of a batch in that of all parts."""
    shares = found.divided.micro_shares if found.divided is not None else {}
    maker = value.producer()
    if value not in {*shares, *primals} and maker is not None and maker.op_type == "Identity":
        value = maker.inputs[0] or value
    if value in primals and value not in shares:
        share = shares.get(primals[value])
        return share if share is not None and share.kind == "rows" else Share("sum")
    return shares.get(value)


def output_shares(
    found: BatchShares, outputs: Iterable[Value], diffs: Mapping[Value, Value]
) -> dict[str, Share]:
    """The share of each output that differs between processes, by name."""
    primals = {g: v for v, g in diffs.items()}
    shares = {str(v.name): found.of_output(v, primals) for v in outputs}
    return {name: share for name, share in shares.items() if share is not None}


def _check_fed(job: Job) -> None:
    if job.host.inputs:
        raise UnsupportedError(
            "a mirrored job of several processes reads files, and is fed with lists of arrays",
            hint="feed all arrays, or read in a job without lists",
        )


def feeds_with_rows(job: Job) -> dict[Value, int]:
    """The inputs of which each process takes its rows: those whose first size is the batch's.

    It is that of what is read from files, else the most frequent above 1.
    """
    inputs = [v for v in (*job.inputs, *job.host.inputs) if is_static(v) and rank_of(v)]
    sizes = Counter(dims(v)[0] for v in (job.host.inputs or inputs) if dims(v)[0] > 1)
    if not sizes:
        return {}
    ((batch, _),) = sizes.most_common(1)
    return {v: 0 for v in inputs if dims(v)[0] == batch}


def _check(job: Job, shares: Mapping[Value, Share], values: Iterable[Value], kinds: str) -> None:
    for value in values:
        share = shares.get(value)
        if share is None or share.kind in kinds.split():
            continue
        raise _refusal(job, value, share)


def _refusal(job: Job, value: Value, share: Share) -> FlowError:
    node = share.node or value.producer()
    source = node.meta.get("source") if node is not None else None
    what = f"{node.op_type} of {node.name}" if node is not None else str(value.name)
    return UnsupportedError(
        f"{job.ranks} processes share the rows of a batch, and {what} combines rows in another way "
        "than by a mean or a sum that the loss is linear in",
        job=job.spec.name,
        source=source or job.spec.source,
        hint="compute the loss by row and take its mean, or let each device have a piece of its "
        "own: tp.ListNumpy.Placeholder in the mirrored view",
    )
