"""`flow2onnx train`: a bundle, trained on arrays from files."""

import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
from flow2onnx_runtime import (
    METRICS,
    BestCheckpoint,
    Callback,
    CSVLog,
    EarlyStopping,
    FeedError,
    History,
    Options,
    ReduceOnPlateau,
    TensorBoardLog,
    Trainer,
)
from flow2onnx_runtime.dtypes import Array
from flow2onnx_runtime.providers import find_provider

from flow2onnx.cli.failures import traceback_option
from flow2onnx.cli.options import check_together, json_option, load_arrays
from flow2onnx.cli.provider_option import check_usable, provider_option
from flow2onnx.cli.show import note, print_json, print_table

__all__ = ["train"]

_FILE = click.Path(path_type=Path)
_DATA = "Arrays by the name of the input: a .npz file, or x=FILE.npy, which may be repeated."


@click.command(epilog="""\b
Examples:
  flow2onnx train bundle/ --data train.npz --epochs 5 --save state.safetensors
  flow2onnx train bundle/ --data x=images.npy --data labels=labels.npy \\
      --validation held.npz --metrics accuracy --metrics "top_k(k=3)" \\
      --early-stopping 3 --best best.safetensors --tensorboard logs/ --plot curves.png
  flow2onnx train bundle/ --data train.npz --checkpoint run/ --resume --export out/""")  # fmt: skip
