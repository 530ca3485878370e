"""The loop behind `flow2onnx lora`: its callbacks, its files, and how it ends."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from flow2onnx_runtime import Callback, CSVLog, EarlyStopping, History, TensorBoardLog, Trainer
from flow2onnx_runtime.adapters import ADAPTER_SUFFIX, write_adapter
from flow2onnx_runtime.dtypes import Array
from flow2onnx_runtime.progress_bar import ProgressBar
from flow2onnx_runtime.token_log import TokenLog

from flow2onnx.cli.show import note, print_json
from flow2onnx.errors import ArgumentError
from flow2onnx.imported import TrainableAdapter, adapter_of
from flow2onnx.imported.low_rank.samples import Sample, Samples
from flow2onnx.imported.low_rank.texts import batches_of, read_texts
from flow2onnx.imported.low_rank.tokens import FolderTokenizer

__all__ = [
    "ADAPTER", "Rows", "check_counts", "check_words", "fit_adapter", "read_batches", "schedule_of",
]  # fmt: skip

ADAPTER = f"adapter{ADAPTER_SUFFIX}"
_WARMUP = 0.03  # of all steps
_LINES = 10.0  # seconds between lines of progress where there is no terminal
_INTERRUPTED = 130  # what a shell reports for a program that Ctrl-C ended
_COUNTS = ("epochs", "batch_size", "accumulate", "every", "validate_every", "sample_every",
           "sample_tokens", "early_stopping")  # fmt: skip

Rows = Sequence[dict[str, Array]]


def check_counts(options: dict[str, Any]) -> None:
    """Raise ArgumentError for a count below 1, before anything is done."""
    for name in _COUNTS:
        if options[name] is not None and options[name] < 1:
            asked = name.replace("_", "-")
            raise ArgumentError(f"--{asked} is {options[name]}", hint="give a number of at least 1")


def read_batches(path: Path, tokenizer: FolderTokenizer, options: dict[str, Any]) -> Rows:
    """The batches of a file of texts; says how many texts are cut or left out."""
    texts = read_texts(path, tokenizer, all_tokens=options["all_tokens"])
    length = options["length"]
    try:
        found = batches_of(
            texts, size=options["batch_size"], length=length, packs=options["pack"],
            seed=options["seed"],
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


def check_words(made: TrainableAdapter, batches: Iterable[Mapping[str, Array]]) -> None:
    """Raise ArgumentError for tokens that the model has not: its tokenizer is another's."""
    words = made.model.words
    most = max(int(batch["input_ids"].max()) for batch in batches)
    if words is not None and most >= words:
        raise ArgumentError(
            f"the texts have the token {most}, and {made.model.path} knows {words}",
            hint="is tokenizer.json that of this model? copy it again",
        )


def schedule_of(steps: int) -> str | None:
    """A cosine down to 0 after a warm-up; too few steps have a constant rate."""
    warmup = max(1, round(_WARMUP * steps))
    return f"cosine(total_steps={steps}, warmup_steps={warmup})" if steps > 2 else None


def fit_adapter(
    made: TrainableAdapter,
    tokenizer: FolderTokenizer,
    batches: Rows,
    held: Rows | None,
    output: Path,
    options: dict[str, Any],
    as_json: bool,
) -> None:
    """Train in the folder `output`, where the adapter is then, and say how it went."""
    trainer = Trainer(output / "bundle")
    bar = None if as_json else ProgressBar(pause=_LINES)
    plot = output / "loss.png" if _can_plot() else None
    log = TokenLog(
        batches, output / "steps.csv", validation=held, every=options["validate_every"], bar=bar,
        plot=plot,
    )  # fmt: skip
    samples = _samples(made, trainer, tokenizer, output, options, as_json)
    callbacks: list[Callback] = [log, *([samples] if samples else []), *_logs(output, options)]
    try:
        history = trainer.fit(
            list(batches), epochs=options["epochs"], callbacks=callbacks,
            accumulate=options["accumulate"], checkpoint=output / "checkpoint",
            every=options["every"], resume=options["resume"], progress=False,
        )  # fmt: skip
        _write(made, trainer, output)
    except KeyboardInterrupt:
        _write(made, trainer, output)
        done = f"interrupted after {trainer.steps} steps; --resume goes on from there"
        click.echo(f"{done}, and {output / ADAPTER} is the adapter so far", err=True)
        raise SystemExit(_INTERRUPTED) from None
    _report(output, history, trainer, samples, as_json)


def _logs(output: Path, options: dict[str, Any]) -> list[Callback]:
    found: list[Callback] = [CSVLog(output / "loss.csv")]
    if options["tensorboard"] is not None:
        found.append(TensorBoardLog(options["tensorboard"], every=options["accumulate"]))
    if options["early_stopping"] is not None:
        found.append(EarlyStopping(None, options["early_stopping"], restore_best=True))
    return found


def _samples(
    made: TrainableAdapter,
    trainer: Trainer,
    tokenizer: FolderTokenizer,
    output: Path,
    options: dict[str, Any],
    as_json: bool,
) -> Samples | None:
    if not options["sample"]:
        return None
    return Samples(
        trainer, made.model, tokenizer, options["sample"], output / "samples.jsonl",
        every=options["sample_every"], most=options["sample_tokens"],
        say=None if as_json else _say,
    )  # fmt: skip


def _say(sample: Sample) -> None:
    click.echo(f"step {sample.step}  {sample.prompt!r} -> {sample.text!r}", err=True)


def _write(made: TrainableAdapter, trainer: Trainer, output: Path) -> None:
    """Write the adapter as the runtime takes it, and as PEFT does."""
    adapter = adapter_of(trainer)
    write_adapter(output / ADAPTER, adapter.astype(np.dtype(made.dtype)))
    write_adapter(output / "peft", adapter, base=str(made.model.path.parent),
                  family=made.model.family)  # fmt: skip


def _can_plot() -> bool:
    try:
        import matplotlib  # noqa: F401  # is it there?
    except ImportError:
        return False
    return True


def _report(
    output: Path, history: History, trainer: Trainer, samples: Samples | None, as_json: bool
) -> None:
    speed = float(history.last.get("tokens_per_second", math.nan))
    if as_json:
        print_json({
            "epochs": list(history), "step": trainer.steps, "stopped": history.stopped,
            "tokens_per_second": speed, "adapter": str(output / ADAPTER),
            "samples": [vars(s) for s in samples.samples] if samples else [],
        })  # fmt: skip
        return
    why = f" ({history.stopped})" if history.stopped else ""
    note(f"{trainer.steps} steps{why}, {speed:.0f} tokens/s; the adapter is {output / ADAPTER}")
