"""`flow2onnx make-trainable`: an ONNX model as a bundle that trains."""

import sys
from pathlib import Path
from typing import Any

import click

from flow2onnx.cli.failures import traceback_option
from flow2onnx.cli.options import (
    details_option,
    input_option,
    json_option,
    key_values,
    parse_inputs,
)
from flow2onnx.cli.reports import print_files, print_report
from flow2onnx.cli.show import heading, note, print_json, print_table, shape_text, working
from flow2onnx.export import Report
from flow2onnx.imported import TrainableModel
from flow2onnx.imported import make_trainable as made_trainable
from flow2onnx.imported.losses import LOSSES
from flow2onnx.imported.optimizers import OPTIMIZERS, SCHEDULES, read_group

__all__ = ["make_trainable"]


@click.command(
    name="make-trainable",
    epilog="""\b
Examples:
  flow2onnx make-trainable model.onnx --loss cross_entropy --optimizer adam --lr 1e-3 -o bundle/
  flow2onnx make-trainable gpt.onnx --loss "cross_entropy(axis=-1)" --inputs sequence=128 -o bundle/
  flow2onnx make-trainable net.onnx --loss mse --trained "head.*" --training-mode -o bundle/""",
)  # fmt: skip
@click.argument("model", metavar="MODEL.ONNX", type=click.Path(path_type=Path))
@click.option(
    "-o", "--folder", "folder", required=True, type=click.Path(path_type=Path), metavar="DIR",
    help="The folder for the bundle.",
)  # fmt: skip
@click.option(
    "--loss", required=True, metavar="LOSS",
    help=f"{', '.join(LOSSES)}, perhaps with settings: 'cross_entropy(label_smoothing=0.1)'; or an "
    "output, whose mean is minimised.",
)  # fmt: skip
@click.option(
    "--optimizer", default="adam", show_default=True, metavar="NAME",
    help=f"{', '.join(OPTIMIZERS)}, perhaps with settings: 'sgd(momentum=0.9)'.",
)  # fmt: skip
@click.option("--lr", type=float, metavar="RATE", help="The learning rate.")
@click.option(
    "--schedule", metavar="NAME",
    help=f"{', '.join(SCHEDULES)}, with settings: 'cosine(total_steps=1000, warmup_steps=50)'.",
)  # fmt: skip
@click.option(
    "--groups", "--group", "groups", multiple=True, metavar="PATTERNS: SETTINGS",
    help="What differs for some tensors: '*.bias norm*: weight_decay=0, lr=1e-4', or frozen=True, "
    "or optimizer='adamw'; may be repeated.",
)  # fmt: skip
@click.option("--clip-norm", type=float, metavar="NORM", help="The most that gradients have.")
@click.option(
    "--clip-value", type=float, metavar="VALUE", help="The most that a number of a gradient is."
)
@click.option(
    "--trained", multiple=True, metavar="PATTERN",
    help="Tensors to train; may be repeated.",
)  # fmt: skip
@click.option(
    "--frozen", multiple=True, metavar="PATTERN", help="Tensors not to train; may be repeated."
)
@click.option(
    "--separate",
    multiple=True,
    metavar="PATTERN",
    help="Merged tensors of which each use trains its own; may be repeated.",
)
@input_option
@click.option(
    "--output", "--of", "output", multiple=True, metavar="OUTPUT",
    help="The output that the loss is of, the first by default; for losses of several, repeated.",
)  # fmt: skip
@click.option(
    "--labels", default="labels", show_default=True, metavar="NAME",
    help="What the input of the labels is called.",
)  # fmt: skip
@click.option(
    "--logits", is_flag=True, help="The loss reads what goes into the output's softmax or sigmoid."
)
@click.option(
    "--training-mode", is_flag=True, help="BatchNormalization and Dropout as in training."
)
@click.option("--precision", type=click.Choice(["fp16", "bf16"]), help="Mixed precision.")
@click.option("--accumulate", is_flag=True, help="With models that accumulate gradients.")
@click.option(
    "--ema", type=float, metavar="DECAY", help="Keep moving averages of the weights, as 0.999."
)
@click.option(
    "--recompute", multiple=True, metavar="WHAT",
    help="Compute activations twice to save memory: yes, a number of segments, or names of layers.",
)  # fmt: skip
@click.option(
    "--in-place/--no-in-place", default=True, help="Update state in its own buffer where proven."
)
@click.option("--opset", type=int, metavar="N", help="The ONNX opset; the model's own by default.")
@click.option("--name", metavar="NAME", help="The name of the job; train.")
@click.option("--seed", type=int, default=0, metavar="N", help="The seed of random draws; 0.")
@click.option(
    "--metadata", multiple=True, metavar="KEY=VALUE",
    help="A text to keep in the files; may be repeated.",
)  # fmt: skip
@click.option(
    "--freezable", type=int, metavar="BYTES",
    help="Frozen weights are constants, up to so many bytes in all; 1.5 GB.",
)  # fmt: skip
@click.option(
    "--check-import/--no-check-import", default=None,
    help="Compare the imported model with the model itself; up to 256 MB by default.",
)  # fmt: skip
@click.option("--on-device", is_flag=True, help="A bundle to ship: draws by step, notes.")
@click.option("--webgpu", is_flag=True, help="A step that onnxruntime-web computes on a GPU alone.")
@click.option("--ort", "ort_format", is_flag=True, help="With .ort files, for reduced builds.")
@click.option(
    "--training-info", type=click.Path(path_type=Path), metavar="FILE.ONNX",
    help="Also write one file with the algorithm in the standard's TrainingInfoProto.",
)  # fmt: skip
@click.option("--no-verify", is_flag=True, help="Write without verifying.")
@details_option
@json_option
@traceback_option
def make_trainable(
    model: Path,
    folder: Path,
    training_info: Path | None,
    no_verify: bool,
    ort_format: bool,
    details: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Add a loss, gradients and an optimizer to an ONNX model, and write it as a bundle.

    flow2onnx_runtime trains the bundle on any stock ONNX Runtime; predict.onnx in it is the model
    itself. Options are those of flow.make_trainable. The exit code is 1 if the verification fails.
    """
    with working(f"Reading {model}"):
        made = made_trainable(model, **_arguments(options))
        report = made.save(folder, verify=not no_verify, ort_format=ort_format)
        if training_info is not None:
            made.save_training_info(training_info)
    files = [*folder.iterdir(), *([training_info] if training_info is not None else [])]
    if as_json:
        print_json(_plain(made, files, report))
    else:
        _print(made, folder, files, report, details)
    sys.exit(0 if report is None or report.ok else 1)


def _arguments(options: dict[str, Any]) -> dict[str, Any]:
    """Options as arguments of `make_trainable`; those that are not given have its defaults."""
    given = {name: value for name, value in options.items() if value not in (None, ())}
    readers = {
        "groups": _groups,
        "inputs": parse_inputs,
        "metadata": key_values,
        "recompute": _parts,
    }
    return {name: readers.get(name, _same)(value) for name, value in given.items()}


def _groups(texts: tuple[str, ...]) -> dict[Any, Any]:
    """``*.bias: weight_decay=0`` as patterns and settings; none twice, as the last would win."""
    found: dict[Any, Any] = {}
    for patterns, settings in map(read_group, texts):
        if patterns in found:
            raise click.BadParameter(f"--groups {' '.join(patterns)} is given twice")
        found[patterns] = settings
    return found


def _same(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _parts(texts: tuple[str, ...]) -> bool | int | list[str]:
    """``yes`` or ``no``, a number of segments, or names of layers."""
    if len(texts) == 1 and texts[0].lower() in ("yes", "true", "no", "false"):
        return texts[0].lower() in ("yes", "true")
    if len(texts) == 1 and texts[0].isascii() and texts[0].isdigit():
        return int(texts[0])
    return list(texts)


def _plain(made: TrainableModel, files: list[Path], report: Report | None) -> dict[str, Any]:
    return {
        "job": made.step.spec.name,
        "files": {str(path): path.stat().st_size for path in sorted(files)},
        "feeds": list(made.step.feeds),
        "results": list(made.step.results),
        "parameters": [
            {"name": p.name, "shape": list(p.shape), "dtype": p.dtype, "trained": p.is_trained,
             "reason": p.reason}
            for p in made.parameters
        ],
        "notes": list(made.notes),
        "report": made.report.lines(),
        "check": {"difference": made.check.difference, "reason": made.check.reason},
        **({} if report is None else report.to_dict()),
    }  # fmt: skip


def _print(
    made: TrainableModel, folder: Path, files: list[Path], report: Report | None, details: bool
) -> None:
    heading(made.step.spec.name, f"made trainable in {folder}")
    print_table(
        ("tensor", "shape", "trained", "why"),
        [(p.name, shape_text(p.shape), "yes" if p.is_trained else "no", p.reason)
         for p in made.parameters],
    )  # fmt: skip
    note("")
    for text in (*str(made.report).splitlines(), *made.notes):
        note(text)
    note("")
    print_files(files)
    if report is not None:
        note("")
        print_report(report, details=details)
