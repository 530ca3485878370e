"""`flow2onnx lora`: adapters of a language model, trained on the bytes that are served."""

import math
from pathlib import Path
from typing import Any

import click
from flow2onnx_runtime.adapters import read_adapter, write_adapter

from flow2onnx.cli.failures import traceback_option, writing
from flow2onnx.cli.lora_chat import chat
from flow2onnx.cli.lora_training import (
    check_counts,
    check_words,
    fit_adapter,
    read_batches,
    schedule_of,
)
from flow2onnx.cli.options import json_option
from flow2onnx.cli.show import note, print_json, working
from flow2onnx.imported import keep_adapter, merge_adapter, write_slots
from flow2onnx.imported import lora as trainable_adapter
from flow2onnx.imported.low_rank.dora import complete_dora
from flow2onnx.imported.low_rank.tokens import open_tokenizer

__all__ = ["lora"]

_FILE = click.Path(path_type=Path)


class _WithDefault(click.Group):
    """A group whose arguments are those of `train`, unless they begin with another command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that arguments name, and the rest of them."""
        if args and args[0] not in self.commands:
            args = ["train", *args]
        return super().resolve_command(ctx, args)


@click.group(
    cls=_WithDefault,
    epilog="""\b
Examples:
  flow2onnx lora folder/ --data chat.jsonl -o out/
  flow2onnx lora folder/ --data chat.jsonl -o out/ --resume --epochs 5
  flow2onnx lora chat folder/ out/
  flow2onnx lora slots folder/
  flow2onnx lora convert out/adapter.onnx_adapter peft/""",
)
def lora() -> None:
    """Train low-rank adapters of a language model in onnxruntime-genai's layout.

    MODEL is a folder as onnxruntime-genai serves it; without another command it is trained. The
    adapter that comes out is loaded by the stock runtime, into a model with slots.
    """


@lora.command()
@click.argument("model", metavar="MODEL", type=_FILE)
@click.option(
    "--data",
    required=True,
    type=_FILE,
    metavar="FILE",
    help="JSON lines with messages, or prompt and completion, or text.",
)
@click.option(
    "-o",
    "--output",
    required=True,
    type=_FILE,
    metavar="DIR",
    help="The folder for adapter, bundle, checkpoint and curves.",
)
@click.option("--validation", type=_FILE, metavar="FILE", help="The same to measure on.")
@click.option("--rank", type=int, default=8, show_default=True, metavar="N")
@click.option("--alpha", type=float, default=16, show_default=True, metavar="ALPHA")
@click.option(
    "--targets",
    multiple=True,
    metavar="PATTERN",
    help="Modules such as q_proj; may be repeated. All but the head by default.",
)
@click.option("--rslora", is_flag=True, help="Scale by alpha / √rank.")
@click.option("--dora", is_flag=True, help="Train magnitudes of weights, too (DoRA).")
@click.option("--dropout", type=float, default=0.0, metavar="SHARE", help="Of what adapters read.")
@click.option("--lr", type=float, default=2e-4, show_default=True, metavar="RATE")
@click.option("--up-rate", type=float, metavar="FACTOR", help="The rate of B by that of A (LoRA+).")
@click.option("--optimizer", default="adamw", show_default=True, metavar="NAME")
@click.option("--schedule", metavar="NAME", help="A cosine with warm-up by default.")
@click.option("--epochs", type=int, default=1, show_default=True, metavar="N")
@click.option("--batch-size", type=int, default=1, show_default=True, metavar="N")
@click.option(
    "--accumulate",
    type=int,
    default=16,
    show_default=True,
    metavar="N",
    help="Batches of a step, or all of an epoch if these are fewer.",
)
@click.option(
    "--length",
    type=int,
    default=512,
    show_default=True,
    metavar="N",
    help="The most tokens of a row; texts are cut.",
)
@click.option("--pack", is_flag=True, help="Several texts in a row, none of which sees another.")
@click.option("--recompute", is_flag=True, help="Less memory: compute activations twice.")
@click.option("--all-tokens", is_flag=True, help="Learn what the user writes, too.")
@click.option(
    "--every",
    type=int,
    default=100,
    show_default=True,
    metavar="N",
    help="Write the checkpoint each N steps, and after each epoch.",
)
@click.option("--resume", is_flag=True, help="Go on from the checkpoint in DIR, if there is one.")
@click.option(
    "--early-stopping",
    type=int,
    metavar="N",
    help="Stop N epochs after the best, whose adapter it is then.",
)
@click.option(
    "--validate-every", type=int, metavar="N", help="Measure on --validation each N steps, too."
)
@click.option("--sample", multiple=True, metavar="PROMPT", help="Ask this meanwhile; repeatable.")
@click.option(
    "--sample-every", type=int, metavar="N", help="Each N steps; after each epoch by default."
)
@click.option(
    "--sample-tokens",
    type=int,
    default=64,
    show_default=True,
    metavar="N",
    help="The most tokens of an answer.",
)
@click.option("--tensorboard", type=_FILE, metavar="DIR", help="Curves for TensorBoard.")
@click.option("--start", type=_FILE, metavar="ADAPTER", help="An adapter to go on from.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N")
@json_option
@traceback_option
def train(
    model: Path, data: Path, output: Path, validation: Path | None, as_json: bool, **options: Any
) -> None:
    """Train an adapter of MODEL on the assistant's part of chats, or on other texts.

    DIR has the adapter then, as adapter.onnx_adapter and in peft/ as PEFT has it, a bundle that
    goes on training elsewhere, loss.csv of the epochs, steps.csv of the steps and, with matplotlib,
    loss.png. Ctrl-C ends it between two steps; --resume goes on, bit for bit, also after a crash.
    """
    check_counts(options)
    tokenizer = open_tokenizer(model if model.is_dir() else model.parent)
    batches = read_batches(data, tokenizer, options)
    held = read_batches(validation, tokenizer, options) if validation is not None else None
    options["accumulate"] = max(1, min(options["accumulate"], len(batches)))
    steps = options["epochs"] * math.ceil(len(batches) / options["accumulate"])
    with working(f"Compiling {model}"):
        made = trainable_adapter(
            model, options["rank"], options["alpha"], options["targets"] or None,
            rslora=options["rslora"], dora=options["dora"], dropout=options["dropout"],
            optimizer=options["optimizer"], lr=options["lr"],
            schedule=options["schedule"] or schedule_of(steps),
            up_rate=options["up_rate"], accumulate=options["accumulate"] > 1,
            start=read_adapter(options["start"]) if options["start"] else None,
            packs=options["pack"], recompute=options["recompute"], seed=options["seed"],
        )  # fmt: skip
    check_words(made, [*batches, *(held or ())])
    with writing(output, "make room; --resume goes on from the last checkpoint, which is whole"):
        output.mkdir(parents=True, exist_ok=True)
        made.save(output / "bundle")
        if not as_json:
            note(f"{made!r}: {len(batches)} batches, {steps} steps")
        fit_adapter(made, tokenizer, batches, held, output, options, as_json)


