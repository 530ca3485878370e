"""The options of an export that are about serving: precision, data to try it on, preprocessing."""

from pathlib import Path
from typing import Any

import click

from flow2onnx.cli.options import Command, load_arrays
from flow2onnx.export.options import METHODS, PRECISIONS
from flow2onnx.export.preprocess import Preprocess, parse_preprocess

__all__ = ["serving_arguments", "serving_options"]


_PLAIN = ("precision", "method", "max_drop", "tolerance", "half_io")
_ROW = "arrays by input's name (.npz), or the only input's (.npy)"
_FILE = click.Path(path_type=Path, dir_okay=False)

_OPTIONS = (
    click.option(
        "--precision", type=click.Choice(PRECISIONS), default="fp32", show_default=True,
        help="Compute a predict job in float16, or quantized to int8.",
    ),
    click.option(
        "--calibration", type=_FILE, metavar="FILE",
        help=f"For int8, inputs to find ranges on: {_ROW}.",
    ),
    click.option(
        "--method", type=click.Choice(METHODS), default="minmax", show_default=True,
        help="How int8 finds ranges.",
    ),
    click.option(
        "--samples", type=_FILE, metavar="FILE", help=f"Inputs to compare with float32 on: {_ROW}."
    ),
    click.option(
        "--sample-labels", type=_FILE, metavar="FILE",
        help="The class of each row of samples (.npy), from which accuracy is found.",
    ),
    click.option(
        "--max-drop", type=click.FloatRange(0, 1), default=0.005, show_default=True,
        metavar="SHARE", help="The loss of accuracy that passes.",
    ),
    click.option(
        "--tolerance", type=click.FloatRange(0), metavar="X", help="The difference that passes."
    ),
    click.option("--half-io", is_flag=True, help="With fp16: float16 inputs and outputs too."),
    click.option(
        "--preprocess", multiple=True, metavar="[INPUT:]KEY=VALUE;…",
        help="Put before an input what makes it of raw images: dtype, scale, mean, std, layout, "
        "order; may be repeated.",
    ),
)  # fmt: skip


def serving_options(command: Command) -> Command:
    """The options, which `serving_arguments` makes arguments of."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def serving_arguments(options: dict[str, Any], *, is_triton: bool) -> dict[str, Any]:
    """Take the options out of a command's and return them as `export` takes them."""
    found = {name: options.pop(name) for name in _PLAIN}
    files = {name: options.pop(name) for name in ("calibration", "samples", "sample_labels")}
    texts = options.pop("preprocess")
    found |= {name: load_arrays(name, path) for name, path in files.items() if path is not None}
    if "sample_labels" in found and not is_triton:
        found["labels"] = found.pop("sample_labels")
    if texts:
        found["preprocess"] = _preprocess(texts)
    return found


def _preprocess(texts: tuple[str, ...]) -> Preprocess | dict[str, Preprocess]:
    ways = [parse_preprocess(text) for text in texts]
    named = {name: way for name, way in ways if name is not None}
    if len(ways) == 1 and not named:
        return ways[0][1]
    if len(named) < len(ways):
        raise click.UsageError("--preprocess INPUT:KEY=VALUE: name a different input each time")
    return named
