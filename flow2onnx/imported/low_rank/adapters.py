"""lora: adapters of a language model as a bundle that trains on the bytes that are served."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

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
from flow2onnx.imported.low_rank.dora import Norms, first_norms
from flow2onnx.imported.low_rank.folded import ScratchFolder, fold_weights
from flow2onnx.imported.low_rank.folder import LanguageModel, open_language_model
from flow2onnx.imported.low_rank.jobs import (
    EVAL,
    FACTORS,
    AdapterPlan,
    adapter_body,
    shared_places,
)
from flow2onnx.imported.low_rank.settings import (
    Ranks,
    adapter_optimizer,
    at_least,
    first_values,
    share_of,
)
from flow2onnx.imported.model_jobs import ModelJobs, Rewrites
from flow2onnx.onnx_io.adapter_factors import compute_factors, factors_alone, magnitude_of
from flow2onnx.onnx_io.adapter_slots import (
    Product,
    Slot,
    add_slots,
    choose_products,
    fused_experts,
    has_factors,
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
from flow2onnx.onnx_io.torch_scopes import name_by_modules
from flow2onnx.optim import Training
from flow2onnx.optim.base import Optimizer
from flow2onnx.optim.groups import Groups
from flow2onnx.optim.schedules import Scheduler

__all__ = ["CONTRIB_FACT", "SCALES_FACT", "TrainableAdapter", "adapter_of", "lora"]

CONTRIB_FACT = "flow2onnx.contrib_operators"  # in a manifest: operators beside the standard
SCALES_FACT = "flow2onnx.lora_scales"  # in a manifest: the scale of each module
DTYPE_FACT = "flow2onnx.lora_dtype"  # in a manifest: what the served model reads, if not float32
_CAPS = ("Add", "Cast", "Div", "Mul", "Tanh")  # what may follow the head
_DOWN, _UP, _FACTOR = ".lora_A.weight", ".lora_B.weight", ".lora_factor.weight"

Chosen = list[tuple[Product, tuple[Slot, ...]]]


@dataclass(frozen=True, kw_only=True)
class TrainableAdapter:
    """Adapters of a model with their training step, ready to be written or trained.

    `slots` are the places of the adapters, `scales` by module what their products are multiplied
    by; `model` is what they are trained for. With DoRA `squares` are ‖W‖² by module.
    """

    model: LanguageModel
    slots: tuple[Slot, ...]
    scales: Mapping[str, float]
    step: CompiledJob
    predicts: tuple[CompiledJob, ...]
    halves: tuple[CompiledJob, ...]
    state: ModelState
    shared: Mapping[str, Path]
    facts: Mapping[str, str]
    is_half: bool = False
    squares: Mapping[str, Array] | None = field(default=None, repr=False)
    # the folder of files made for this, which goes with the last object that has it
    place: ScratchFolder | None = field(default=None, repr=False)

    @property
    def trained(self) -> tuple[str, ...]:
        """The names of what is trained: matrices, and with DoRA magnitudes."""
        ends = () if self.squares is None else tuple(magnitude_of(s.module) for s in self.slots)
        return (*(n for s in self.slots for n in (s.down, s.up)), *ends)

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
        folder = self.model.path.resolve().parent.name
        return (
            f"<TrainableAdapter of {folder}: {len(self.slots)} modules of "
            f"rank {', '.join(map(str, ranks))}, {self.numbers} numbers>"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the bundle: a folder for `flow2onnx_runtime.Trainer`; an earlier one is replaced.

        The frozen weights lie in it under a second name of the file that they are in: they are
        neither copied nor changed.
        """

        def copies(jobs: Sequence[CompiledJob]) -> list[CompiledJob]:
            return [replace(job, model=job.model.clone()) for job in jobs]

        Bundle(
            source=self.state,
            step=copies([self.step])[0],
            predicts=copies(self.predicts),
            metadata=self.facts,
            halves=copies(self.halves),
            names={name: f"{name}.onnx" for name in (EVAL, FACTORS)},
            shared=self.shared,
            is_read=True,  # a session holds the frozen weights: it is not opened for each answer
            served=self._served(),
        ).write(Path(path))

    def _served(self) -> tuple[tuple[PredictJob, bytes], ...]:
        """The folder's own model as a predict job; none where no folder says how it is served."""
        if not self.model.has_folder:
            return ()
        shapes = {n: a.shape for n, a in self._arrays().items()}
        return (answer_job(self.model, self.slots, shapes, self.scales, self.squares),)

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
    found = Adapter(pairs={m: (state[m + _DOWN], state[m + _UP]) for m in scales}, scales=scales)
    if not any(entry.job == FACTORS for entry in trainer.manifest.predict):
        return found
    factors = {n.removesuffix(_FACTOR): v for n, v in trainer.predict(job=FACTORS).items()}
    return replace(found, factors=factors, magnitudes={m: state[magnitude_of(m)] for m in scales})


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
dora
    Trains magnitudes, too: a module's result is multiplied with m / ‖W + alpha / rank * A B‖, by
    column, with m = ‖W‖ at first. The norms have no gradient, as in PEFT. What is dropped out
    changes the adapter's part of the result alone.
