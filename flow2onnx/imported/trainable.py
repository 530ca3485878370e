"""make_trainable: any ONNX model as a bundle that trains on the stock runtime."""

import inspect
import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, overload

from flow2onnx_runtime import Options, Trainer, view

from flow2onnx.compile import CompiledJob
from flow2onnx.compile.names import loss_name
from flow2onnx.compile.opsets import check_opset
from flow2onnx.dtypes import int32, int64
from flow2onnx.errors import ArgumentError, BundleError
from flow2onnx.export import Report, verify_model
from flow2onnx.export.bundle import Bundle
from flow2onnx.export.files import INSIDE_LIMIT, write_bytes
from flow2onnx.export.graph_view import graph_of_compiled
from flow2onnx.export.metadata import check_metadata, set_job_metadata
from flow2onnx.imported.activations import (
    LastActivation,
    last_activation,
    skipped_activation,
    twice_activated,
)
from flow2onnx.imported.bundle_trainer import step_facts, temporary_trainer
from flow2onnx.imported.feeds import read_feeds
from flow2onnx.imported.import_check import NOT_CHECKED, ImportCheck, compare_import
from flow2onnx.imported.initial_state import ModelState
from flow2onnx.imported.job_body import EMA, EMA_EVAL, OUTPUTS_ALONE, TrainingPlan, job_body
from flow2onnx.imported.losses import NamedLoss, named_loss
from flow2onnx.imported.model_jobs import ModelJobs, Rewrites
from flow2onnx.imported.optimizers import optimizer_of, split_frozen
from flow2onnx.imported.parameter_names import TensorNames, name_tensors
from flow2onnx.imported.parameters import (
    Parameter,
    Patterns,
    check_patterns,
    choose,
    depends,
    real_tensors,
    uses_of_tensors,
)
from flow2onnx.imported.report import TrainingReport, report_on
from flow2onnx.imported.training_mode import ALWAYS, INFERENCE, TRAINING, statistics
from flow2onnx.imported.webgpu import fit_to_webgpu
from flow2onnx.onnx_io.foreign import ForeignModel, foreign_model
from flow2onnx.onnx_io.foreign import Source as ModelSource
from flow2onnx.onnx_io.serialize import embed_values
from flow2onnx.onnx_io.training_info import add_training_info
from flow2onnx.optim import Training
from flow2onnx.optim.averages import check_decay
from flow2onnx.optim.base import Optimizer
from flow2onnx.optim.groups import Groups
from flow2onnx.optim.schedules import Scheduler
from flow2onnx.trace.call_text import known_names
from flow2onnx.typing import PlaceholderSpec

__all__ = ["FREEZABLE", "ModelSource", "TrainableModel", "make_trainable", "title_of"]

FREEZABLE = 1_500_000_000  # bytes of frozen weights that models of less than 2 GB can hold
_SMALL = 1024  # elements of a tensor that is a constant in any case
_HALVES = {"fp16": "float16", "bf16": "bfloat16", "float16": "float16", "bfloat16": "bfloat16"}


