"""The table language × feature in `runtime/CONTRACT.md`, made of the tests.

`python -m tests.runtimes.contract_table` writes it anew. A row is what a test of `test_bindings.py`
shows; a cell is a tick where that test runs the language, or the reason why it does not.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.runtimes.c_driver import ROOT

__all__ = ["PAGE", "feature", "is_stale", "table"]

PAGE = ROOT / "runtime" / "CONTRACT.md"
_BEGIN = "<!-- made by python -m tests.runtimes.contract_table -->\n"
_END = "<!-- end of the table -->\n"


def feature(name: str) -> Callable[[Any], Any]:
    """Name the row that a test is."""

    def named(test: Any) -> Any:
        test.feature = name
        return test

    return named


def table() -> str:
    """The rows and the reasons below them, as Markdown."""
    from tests.runtimes import test_bindings  # it imports this module
    from tests.runtimes.languages import LANGUAGES

    rows = [test.feature for test in vars(test_bindings).values() if hasattr(test, "feature")]
    reasons: list[str] = []

    def cell(reason: str) -> str:
        if not reason:
            return "✓"
        if reason not in reasons:
            reasons.append(reason)
        return f"({reasons.index(reason) + 1})"

    lines = ["| | " + " | ".join(language.name for language in LANGUAGES) + " |"]
    lines.append("|---" * (len(LANGUAGES) + 1) + "|")
    for row in rows:
        cells = [cell(language.not_run or language.lacks.get(row, "")) for language in LANGUAGES]
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    notes = [f"({i}) {reason}  " for i, reason in enumerate(reasons, 1)]
    return "\n".join([*lines, "", *notes]).rstrip() + "\n"


def _page() -> str:
    before, rest = PAGE.read_text("utf-8").split(_BEGIN)
    _, after = rest.split(_END)
    return "".join([before, _BEGIN, table(), _END, after])


def is_stale() -> bool:
    """True if the page has another table than the tests make."""
    return PAGE.read_text("utf-8") != _page()


def main(page: Path = PAGE) -> None:
    """Write the table."""
    page.write_text(_page(), "utf-8")


if __name__ == "__main__":
    main()
