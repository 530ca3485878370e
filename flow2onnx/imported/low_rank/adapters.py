"""lora: adapters of a language model as a bundle that trains on the bytes that are served."""

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from flow2onnx_runtime import Options, PredictJob, Trainer
from flow2onnx_runtime.adapters import Adapter
from flow2onnx_runtime.dtypes import Array

from flow2onnx.compile import CompiledJob
from flow2onnx.errors import ArgumentError, UnsupportedError
from flow2onnx.export.bundle import Bundle
from flow2onnx.graph.contrib import CONTRIB
from flow2onnx.imported.bundle_trainer import step_facts, temporary_trainer
from flow2onnx.imported.feeds import Feed, Feeds
from flow2onnx.imported.initial_state import ModelState
from flow2onnx.imported.low_rank.answering import answer_job
from flow2onnx.imported.low_rank.folded import ScratchFolder, fold_weights
from flow2onnx.imported.low_rank.folder import LanguageModel, open_language_model
from flow2onnx.imported.low_rank.jobs import EVAL, AdapterPlan, adapter_body, shared_places
from flow2onnx.imported.model_jobs import ModelJobs, Rewrites
from flow2onnx.imported.optimizers import optimizer_of
from flow2onnx.onnx_io.adapter_slots import (
    Product,
    Slot,
    add_slots,
    choose_products,
    products,
    slots_of,
)
from flow2onnx.onnx_io.foreign import ForeignModel, foreign_model
from flow2onnx.onnx_io.language_model import (
    contrib_operators,
    fill_initializers,
    widen_half,
    without_past,
)
from flow2onnx.onnx_io.serialize import externalize_values
from flow2onnx.onnx_io.single_precision import narrow_float64
from flow2onnx.optim import Training
from flow2onnx.optim.base import Optimizer
from flow2onnx.optim.groups import Groups
from flow2onnx.optim.schedules import Scheduler

__all__ = ["CONTRIB_FACT", "SCALES_FACT", "TrainableAdapter", "adapter_of", "lora"]

CONTRIB_FACT = "flow2onnx.contrib_operators"  # in a manifest: operators beside the standard
SCALES_FACT = "flow2onnx.lora_scales"  # in a manifest: the scale of each module
DTYPE_FACT = "flow2onnx.lora_dtype"  # in a manifest: what the served model reads, if not float32
_RATE = 2e-4
_DOWN, _UP = ".lora_A.weight", ".lora_B.weight"