@dataclass(frozen=True, kw_only=True)
class TrainableModel:
    """A model with its training step, ready to be written or trained.

    `parameters` are the float tensors of the model with the decision about each; `notes` is what
    else one should know, such as outputs that were left out; `check` is how near the imported
    model is to the one it was made of.
    """

    step: CompiledJob
    predicts: tuple[CompiledJob, ...]
    state: ModelState
    parameters: tuple[Parameter, ...]
    halves: tuple[CompiledJob, ...] = ()
    for_devices: bool = False
    notes: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    check: ImportCheck = NOT_CHECKED

    @property
    def trained(self) -> tuple[str, ...]:
        """The names of the tensors that are trained."""
        return tuple(p.name for p in self.parameters if p.is_trained)

    @cached_property
    def report(self) -> TrainingReport:
        """Tensors that are trained and not, how near the import is, kernels, memory: five lines."""
        uses = uses_of_tensors(self.state.foreign)
        several = [name for name, places in uses.items() if len(places) > 1]
        return report_on(self.step, self.parameters, several, self.check)

    def __repr__(self) -> str:
        """One line, however large the model is."""
        feeds = ", ".join(self.step.feeds)
        counts = f"{len(self.trained)} of {len(self.parameters)} tensors trained"
        return f"<TrainableModel {self.step.spec.name}: {counts}; feeds {feeds}>"

    def _repr_html_(self) -> str:
        """The model for a notebook: what is trained, and its layers with a picture."""
        title = f"TrainableModel {self.step.spec.name}"
        return view.graph_block(graph_of_compiled(self.step), self.report.lines(), title)

    @overload
    def save(
        self, path: str | os.PathLike[str], *, verify: Literal[True] = ..., ort_format: bool = ...
    ) -> Report: ...

    @overload
    def save(
        self, path: str | os.PathLike[str], *, verify: bool, ort_format: bool = ...
    ) -> Report | None: ...

    def save(
        self, path: str | os.PathLike[str], *, verify: bool = True, ort_format: bool = False
    ) -> Report | None:
        """Write the bundle: a folder for `flow2onnx_runtime.Trainer`, with init.onnx, step.onnx,
        eval.onnx, predict.onnx, weights.safetensors and manifest.json; an earlier one is replaced.

        `ort_format` adds the models as .ort files, for reduced builds of the runtime.
        """
        step, *predicts = (_copy(job) for job in (self.step, *self.predicts))
        Bundle(
            source=self.state,
            step=step,
            predicts=predicts,
            metadata=self.metadata,
            halves=tuple(map(_copy, self.halves)),
            names={job.spec.name: f"{job.spec.name}.onnx" for job in predicts[1:]},
            for_devices=self.for_devices,
            ort_format=ort_format,
        ).write(Path(path))
        return verify_model(path) if verify else None

    def save_training_info(self, path: str | os.PathLike[str]) -> None:
        """Write one file: the inference model, which runtimes load as usual, and the algorithm.

        The algorithm is the step, in the standard's TrainingInfoProto, with the first values of its
        own state; `from_training_info` trains from it. It needs less than 2 GB of weights. A file
        that is there already is replaced if its name ends in .onnx.
        """
        if os.path.exists(path) and Path(path).suffix != ".onnx":
            raise BundleError(
                f"{os.fspath(path)} is there already, and no .onnx file: it is left as it is",
                hint="give a name in .onnx",
            )
        predict, step = _copy(self.predicts[0]), _copy(self.step)
        values = self.state.values(step.variables)
        size = sum(array.nbytes for array in values.values())
        if size > INSIDE_LIMIT:
            raise BundleError(
                f"{size} bytes of weights are too many for one .onnx file",
                hint="write a bundle with save()",
            )
        embed_values(predict.model, values)
        set_job_metadata(predict, self.metadata)
        init = self.state.initial(
            {n: v for n, v in step.variables.items() if n not in predict.variables}
        )
        whole = add_training_info(predict.model, step.model, init, values)
        write_bytes(Path(path), whole.SerializeToString(deterministic=True))

    def trainer(self, options: Options | None = None) -> Trainer:
        """A trainer on this machine, of a bundle in a temporary folder of its own."""
        return temporary_trainer(partial(self.save, verify=False), options)


