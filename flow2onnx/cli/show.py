"""How the commands write results: tables for people, JSON for programs, progress on a terminal."""

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

import click
from flow2onnx_runtime.view.texts import clean, shape_text, size_text
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["cell", "heading", "note", "output", "print_facts", "print_json", "print_table",
           "shape_text", "size_text", "working"]  # fmt: skip

_PLAIN_WIDTH = 100  # of what is written to a file or a pipe
_WORDS = {True: ("yes", "green"), False: ("no", "red"), None: ("-", "dim")}

Cell = str | int | bool | None | Text


def output(*, stderr: bool = False) -> Console:
    """Where to write now; colours only on a terminal."""
    file = sys.stderr if stderr else sys.stdout
    width = None if file.isatty() else _PLAIN_WIDTH
    return Console(file=file, width=width, highlight=False)


def print_json(data: object) -> None:
    """One JSON value on stdout; numbers that JSON does not have become null."""
    click.echo(json.dumps(_finite(data), indent=1, ensure_ascii=False))


def _finite(data: object) -> object:
    if isinstance(data, Mapping):
        return {str(key): _finite(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_finite(item) for item in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def heading(text: str, detail: str = "") -> None:
    """A line above a table."""
    output().print(Text.assemble((text, "bold"), ("  " + detail if detail else "", "dim")))


def note(text: str, style: str = "") -> None:
    """A line of text, never wrapped when it is piped."""
    output().print(Text(text, style), soft_wrap=True)


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    right: Sequence[str] = (),
    whole: Sequence[str] = (),
) -> None:
    """Rows under their columns; those in `right` hold numbers, those in `whole` are not broken."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1), header_style="bold")
    for column in columns:
        justify: Literal["left", "right"] = "right" if column in right else "left"
        table.add_column(column, justify=justify, overflow="fold", no_wrap=column in whole)
    for row in rows:
        table.add_row(*map(cell, row))
    _print(table)


def print_facts(facts: Mapping[str, Cell]) -> None:
    """Names and values in two columns."""
    table = Table.grid(padding=(0, 1))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name, cell(value))
    _print(table)


def _print(table: Table) -> None:
    console = output()
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as text:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in text.get().splitlines()))


def cell(value: Cell) -> Text:
    """A value as it stands in a table; yes and no in colour."""
    if isinstance(value, Text):
        return value
    if value is None or isinstance(value, bool):
        return Text(*_WORDS[value])
    return Text(clean(str(value)))


@contextmanager
def working(what: str) -> Iterator[None]:
    """A spinner beside `what` while the body runs, if stderr is a terminal."""
    console = output(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(what):
        yield
