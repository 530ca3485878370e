"""The backward half of a train job: gradients of the losses, then one update for each variable.

The order is OneFlow's: divide by the number of loss elements, undo the loss scale, clip, add the
regularizers, update. With a dynamic loss scale a step whose gradients overflow changes nothing but
the scale.
"""

import numpy as np

from flow2onnx.autodiff import gradients
from flow2onnx.graph import Node, Value, dims, dtype_of, size_of
from flow2onnx.optim.base import Optimizer, Step
from flow2onnx.optim.legacy import from_conf
from flow2onnx.optim.loss_scale import DynamicScale, all_finite
from flow2onnx.optim.rows import Rows, RowStep, lookups, rows_of
from flow2onnx.trace.context import tracing
from flow2onnx.trace.job import Job

__all__ = ["append_training"]


def append_training(job: Job) -> dict[Value, Value]:
    """Append gradients and updates; returns the gradients of all values on the way."""
    with tracing(job):
        return _append(job)


def _append(job: Job) -> dict[Value, Value]:
    optimizer, b = _optimizer(job), job.b
    if not job.losses:
        raise job.error(
            "a train job without a loss", hint="call flow.optimizer.SGD(...).minimize(loss)"
        )
    trainable, counter = job.trainable(), job.counter(f"System-Train-TrainStep-{job.spec.name}")
    members = optimizer.assignment(job)
    with b.under("step"):
        steps = {m: Step(b, job, m.scheduler.rate(b, counter), counter) for m in members}
        folded = _folded_rate(job, optimizer, steps)
        seeds = {loss: _seed(job, optimizer, loss, folded) for loss in job.losses}
    watched = [w.value for w in job.watches if w.is_gradient]
    tables = lookups(job, optimizer)
    read = [node.outputs[0] for nodes in tables.values() for node in nodes]
    whole = [value for name, value in trainable.items() if name not in tables]
    grads = gradients(b, seeds, [*whole, *read, *watched], job.regions)
    found = {n: grads[v] for n, v in trainable.items() if n not in tables and v in grads}
    rows = _rows(job, tables, grads, folded is not None)
    found |= {name: g for name, (_, g) in rows.items()}
    if not found:
        raise job.error(
            "no loss depends on a variable that is to be trained",
            hint="train jobs need a flow.get_variable or a layer on the way to the loss",
        )
    _update(job, optimizer, steps, found, {n: r for n, (r, _) in rows.items()}, folded is not None)
    return grads


def _rows(
    job: Job, tables: dict[str, list[Node]], grads: dict[Value, Value], is_folded: bool
) -> dict[str, tuple[Rows, Value]]:
    """The rows of each table that are to be updated, with their gradient."""
    found = {}
    for name, nodes in tables.items():
        with job.b.under(f"grad/{name}", job.variables[name].source):
            rows = rows_of(job.b, job.values[name], nodes, grads, is_folded)
        if rows is not None:
            found[name] = rows
    return found


def _optimizer(job: Job) -> Optimizer:
    """The job's optimizer, or the one its configuration describes."""
    if job.optimizer is None:
        config = job.spec.config
        conf = config.value("train.model_update_conf") or {"naive_conf": {}}
        rate, scale = (config.value(f"train.{n}") for n in ("primary_lr", "loss_scale_factor"))
        job.train_with(from_conf(conf, rate, scale), frozenset(job.user_variables))
    optimizer: Optimizer = job.optimizer
    return optimizer


def _watches_gradients(job: Job) -> bool:
    return any(w.is_gradient for w in job.watches)


def _folded_rate(job: Job, optimizer: Optimizer, steps: dict[Optimizer, Step]) -> Value | None:
    """The rate, if gradients may arrive already multiplied by its negative."""
    variables = [job.variables[n] for n in job.trainable()]
    is_plain = all(
        v.regularizer is None and v.dtype.name in ("float32", "float64") for v in variables
    )
    may_fold = optimizer.folds_rate and is_plain and not isinstance(optimizer.scale, DynamicScale)
    return steps[optimizer].rate if may_fold and not _watches_gradients(job) else None


