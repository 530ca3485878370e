"""Report: what was checked of a model or bundle, and how the engines differ."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from flow2onnx.errors import BundleError

__all__ = ["Check", "Output", "Report"]


@dataclass(frozen=True)
class Check:
    """One line of a report; `ok` is None for what could not be checked, and `detail` says why."""

    check: str
    ok: bool | None
    detail: str


@dataclass(frozen=True)
class Output:
    """The runtime's values of one output against the reference's.

    `max_rel` is over the elements whose reference is above the absolute tolerance; for both, an
    element that is not finite counts as equal if both engines agree on it, else as infinite.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    max_abs: float
    max_rel: float
    ok: bool


@dataclass(frozen=True)
class Report:
    """The checks of `subject` in order, and the outputs that were compared.

    >>> report = Report("m.onnx", (Check("checker", True, "valid"),))
    >>> report.ok
    True
    >>> print(report)
    m.onnx: passed
      ok  checker  valid
    """

    subject: str
    rows: tuple[Check, ...]
    outputs: tuple[Output, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing failed; what could not be checked has not."""
        return not any(row.ok is False for row in self.rows) and all(o.ok for o in self.outputs)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data."""
        return {"ok": self.ok, **asdict(self)}

    def to_json(self) -> str:
        """The report as JSON text; a number that is not finite becomes text."""
        return json.dumps(_plain(self.to_dict()), indent=1, ensure_ascii=False)

    def raise_if_failed(self) -> None:
        """Raise BundleError that names every failure."""
        failures = [f"{r.check}: {r.detail}" for r in self.rows if r.ok is False]
        failures += [
            f"{o.name} differs by {o.max_abs:.2g} (relative {o.max_rel:.2g})"
            for o in self.outputs
            if not o.ok
        ]
        if failures:
            raise BundleError(
                f"{self.subject} did not pass verification: {'; '.join(failures)}",
                hint="do not deploy it; the report's rows say what was checked and how",
            )

    def __str__(self) -> str:
        head = f"{self.subject}: {'passed' if self.ok else 'FAILED'}"
        lines = [head, *_table([_ok(r.ok), r.check, r.detail] for r in self.rows)]
        if self.outputs:
            titles = ["", "output", "type", "max abs", "max rel"]
            lines += ["", *_table([titles, *(_cells(o) for o in self.outputs)])]
        return "\n".join(lines)


def _ok(ok: bool | None) -> str:
    return {True: "ok", False: "FAIL", None: "-"}[ok]


def _cells(output: Output) -> list[str]:
    kind = f"{output.dtype} {list(output.shape)}"
    return [_ok(output.ok), output.name, kind, f"{output.max_abs:.2e}", f"{output.max_rel:.2e}"]


def _table(rows: Iterable[Sequence[str]]) -> list[str]:
    cells = list(rows)
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))] if cells else []
    return [
        "  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def _plain(value: Any) -> Any:
    """JSON has no infinity and no NaN."""
    if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))):
        return str(value)
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value
