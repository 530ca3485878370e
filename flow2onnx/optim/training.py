"""The backward half of a train job: gradients of the losses, then one update for each variable.

The order is OneFlow's: divide by the number of loss elements, undo the loss scale, clip, add the
regularizers, update. With a dynamic loss scale a step whose gradients overflow changes nothing but
the scale.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np

from flow2onnx.dtypes import DType, float32
from flow2onnx.graph import Node, Value
from flow2onnx.graph.types import dims, dtype_of, is_static, rank_of, size_of, sizes_of
from flow2onnx.optim.accumulation import (
    WHOLE,
    Training,
    add_to_sums,
    check_halves,
    mean_of_sums,
    rate_of,
)
from flow2onnx.optim.averages import append_averages
from flow2onnx.optim.base import Optimizer, Step
from flow2onnx.optim.exchange import (
    own_parts,
    receive_gradients,
    receive_own,
    receive_rows,
    send_gradients,
    send_moved,
    send_own,
    send_rows,
    sum_over_ranks,
)
from flow2onnx.optim.indexed_slices import (
    Rows,
    RowStep,
    exact_lookups,
    looked_up,
    lookups,
    rows_of,
)
from flow2onnx.optim.kept_totals import KeptTotals, add_up
from flow2onnx.optim.loss_scale import LossScale
from flow2onnx.optim.model_update_conf import from_conf
from flow2onnx.optim.objectives import gradients_of, optimizer_of
from flow2onnx.optim.totals import WHOLE_TOTALS, Totals
from flow2onnx.trace.context import tracing
from flow2onnx.trace.job import Job

__all__ = ["append_training"]

_log = logging.getLogger("flow2onnx.optim")


def append_training(job: Job, training: Training = WHOLE) -> dict[Value, Value]:
    """Append gradients and updates; returns the gradients of all values on the way."""
    with tracing(job):
        return _append(job, training)


def _append(job: Job, training: Training) -> dict[Value, Value]:
    optimizer, b = _optimizer(job), job.b
    if not job.losses:
        raise job.error(
            "a train job without a loss", hint="call flow.optimizer.SGD(...).minimize(loss)"
        )
    trainable = job.trainable()
    counter = job.counter(job.spec.step_counter, training.counter)
    members = optimizer.assignment(job)
    with b.under("step"):
        steps = {m: Step(b, job, rate_of(job, m, counter, training), counter) for m in members}
        folded = _folded_rate(job, optimizer, steps, training)
        seeds = {loss: _seed(job, optimizer, loss, folded) for loss in job.losses}
        seeds = {v: _of_sum(job, v, seed) for v, seed in seeds.items()}
    watched = [v for w in job.watches if w.is_gradient for v in w.values]
    tables = lookups(job, optimizer)
    _check_tables(job, tables)
    if training.part == "whole" and folded is None:  # folded rates go into the table's rows anyway
        tables = exact_lookups(job, optimizer) | tables
    if training.part != "whole":
        check_halves(job, tables if job.ranks == 1 or training.rounds > 1 else {})
        _check_counted(job, optimizer)
    read = {node.outputs[0]: name for name, nodes in tables.items() for node in nodes}
    wanted: dict[Value, str | None] = {v: n for n, v in trainable.items() if n not in tables}
    wanted |= read | {v: None for v in watched if v not in wanted}
    grads = gradients_of(job, seeds, wanted)
    found = {n: grads[v] for n, v in trainable.items() if n not in tables and v in grads}
    job.divided = _variables_in_parts(job, optimizer, list(found))
    if training.part == "gradients" and job.ranks > 1:
        send_gradients(job, {n: g for n, g in found.items() if n not in job.kept})
        send_own(job, {n: g for n, g in found.items() if n in job.kept})
        send_rows(job, _reads(job, tables, grads))
        return grads
    rows = _rows(job, tables, grads, folded is not None)
    if not found and not rows:
        raise job.error(
            "no loss depends on a variable that is to be trained",
            hint="train jobs need a flow.get_variable or a layer on the way to the loss",
        )
    if training.part == "gradients":
        add_to_sums(job, found)
        return grads
    if training.part == "update":
        step = next(iter(steps.values()))
        found = (
            mean_of_sums(job, step, list(found))
            if job.ranks == 1
            else _received(job, step, found, training.rounds)
        )
    found |= {name: g for name, (_, g) in rows.items()}
    with _parts_as_values(job):
        tables_rows = {n: r for n, (r, _) in rows.items()}
        _update(job, optimizer, steps, found, tables_rows, folded is not None)
    return grads


def _received(job: Job, step: Step, grads: dict[str, Value], rounds: int) -> dict[str, Value]:
    """The gradients that this process updates by: those of all, and of what it keeps its own."""
    shared = {n: g for n, g in grads.items() if n not in job.kept}
    own = {n: g for n, g in grads.items() if n in job.kept}
    found = receive_gradients(job, step, shared, rounds) | receive_own(job, step, own, rounds)
    return {name: found[name] for name in grads}


def _variables_in_parts(job: Job, optimizer: Optimizer, names: list[str]) -> frozenset[str]:
    """The variables of whose optimizer state each process keeps a part, as the job's flags say."""
    value = job.spec.config.value
    if job.ranks == 1 or value("optimizer_placement_optimization_mode") is None:
        return frozenset()
    if job.is_divided:
        raise job.error(
            "optimizer_placement_optimization_mode, in a job that distribution hints or placements "
            "divide",
            hint="leave one of them out: slots of a split or placed variable lie where it does",
        )
    least = max(value("optimizer_placement_optimization_threshold"), job.ranks)
    return frozenset(
        name
        for member, chosen in optimizer.assignment(job).items()
        for name in names
        if name in chosen
        and size_of(job.values[name]) >= least
        and member.updates_parts(job.values[name])
    )


