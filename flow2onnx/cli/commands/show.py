"""`flow2onnx show`: a page with the graph of a model."""

import re
import tempfile
import webbrowser
from pathlib import Path

import click
from flow2onnx_runtime.files import replace_bytes
from flow2onnx_runtime.view import page_of

from flow2onnx.cli.failures import traceback_option, writing
from flow2onnx.cli.graphs import graph_at
from flow2onnx.cli.options import release_option
from flow2onnx.cli.show import note, size_text

__all__ = ["show"]


@click.command(
    context_settings={"ignore_unknown_options": True},
    epilog="""\b
Examples:
  flow2onnx show resnet.onnx
  flow2onnx show bundle/ -o bundle.html
  flow2onnx show train.py:train_job --no-open""",
)
@click.argument("target")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE.html",
              help="Where to write the page; a temporary folder unless given.")  # fmt: skip
@click.option("--open/--no-open", "opens", default=None,
              help="Open it in a browser, as without -o; or do not, as with it.")  # fmt: skip
@release_option
@traceback_option
def show(
    target: str, args: tuple[str, ...], output: Path | None, opens: bool | None, release: str | None
) -> None:
    """Write a page with the graph of a model by layer: zoom, search, shapes, costs, gradients.

    TARGET is an .onnx file, a bundle, script.py:job or package.module:job; ARGS are the script's.
    The page is one file that needs no network.
    """
    content = page_of(graph_at(target, args, release)).encode("utf-8", "replace")
    place = output or Path(tempfile.mkdtemp(prefix="flow2onnx-")) / f"{_stem(target)}.html"
    with writing(place):
        replace_bytes(place, content)
    note(f"{place}  {size_text(len(content))}")
    asked = output is None if opens is None else opens
    if asked and not webbrowser.open(place.absolute().as_uri()):
        note("no browser could be started here: open the file in one")


def _stem(target: str) -> str:
    """A file's name for a target, of letters that any system takes."""
    return re.sub(r"[^\w.-]+", "_", Path(target).name.removesuffix(".onnx"))[:80] or "model"