optimizer, lr, schedule, groups, clip_norm
    As in `make_trainable`; AdamW at 2e-4 by default. `up_rate` is the rate of B by that of A,
    as in LoRA+.
accumulate, chunks, packs, recompute, folded, start, logits
    With models that add up gradients of several batches; the parts that the last product is
    computed in; with an input `documents` that says of each token which text of its row it is of,
    as none sees another; which activations are computed again for the gradients in place of being
    kept ("cheap": all but products, convolutions and attention; True: all, for more time and less
    memory; False: none, the weights of attention either, which are as many as a text has pairs of
    tokens); with weights of few bits as real numbers in a file of the bundle's own,
    for less time and more memory; an adapter to go on from; the output with the scores of all
    words.
webgpu
    True makes models that onnxruntime-web computes on a GPU: without float64, and with attention
    that does not give its weights.

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
    dora: bool = False,
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
    webgpu: bool = False,
    name: str = "lora",
    seed: int = 0,
) -> TrainableAdapter:
    """Adapters of a language model, over weights that stay as they are, with a training step."""
    given = open_language_model(model, logits)
    wanted = [targets] if isinstance(targets, str) else targets
    language, place = _with_real_weights(given, wanted) if folded else (given, None)
    proto, chosen = _targets(language, wanted)
    slots = tuple(s for _, own in chosen for s in own)
    pairs, scales = first_values(slots, rank, alpha, rslora=rslora, seed=seed, start=start)
    rule = adapter_optimizer(
        optimizer, lr, schedule, groups, clip_norm, up_rate, has_magnitudes=dora
    )
    norms = first_norms(language, chosen, pairs, scales, start) if _is_dora(dora, start) else None
    foreign, factors = _foreign(language, proto, chosen, pairs, norms)
    plan = AdapterPlan(
        foreign=foreign,
        factors=factors,
        scales=scales,
        hidden=_hidden(products(language.proto), language),
        logits=language.logits,
        shared=tuple(n for n, t in foreign.tensors.items() if hasattr(t, "location")),
        optimizer=rule,
        chunks=None if chunks is None else at_least("chunks", chunks, 1),
        dropout=_dropout_share(dropout, chosen),
        packs=packs,
        gives_weights=recompute is False and not webgpu,
    )
    rewrites = _rewrites(chosen, recompute, draws=bool(plan.dropout))
    made = _compile(
        plan, language, slots, rewrites, name=name, seed=seed, accumulate=accumulate,
        webgpu=webgpu,
    )  # fmt: skip
    squares = None if norms is None else norms.squares
    return _with_source(replace(made, place=place, squares=squares), given)


lora.__doc__ = f"{lora.__doc__}\n\n{_OPTIONS}"


def _with_real_weights(
    given: LanguageModel, wanted: Sequence[str] | None
) -> tuple[LanguageModel, ScratchFolder]:
    """The model with real weights, of which those of a head without an adapter lie by rows."""
    adapted = {product.y for product, _ in _targets(given, wanted)[1]}
    heads = [p.node for p in products(given.proto) if p.is_last and p.y not in adapted]
    return fold_weights(given, heads)


def _targets(language: LanguageModel, wanted: Sequence[str] | None) -> tuple[Any, Chosen]:
    """A copy of a model with its nodes named by modules, and the products that get adapters."""
    proto = language.copy()
    name_by_modules(proto)
    return proto, choose_products(products(proto), wanted, fused_experts(proto))


def _compile(
    plan: AdapterPlan,
    language: LanguageModel,
    slots: tuple[Slot, ...],
    rewrites: Rewrites,
    *,
    name: str,
    seed: int,
    accumulate: bool,
    webgpu: bool,
) -> TrainableAdapter:
    """The jobs of a plan, with the frozen tensors in the file that they lie in."""
    state = ModelState(plan.foreign, plan.foreign.opset, seed)
    target = replace(state.target, training=Training(adjusts_rate=True), contrib=tuple(CONTRIB))
    factors = () if plan.factors is None else plan.factors.outputs
    jobs = ModelJobs(
        title=name,
        feeds=_feeds(plan),
        body=lambda kind, _: adapter_body(plan, kind),
        names=lambda kind, count: factors if kind == FACTORS else ["loss"],
        target=target,
        rewrites=rewrites,
    )
    predicts = [EVAL] if plan.factors is None else [EVAL, FACTORS]
    made = [*map(jobs.job, ("train", *predicts)), *(jobs.halves() if accumulate else ())]
    files = sorted({str(plan.foreign.tensors[n].location) for n in plan.shared})
    for job in made:
        if webgpu:
            narrow_float64(job.model)
        for file in files:
            _place(job, plan.foreign, file)
    return TrainableAdapter(
        model=language,
        slots=slots,
        scales=plan.scales,
        step=made[0],
        predicts=tuple(made[1 : 1 + len(predicts)]),
        halves=tuple(made[1 + len(predicts) :]),
        state=state,
        shared={file: language.folder / file for file in files},
        facts=_facts(plan, made[0]),
    )