@contextmanager
def _parts_as_values(job: Job) -> Iterator[None]:
    """Inside, a divided variable is the part that this process moves; at the end, it sends that.

    So are averages of such variables, which are whole on all processes.
    """
    names = [n for n in job.values if n in job.divided]
    names += [n for n in job.averages if job.variables[n].owner in job.divided]
    if not names:
        yield
        return
    whole = dict(job.values)
    job.values |= own_parts(job, names)
    yield
    send_moved(job, [n for n in names if n in job.updates])
    job.values |= {n: whole[n] for n in names}


def _reads(
    job: Job, tables: dict[str, list[Node]], grads: dict[Value, Value]
) -> dict[str, tuple[Value, Value]]:
    """The lookups of each table that is updated by rows, with their gradient."""
    found = {}
    for name, nodes in tables.items():
        with job.b.under(f"grad/{name}", job.variables[name].source):
            reads = looked_up(job.b, job.values[name], nodes, grads)
        if reads is not None:
            found[name] = reads
    return found


def _rows(
    job: Job, tables: dict[str, list[Node]], grads: dict[Value, Value], is_folded: bool
) -> dict[str, tuple[Rows, Value]]:
    """The rows of each table that are to be updated, with their gradient: those of all ranks."""
    found = {}
    for name, nodes in tables.items():
        with job.b.under(f"grad/{name}", job.variables[name].source):
            reads = looked_up(job.b, job.values[name], nodes, grads)
            if reads is not None:
                reads = receive_rows(job, name, *reads) if job.ranks > 1 else reads
                found[name] = rows_of(job.b, *reads, is_folded)
    return found


def _optimizer(job: Job) -> Optimizer:
    """The job's optimizer, or the one its configuration describes."""
    if not job.objectives:
        config = job.spec.config
        conf = config.value("train.model_update_conf") or {"naive_conf": {}}
        rate, scale = (config.value(f"train.{n}") for n in ("primary_lr", "loss_scale_factor"))
        job.train_with(from_conf(conf, rate, scale, _bias_rate(job)), frozenset(job.user_variables))
    return optimizer_of(job)


def _bias_rate(job: Job) -> float | None:
    """`train.secondary_lr`, in the releases that followed it."""
    rate: float | None = job.spec.config.value("train.secondary_lr")
    if rate is None or job.spec.is_before("0.2.0"):
        return rate
    _log.warning(
        "job %s: train.secondary_lr has no effect, as in OneFlow 0.4: every variable is trained "
        "with train.primary_lr", job.spec.name,
    )  # fmt: skip
    return None


def _divides_later(job: Job, scale: LossScale) -> bool:
    """True if gradients are divided by the number of loss elements only once they are there.

    A watch shows them before that, half precision keeps more digits of the larger ones, and a
    dynamic scale is known at the call only.
    """
    shows = any(w.is_gradient for w in job.watches)
    return scale.is_dynamic or shows or job.spec.half is not None


def _folded_rate(
    job: Job, optimizer: Optimizer, steps: dict[Optimizer, Step], training: Training
) -> Value | None:
    """The rate, if gradients may arrive already multiplied by its negative.

    Those that one process sums up may not, as a trainer may change the rate before the update.
    """
    if training.part != "whole" and (job.ranks == 1 or job.is_divided):
        return None
    variables = [job.variables[n] for n in job.trainable()]
    is_plain = all(
        v.regularizer is None and v.dtype.name in ("float32", "float64") for v in variables
    )
    is_plain &= optimizer.bias_scheduler is None
    may_fold = optimizer.folds_rate and is_plain and not _divides_later(job, optimizer.scale)
    return steps[optimizer].rate if may_fold else None


