"""The loop behind `flow2onnx lora`: its callbacks, its files, and how it ends."""

import gc
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from flow2onnx_runtime import Callback, CSVLog, EarlyStopping, Options, TensorBoardLog, Trainer
from flow2onnx_runtime.adapters import ADAPTER_SUFFIX, read_adapter, write_adapter
from flow2onnx_runtime.dtypes import Array
from flow2onnx_runtime.extensions import accelerator
from flow2onnx_runtime.interrupts import BrokenOffError
from flow2onnx_runtime.loop import remove_checkpoint
from flow2onnx_runtime.manifest import Manifest
from flow2onnx_runtime.options import DEFAULT_OPTIONS
from flow2onnx_runtime.progress_bar import ProgressBar
from flow2onnx_runtime.token_log import StepLog, TokenLog
from flow2onnx_runtime.world import launched_world

from flow2onnx.cli.failures import INTERRUPTED, writing
from flow2onnx.cli.show import note, print_json
from flow2onnx.errors import ArgumentError, ConfigError
from flow2onnx.imported import TrainableAdapter, adapter_of
from flow2onnx.imported.low_rank.chat import find_adapter
from flow2onnx.imported.low_rank.samples import Sample, Samples, prompt_tokens
from flow2onnx.imported.low_rank.texts import batches_of, read_texts
from flow2onnx.imported.low_rank.tokens import FolderTokenizer

__all__ = [
    "ADAPTER", "ServedAs", "TrainingData", "TrainingRequest", "adapter_settings", "check_counts",
    "check_native", "check_output", "check_words", "check_world", "fit_bundle", "read_batches",
    "texts_data", "write_bundle",
]  # fmt: skip

ADAPTER = f"adapter{ADAPTER_SUFFIX}"
_CHECKPOINT = "checkpoint"
_WARMUP = 0.03  # of all steps
_LINES = 10.0  # seconds between lines of progress where there is no terminal
# what an adapter and its steps depend on, beside the data and the number of epochs
_OF_ADAPTERS = ("rank", "alpha", "targets", "rslora", "dora", "dropout", "optimizer", "lr",
                "up_rate", "schedule", "loss", "of", "seed")  # fmt: skip
_COUNTS = ("epochs", "batch_size", "accumulate", "every", "validate_every", "sample_every",
           "sample_tokens", "early_stopping")  # fmt: skip

Batches = Sequence[dict[str, Array]]


@dataclass(frozen=True, kw_only=True)
class TrainingRequest:
    """A call of `flow2onnx lora`: its files and folders, and the other options by name.

    Options that were left out are set as the data tell.
    """

    model: Path
    data: Path
    output: Path
    validation: Path | None
    options: dict[str, Any]
    as_json: bool


def check_world() -> None:
    """Raise ConfigError in one of several processes: the loop of this command is of one."""
    world = launched_world()
    if world.size > 1:
        raise ConfigError(
            f"flow2onnx lora trains in one process, and this is {world.name}",
            hint='several train its bundle by a short script: docs/lora.md, "Several processes"',
        )


def check_counts(options: dict[str, Any]) -> None:
    """Raise ArgumentError for a count below 1, before anything is done."""
    for name in _COUNTS:
        if options[name] is not None and options[name] < 1:
            asked = name.replace("_", "-")
            raise ArgumentError(f"--{asked} is {options[name]}", hint="give a number of at least 1")


def check_native(options: dict[str, Any]) -> None:
    """Raise UnsupportedError, with what to do, where native operators are asked for and missing."""
    if options["native"]:
        accelerator(True)


def check_output(asked: TrainingRequest) -> None:
    """Raise ArgumentError for a folder with a training that would be lost."""
    is_kept = asked.options["resume"] or asked.options["overwrite"]
    if (asked.output / _CHECKPOINT).exists() and not is_kept:
        raise ArgumentError(
            f"{asked.output} has the checkpoint of an earlier training",
            hint="--resume goes on from it, --overwrite begins anew in its place; or give another "
            "folder",
        )