_OPTIONS = """`flow2onnx make-trainable` has the same options under the same names.

model, loss, optimizer
    `loss` is a name with settings, such as ``"cross_entropy(axis=-1)"``, of the first output or
    the one called `output` (a list of names for those of several, as ``"triplet"``), against an
    input called `labels`; the name of an output, whose mean is minimised; or a function written
    with flow's operators, whose parameters are named after outputs, inputs, or entries of `inputs`,
    and which returns a blob, or a dict with ``"loss"`` and others to see. `optimizer` is a name
    with settings, whose defaults are torch's, or a `flow.optimizer` object.
lr, schedule
    A rate, or a schedule of `flow.optimizer`, for an optimizer by name; `schedule` is one by
    name, such as ``"one_cycle(total_steps=1000)"``, that begins with the rate. Whatever it is,
    `Trainer.learning_rate` overrides it at run time.
groups
    What differs for some tensors, by shell pattern of their names or a tuple of such: `lr`,
    `weight_decay`, `optimizer`, or `frozen`, as in ``{"*.bias": {"weight_decay": 0.0}}``.
clip_norm, clip_value
    Limit each number of a gradient to [-clip_value, clip_value], and then the joint norm of all
    gradients to `clip_norm`.
trained, frozen
    Shell patterns of the names of tensors to train, and not to train; all names count that the
    exporter gave one.
separate
    Patterns of tensors that the exporter merged because their content is equal, such as zeros:
    each use trains one of its own. What torch says of its parameters is followed without.
inputs
    Shapes (``{"x": (8, 3, 224, 224)}``), sizes of free dimensions (``{"sequence": 128}``),
    which stay free without, so that texts and images of any size train in one bundle, and the
    inputs that only a loss function reads (``{"target": (("batch", 10), flow.float32)}``).
logits
    The loss reads what goes into the Softmax, LogSoftmax or Sigmoid that the output ends in:
    ``cross_entropy`` and ``bce_with_logits`` apply their own, and two warn.
training_mode
    BatchNormalization takes the statistics of the batch and moves the running ones, and Dropout
    drops, in the step alone.
precision
    Compute products and convolutions in half precision; weights stay as they are.
on_device
    A bundle to ship, as of a job: random draws depend on the step and not on the past, so that
    a resumed training is an undisturbed one, and a README and the list of operators are added.
webgpu
    Leave nothing of a step of fixed shapes to the processor where onnxruntime-web trains on a
    GPU: rates are computed in float32 in place of float64, steps counted in int32, and what has
    no kernel there is written in operators that have one. Class numbers are int64, and stay on
    the processor; shares of classes do not.
accumulate
    Add the step in two halves: `Trainer.accumulate` sums up gradients of several batches, and
    `Trainer.update` makes one step of their mean.
ema
    Keep moving averages of the trained tensors, a = ema * a + (1 - ema) * w after each step but
    the first, which makes them the tensors themselves, as in torch; the predict jobs ``ema``
    and ``ema-eval`` compute with them.
recompute
    Compute activations twice in place of keeping them: True, a number of segments, or names of
    layers. Less memory for more time, results the same to the bit.
in_place
    Update state in its own buffer where that is proven; False keeps two buffers, and the old
    values where a step fails.
opset, name, seed, metadata
    The opset (the model's own, at least 18), the name of the job, the seed of random draws,
    texts for the files.
freezable
    Frozen weights are constants, up to so many bytes in all, and state beyond.
check_import
    Run the model itself and the imported one once on the same random numbers; a difference
    raises. None leaves out models of more than 256 MB and those in half precision.

>>> import flow2onnx as flow
>>> made = flow.make_trainable("model.onnx", "cross_entropy", "adam", lr=1e-3)  # doctest: +SKIP
>>> made.save("bundle")  # doctest: +SKIP
"""