def _seed(job: Job, optimizer: Optimizer, loss: Value, rate: Value | None) -> Value:
    """The gradient of the objective in each element of a loss.

    OneFlow divides by the number of elements of one loss blob, or if it is dynamic by its rows at
    the call; `watch_diff` shows gradients before that, and times the loss scale. With `rate` the
    seed carries -rate too.
    """
    b, dtype, factor = job.b, dtype_of(loss), optimizer.scale.factor(job)
    if isinstance(factor, Value) or _divides_later(job, optimizer.scale):
        return _loss_filled_with(job, loss, factor)
    count = _loss_count(job)
    if isinstance(count, Value):
        top = b.const([factor], dtype) if rate is None else b.Neg(b.Cast(rate, to=dtype))
        return _expand_to_loss(job, loss, b.Div(top, b.Cast(count, to=dtype)), 1.0)
    share = 1.0 / count
    if rate is None:
        return _loss_filled_with(job, loss, share * factor)
    if rate.const_value is not None:
        return _loss_filled_with(job, loss, -share * float(rate.const_value.numpy().item()))
    return _expand_to_loss(job, loss, b.Cast(rate, to=dtype), -share)


def _of_sum(job: Job, loss: Value, seed: Value) -> Value:
    """The seed of a loss; one that is the sum over processes is not their mean."""
    if loss in job.repeated:
        mean: Value = job.b.Mul(seed, 1.0 / (job.sharers or job.ranks))
        return mean
    summed: Value = job.b.Mul(seed, float(job.ranks)) if loss in job.summed else seed
    return summed


def _loss_filled_with(job: Job, loss: Value, number: float | Value) -> Value:
    """A number, or a value of shape (1,), in the shape of the loss."""
    dtype: DType = dtype_of(loss)
    if isinstance(number, Value):
        return _expand_to_loss(job, loss, job.b.Cast(number, to=dtype), 1.0)
    if is_static(loss):
        return job.b.const(np.full(dims(loss), number), dtype)
    return _expand_to_loss(job, loss, job.b.const([number], dtype), 1.0)


def _expand_to_loss(job: Job, loss: Value, value: Value, factor: float) -> Value:
    """A value of shape (1,), times a number, in the shape of the loss."""
    b, shape = job.b, list(sizes_of(loss))
    product = value if factor == 1.0 else b.Mul(value, factor)
    return b.Expand(b.Reshape(product, [1] * max(len(shape), 1)), shape)