def read_batches(path: Path, tokenizer: FolderTokenizer, options: dict[str, Any]) -> Batches:
    """The batches of a file of texts; says how many texts are cut or left out."""
    texts = read_texts(path, tokenizer, all_tokens=options["all_tokens"])
    length = options["length"]
    try:
        found = batches_of(
            texts, size=options["batch_size"], length=length, packs=options["pack"],
            one_shape=options["native"], seed=options["seed"],
        )  # fmt: skip
    except ArgumentError as error:
        raise ArgumentError(f"{path}: {error.message}", hint=error.hint) from None
    cut = [t for t in texts if len(t.ids) > length]
    if cut:
        lost = sum(not any(t.cut(length).counts[1:]) for t in cut)
        left_out = f", {lost} of them left out, as no token that counts is left" if lost else ""
        click.echo(
            f"{path}: {len(cut)} of {len(texts)} texts are longer than {length} tokens and cut"
            f"{left_out}; --length allows more",
            err=True,
        )
    return found


def check_words(made: TrainableAdapter, batches: Batches) -> None:
    """Raise ArgumentError for what texts do not say, or tokens that the model has not.

    These are of another model's tokenizer.
    """
    unknown = next((name for name in made.step.feeds if name not in batches[0]), None)
    if unknown is not None:
        raise ArgumentError(
            f"{made.model.path} reads {unknown}, which texts do not say",
            hint="export it with input_ids, attention_mask, position_ids and the past as inputs; "
            "for others Trainer.step takes any batch",
        )
    _check_rows(made, batches)
    longest = max(batch["input_ids"].shape[1] for batch in batches)
    context = made.model.context
    if context is not None and longest > context:
        raise ArgumentError(
            f"rows have {longest} tokens, and {made.model.path} takes {context}",
            hint=f"give --length {max(1, context // 32 * 32)}",
        )
    words = made.model.words
    most = max(int(batch["input_ids"].max()) for batch in batches)
    if words is not None and most >= words:
        raise ArgumentError(
            f"the texts have the token {most}, and {made.model.path} knows {words}",
            hint="is tokenizer.json that of this model? copy it again",
        )


def _check_rows(made: TrainableAdapter, batches: Batches) -> None:
    """Raise ArgumentError for batches of other rows than the model's, if it takes no others."""
    labels = next(v for v in made.step.model.graph.inputs if v.name == "labels")
    fixed = labels.shape[0] if labels.shape is not None else None
    other = next((len(b["labels"]) for b in batches if len(b["labels"]) != fixed), None)
    if isinstance(fixed, int) and other is not None:
        raise ArgumentError(
            f"{made.model.path} takes {fixed} rows at a time, and a batch has {other}",
            hint=f"give --batch-size {fixed} and texts that fill each batch, or export the model "
            "with a free batch",
        )


def _as_fed(made: TrainableAdapter, batches: Batches) -> Batches:
    """Batches with what the model reads: one of texts without padding may read no mask."""
    feeds = made.step.feeds
    return [{name: batch[name] for name in feeds} for batch in batches]


def adapter_settings(options: dict[str, Any], steps: int) -> dict[str, Any]:
    """The arguments that adapters of any model are made with, for so many steps."""
    same = ("rank", "alpha", "rslora", "dropout", "optimizer", "lr", "up_rate", "recompute", "seed")
    return {
        **{name: options[name] for name in same},
        "targets": options["targets"] or None,
        "schedule": options["schedule"] or _schedule_of(steps),
        "accumulate": options["accumulate"] > 1,
        "start": read_adapter(find_adapter(options["start"])) if options["start"] else None,
    }