def make_trainable(
    model: ModelSource,
    loss: str | Callable[..., Any],
    optimizer: str | Optimizer = "adam",
    *,
    lr: float | Scheduler | None = None,
    schedule: str | Scheduler | None = None,
    groups: Groups = None,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    trained: Patterns = None,
    frozen: Patterns = None,
    separate: Patterns = None,
    inputs: Mapping[str, Any] | None = None,
    output: str | Sequence[str] | None = None,
    labels: str = "labels",
    logits: bool = False,
    training_mode: bool = False,
    precision: Literal["fp16", "bf16"] | None = None,
    on_device: bool = False,
    webgpu: bool = False,
    accumulate: bool = False,
    ema: float | None = None,
    recompute: bool | int | Sequence[str] = False,
    in_place: bool = True,
    opset: int | None = None,
    name: str | None = None,
    seed: int = 0,
    metadata: Mapping[str, str] | None = None,
    freezable: int = FREEZABLE,
    check_import: bool | None = None,
) -> TrainableModel:
    """An ONNX model, a path, a `ModelProto` or an `onnx_ir.Model`, with a step that trains it."""
    foreign, names = name_tensors(_read(model, opset), check_patterns(separate, "separate"))
    half = _half(precision)
    rule = optimizer_of(optimizer, half == "float16", ema=check_decay(ema), lr=lr, groups=groups,
                        schedule=schedule, clip_norm=clip_norm, clip_value=clip_value)  # fmt: skip
    rule, ema, parameters = split_frozen(rule, choose(foreign, trained, frozen, names))
    plan = _plan(
        foreign, loss, rule, ema, _roles(foreign, parameters, training_mode), inputs=inputs,
        output=output, labels=labels, logits=logits,
    )  # fmt: skip
    state = ModelState(foreign, foreign.opset, seed)
    rewrites = Rewrites(half=half, recompute=recompute, in_place=in_place, draws_by_step=on_device,
                        webgpu=webgpu)  # fmt: skip
    compiler = partial(_compiler, title=title_of(name or "train"), state=state, rewrites=rewrites)
    plan = _drop_unreached(plan, compiler, freezable, is_chosen=trained is not None)
    step, predicts, halves = _compile(compiler(plan), plan, accumulate=accumulate)
    asked = False if half and check_import is None else check_import
    return TrainableModel(
        step=step,
        predicts=predicts,
        halves=halves,
        for_devices=on_device,
        state=state,
        parameters=tuple(_decide(p, plan) for p in parameters),
        notes=_notes(foreign, training_mode, names, parameters),
        metadata=_metadata(foreign, metadata) | step_facts(plan.optimizer, step),
        check=compare_import(model, foreign, plan.feeds, predicts[0], state, is_asked=asked),
    )


make_trainable.__doc__ = f"{make_trainable.__doc__}\n\n{_OPTIONS}"


def _read(model: ModelSource, opset: int | None) -> ForeignModel:
    """The model at an opset that bundles can have."""
    foreign = foreign_model(model, None, opset, skips_foreign=True)
    check_opset(foreign.opset)
    return foreign


def _activation(
    loss: object, foreign: ForeignModel, output: str, is_asked: bool
) -> LastActivation | None:
    """The activation that the loss leaves out, if asked to; warns of one that is applied twice."""
    found = last_activation(foreign, output)
    if is_asked:
        return skipped_activation(loss, output, found)
    wrong = twice_activated(loss, output, found) if isinstance(loss, NamedLoss) else None
    if wrong is not None:
        warnings.warn(wrong, UserWarning, stacklevel=4)
    return None


def _plan(
    foreign: ForeignModel,
    loss: object,
    optimizer: Optimizer,
    ema: float | None,
    roles: dict[str, Any],
    *,
    inputs: Mapping[str, Any] | None,
    output: str | Sequence[str] | None,
    labels: str,
    logits: bool,
) -> TrainingPlan:
    """How the model is trained, before it is known which tensors the loss reaches."""
    minimised = _loss(loss, foreign)
    read = _outputs(foreign, minimised, output)
    return TrainingPlan(
        foreign=foreign,
        feeds=read_feeds(foreign, _with_annotations(loss, foreign, inputs), any_axis=True),
        loss=minimised,
        outputs=read,
        labels=_unused_names(labels, minimised, foreign),
        optimizer=optimizer,
        ema=ema,
        activation=_activation(minimised, foreign, read[0], logits),
        **roles,
    )


def _compile(
    jobs: ModelJobs, plan: TrainingPlan, *, accumulate: bool
) -> tuple[CompiledJob, tuple[CompiledJob, ...], tuple[CompiledJob, ...]]:
    """The step, the predict jobs, and the halves of a step that accumulates."""
    step = jobs.job("train")
    kinds = ("predict", "eval", *((EMA, EMA_EVAL) if plan.ema is not None else ()))
    predicts, halves = tuple(map(jobs.job, kinds)), jobs.halves() if accumulate else ()
    if jobs.rewrites.webgpu:
        fit_to_webgpu((step, *predicts, *halves))
    return step, predicts, halves


