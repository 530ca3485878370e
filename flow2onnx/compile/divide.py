"""A job that its hints and placements divide: what each process computes, keeps and passes on."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from flow2onnx.compile.transfers import move
from flow2onnx.errors import ConfigError, UnsupportedError
from flow2onnx.graph import Node, Value
from flow2onnx.graph.nodes import RANDOM_OPERATORS, has_seed, read_values
from flow2onnx.graph.types import dims, size_of
from flow2onnx.passes.lay_out import Layouts, lay_out
from flow2onnx.passes.row_shares import Share, row_shares
from flow2onnx.passes.share_rows import resize_rows, share_rows
from flow2onnx.trace.job import Job
from flow2onnx.trace.trace import Traced

__all__ = ["Divided", "divide", "place_rest"]

_READABLE = ("rows", "mean", "sum", "own", "at")


@dataclass(frozen=True)
class Divided:
    """A traced job after it was divided, with the share of each value.

    Its batch goes through in `micro` parts, one after another; of these, `micro_shares` says what
    a value of one is to that of all.
    """

    traced: Traced
    shares: Mapping[Value, Share]
    micro: int = 1
    is_pipeline: bool = False
    micro_shares: Mapping[Value, Share] = field(default_factory=dict)


def divide(traced: Traced, split: Mapping[Value, int]) -> Divided:
    """Divide a job that was traced as a whole, in place; `split` has the inputs with rows.

    Raises `UnsupportedError`, with the user's line, for what cannot be divided as it asks.
    """
    job = traced.job
    if job.is_loss_dynamic:
        raise job.error("a loss of dynamic length, in a job that hints or placements divide",
                        hint="pass the loss through flow.math.reduce_mean")  # fmt: skip
    if _is_pipeline(job):
        return _pipeline(traced, split)
    plain = row_shares(job.b.nodes, split)
    given = {v: Share("rows", axis) for v, axis in split.items()} | _kept_shares(job)
    whole = {v: size_of(v) for v in job.losses}
    traced, layouts = _laid_out(traced, given, plain)
    _check(job, layouts, [*job.losses, *traced.results, *_watched_values(job)])
    for name, value in list(job.updates.items()):
        wanted = layouts.found.shares.get(job.values[name])
        job.updates[name] = layouts.moved(value, wanted)
    shares = layouts.found.shares
    resize_rows(job.b, shares, job.ranks, job.rank)
    job.repeated |= {v for v in job.losses if _kind(shares, v) not in ("rows", "sum", "at")}
    job.loss_elements = max(*(whole.get(v, size_of(v)) for v in job.losses), 1)
    return Divided(traced, shares)


def _kind(shares: Mapping[Value, Share], value: Value) -> str:
    return shares[value].kind if value in shares else ""


def _kept_shares(job: Job) -> dict[Value, Share]:
    found = {}
    for name, kept in job.kept.items():
        kind = "rows" if kept.kind == "split" else "at"
        found[job.values[name]] = Share(kind, kept.number)  # type: ignore[arg-type]  # one of them
    return found


def _laid_out(
    traced: Traced, given: Mapping[Value, Share], plain: dict[Value, Share]
) -> tuple[Traced, Layouts]:
    job = traced.job
    layouts = Layouts(
        b=job.b,
        ranks=job.ranks,
        given=given,
        plain=plain,
        variables=set(job.values.values()),
        move=partial(move, job),
    )
    found = lay_out(layouts)
    own = {node for node in job.b.nodes if node.domain}
    touched = {id(job.regions[n]) for n in found.rewritten if n in job.regions and n not in own}
    for node in [n for n, region in job.regions.items() if id(region) in touched]:
        del job.regions[node]  # its nodes have their gradients one by one

    def now(value: Value) -> Value:
        while value in found.replaced:
            value = found.replaced[value]
        return value

    job.losses[:] = map(now, job.losses)
    for objective in job.objectives:
        objective.losses[:] = map(now, objective.losses)
    job.watches[:] = [replace(w, values=tuple(map(now, w.values))) for w in job.watches]
    job.updates |= {name: now(value) for name, value in job.updates.items()}
    return replace(traced, results=tuple(map(now, traced.results))), layouts


def _watched_values(job: Job) -> list[Value]:
    return [v for w in job.watches for v in w.values]


def _check(job: Job, layouts: Layouts, values: Iterable[Value]) -> None:
    for value in values:
        share = layouts.found.shares.get(value)
        if share is None or share.kind in _READABLE:
            continue
        node = share.node or value.producer()
        raise UnsupportedError(
            f"{node.op_type if node else 'an input'} of {value.name} depends on rows, or on parts "
            "of a split variable, in a way that processes cannot put together",
            job=job.spec.name,
            source=node.meta.get("source") if node is not None else job.spec.source,
            hint="compute the loss by row, or leave the distribution hint out",
        )


# --- layers one after another on different devices ------------------------------------------------


def _is_pipeline(job: Job) -> bool:
    """True if every variable is placed on one device, and no hint says more."""
    own = [name for name, v in job.variables.items() if v.role == "variable"]
    is_placed = all(n in job.kept and job.kept[n].kind == "at" for n in own)
    return is_placed and bool(own) and not any("distribute" in n.meta for n in job.b.nodes)


def _pipeline(traced: Traced, split: Mapping[Value, int]) -> Divided:
    job = traced.job
    _place_all(job)
    stages = len({node.meta["place"] for node in job.b.nodes if "place" in node.meta})
    micro = _micro_batches(traced, split, stages)
    whole = [size_of(v) for v in job.losses]
    micro_shares = share_rows(job.b, split, micro) if micro > 1 else {}
    traced, layouts = _laid_out(traced, _kept_shares(job), {})
    shares = layouts.found.shares
    job.loss_elements, job.sharers = max(*whole, 1), micro
    job.repeated |= {v for v in job.losses if _kind(micro_shares, v) not in ("rows", "sum")}
    return Divided(traced, shares, micro, True, micro_shares)


def _place_all(job: Job) -> None:
    placed: dict[Node, int] = {n: n.meta["place"] for n in job.b.nodes if "place" in n.meta}
    place_rest(
        job.b.nodes, placed, {job.values[name]: kept.number for name, kept in job.kept.items()}
    )
    for node in job.b.nodes:
        node.meta["place"] = placed[node]


def place_rest(nodes: Sequence[Node], placed: dict[Node, int], state: Mapping[Value, int]) -> None:
    """Place nodes that nothing has placed: beside what they read, else beside who reads them.

    `placed` gets all nodes; `state` has the one process of what stays between calls.
    """
    made = dict(state)
    for node in nodes:
        operands = [v for v in read_values(node) if v is not None]
        found = [made[v] for v in operands if v in made]
        if node not in placed and found:
            placed[node] = found[-1] if len(set(found)) == 1 else max(found)
        if node in placed:
            made.update(dict.fromkeys(node.outputs, placed[node]))
    for node in reversed(nodes):
        users = [u.node for v in node.outputs for u in v.uses() if u.node in placed]
        if node not in placed and users:
            placed[node] = min(placed[u] for u in users)
    for node in nodes:
        placed.setdefault(node, 0)


def _micro_batches(traced: Traced, split: Mapping[Value, int], stages: int) -> int:
    """How many parts of the batch follow each other through the stages.

    As many as asked for; else at most two for each stage, where that changes nothing.
    """
    job = traced.job
    rows = min((dims(v)[axis] for v, axis in split.items()), default=1)
    flag = "runtime.micro_batches"
    asked: int | None = job.spec.config.value(flag)
    shares = row_shares(job.b.nodes, split)
    seen = [*job.losses, *traced.results, *_watched_values(job)]
    mixed = [v for v in seen if _kind(shares, v) not in ("rows", "mean", "sum")]
    if asked is not None:
        if rows % asked or (mixed and asked > 1):
            raise ConfigError(
                f"{flag} is {asked}: " + (f"a batch of {rows} has no such part" if rows % asked
                else f"{mixed[0].name} is neither of rows nor a mean or sum over them"),
                job=job.spec.name, source=job.spec.config.source(flag),
                hint=f"set a divisor of {rows}, or 1",
            )  # fmt: skip
        return asked
    draws = any(n.op_type in RANDOM_OPERATORS or has_seed(n) for n in job.b.nodes)
    if mixed or job.updates or draws or any(s.kind == "own" for s in shares.values()):
        return 1
    return max(m for m in range(1, 2 * stages + 1) if rows % m == 0)