def _schedule_of(steps: int) -> str | None:
    """A cosine down to 0 after a warm-up; too few steps have a constant rate."""
    warmup = max(1, round(_WARMUP * steps))
    return f"cosine(total_steps={steps}, warmup_steps={warmup})" if steps > 2 else None


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """The data of a training, for any kind of model.

    `batches` and `settings` are as `Trainer.fit` takes them, `log` makes the log of steps of a
    table and keywords, `samples` makes the callback that asks the model meanwhile, if one does.
    """

    batches: Any
    log: Callable[..., StepLog]
    settings: Mapping[str, Any] = field(default_factory=dict)
    samples: Callable[[Trainer], Samples] | None = None


@dataclass(frozen=True, kw_only=True)
class ServedAs:
    """What an adapter's files say of its model: its name, its architecture, its element type.

    The architecture is None where modules are called as in PEFT.
    """

    base: str
    family: str | None = None
    dtype: str = "float32"


def texts_data(
    asked: TrainingRequest,
    made: TrainableAdapter,
    tokenizer: FolderTokenizer,
    batches: Batches,
    held: Batches | None,
) -> TrainingData:
    """The data of a language model: its log counts tokens, and it can be asked."""
    options = asked.options
    model = made.model  # alone: the rest of `made` is not to stay in memory for it
    for prompt in options["sample"]:
        prompt_tokens(prompt, model, tokenizer)  # raises before anything is written

    def samples(trainer: Trainer) -> Samples:
        return Samples(
            trainer, model, tokenizer, options["sample"], asked.output / "samples.jsonl",
            every=options["sample_every"], most=options["sample_tokens"],
            say=None if asked.as_json else _say,
        )  # fmt: skip

    fed, held_fed = (None if b is None else _as_fed(made, b) for b in (batches, held))
    return TrainingData(
        batches=fed,
        log=partial(TokenLog, batches, validation=held_fed),
        samples=samples if options["sample"] else None,
    )


def write_bundle(asked: TrainingRequest, save: Callable[[Path], object], told: str) -> None:
    """Write a bundle, by `save`, into the folder of the results; a user is `told` what it is."""
    output = asked.output
    with _writing(output):
        output.mkdir(parents=True, exist_ok=True)
        if asked.options["overwrite"]:  # a kill before the first checkpoint then leaves none
            remove_checkpoint(output / _CHECKPOINT)
        save(output / "bundle")
    if not asked.as_json:
        note(told)


def fit_bundle(asked: TrainingRequest, served: ServedAs, data: TrainingData) -> None:
    """Train the bundle that `write_bundle` wrote: the adapter is there then.

    What made it should be out of scope: its graphs, which refer to themselves, are freed first.
    """
    gc.collect()
    with _writing(asked.output):
        _fit(asked, served, data)


def _writing(output: Path) -> AbstractContextManager[None]:
    return writing(output, "make room; --resume goes on from the last checkpoint, which is whole")


