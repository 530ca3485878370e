"""The body of an imported model's job: its nodes, the loss, the optimizer."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flow2onnx.dtypes import DType
from flow2onnx.errors import ArgumentError, DTypeError, JobError
from flow2onnx.graph import Value
from flow2onnx.graph.types import dtype_of, is_static, size_of
from flow2onnx.imported.activations import LastActivation, logits_of
from flow2onnx.imported.feeds import Feed, Feeds
from flow2onnx.imported.initial_state import average_variable, state_variable
from flow2onnx.imported.losses import NamedLoss, mean
from flow2onnx.onnx_io.append import Handler, append_model
from flow2onnx.onnx_io.foreign import ForeignModel
from flow2onnx.optim.base import Optimizer
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.call_text import known_names
from flow2onnx.trace.context import current_job
from flow2onnx.trace.job import Job

__all__ = ["EMA", "EMA_EVAL", "OUTPUTS_ALONE", "TrainingPlan", "feed_values", "job_body"]

LossFunction = Callable[..., Any]
EMA, EMA_EVAL = "ema", "ema-eval"
OUTPUTS_ALONE = ("predict", EMA)


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """How a model is trained.

    `loss`: a loss by name, which reads `outputs` and an input called `labels`; the name of an
    output; or a function. `ema` is the decay of averages of the trained tensors. `trained` and
    `kept` (running statistics, frozen weights) are tensors that become state; the first have
    gradients. `activation` is what the output ends in and the loss leaves out.
    """

    foreign: ForeignModel
    feeds: Feeds
    loss: NamedLoss | str | LossFunction
    outputs: tuple[str, ...]
    labels: str
    optimizer: Optimizer
    ema: float | None
    trained: tuple[str, ...]
    kept: tuple[str, ...]
    handlers: Mapping[str, Handler]
    inference: Mapping[str, Handler]
    activation: LastActivation | None = None


def job_body(plan: TrainingPlan, kind: str, batch: int | None) -> Callable[[], list[Blob]]:
    """The body of a job: ``train``, ``eval`` (loss and outputs) or ``predict`` (outputs).

    ``ema`` and ``ema-eval`` are the last two with the averages of the weights.
    """

    def body() -> list[Blob]:
        job = current_job("make_trainable")
        values = feed_values(job, plan.feeds, batch)
        values |= _weights(job, plan, kind)
        handlers = plan.handlers if kind == "train" else plan.inference
        made = append_model(job.b, plan.foreign, values, handlers)
        outputs = [made[name] for name in plan.foreign.outputs]
        if kind in OUTPUTS_ALONE:
            return [Blob(v) for v in outputs]
        losses = _losses(job, plan, batch, made)
        if kind in ("eval", EMA_EVAL):
            return [Blob(v) for v in (*losses.values(), *outputs)]
        with job.b.under("loss"):  # the scale of a loss has one dimension
            plan.optimizer.minimize(Blob(job.b.Reshape(losses["loss"], [1])))
        return [Blob(v) for v in losses.values()]

    return body


def _weights(job: Job, plan: TrainingPlan, kind: str) -> dict[str, Value]:
    """The tensors that are state; in the jobs for averages those of the trained ones."""
    values = {}
    for name in (*plan.trained, *plan.kept):
        is_trained = name in plan.trained
        if is_trained and kind in (EMA, EMA_EVAL):
            values[name] = job.state(average_variable(plan.foreign, name))
            continue
        values[name] = job.state(state_variable(plan.foreign, name, is_trainable=is_trained))
        job.user_variables[name] = Blob(values[name])
        if is_trained and kind == "train" and plan.ema is not None:
            average = average_variable(plan.foreign, name)
            job.state(average)
            job.averages[average.name] = plan.ema
    return values


def feed_values(job: Job, feeds: Feeds, batch: int | None) -> dict[str, Value]:
    """The inputs of the model as inputs of the job, by name."""
    job.b.free_size = batch if feeds.is_free else None  # None, too, where all sizes have names
    return {feed.name: _add_input(job, feeds, feed, batch) for feed in feeds.model}


def _add_input(job: Job, feeds: Feeds, feed: Feed, batch: int | None) -> Value:
    value = job.b.input(feed.name, feeds.shape(feed, batch), feed.dtype)
    job.inputs.append(value)
    return value


def _losses(
    job: Job, plan: TrainingPlan, batch: int | None, made: Mapping[str, Value]
) -> dict[str, Value]:
    """The scalar to minimise, as ``loss``, and what else a function wants to be seen."""
    loss = plan.loss
    if isinstance(loss, str):
        return {"loss": _scalar(job, Blob(made[loss]), f"output {loss}")}
    if isinstance(loss, NamedLoss):
        read = [made[name] for name in plan.outputs]
        with job.b.under("loss"):
            if plan.activation is not None:
                read[0] = logits_of(job.b, plan.foreign, made, plan.outputs[0], plan.activation)
            types = loss.labels(read)
            labels = [_labels(job, plan, batch, name, *types[name]) for name in types]
            return {"loss": loss.apply(job.b, read, labels)}
    returned = loss(**_arguments(job, plan, batch, made, loss))
    parts = returned if isinstance(returned, dict) else {"loss": returned}
    if "loss" not in parts:
        raise JobError(
            f"the loss function returned {', '.join(map(repr, parts))} and no 'loss'",
            hint="return a blob, or a dict whose 'loss' is to be minimised",
        )
    first = _scalar(job, parts["loss"], "what the loss function returned")
    others = {str(k): _value_of(v, str(k)) for k, v in parts.items() if k != "loss"}
    return {"loss": first, **others}


def _labels(
    job: Job,
    plan: TrainingPlan,
    batch: int | None,
    what: str,
    shape: tuple[int | str | None, ...],
    dtype: DType,
) -> Value:
    """An input of labels of a loss, which a declaration may fill in and not contradict."""
    name = plan.labels if what == "labels" else what
    known = next((f for f in plan.feeds.extra if f.name == name), None)
    if known is None and None in shape:
        raise ArgumentError(
            f"the loss does not say how long rows of {name} are",
            hint=f"declare them: inputs={{{name!r}: (('batch', 20), flow.{dtype.name})}}",
        )
    sizes = shape if known is None else plan.feeds.shape(known, batch)
    pairs = zip(sizes, shape, strict=False)
    if known is not None and (
        known.dtype != dtype
        or len(sizes) != len(shape)
        or any(_contradicts(size, wanted) for size, wanted in pairs)
    ):
        raise ArgumentError(
            f"inputs: {name} is {known.dtype.name}{sizes}, the loss needs {dtype.name}{shape}",
            hint="leave it out" if None not in shape else "give any size for None",
        )
    labels = job.b.input(name, sizes, dtype)
    job.inputs.append(labels)
    return labels


def _contradicts(size: int | str | None, wanted: int | str | None) -> bool:
    """True if a declared size is known to be another than the loss needs."""
    return wanted is not None and size != wanted and not isinstance(wanted, str)


def _arguments(
    job: Job, plan: TrainingPlan, batch: int | None, made: Mapping[str, Value], loss: LossFunction
) -> dict[str, Any]:
    """The arguments of a loss function, by the names of its parameters."""
    outputs = {name: Blob(made[name]) for name in plan.foreign.outputs}
    offered: dict[str, Any] = dict(outputs)
    offered |= {f.name: Blob(made[f.name]) for f in plan.feeds.model}
    for feed in plan.feeds.extra:
        offered[feed.name] = Blob(_add_input(job, plan.feeds, feed, batch))
    if "outputs" not in offered:
        offered["outputs"] = next(iter(outputs.values())) if len(outputs) == 1 else outputs
    wanted = list(inspect.signature(loss).parameters)
    for name in wanted:
        if name not in offered:
            raise ArgumentError(
                f"the loss function has a parameter {name!r}, which is no output or input",
                hint=f"{known_names(name, offered)} An input for the loss alone is declared by "
                f"inputs={{{name!r}: (('batch',), flow.int64)}}, or by an annotation",
            )
    return {name: offered[name] for name in wanted}


def _scalar(job: Job, loss: Any, what: str) -> Value:
    value = _value_of(loss, what)
    if not dtype_of(value).is_floating_point:
        raise DTypeError(
            f"a loss is of real numbers, {what} is {dtype_of(value).name}",
            hint="give the loss before it is rounded or compared",
        )
    if is_static(value) and size_of(value) == 0:
        raise ArgumentError(f"{what} has no elements")
    with job.b.under("loss"):
        return mean(job.b, value)


def _value_of(blob: Any, what: str) -> Value:
    if not isinstance(blob, Blob):
        raise JobError(f"{what} is {blob!r}, not a blob", hint="compute it with flow's operators")
    return blob.value
