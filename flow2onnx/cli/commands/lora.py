"""`flow2onnx lora`: adapters of a language model, trained on the bytes that are served."""

import math
from pathlib import Path
from typing import Any

import click
from flow2onnx_runtime import METRICS
from flow2onnx_runtime.adapters import read_adapter, write_adapter

from flow2onnx.cli.failures import traceback_option, writing
from flow2onnx.cli.lora_chat import chat
from flow2onnx.cli.lora_network import train_network
from flow2onnx.cli.lora_training import (
    ServedAs,
    TrainingData,
    TrainingRequest,
    adapter_settings,
    check_counts,
    check_native,
    check_output,
    check_words,
    check_world,
    fit_bundle,
    read_batches,
    texts_data,
    write_bundle,
)
from flow2onnx.cli.options import check_together, input_option, json_option
from flow2onnx.cli.show import note, print_json, working
from flow2onnx.errors import ArgumentError
from flow2onnx.imported import keep_adapter, merge_adapter, write_slots
from flow2onnx.imported import lora as trainable_adapter
from flow2onnx.imported.losses import LOSSES
from flow2onnx.imported.low_rank.chat import find_adapter
from flow2onnx.imported.low_rank.dora import complete_dora
from flow2onnx.imported.low_rank.fitting import fit_to_model
from flow2onnx.imported.low_rank.folder import open_language_model
from flow2onnx.imported.low_rank.tokens import TOKENIZER, open_tokenizer
from flow2onnx.imported.training_memory import check_step_memory

__all__ = ["lora"]

