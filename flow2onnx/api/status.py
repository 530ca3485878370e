"""How every symbol of OneFlow fares here: the same, different, unsupported, or not yet there."""

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from flow2onnx.api.aliases import ALIASES
from flow2onnx.api.differences import DIFFERENCES
from flow2onnx.api.surface import NAMES
from flow2onnx.api.unsupported import UNSUPPORTED
from flow2onnx.trace.symbols import Symbol, symbols

__all__ = ["SECTION", "Status", "markdown", "status_table"]

State = Literal["same", "old name", "differs", "unsupported", "not yet"]
SECTION = "## All symbols"


@dataclass(frozen=True)
class Status:
    """One symbol: the releases that had it, how it fares here, and what there is to say of that."""

    name: str
    releases: str
    state: State
    note: str = ""


def status_table() -> list[Status]:
    """Every symbol in alphabetical order."""
    return [_status(symbol) for _, symbol in sorted(symbols().items())]


def _status(symbol: Symbol) -> Status:
    name, releases = symbol.name, symbol.releases
    present = {a.old: a.new for a in ALIASES}.get(name)
    if name in UNSUPPORTED:
        row = UNSUPPORTED[name]
        return Status(name, releases, "unsupported", f"{row.reason}; {row.nearest}")
    if name not in NAMES:
        return Status(name, releases, "not yet")
    if present is not None:
        return Status(name, releases, "old name", f"of `{present}`")
    if name in DIFFERENCES:
        return Status(name, releases, "differs", DIFFERENCES[name])
    return Status(name, releases, "same")


def markdown() -> str:
    """The table as a section of COMPATIBILITY.md."""
    rows = status_table()
    count = Counter(row.state for row in rows)
    counted = ", ".join(f"{number} {state}" for state, number in count.most_common())
    return "\n".join([
        SECTION,
        "",
        "Written by `python -m flow2onnx symbols --markdown`. `a` is the state before 0.1.0, 0.6 "
        "is its `compatible.single_client`; from 0.4.0 each name exists below `flow.experimental` "
        f"too. {counted}.",
        "",
        "| symbol | releases | status | |",
        "|---|---|---|---|",
        *(f"| `{r.name}` | {r.releases} | {r.state} | {r.note} |" for r in rows),
        "",
    ])  # fmt: skip
