"""A file of results to which rows are added: of one machine, one title and the same packages."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.contest import Contest, machine
from benchmarks.report import Rows, document

__all__ = ["Record"]


class Record:
    """The numbers that a file of results has already, beside those that are measured now.

    `table` has the texts of the rows, and their order; `about` is what the document says besides
    its `title` and `notes`. What the file has is left out unless `adds`. Raises SystemExit for a
    file of another machine or title.
    """

    def __init__(
        self,
        path: Path,
        title: str,
        table: Mapping[str, tuple[str, str]],
        notes: Sequence[str],
        *,
        adds: bool,
        **about: str,
    ) -> None:
        self._title, self._table, self._notes, self._about = title, table, notes, about
        self._rows: Rows = []
        self._versions: dict[str, dict[str, str]] = {}
        if adds and path.exists():
            self._read(path, json.loads(path.read_text(encoding="utf-8")))

    def _read(self, path: Path, found: dict[str, Any]) -> None:
        for what, wanted in (("machine", machine()), ("title", self._title)):
            if found[what] != wanted:
                raise SystemExit(
                    f"{path} has the {what} {found[what]}, not {wanted}: nothing can be added; "
                    "leave out --add, or name another folder by --out"
                )
        self._rows, self._versions = found["rows"], found["versions"]

    def merged_document(self, contest: Contest) -> dict[str, Any]:
        """The document of both, in the order of the table.

        Raises SystemExit for packages of other versions than those of the rows that are there.
        """
        found = document(contest, machine(), title=self._title, notes=self._notes, **self._about)
        for peer, versions in found["versions"].items():
            if self._versions.get(peer, versions) != versions:
                raise SystemExit(
                    f"{peer} was {self._versions[peer]} in the rows that are there, and is "
                    f"{versions} now: measure them all again, without --add"
                )
        measured = {(r["workload"], r["threads"]) for r in found["rows"]}
        kept = [r for r in self._rows if (r["workload"], r["threads"]) not in measured]
        order = {name: i for i, name in enumerate(self._table)}
        rows = sorted(kept + found["rows"], key=lambda r: (order[r["workload"]], r["threads"]))
        names = dict.fromkeys(r["workload"] for r in rows)
        return found | {
            "versions": self._versions | found["versions"],
            "workloads": {name: self._table[name][0] for name in names},
            "rows": rows,
        }