def _loss_count(job: Job) -> int | Value:
    """The divisor of gradients: the elements of a loss, or its rows at the call if it is dynamic.

    Of no rows there is no mean: then it is 1, so that the gradients stay the zeros they are.
    """
    first = job.losses[0]
    if job.loss_elements is not None:
        return job.loss_elements
    if not job.is_loss_dynamic or not rank_of(first):
        return max(size_of(first), 1) * job.pieces * job.ranks
    rows = [sizes_of(v)[0] for v in job.losses[:: max(len(job.losses) // job.pieces, 1)]]
    known = sum(d for d in rows if isinstance(d, int)) * job.ranks
    total: int | Value = known
    for name in rows:
        total = job.b.Add(job.b.vector([name]), total) if isinstance(name, str) else total
    return job.b.Max(total, [1]) if isinstance(total, Value) else max(total, 1)


def _update(
    job: Job,
    optimizer: Optimizer,
    steps: dict[Optimizer, Step],
    grads: dict[str, Value],
    rows: dict[str, Rows],
    is_folded: bool,
) -> None:
    kept = dict(job.updates)  # what the body itself writes happens whatever the gradients are
    _check_kept(job, optimizer)
    grads = grads if is_folded else _unscale(job, optimizer, steps, grads)
    over_ranks = partial(sum_over_ranks, job)
    totals = Totals(job.divided, over_ranks) if job.divided else WHOLE_TOTALS
    if job.kept:
        totals = KeptTotals(job=job)
    is_finite = optimizer.scale.advance(job, grads, totals)
    grads = _clip(job, optimizer, grads, totals)
    for member, names in optimizer.assignment(job).items():
        mine = {n: g for n, g in grads.items() if n in names}
        mine = mine if member is optimizer else _clip(job, member, mine, totals)
        whole, in_parts = steps[member], replace(steps[member], over_ranks=over_ranks)
        for name, g in mine.items():
            step = in_parts if name in job.divided else whole
            if name in job.kept and job.kept[name].kind == "split":
                step = replace(whole, over_ranks=partial(add_up, job))
            _move(job, member, step, name, g, rows.get(name), is_folded)
    append_averages(job, next(iter(steps.values())), list(grads))
    counter = job.spec.step_counter
    with job.b.under("step"):
        job.assign(counter, job.b.Add(job.values[counter], 1))
    if is_finite is not None:
        _skip_unless(job, is_finite, kept)


def _check_tables(job: Job, tables: Iterable[str]) -> None:
    """Raise for a table of which rows are to be updated, and processes keep parts."""
    for name in job.kept.keys() & set(tables):
        raise job.error(
            f"indexed_slices_optimizer_conf lists {name}, of which processes keep parts",
            hint="take it off the list, or leave its distribution hint or placement out",
        )


def _check_kept(job: Job, optimizer: Optimizer) -> None:
    """Raise for a split variable that an optimizer moves as a whole alone."""
    for member, names in optimizer.assignment(job).items():
        for name in names & job.kept.keys():
            is_whole = job.kept[name].kind == "at" or member.updates_parts(job.values[name])
            if not is_whole:
                raise job.error(
                    f"{type(member).__name__} moves {name} as a whole, and it is split",
                    hint="train it by another optimizer, such as Adam, or leave its hint out",
                )


def _clip(
    job: Job, optimizer: Optimizer, grads: dict[str, Value], totals: Totals
) -> dict[str, Value]:
    """The gradients that an optimizer trains by, clipped as it asks for."""
    if optimizer.clipping is None or not grads:
        return grads
    with job.b.under("clip"):
        return optimizer.clipping.apply(job.b, grads, totals)


def _move(
    job: Job,
    member: Optimizer,
    step: Step,
    name: str,
    g: Value,
    rows: Rows | None,
    is_folded: bool,
) -> None:
    variable, w, b = job.variables[name], job.values[name], job.b
    with b.under(f"update/{name}", variable.source):
        if member.bias_scheduler is not None and variable.model_name == "bias":
            step = replace(step, rate=member.bias_scheduler.rate(b, step.counter))
        if rows is not None and not is_folded:
            RowStep(b, job, step.rate, step.counter, rows).move(member, name, g)
            return
        if variable.regularizer is not None:
            g = variable.regularizer.apply(b, g, w)
        if is_folded:
            job.assign(name, rows.scatter_add(b, w, g) if rows is not None else b.Add(w, g))
        else:
            job.assign(name, member.update(step, name, w, g))


def _unscale(
    job: Job, optimizer: Optimizer, steps: dict[Optimizer, Step], grads: dict[str, Value]
) -> dict[str, Value]:
    """Gradients divided by what `_seed` put in beyond the mean."""
    step, scale, b = next(iter(steps.values())), optimizer.scale, job.b
    with b.under("unscale" if scale.is_dynamic else b.prefix):
        share = _share(job, scale, _loss_count(job) if _divides_later(job, scale) else 1)
        return {n: step.scale(g, share) for n, g in grads.items()}


def _check_counted(job: Job, optimizer: Optimizer) -> None:
    """Raise where the sums of several batches would be divided by the rows of one."""
    is_left = _divides_later(job, optimizer.scale)
    if is_left and job.is_loss_dynamic and not all(is_static(v) for v in job.losses):
        raise job.error(
            "gradients of a loss whose length is known at the call only are divided at the end, "
            "and those of several batches add up before",
            hint="pass the loss through flow.math.reduce_mean, or leave out mixed precision, "
            "watch_diff and the dynamic loss scale",
        )


def _share(job: Job, scale: LossScale, count: int | Value) -> float | Value:
    """1 divided by a count and by the loss scale."""
    b, factor = job.b, scale.factor(job)
    if not isinstance(factor, Value) and not isinstance(count, Value):
        return 1.0 / (factor * count)
    part = b.Reciprocal(b.Cast(count, to=float32)) if isinstance(count, Value) else 1.0 / count
    shared: Value = b.Div(part, factor)
    return shared


def _skip_unless(job: Job, is_finite: Value, kept: dict[str, Value]) -> None:
    """Make every update of the optimizer conditional."""
    scale_names = optimizer_of(job).scale.states(job)
    for name in [n for n in job.updates if n not in kept and n not in scale_names]:
        with job.b.under(f"update/{name}"):
            old, new = job.values[name], job.updates[name]
            truth = is_finite if rank_of(new) else job.b.Squeeze(is_finite, [0])
            job.updates[name] = job.b.Where(truth, new, old)
