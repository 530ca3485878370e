"""HTML of tables and blocks, in which every text is escaped."""

import html
from collections.abc import Iterable, Mapping, Sequence

from flow2onnx_runtime.view.texts import clean

__all__ = ["escape", "facts_table", "folded", "html_block", "table"]

_MOST_ROWS = 400

_STYLE = (
    "font:13px/1.5 system-ui,sans-serif;max-width:100%;overflow-x:auto;"
    "-webkit-text-size-adjust:100%"
)
_CELL = "padding:2px 12px 2px 0;text-align:{side};white-space:nowrap;vertical-align:top"


def escape(text: object) -> str:
    """Anything as text that HTML and SVG take for nothing else."""
    return html.escape(clean(str(text)), quote=True)


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()
) -> str:
    """A table; numbers of the columns in `right` stand under each other. None is a dash."""
    kept = list(rows)
    sides = ["right" if c in right else "left" for c in columns]
    head = "".join(
        f'<th style="{_CELL.format(side=side)};border-bottom:1px solid #8886">{escape(c)}</th>'
        for c, side in zip(columns, sides, strict=True)
    )
    body = "".join(f"<tr>{_cells(row, sides)}</tr>" for row in kept[:_MOST_ROWS])
    more = len(kept) - _MOST_ROWS
    rest = f"<p>and {more:,} more</p>" if more > 0 else ""
    return (
        '<table style="border-collapse:collapse"><thead><tr>'
        f"{head}</tr></thead><tbody>{body}</tbody></table>{rest}"
    )


def _cells(row: Sequence[object], sides: Sequence[str]) -> str:
    styles = [_CELL.format(side=side) for side in sides]
    styles[-1:] = [f"{style};white-space:normal;max-width:48em" for style in styles[-1:]]
    return "".join(
        f'<td style="{style}">{_content(cell)}</td>'
        for cell, style in zip(row, styles, strict=True)
    )


def _content(cell: object) -> str:
    if cell is None:
        return "–"
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else escape(cell)


def facts_table(facts: Mapping[str, object]) -> str:
    """Names and what is to be said of each, without those of which there is nothing to say."""
    rows = [(name, fact) for name, fact in facts.items() if fact not in (None, "")]
    cells = "".join(
        f'<tr><td style="{_CELL.format(side="left")};opacity:.7">{escape(name)}</td>'
        f'<td style="text-align:left;overflow-wrap:anywhere">{_content(fact)}</td></tr>'
        for name, fact in rows
    )
    return f'<table style="border-collapse:collapse"><tbody>{cells}</tbody></table>'


def html_block(title: str, *parts: str) -> str:
    """A heading with what stands under it, as notebooks show it; `parts` are HTML already."""
    return f'<div style="{_STYLE}"><b>{escape(title)}</b>{"".join(parts)}</div>'


def folded(title: str, content: str, *, is_open: bool = False) -> str:
    """HTML that opens on a click on its title."""
    opened = " open" if is_open else ""
    return f"<details{opened}><summary>{escape(title)}</summary>{content}</details>"