Chosen = list[tuple[Product, tuple[Slot, ...]]]
Ranks = int | Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class TrainableAdapter:
    """Adapters of a model with their training step, ready to be written or trained.

    `slots` are the places of the adapters, `scales` by module what their products are multiplied
    by; `model` is what they are trained for.
    """

    model: LanguageModel
    slots: tuple[Slot, ...]
    scales: Mapping[str, float]
    step: CompiledJob
    evaluation: CompiledJob
    halves: tuple[CompiledJob, ...]
    state: ModelState
    shared: Mapping[str, Path]
    facts: Mapping[str, str]
    is_half: bool = False
    # the folder of files made for this, which goes with the last object that has it
    place: ScratchFolder | None = field(default=None, repr=False)

    @property
    def trained(self) -> tuple[str, ...]:
        """The names of the matrices that are trained."""
        return tuple(n for s in self.slots for n in (s.down, s.up))

    @property
    def dtype(self) -> str:
        """The element type of adapters that the served model takes: float32 or float16."""
        return "float16" if self.is_half else "float32"

    @property
    def numbers(self) -> int:
        """The count of numbers that are trained."""
        return sum(v.size for n, v in self._arrays().items() if n in self.trained)

    def _arrays(self) -> dict[str, Array]:
        return {n: self.state.foreign.tensors[n].numpy() for n in self.trained}

    def __repr__(self) -> str:
        """One line, however large the model is."""
        ranks = sorted({int(self._arrays()[s.down].shape[1]) for s in self.slots})
        return (
            f"<TrainableAdapter of {self.model.path.parent.name}: {len(self.slots)} modules of "
            f"rank {', '.join(map(str, ranks))}, {self.numbers} numbers>"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the bundle: a folder for `flow2onnx_runtime.Trainer`; an earlier one is replaced.

        The frozen weights lie in it under a second name of the file that they are in: they are
        neither copied nor changed.
        """
        step, evaluation, *halves = (
            replace(job, model=job.model.clone())
            for job in (self.step, self.evaluation, *self.halves)
        )
        Bundle(
            source=self.state,
            step=step,
            predicts=[evaluation],
            metadata=self.facts,
            halves=halves,
            names={EVAL: f"{EVAL}.onnx"},
            shared=self.shared,
            is_read=True,  # a session holds the frozen weights: it is not opened for each answer
            served=self._served(),
        ).write(Path(path))

    def _served(self) -> tuple[tuple[PredictJob, bytes], ...]:
        """The folder's own model as a predict job; none where no folder says how it is served."""
        if not self.model.has_folder:
            return ()
        shapes = {n: a.shape for n, a in self._arrays().items()}
        return (answer_job(self.model, self.slots, shapes, self.scales),)

    def trainer(self, options: Options | None = None) -> Trainer:
        """A trainer on this machine, of a bundle in a temporary folder beside the model."""
        return temporary_trainer(self.save, options, self.model.folder)


def adapter_of(trainer: Trainer) -> Adapter:
    """The adapter in the state of a trainer of a bundle of adapters."""
    text = trainer.manifest.metadata.get(SCALES_FACT)
    if text is None:
        raise ArgumentError("the bundle trains no adapter", hint="make one with flow.lora")
    scales = {m: float(s) for m, _, s in (part.rpartition("=") for part in text.split(";"))}
    state = trainer.state_dict()
    return Adapter(pairs={m: (state[m + _DOWN], state[m + _UP]) for m in scales}, scales=scales)


_OPTIONS = """\
The product y = x W of each module becomes y + alpha / rank * (x A) B, and A and B alone are
trained. A batch is `input_ids`, `attention_mask` and `labels`, all (batch, sequence): a label
is the token that comes next, or -100 where none counts.

model
    A folder as onnxruntime-genai serves it, or an .onnx file. Its data file is shared with the
    bundle, neither copied nor changed.
rank, alpha, targets, rslora
    `rank` is a number, or numbers by module or by the last part of its name (``"*"`` for all
    others). `targets` are shell patterns of modules, such as ``["q_proj", "v_proj"]``; all but
    the head by default. With `rslora` the scale is alpha / √rank.
dropout
    The share of what adapters read that is left out of a step.
optimizer, lr, schedule, groups, clip_norm
    As in `make_trainable`; AdamW at 2e-4 by default. `up_rate` is the rate of B by that of A,
    as in LoRA+.
accumulate, chunks, packs, recompute, folded, start, logits
    With models that add up gradients of several batches; the parts that the last product is
    computed in; with an input `documents` that says of each token which text of its row it is of,
    as none sees another; which activations are computed again for the gradients in place of being
    kept ("cheap": all but products, convolutions and attention; True: all, for more time and less
    memory; False: none); with weights of few bits as real numbers in a file of the bundle's own,
    for less time and more memory; an adapter to go on from; the output with the scores of all
    words.
float64
    False computes rates in float32: the build of onnxruntime-web for WebGPU has no kernels for
    float64.

Raises ArgumentError for targets that match nothing and ranks that no matrix has,
UnsupportedError for a model that is not understood.
"""


def lora(
    model: str | os.PathLike[str],
    rank: Ranks = 8,
    alpha: float = 16,
    targets: Sequence[str] | str | None = None,
    *,
    rslora: bool = False,
    dropout: float = 0.0,
    optimizer: str | Optimizer = "adamw",
    lr: float | Scheduler | None = None,
    schedule: str | Scheduler | None = None,
    groups: Groups = None,
    up_rate: float | None = None,
    clip_norm: float | None = None,
    accumulate: bool = True,
    chunks: int | None = None,
    packs: bool = False,
    recompute: bool | Literal["cheap"] = "cheap",
    folded: bool = False,
    start: Adapter | None = None,
    logits: str | None = None,
    float64: bool = True,
    name: str = "lora",
    seed: int = 0,
) -> TrainableAdapter:
    """Adapters of a language model, over weights that stay as they are, with a training step."""
    given = open_language_model(model, logits)
    language, place = fold_weights(given) if folded else (given, None)
    proto = language.copy()
    chosen = choose_products(products(proto), [targets] if isinstance(targets, str) else targets)
    slots = tuple(s for _, own in chosen for s in own)
    pairs, scales = _first_values(slots, rank, alpha, rslora=rslora, seed=seed, start=start)
    rule = _optimizer(optimizer, lr, schedule, groups, clip_norm, slots, up_rate)
    foreign = _foreign(language, proto, chosen, pairs)
    plan = AdapterPlan(
        foreign=foreign,
        scales=scales,
        hidden=_hidden(products(language.proto), language),
        logits=language.logits,
        shared=tuple(n for n, t in foreign.tensors.items() if hasattr(t, "location")),
        optimizer=rule,
        chunks=None if chunks is None else _at_least("chunks", chunks, 1),
        dropout=_dropout_share(dropout, chosen),
        packs=packs,
    )
    rewrites = Rewrites(
        recompute=_layers(chosen) if recompute else False,
        recompute_products=recompute is True,
        in_place=False,
        draws_by_step=bool(plan.dropout),
    )
    made = _compile(
        plan, language, slots, rewrites, name=name, seed=seed, accumulate=accumulate,
        float64=float64,
    )  # fmt: skip
    own = {file: given.folder / file for file in given.files}  # the model as it answers reads them
    made = replace(made, model=given, place=place, shared={**made.shared, **own})
    if not any(product.is_half for product in products(given.proto)):
        return made
    return replace(made, is_half=True, facts={**made.facts, DTYPE_FACT: "float16"})


lora.__doc__ = f"{lora.__doc__}\n\n{_OPTIONS}"


def _compile(
    plan: AdapterPlan,
    language: LanguageModel,
    slots: tuple[Slot, ...],
    rewrites: Rewrites,
    *,
    name: str,
    seed: int,
    accumulate: bool,
    float64: bool,
) -> TrainableAdapter:
    """The jobs of a plan, with the frozen tensors in the file that they lie in."""
    state = ModelState(plan.foreign, plan.foreign.opset, seed)
    target = replace(state.target, training=Training(adjusts_rate=True), contrib=tuple(CONTRIB))
    jobs = ModelJobs(
        title=name,
        feeds=_feeds(plan),
        body=lambda kind, _: adapter_body(plan, kind),
        names=lambda kind, count: ["loss"],
        target=target,
        rewrites=rewrites,
    )
    made = [jobs.job("train"), jobs.job(EVAL), *(jobs.halves() if accumulate else ())]
    files = sorted({str(plan.foreign.tensors[n].location) for n in plan.shared})
    for job in made:
        if not float64:
            narrow_float64(job.model)
        for file in files:
            _place(job, plan.foreign, file)
    return TrainableAdapter(
        model=language,
        slots=slots,
        scales=plan.scales,
        step=made[0],
        evaluation=made[1],
        halves=tuple(made[2:]),
        state=state,
        shared={file: language.folder / file for file in files},
        facts=_facts(plan, made[0]),
    )


def _layers(chosen: Chosen) -> bool | Sequence[str]:
    """The scopes of the layers, such as ``model/layers.0``; True where names show none."""
    paths = [re.match(r"(.*?\d+)/", product.node.strip("/")) for product, _ in chosen]
    names = list(dict.fromkeys(p[1] for p in paths if p is not None))
    return names[:-1] or True  # the gradients of the last come at once


def _feeds(plan: AdapterPlan) -> Feeds:
    """Texts, masks and labels, (batch, sequence), both free."""
    rows = tuple(Feed(name, ("batch", "sequence"), dtype) for name, dtype in plan.feeds)
    return Feeds(rows, (), frozenset({"batch"}))


def _place(job: CompiledJob, foreign: ForeignModel, file: str) -> None:
    """Turn the inputs of a job that are frozen tensors into constants in their file."""
    places = shared_places(foreign, file)
    own = {n: p for n, p in places.items() if str(foreign.tensors[n].location) == file}
    externalize_values(job.model, own)


def _facts(plan: AdapterPlan, step: CompiledJob) -> dict[str, str]:
    """The facts about a step that a trainer should know, as texts for the manifest."""
    contrib = sorted({f"{n.domain}::{n.op_type}" for n in step.model.graph.all_nodes() if n.domain})
    facts = {SCALES_FACT: ";".join(f"{m}={s!r}" for m, s in plan.scales.items())}
    facts |= {CONTRIB_FACT: ", ".join(contrib)} if contrib else {}
    return facts | step_facts(plan.optimizer, step)


def _foreign(
    language: LanguageModel, proto: Any, chosen: Chosen, pairs: Mapping[str, Array]
) -> ForeignModel:
    """The model for whole texts, with slots that have first values."""
    without_past(proto, language.logits)
    if not slots_of(proto):
        add_slots(proto, chosen)
    fill_initializers(proto, pairs)
    widen_half(proto)
    allowed = {*CONTRIB} & contrib_operators(proto)
    return foreign_model(proto, allowed=allowed, folder=os.fspath(language.folder))


def _dropout_share(share: float, chosen: Sequence[tuple[Product, Sequence[Slot]]]) -> float:
    """The share of what adapters read that training drops."""
    checked = _share("dropout", share)
    if checked and any(product.is_last for product, _ in chosen):
        raise UnsupportedError(
            "nothing is dropped before the adapter of the head, which the loss reads in parts",
            hint="leave the head out of targets, or dropout at 0",
        )
    return checked


def _hidden(known: Sequence[Product], language: LanguageModel) -> str:
    """The value that the model's head reads."""
    heads = [p for p in known if p.is_last]
    if not heads:
        raise UnsupportedError(
            f"{language.path}: no product with a weight makes the scores {language.logits}",
            hint="name the output with the scores of all words: logits=",
        )
    return heads[-1].x


def _first_values(
    slots: Sequence[Slot],
    rank: Ranks,
    alpha: float,
    *,
    rslora: bool,
    seed: int,
    start: Adapter | None,
) -> tuple[dict[str, Array], dict[str, float]]:
    """The matrices by name and the scales by module: of `start`, or A uniform and B zeros.

    A is drawn from [-1/√columns, 1/√columns], as PEFT's is, and the scale is alpha / rank, or with
    `rslora` alpha / √rank.
    """
    if start is not None:
        known = start.named_for([s.module for s in slots])
        pairs: dict[str, Array] = {}
        for slot in slots:
            if slot.module not in known.pairs:
                raise ArgumentError(
                    f"start: it has no adapter of {slot.module}",
                    hint="name the modules that it has with targets=",
                )
            a, b = (np.asarray(v, np.float32) for v in known.pairs[slot.module])
            if a.shape[0] != slot.columns or b.shape[1] != slot.rows:
                raise ArgumentError(
                    f"start: {slot.module} is {a.shape}, {b.shape}, another model's"
                )
            pairs |= {slot.down: a, slot.up: b}
        return pairs, {s.module: known.scale(s.module) for s in slots}
    rng = np.random.default_rng(seed)
    pairs, scales = {}, dict[str, float]()
    if not isinstance(alpha, int | float) or not math.isfinite(alpha) or alpha <= 0:
        raise ArgumentError(f"alpha is {alpha!r}", hint="a number above 0; 16 is usual")
    for slot in slots:
        size = _rank_of(slot, rank)
        bound = slot.columns**-0.5
        a = rng.uniform(-bound, bound, (slot.columns, size)).astype(np.float32)
        pairs |= {slot.down: a, slot.up: np.zeros((size, slot.rows), np.float32)}
        scales[slot.module] = alpha / (math.sqrt(size) if rslora else size)
    return pairs, scales


def _rank_of(slot: Slot, rank: Ranks) -> int:
    """The rank of a slot: one for all, or by module or the last part of its name."""
    if isinstance(rank, Mapping):
        last = slot.module.rpartition(".")[2]
        found = rank.get(slot.module, rank.get(last, rank.get("*")))
        if found is None:
            raise ArgumentError(f"rank says nothing of {last}", hint="give {'*': 8} for all others")
        rank = found
    _at_least("rank", rank, 1)
    most = min(slot.columns, slot.rows)
    if rank > most:
        raise ArgumentError(
            f"rank is {rank}, and {slot.module} is a matrix of {slot.columns} x {slot.rows}",
            hint=f"at most {most}; 8 to 64 are usual",
        )
    return rank


def _at_least(what: str, number: object, least: int) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or number < least:
        raise ArgumentError(f"{what} is {number!r}", hint=f"a whole number, {least} or more")
    return number


def _share(what: str, number: object) -> float:
    if not isinstance(number, int | float) or not 0 <= number < 1:
        raise ArgumentError(f"{what} is {number!r}", hint="a number from 0 up to 1")
    return float(number)


def _optimizer(
    optimizer: str | Optimizer,
    lr: float | Scheduler | None,
    schedule: str | Scheduler | None,
    groups: Groups,
    clip_norm: float | None,
    slots: Sequence[Slot],
    up_rate: float | None,
) -> Optimizer:
    """The optimizer; `up_rate` is the rate of all B by that of all A, as in LoRA+."""
    rate = _RATE if lr is None and isinstance(optimizer, str) else lr
    if up_rate is not None:
        if not isinstance(rate, int | float) or groups is not None:
            raise ArgumentError("up_rate goes with lr= as a number and without groups=")
        groups = {f"*{_UP}": {"lr": rate * up_rate}}
    return optimizer_of(
        optimizer, False, ema=None, lr=rate, groups=groups, schedule=schedule,
        clip_norm=clip_norm, clip_value=None,
    )  # fmt: skip
