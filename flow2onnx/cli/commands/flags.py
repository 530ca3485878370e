"""`flow2onnx flags`: every setting, what it takes and what it does."""

from collections.abc import Iterator

import click

from flow2onnx.cli.options import check_together, json_option
from flow2onnx.cli.show import heading, note, print_facts, print_json, print_table
from flow2onnx.config import flags_table
from flow2onnx.errors import ConfigError, spelling_hint

__all__ = ["flags"]

_MOST = 16  # characters of a default; the whole is shown for one setting alone


@click.command(epilog="""\b
Examples:
  flow2onnx flags
  flow2onnx flags cudnn
  flow2onnx flags enable_auto_mixed_precision
  flow2onnx flags --markdown > docs/flags.md""")  # fmt: skip
@click.argument("name", required=False)
@json_option
@click.option("--markdown", "as_markdown", is_flag=True, help="Write the page of documentation.")
def flags(name: str | None, as_json: bool, as_markdown: bool) -> None:
    """List the settings of jobs, sessions and environment; those whose name contains NAME."""
    check_together(excludes=[("as_markdown", "as_json")])
    rows = _select_rows(name)
    if as_json:
        print_json(rows)
    elif as_markdown:
        click.echo("\n".join(_page(rows)))
    elif len(rows) == 1:
        heading(f"{_group(rows[0])}.{_short(rows[0])}")
        print_facts({key: rows[0][key] for key in ("takes", "default", "effect", "doc")})
    else:
        for group in dict.fromkeys(map(_group, rows)):
            _print(group, [row for row in rows if _group(row) == group])


def _select_rows(name: str | None) -> list[dict[str, str]]:
    rows = flags_table()
    if name is None:
        return rows
    last = name.removeprefix("flow.config.").removeprefix("flow.env.").removeprefix("config.")
    found = [r for r in rows if r["name"] == last] or [r for r in rows if last in r["name"]]
    if found:
        return found
    hint = spelling_hint(last, [row["name"] for row in rows], "`flow2onnx flags` lists them all")
    raise ConfigError(f"no setting is named {name}", hint=hint)


def _group(row: dict[str, str]) -> str:
    """The part before the last dot: ``function_config.train``."""
    return f"{row['table']}.{row['name']}".rpartition(".")[0]


def _page(rows: list[dict[str, str]]) -> Iterator[str]:
    """The rows as a page of Markdown: one table for each group."""
    yield "# Settings"
    yield ""
    yield "<!-- Made by `flow2onnx flags --markdown`; a test compares it with the tables. -->"
    yield ""
    yield "A flag can be called, `config.enable_inplace(False)`, or assigned,"
    yield "`config.enable_inplace = False`. One without effect says so, once, through `logging`."
    yield "What became of the flags of a job is told by `job.explain()` and `flow2onnx explain`."
    for group in dict.fromkeys(map(_group, rows)):
        yield from ("", f"## {group}", "", "| name | takes | default | effect | |")
        yield "| --- | --- | --- | --- | --- |"
        yield from (_line(row) for row in rows if _group(row) == group)


def _line(row: dict[str, str]) -> str:
    cells = (f"`{_short(row)}`", row["takes"], f"`{row['default']}`", row["effect"], row["doc"])
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _short(row: dict[str, str]) -> str:
    return row["name"].rpartition(".")[2]


def _cut(text: str) -> str:
    return text if len(text) <= _MOST else text[: _MOST - 1] + "…"


def _print(group: str, rows: list[dict[str, str]]) -> None:
    heading(group, f"{len(rows)} settings")
    print_table(
        ("name", "default", "effect"),
        [(_short(r), _cut(r["default"]), r["effect"]) for r in rows],
        whole=("name",),
    )
    note("")