_FILE = click.Path(path_type=Path)
_ACCUMULATE = 16  # batches of texts


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
  flow2onnx lora resnet.onnx --loss cross_entropy --data x.npz -o out/ --targets "layer4.*"
  flow2onnx lora chat folder/ out/
  flow2onnx lora slots folder/
  flow2onnx lora convert out/adapter.onnx_adapter peft/""",
)
def lora() -> None:
    """Train low-rank adapters of a language model in onnxruntime-genai's layout, or of any other.

    MODEL is a folder as onnxruntime-genai serves it, or an .onnx file; without another command it
    is trained. The adapter that comes out is loaded by the stock runtime, into a model with slots.
    """


@lora.command()
@click.argument("model", metavar="MODEL", type=_FILE)
@click.option(
    "--data",
    required=True,
    type=_FILE,
    metavar="FILE",
    help="JSON lines with messages, or prompt and completion, or text; with --loss arrays by the "
    "names of inputs (.npz, or a folder of .npy), or a folder with pictures of each class in one.",
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
@click.option(
    "--loss",
    metavar="LOSS",
    help=f"For a model that is no language model: {', '.join(LOSSES)}, perhaps with settings; or "
    "an output, whose mean is minimised.",
)
@click.option("--of", metavar="OUTPUT", help="The output that the loss is of; the first.")
@click.option(
    "--labels", default="labels", show_default=True, metavar="NAME",
    help="What the array of the labels is called.",
)  # fmt: skip
@input_option
@click.option(
    "--metrics", multiple=True, metavar="NAME",
    help="To measure after each epoch on --validation, or else on --data: "
    f"{', '.join(METRICS)}; may be repeated.",
)  # fmt: skip
@click.option(
    "--mean", default="0", show_default=True, metavar="R,G,B", help="Of pictures in 0..1."
)
@click.option("--std", default="1", show_default=True, metavar="R,G,B", help="What divides them.")
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
@click.option("--batch-size", type=int, metavar="N", help="Rows of a batch: 1, with --loss 32.")
@click.option(
    "--accumulate",
    type=int,
    metavar="N",
    help="Batches of a step, or all of an epoch if these are fewer: 16, with --loss 1.",
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
@click.option("--recompute", is_flag=True, help="Less memory: compute all activations twice.")
@click.option(
    "--native", is_flag=True,
    help="Faster steps by the operators of flow2onnx-native; all rows are padded to the longest, "
    "so --pack pays.",
)  # fmt: skip
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
@click.option("--overwrite", is_flag=True, help="Begin anew where DIR has another training.")
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
    """Train an adapter of MODEL on the assistant's part of chats, on other texts, or by a --loss.

    DIR has the adapter then, as adapter.onnx_adapter and in peft/ as PEFT has it, a bundle that
    goes on training elsewhere, loss.csv of the epochs, steps.csv of the steps and, with matplotlib,
    loss.png. Ctrl-C ends it between two steps; --resume goes on, bit for bit, also after a crash.
    """
    check_world()
    check_counts(options)
    _check_together()
    check_native(options)
    asked = TrainingRequest(
        model=model, data=data, output=output, validation=validation, options=options,
        as_json=as_json,
    )  # fmt: skip
    check_output(asked)
    if options["loss"] is not None:
        train_network(asked)
    else:
        fit_bundle(asked, *_write_language_model(asked))


def _check_together() -> None:
    """Raise UsageError for options of the other kind of model."""
    of_networks = ("of", "labels", "inputs", "metrics", "mean", "std")
    of_texts = ("dora", "length", "pack", "native", "all_tokens", "sample", "sample_every",
                "sample_tokens")  # fmt: skip
    needs = {name: ["loss"] for name in of_networks}
    needs |= {"validate_every": ["validation"], "sample_every": ["sample"]}
    needs |= {"sample_tokens": ["sample"]}
    excludes = [("overwrite", "resume"), *((name, "loss") for name in of_texts)]
    check_together(needs, excludes)


def _write_language_model(asked: TrainingRequest) -> tuple[ServedAs, TrainingData]:
    """Write the bundle; what its adapter is served as, and the data to train it on."""
    model, options = asked.model, asked.options
    if not model.exists():
        raise ArgumentError(
            f"{model} is not there",
            hint="give a folder as onnxruntime-genai serves it, or an .onnx file",
        )
    folder = model if model.is_dir() else model.parent
    if model.is_file() and not (folder / TOKENIZER).exists():
        raise ArgumentError(
            f"{folder} has no {TOKENIZER}, without which no text can be learnt",
            hint="copy it there; a model that is no language model needs --loss, such as --loss "
            "cross_entropy, and arrays: --data x.npz",
        )
    tokenizer = open_tokenizer(folder)
    options["batch_size"] = options["batch_size"] or 1
    batches = read_batches(asked.data, tokenizer, options)
    held = None
    if asked.validation is not None:
        held = read_batches(asked.validation, tokenizer, options)
    options["accumulate"] = max(1, min(options["accumulate"] or _ACCUMULATE, len(batches)))
    steps = options["epochs"] * math.ceil(len(batches) / options["accumulate"])
    with working(f"Compiling {model}"):
        made = trainable_adapter(
            model, dora=options["dora"], packs=options["pack"],
            **adapter_settings(options, steps) | {"recompute": options["recompute"] or "cheap"},
        )  # fmt: skip
    check_words(made, [*batches, *(held or ())])
    rows, length = max((b["input_ids"].shape for b in batches), key=math.prod)
    check_step_memory(
        made.halves or (made.step,), {"batch": rows, "sequence": length},
        "free memory, or give shorter rows (--length), fewer of them (--batch-size), --recompute",
    )  # fmt: skip
    served = ServedAs(
        base=str(made.model.path.parent), family=made.model.named_by, dtype=made.dtype
    )
    data = texts_data(asked, made, tokenizer, batches, held)
    told = f"{made!r}: {len(batches)} batches, {steps} steps"
    write_bundle(asked, made.save, told)
    return served, data


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
    modules = f"{len(made)} modules, from" if len(made) > 1 else "one module,"
    note(f"{output or model}: slots for {modules} {made[0].module}")


@lora.command()
@click.argument("adapter", metavar="ADAPTER", type=_FILE)
@click.argument("output", metavar="OUTPUT", type=_FILE)
@click.option(
    "--model",
    type=_FILE,
    metavar="MODEL",
    help="The model; DoRA needs its weights, PEFT's names of modules its architecture.",
)
@json_option
@traceback_option
def convert(adapter: Path, output: Path, model: Path | None, as_json: bool) -> None:
    """Write ADAPTER in another form: OUTPUT is a file .onnx_adapter, or a folder as PEFT has it."""
    read = read_adapter(find_adapter(adapter))
    family: str | None = ""
    if model is not None:
        language = open_language_model(model)
        read = complete_dora(fit_to_model(read, language), model)
        family = language.named_by
    with writing(output):
        write_adapter(output, read, family=family)
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
    read = read_adapter(find_adapter(adapter))
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
