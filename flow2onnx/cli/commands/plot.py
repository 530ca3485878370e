"""`flow2onnx plot`: curves of runs."""

import os
from pathlib import Path

import click
from flow2onnx_runtime import History

from flow2onnx.cli.curves import choose_curves, draw_curves, text_curves
from flow2onnx.cli.failures import traceback_option, writing
from flow2onnx.cli.show import note
from flow2onnx.data.runs import read_run

__all__ = ["plot"]


@click.command(epilog="""\b
Examples:
  flow2onnx plot log.csv
  flow2onnx plot first/ second/ --curve loss -o curves.svg
  flow2onnx plot runs/tensorboard --terminal""")  # fmt: skip
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("curves.png"),
    show_default=True,
    metavar="FILE",
    help="The picture: .png, .svg or .pdf.",
)
@click.option(
    "--curve",
    "curves",
    multiple=True,
    metavar="NAME",
    help="A curve, such as loss; may be repeated. All, unless given.",
)
@click.option("--over", metavar="COLUMN", help="The column along which they go: epoch or step.")
@click.option("--terminal", is_flag=True, help="Write lines of text, and no picture.")
@traceback_option
def plot(
    runs: tuple[Path, ...], output: Path, curves: tuple[str, ...], over: str | None, terminal: bool
) -> None:
    """Draw the curves of RUNS in one picture.

    A run is a CSV file that `fit` or `lora` wrote, a folder with one, or TensorBoard's event files.
    """
    found = _runs_by_title(runs)
    names = choose_curves(found, curves)
    if terminal:
        for line in text_curves(found, names, over):
            note(line)
        return
    with writing(output):
        draw_curves(output, found, names, over)
    note(f"{output}: {', '.join(names)} of {', '.join(found)}")


def _runs_by_title(runs: tuple[Path, ...]) -> dict[str, History]:
    """The runs by the parts of their paths that tell them apart."""
    paths = [os.path.abspath(run) for run in dict.fromkeys(runs)]
    shared = os.path.commonpath(paths) if len(paths) > 1 else os.path.dirname(paths[0])
    return {os.path.relpath(path, shared): read_run(path) for path in paths}