def _roles(
    foreign: ForeignModel, parameters: Sequence[Parameter], training_mode: bool
) -> dict[str, Any]:
    """The choice of what is trained, what is kept, and how nodes that know training are made."""
    moved = statistics(foreign, training_mode)
    return {
        "trained": tuple(p.name for p in parameters if p.is_trained and p.name not in moved),
        "kept": tuple(p.name for p in parameters if p.name in moved),
        # a model that is exported in training form is trained so, as far as it is
        "handlers": TRAINING if training_mode or statistics(foreign, False) else ALWAYS,
        "inference": INFERENCE,
    }


def _drop_unreached(
    plan: TrainingPlan,
    compiler: Callable[[TrainingPlan], ModelJobs],
    freezable: int,
    *,
    is_chosen: bool,
) -> TrainingPlan:
    """The plan without the tensors that no gradient reaches, found by compiling the step."""
    if not plan.trained or not depends(plan.foreign, plan.trained):
        raise ArgumentError(
            "no output of the model depends on a tensor that could be trained",
            hint="name tensors with trained=; single numbers and settings are not by themselves"
            if not plan.trained
            else "the nodes between are missing: export the model again",
        )
    plan = _keep_large_weights(plan, freezable)
    written = compiler(plan).at("train").writes
    idle = [n for n in plan.trained if n not in written]
    if idle and is_chosen:
        raise ArgumentError(
            f"trained: the loss does not depend on {', '.join(idle[:5])}",
            hint="leave it out, or take another loss",
        )
    reached = tuple(n for n in plan.trained if n not in idle)
    return _keep_large_weights(replace(plan, trained=reached), freezable)


def _compiler(plan: TrainingPlan, title: str, state: ModelState, rewrites: Rewrites) -> ModelJobs:
    """The jobs of a plan: ``train``, ``eval``, ``predict`` and those with averages."""
    outputs = plan.foreign.outputs
    training = Training(adjusts_rate=True, counter=int32 if rewrites.webgpu else int64)

    def names(kind: str, count: int) -> list[str]:
        if kind in OUTPUTS_ALONE:
            return list(outputs)
        parts = count if kind == "train" else count - len(outputs)
        losses = ["loss", *map(loss_name, range(1, parts))][:parts]
        return losses if kind == "train" else [*losses, *outputs]

    return ModelJobs(
        title=title,
        feeds=plan.feeds,
        body=partial(job_body, plan),
        names=names,
        target=replace(state.target, training=training),
        rewrites=rewrites,
    )


def _with_annotations(
    loss: object, foreign: ForeignModel, inputs: Mapping[str, Any] | None
) -> Mapping[str, Any]:
    """`inputs` with what the annotations of a loss function declare."""
    given = dict(inputs or {})
    if not callable(loss) or isinstance(loss, str):
        return given
    try:
        parameters = inspect.signature(loss, eval_str=True).parameters
    except (TypeError, ValueError, NameError) as error:
        raise ArgumentError(
            f"the parameters of the loss function cannot be read: {error}",
            hint="give a function with named parameters",
        ) from None
    for name, parameter in parameters.items():
        if isinstance(parameter.annotation, PlaceholderSpec) and name not in foreign.outputs:
            given.setdefault(name, parameter.annotation)
    return given


def _loss(loss: object, foreign: ForeignModel) -> Any:
    if callable(loss) and not isinstance(loss, str):
        return loss
    if not isinstance(loss, str):
        raise ArgumentError(
            f"loss is {loss!r}", hint="give a name, the name of an output, or a function"
        )
    return loss if loss in foreign.outputs else named_loss(loss)


def _outputs(
    foreign: ForeignModel, loss: object, given: str | Sequence[str] | None
) -> tuple[str, ...]:
    """The outputs that a loss by name reads: those given, or the first of the model."""
    count = loss.loss.outputs if isinstance(loss, NamedLoss) else 1
    if given is None:
        chosen = tuple(foreign.outputs[:count])
    else:
        chosen = (given,) if isinstance(given, str) else tuple(given)
    for name in chosen:
        if name not in foreign.outputs:
            raise ArgumentError(
                f"the model has no output {name!r}", hint=known_names(str(name), foreign.outputs)
            )
    if len(chosen) != count and isinstance(loss, NamedLoss):
        read = ", ".join(loss.loss.operands[1 : count + 1])
        raise ArgumentError(
            f"the loss {loss.name} reads {count} outputs ({read}), here are {len(chosen)}",
            hint=f"name them with output=[…], or write a function with flow.losses.{loss.name}",
        )
    return chosen