def _with_source(made: TrainableAdapter, given: LanguageModel) -> TrainableAdapter:
    """The adapters of the model as it was given, which answers in half precision if it says so."""
    own = {file: given.folder / file for file in given.files}  # the model as it answers reads them
    whole = replace(made, model=given, shared={**made.shared, **own})
    if any(product.is_half for product in products(given.proto)):
        return replace(whole, is_half=True, facts={**made.facts, DTYPE_FACT: "float16"})
    return whole


def _rewrites(chosen: Chosen, recompute: bool | Literal["cheap"], *, draws: bool) -> Rewrites:
    """The rewrites of the jobs: what is computed again, and that draws depend on the step."""
    return Rewrites(
        recompute=_layers(chosen) if recompute else False,
        recompute_products=recompute is True,
        in_place=False,
        draws_by_step=draws,
    )


def _layers(chosen: Chosen) -> bool | Sequence[str]:
    """The scopes of the layers, such as ``model/layers.0``; True where names show none."""
    paths = [re.match(r"(.*?\d+)/", product.node.strip("/")) for product, _ in chosen]
    names = list(dict.fromkeys(p[1] for p in paths if p is not None))
    return names[:-1] or True  # the gradients of the last come at once


def _feeds(plan: AdapterPlan) -> Feeds:
    """Texts, masks and labels, (batch, sequence), free but for a batch that the model fixes."""
    rows = tuple(Feed(name, plan.rows, dtype) for name, dtype in plan.feeds)
    return Feeds(rows, (), frozenset({"batch"} & {*plan.rows}))


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
    language: LanguageModel,
    proto: Any,
    chosen: Chosen,
    pairs: Mapping[str, Array],
    norms: Norms | None,
) -> tuple[ForeignModel, ForeignModel | None]:
    """The model for whole texts, with slots that have first values; and DoRA's factors alone."""
    without_past(proto, language.logits, language.head_size)
    if not slots_of(proto):
        add_slots(proto, chosen, factors=norms is not None)
    elif norms is not None and not has_factors(proto):
        raise UnsupportedError(
            f"{language.path} has slots without the factors of DoRA",
            hint="begin with the model as it was before slots",
        )
    if norms is not None:
        compute_factors(proto, chosen, norms.squares)
        pairs = {**pairs, **{magnitude_of(m): v for m, v in norms.magnitudes.items()}}
    fill_initializers(proto, pairs)
    widen_half(proto)
    allowed, folder = {*CONTRIB} & contrib_operators(proto), os.fspath(language.folder)
    whole = foreign_model(proto, allowed=allowed, folder=folder)
    if norms is None:
        return whole, None
    factors_alone(proto, chosen)
    return whole, foreign_model(proto, allowed=allowed, folder=folder)


def _is_dora(dora: bool, start: Adapter | None) -> bool:
    """The setting, checked against the adapter to go on from."""
    if start is not None and start.is_dora and not dora:
        raise ArgumentError("start: it is an adapter of DoRA", hint="pass dora=True")
    return dora


def _dropout_share(share: float, chosen: Sequence[tuple[Product, Sequence[Slot]]]) -> float:
    """The share of what adapters read that training drops."""
    checked = share_of("dropout", share)
    if checked and any(product.is_last for product, _ in chosen):
        raise UnsupportedError(
            "nothing is dropped before the adapter of the head, which the loss reads in parts",
            hint="leave the head out of targets, or dropout at 0",
        )
    return checked


def _hidden(known: Sequence[Product], language: LanguageModel) -> str:
    """The value that the model's head reads."""
    heads = [p.x for p in known if p.is_last] or _tied_heads(language)
    if not heads:
        raise UnsupportedError(
            f"{language.path}: no product with a weight makes the scores {language.logits}",
            hint="name the output with the scores of all words: logits=",
        )
    return heads[-1]


def _tied_heads(language: LanguageModel) -> list[str]:
    """What a product reads that makes the scores of a table's transpose, as tied words are."""
    graph = language.proto.graph
    stored = {t.name for t in graph.initializer}
    turned = {n.output[0] for n in graph.node if n.op_type == "Transpose" and n.input[0] in stored}
    head = _head_of(graph, language.logits)
    is_tied = head is not None and head.op_type == "MatMul" and head.input[1] in turned
    return [head.input[0]] if is_tied else []


def _head_of(graph: Any, scores: str) -> Any:
    """The node that makes the scores, before what scales or caps them as Gemma 2 does."""
    makers = {y: n for n in graph.node for y in n.output if n.op_type != "Constant"}
    node = makers.get(scores)
    while node is not None and node.op_type in _CAPS:
        node = next((makers[x] for x in node.input if x in makers), None)
    return node