@click.argument("bundle", metavar="BUNDLE", type=_FILE)
@click.option("--data", multiple=True, required=True, metavar="FILE", help=_DATA)
@click.option("--epochs", type=int, default=1, show_default=True, metavar="N")
@click.option("--validation", multiple=True, metavar="FILE", help="The same to measure on.")
@click.option("--load", "start", type=_FILE, metavar="FILE", help="The state to begin with.")
@click.option("--batch-size", type=int, metavar="N", help="32, or what the bundle takes.")
@click.option("--shuffle/--no-shuffle", default=True, help="In an order by --seed; on.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N")
@click.option(
    "--drop-last/--no-drop-last", default=None, help="Leave out rows that fill no batch at the end."
)
@click.option("--columns", multiple=True, metavar="INPUT=ARRAY", help="Arrays of other names.")
@click.option(
    "--metrics", multiple=True, metavar="NAME",
    help=f"{', '.join(METRICS)}, perhaps with settings; may be repeated.",
)  # fmt: skip
@click.option("--predict", metavar="JOB", help="The predict job to measure, such as ema.")
@click.option("--output", metavar="NAME", help="The output to measure; the first.")
@click.option("--labels", metavar="NAME", help="The input that has the labels.")
@click.option(
    "--accumulate", type=int, default=1, show_default=True, metavar="N", help="Batches of a step."
)
@click.option("--lr", type=float, metavar="RATE", help="In place of the bundle's own rate.")
@click.option(
    "--non-finite", type=click.Choice(["raise", "skip", "ignore"]), default="raise",
    show_default=True, help="What becomes of a batch whose loss is not finite.",
)  # fmt: skip
@click.option("--monitor", metavar="NAME", help="The number to watch; val_loss, or loss.")
@click.option("--early-stopping", type=int, metavar="N", help="Stop N epochs after the best.")
@click.option("--best", type=_FILE, metavar="FILE", help="The state of the best epoch.")
@click.option(
    "--reduce-on-plateau", type=float, metavar="FACTOR",
    help="Multiply the rate when nothing improves for --patience epochs.",
)  # fmt: skip
@click.option("--patience", type=int, default=3, show_default=True, metavar="N")
@click.option("--csv", type=_FILE, metavar="FILE", help="A table of the epochs.")
@click.option("--tensorboard", type=_FILE, metavar="DIR", help="Curves for TensorBoard.")
@click.option("--plot", type=_FILE, metavar="FILE", help="A picture of the curves, by matplotlib.")
@click.option("--checkpoint", type=_FILE, metavar="DIR", help="Where to go on from; each epoch.")
@click.option("--every", type=int, metavar="N", help="Also write it each N steps.")
@click.option("--resume", is_flag=True, help="Go on from --checkpoint, if it is there.")
@click.option("--save", type=_FILE, metavar="FILE", help="The state at the end.")
@click.option("--export", "exported", type=_FILE, metavar="DIR", help="The predict model then.")
@provider_option("Where to train.", "cpu", trains=True)
@json_option
@traceback_option
def train(
    bundle: Path,
    data: tuple[str, ...],
    validation: tuple[str, ...],
    start: Path | None,
    lr: float | None,
    save: Path | None,
    exported: Path | None,
    provider: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Train a bundle for some epochs, as Trainer.fit does, whose options these are.

    Ctrl-C ends it after a whole step; --checkpoint and --resume go on from there.
    """
    watching = ("early_stopping", "best", "reduce_on_plateau")
    check_together({"patience": ["reduce_on_plateau"], "monitor": watching,
                    "output": ["metrics"],
                    "labels": ["metrics"]})  # fmt: skip
    check_usable(provider)
    trainer = Trainer(bundle, Options(providers=(find_provider(provider).name,)))
    if start is not None:
        trainer.load(start)
    if lr is not None:
        trainer.learning_rate = lr
    callbacks = _callbacks(options)
    options["columns"] = _pairs("columns", options["columns"])
    history = trainer.fit(
        _arrays("data", data, trainer),
        validation=_arrays("validation", validation, trainer) if validation else None,
        callbacks=callbacks,
        progress=None if not as_json else False,
        **options,
    )
    if save is not None:
        trainer.save(save)
    if exported is not None:
        trainer.export_predict(exported, options["predict"])
    _print(history, trainer, as_json)


def _callbacks(options: dict[str, Any]) -> list[Callback]:
    """The callbacks that options ask for, which are taken out."""
    monitor, patience = options.pop("monitor"), options.pop("patience")
    asked = {
        name: options.pop(name)
        for name in ("best", "reduce_on_plateau", "csv", "tensorboard", "early_stopping")
    }
    makers: dict[str, Any] = {
        "best": lambda path: BestCheckpoint(path, monitor),
        "reduce_on_plateau": lambda factor: ReduceOnPlateau(monitor, factor, patience),
        "csv": CSVLog,
        "tensorboard": TensorBoardLog,
        "early_stopping": lambda count: EarlyStopping(monitor, count),
    }
    return [makers[name](value) for name, value in asked.items() if value is not None]


def _pairs(what: str, texts: tuple[str, ...]) -> dict[str, str] | None:
    for text in texts:
        if "=" not in text:
            raise click.BadParameter(f"--{what} {text}: write INPUT=ARRAY")
    return dict(text.split("=", 1) for text in texts) or None


def _arrays(option: str, texts: tuple[str, ...], trainer: Trainer) -> dict[str, Array]:
    """The arrays of files by name; ``NAME=FILE.npy`` says of one what it is called."""
    names = [feed.name for feed in trainer.feeds]
    found: dict[str, Array] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        is_named = bool(equals) and not Path(text).exists()
        loaded = load_arrays(option, Path(path if is_named else text))
        if is_named and not isinstance(loaded, np.ndarray):
            raise FeedError(f"{path} holds several arrays", hint=f"give it as it is: {path}")
        if not is_named and isinstance(loaded, np.ndarray) and len(names) != 1:
            raise FeedError(
                f"{text} is one array, the bundle takes {', '.join(names)}",
                hint=f"say which it is: {names[0]}={text}",
            )
        found |= loaded if isinstance(loaded, dict) else {name if is_named else names[0]: loaded}
    return found


def _print(history: History, trainer: Trainer, as_json: bool) -> None:
    if as_json:
        print_json({"epochs": list(history), "stopped": history.stopped, "step": trainer.steps})
        return
    columns = history.columns
    if not sys.stderr.isatty():  # where there is a bar, it has said so
        rows = [tuple(_cell(row.get(name)) for name in columns) for row in history]
        print_table(columns, rows, right=columns)
    why = f": {history.stopped}" if history.stopped else ""
    note(f"\n{trainer.manifest.job}: {trainer.steps} steps{why}")


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.4g}"