def _fit(asked: TrainingRequest, served: ServedAs, data: TrainingData) -> None:
    """Train the bundle in the folder of the results, and say how it went."""
    output, options, as_json = asked.output, asked.options, asked.as_json
    bundle = output / "bundle"
    runtime = _native_options(bundle, data.batches[0]) if options["native"] else DEFAULT_OPTIONS
    trainer = Trainer(bundle, runtime, accumulates=options["accumulate"] > 1)
    log = data.log(
        output / "steps.csv", every=options["validate_every"],
        bar=None if as_json else ProgressBar(pause=_LINES),
        plot=_plot(output),
    )  # fmt: skip
    samples = None if data.samples is None else data.samples(trainer)
    callbacks: list[Callback] = [
        SameSettings(options), log, *([samples] if samples else []), *_logs(output, options)
    ]  # fmt: skip
    try:
        history = trainer.fit(
            data.batches, epochs=options["epochs"], callbacks=callbacks,
            accumulate=options["accumulate"], checkpoint=output / _CHECKPOINT,
            every=options["every"], resume=options["resume"], progress=False, **data.settings,
        )  # fmt: skip
        _write(served, trainer, output)
    except BrokenOffError:
        click.echo("interrupted within a step; --resume goes on from the last checkpoint", err=True)
        raise SystemExit(INTERRUPTED) from None
    except KeyboardInterrupt:
        if not trainer.steps:  # an adapter that is there is of more
            click.echo("interrupted before the first step; no adapter was written", err=True)
            raise SystemExit(INTERRUPTED) from None
        _write(served, trainer, output)
        done = f"interrupted after {trainer.steps} steps; --resume goes on from there"
        click.echo(f"{done}, and {output / ADAPTER} is the adapter so far", err=True)
        raise SystemExit(INTERRUPTED) from None
    speed = float(history.last.get(f"{log.unit}_per_second", math.nan))
    if as_json:
        print_json({
            "epochs": list(history), "step": trainer.steps, "stopped": history.stopped,
            f"{log.unit}_per_second": speed, "adapter": str(output / ADAPTER),
            "samples": [vars(s) for s in samples.samples] if samples else [],
        })  # fmt: skip
        return
    why = f" ({history.stopped})" if history.stopped else ""
    done = f"{trainer.steps} steps{why}, {speed:.0f} {log.unit}/s"
    note(f"{done}; the adapter is {output / ADAPTER}")


def _native_options(bundle: Path, batch: Mapping[str, Array]) -> Options:
    """Options for native operators, with the sizes of a batch for the free axes of a bundle."""
    sizes = {
        axis: size
        for feed in Manifest.read(bundle).feeds
        for axis, size in zip(feed.shape, batch[feed.name].shape, strict=True)
        if isinstance(axis, str)
    }
    return Options(native=True, free_dimensions=sizes)


class SameSettings(Callback):
    """Refuses to go on from the checkpoint of a training with other settings of the adapter."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        found = {name: options[name] for name in _OF_ADAPTERS if options[name] is not None}
        self._settings = {n: list(v) if isinstance(v, tuple) else v for n, v in found.items()}

    def state(self) -> dict[str, Any]:
        """The settings as they were given."""
        return self._settings

    def restore(self, state: Mapping[str, Any]) -> None:
        """Raise ArgumentError with the first setting that was another."""
        for name in _OF_ADAPTERS:
            before, now = state.get(name), self._settings.get(name)
            if before != now:
                option = f"--{name.replace('_', '-')}"
                raise ArgumentError(
                    f"the checkpoint was written with {option} {_shown(before)}, and this training "
                    f"has {_shown(now)}",
                    hint="give the same, or begin anew in another folder: --start ADAPTER goes on "
                    "from an adapter with other settings",
                )


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


def _logs(output: Path, options: dict[str, Any]) -> list[Callback]:
    found: list[Callback] = [CSVLog(output / "loss.csv")]
    if options["tensorboard"] is not None:
        found.append(TensorBoardLog(options["tensorboard"], every=options["accumulate"]))
    if options["early_stopping"] is not None:
        found.append(EarlyStopping(None, options["early_stopping"], restore_best=True))
    return found


def _say(sample: Sample) -> None:
    click.echo(f"step {sample.step}  {sample.prompt!r} -> {sample.text!r}", err=True)


def _write(served: ServedAs, trainer: Trainer, output: Path) -> None:
    """Write the adapter as the runtime takes it, and as PEFT does."""
    adapter = adapter_of(trainer)
    write_adapter(output / ADAPTER, adapter.astype(np.dtype(served.dtype)))
    write_adapter(output / "peft", adapter, base=served.base, family=served.family)


def _plot(output: Path) -> Path | None:
    """Where the curves of the loss go; None, which a user is told, without what draws them."""
    try:
        import matplotlib  # noqa: F401  # is it there?
    except ImportError:
        click.echo("no loss.png is drawn: pip install 'flow2onnx[plot]'", err=True)
        return None
    return output / "loss.png"