@lora.command()
@click.argument("model", metavar="MODEL", type=_FILE)
@click.option(
    "-o",
    "--output",
    type=_FILE,
    metavar="DIR",
    help="A new folder that shares the other files; without, the model is replaced.",
)
@click.option("--targets", multiple=True, metavar="PATTERN", help="Modules such as q_proj.")
@click.option("--dora", is_flag=True, help="With places for the factors of DoRA.")
@json_option
@traceback_option
def slots(
    model: Path, output: Path | None, targets: tuple[str, ...], dora: bool, as_json: bool
) -> None:
    """Give MODEL inputs for adapters; without one it computes what it did, bit for bit.

    The data file is not touched, and the old model is kept as model.onnx.before-slots.
    """
    with writing(output or model):
        made = write_slots(model, output, targets or None, factors=dora)
    if as_json:
        print_json([{"module": s.module, "columns": s.columns, "rows": s.rows} for s in made])
        return
    note(f"{output or model}: slots for {len(made)} modules, from {made[0].module} on")


@lora.command()
@click.argument("adapter", metavar="ADAPTER", type=_FILE)
@click.argument("output", metavar="OUTPUT", type=_FILE)
@click.option("--model", type=_FILE, metavar="MODEL", help="The model; DoRA needs its weights.")
@json_option
@traceback_option
def convert(adapter: Path, output: Path, model: Path | None, as_json: bool) -> None:
    """Write ADAPTER in another form: OUTPUT is a file .onnx_adapter, or a folder as PEFT has it."""
    read = read_adapter(adapter)
    if model is not None:
        read = complete_dora(read, model)
    with writing(output):
        write_adapter(output, read)
    if as_json:
        print_json({"output": str(output), "ranks": read.ranks})
        return
    note(
        f"{output}: {len(read.pairs)} modules of rank {', '.join(map(str, {*read.ranks.values()}))}"
    )


@lora.command()
@click.argument("model", metavar="MODEL", type=_FILE)
@click.argument("adapter", metavar="ADAPTER", type=_FILE)
@click.option(
    "-o", "--output", required=True, type=_FILE, metavar="DIR", help="A folder that is not there."
)
@click.option("--beside", is_flag=True, help="As constants beside weights of any kind.")
@click.option("--base", type=_FILE, metavar="MODEL", help="The same model in real numbers.")
@json_option
@traceback_option
def merge(
    model: Path, adapter: Path, output: Path, beside: bool, base: Path | None, as_json: bool
) -> None:
    """Write a folder with ADAPTER in the weights of MODEL, which are real numbers or of 8 bits.

    With --beside the weights stay as they are, of 4 bits too, and their file is shared; with --base
    those of 4 bits are rounded from the sums with the weights there.
    """
    if beside and base is not None:
        raise click.UsageError("--beside changes no weight, and --base rounds them: give one")
    read = read_adapter(adapter)
    with writing(output):
        if beside:
            keep_adapter(model, read, output)
        else:
            merge_adapter(model, read, output, base)
    if as_json:
        print_json({"output": str(output), "modules": len(read.pairs)})
        return
    where = "beside" if beside else "in"
    note(f"{output}: {len(read.pairs)} modules of {model} have the adapter {where} their weights")


lora.add_command(chat)
