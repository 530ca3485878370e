"""`flow2onnx symbols`: every name of OneFlow's, and how it fares here."""

import dataclasses

import click

from flow2onnx.api.status import Status, markdown, status_table
from flow2onnx.cli.options import check_together, json_option
from flow2onnx.cli.show import heading, note, print_facts, print_json, print_table
from flow2onnx.errors import ArgumentError, spelling_hint
from flow2onnx.trace.symbols import symbols as rows_of_oneflow

__all__ = ["symbols"]


@click.command(epilog="""\b
Examples:
  flow2onnx symbols
  flow2onnx symbols nn.conv2d
  flow2onnx symbols pool --json""")  # fmt: skip
@click.argument("name", required=False)
@json_option
@click.option("--markdown", "as_markdown", is_flag=True, help="Print a section for a document.")
def symbols(name: str | None, as_json: bool, as_markdown: bool) -> None:
    """List the symbols of OneFlow and how each fares here; those whose name contains NAME."""
    check_together(excludes=[("as_markdown", "as_json"), ("as_markdown", "name")])
    if as_markdown:
        click.echo(markdown(), nl=False)
        return
    rows = _select_rows(name)
    if as_json:
        print_json([dataclasses.asdict(row) for row in rows])
    elif len(rows) == 1:
        _print_one(rows[0])
    else:
        for group in dict.fromkeys(map(_group, rows)):
            _print(group, [row for row in rows if _group(row) == group])


def _select_rows(name: str | None) -> list[Status]:
    rows = status_table()
    if name is None:
        return rows
    wanted = name.removeprefix("flow.").removeprefix("oneflow.")
    found = [r for r in rows if r.name == wanted] or [r for r in rows if wanted in r.name]
    if found:
        return found
    hint = spelling_hint(wanted, [row.name for row in rows], "`flow2onnx symbols` lists them all")
    raise ArgumentError(f"OneFlow has no symbol {name}", hint=hint)


def _group(row: Status) -> str:
    return row.name.rpartition(".")[0]


def _print_one(row: Status) -> None:
    heading(f"flow.{row.name}{rows_of_oneflow()[row.name].text}")
    facts = {"releases": row.releases, "status": row.state, "note": row.note}
    print_facts({key: value for key, value in facts.items() if value})


def _print(group: str, rows: list[Status]) -> None:
    heading(f"flow.{group}" if group else "flow", f"{len(rows)} symbols")
    print_table(
        ("name", "releases", "status"),
        [(r.name.rpartition(".")[2], r.releases, r.state) for r in rows],
        whole=("name",),
    )
    note("")