def _seed(job: Job, optimizer: Optimizer, loss: Value, rate: Value | None) -> Value:
    """The gradient of the objective in each element of a loss.

    OneFlow divides by the number of elements of one loss blob; `watch_diff` shows gradients before
    that, and times the loss scale. With `rate` the seed carries -rate too.
    """
    b, dtype, scale = job.b, dtype_of(loss), optimizer.scale
    if isinstance(scale, DynamicScale):
        factor, _ = scale.state(job)
        return _filled(job, loss, b.Cast(factor, to=dtype), 1.0)
    if _watches_gradients(job):
        return b.const(np.full(dims(loss), scale.factor), dtype)
    share = 1.0 / size_of(loss)
    if rate is None:
        return b.const(np.full(dims(loss), share * scale.factor), dtype)
    if rate.const_value is not None:
        value = -share * float(rate.const_value.numpy().item())
        return b.const(np.full(dims(loss), value), dtype)
    return _filled(job, loss, b.Cast(rate, to=dtype), -share)


def _filled(job: Job, loss: Value, value: Value, factor: float) -> Value:
    """A value of shape (1,), times a number, in the shape of the loss."""
    b, shape = job.b, list(dims(loss))
    return b.Expand(b.Reshape(b.Mul(value, factor), [1] * max(len(shape), 1)), shape)


def _update(
    job: Job,
    optimizer: Optimizer,
    steps: dict[Optimizer, Step],
    grads: dict[str, Value],
    rows: dict[str, Rows],
    is_folded: bool,
) -> None:
    kept = dict(job.updates)  # what the body itself writes happens whatever the gradients are
    grads = grads if is_folded else _unscaled(job, optimizer, steps, grads)
    is_finite = _finite(job, optimizer, grads)
    for member, names in optimizer.assignment(job).items():
        mine = {n: g for n, g in grads.items() if n in names}
        if member.clipping is not None and mine:
            with job.b.under("clip"):
                mine = member.clipping.apply(job.b, mine)
        for name, g in mine.items():
            _move(job, member, steps[member], name, g, rows.get(name), is_folded)
    counter = f"System-Train-TrainStep-{job.spec.name}"
    with job.b.under("step"):
        job.assign(counter, job.b.Add(job.values[counter], 1))
    if is_finite is not None:
        _skip_unless(job, is_finite, kept)


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
        if rows is not None and not is_folded:
            RowStep(b, job, step.rate, step.counter, rows).move(member, name, g)
            return
        if variable.regularizer is not None:
            g = variable.regularizer.apply(b, g, w)
        if is_folded:
            job.assign(name, rows.add(b, w, g) if rows is not None else b.Add(w, g))
        else:
            job.assign(name, member.update(step, name, w, g))


def _unscaled(
    job: Job, optimizer: Optimizer, steps: dict[Optimizer, Step], grads: dict[str, Value]
) -> dict[str, Value]:
    """Gradients divided by what `_seed` put in beyond the mean."""
    step, scale, b = next(iter(steps.values())), optimizer.scale, job.b
    count = size_of(job.losses[0])
    if isinstance(scale, DynamicScale):
        with b.under("unscale"):
            factor = b.Div(1.0 / count, scale.state(job)[0])
            return {n: step.scaled(g, factor) for n, g in grads.items()}
    divisor = scale.factor * (count if _watches_gradients(job) else 1)
    return {n: step.scaled(g, 1.0 / divisor) for n, g in grads.items()}


def _finite(job: Job, optimizer: Optimizer, grads: dict[str, Value]) -> Value | None:
    """With a dynamic loss scale, whether all gradients are finite; advances the scale."""
    if not isinstance(optimizer.scale, DynamicScale):
        return None
    with job.b.under("scale"):
        is_finite = all_finite(job.b, list(grads.values()))
        optimizer.scale.advance(job, is_finite)
    return is_finite


def _skip_unless(job: Job, is_finite: Value, kept: dict[str, Value]) -> None:
    """Make every update of the optimizer conditional."""
    scale_names = job.optimizer.scale.names(job)
    for name in [n for n in job.updates if n not in kept and n not in scale_names]:
        with job.b.under(f"update/{name}"):
            old, new = job.values[name], job.updates[name]
            job.updates[name] = job.b.Where(is_finite, new, old)