def _half(precision: object) -> str | None:
    if precision is None:
        return None
    if precision not in _HALVES:
        raise ArgumentError(f"precision is {precision!r}", hint="'fp16', 'bf16' or None")
    return _HALVES[str(precision)]


def _unused_names(labels: str, loss: object, foreign: ForeignModel) -> str:
    """The name of the labels, which like other labels of the loss are none of the model's."""
    taken = {str(v.name) for v in foreign.inputs} | set(foreign.tensors)
    if labels in taken:
        raise ArgumentError(
            f"the model has a value {labels!r} of its own", hint="give labels= another name"
        )
    if not isinstance(loss, NamedLoss):
        return labels
    for name in loss.loss.labels:
        if name != "labels" and name in {*taken, labels}:
            raise ArgumentError(
                f"the model has a value {name!r} of its own, which {loss.name} calls an input",
                hint=f"rename it in the model, or write a function with flow.losses.{loss.name}",
            )
    return labels


def title_of(name: str) -> str:
    """A name as the name of a job."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("_") or "train"


def _keep_large_weights(plan: TrainingPlan, freezable: int) -> TrainingPlan:
    """The plan with frozen weights as state, if they are too large to be constants."""
    taken = {*plan.trained, *plan.kept}
    tensors = plan.foreign.tensors
    names = [n for n in real_tensors(plan.foreign) if n not in taken]
    frozen = [n for n in names if tensors[n].size > _SMALL]
    if sum(int(tensors[n].nbytes) for n in frozen) <= freezable:
        return plan
    return replace(plan, kept=(*plan.kept, *frozen))


def _decide(parameter: Parameter, plan: TrainingPlan) -> Parameter:
    if parameter.is_trained and parameter.name in plan.kept:
        return replace(parameter, is_trained=False, reason="running statistics")
    if parameter.is_trained and parameter.name not in plan.trained:
        return replace(parameter, is_trained=False, reason="the loss does not depend on it")
    return parameter


def _notes(
    foreign: ForeignModel,
    training_mode: bool,
    known: TensorNames,
    parameters: Sequence[Parameter],
) -> tuple[str, ...]:
    notes = [f"output {n} is left out: {c} computes it" for n, c in foreign.unknown.items()]
    if foreign.was_bfloat16:
        notes.append(
            "the model is in bfloat16, and in float32 from here on: the runtime has no kernels for "
            "it on the CPU; precision='bf16' computes in it where it can"
        )
    kinds = {node.op_type for node in foreign.graph}
    if training_mode and "BatchNormalization" not in kinds:
        notes.append(
            "the model has no BatchNormalization: exporters fold it into convolutions; export in "
            "training form, or without optimisation, to keep it"
        )
    if training_mode and "Dropout" not in kinds:
        notes.append(
            "the model has no Dropout: exporters drop it from models for use, and it cannot come "
            "back; export in training form to keep it"
        )
    notes += [
        f"{name} stood for {', '.join(others)} too, of equal content: each is trained for itself"
        for name, others in known.separated.items()
    ]
    notes += [
        f"{p.name} holds equal numbers and is read in {known.shared[p.name]} places: it is trained "
        f"as one weight; if the exporter merged several, pass separate={p.name!r}"
        for p in parameters
        if p.is_trained and p.name in known.shared
    ]
    return tuple(notes)


def _metadata(foreign: ForeignModel, given: Mapping[str, str] | None) -> dict[str, str]:
    """The texts of the model, but for those of an earlier export, and the user's."""
    own = {k: v for k, v in foreign.metadata.items() if not k.startswith("flow2onnx.")}
    return check_metadata({**own, **(given or {})})


def _copy(job: CompiledJob) -> CompiledJob:
    """The job with a model of its own, as writing changes it."""
    return replace(job, model=job.model.clone())
