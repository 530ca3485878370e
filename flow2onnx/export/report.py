"""Report: what was checked of a model or bundle, how the engines differ, what precision costs."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flow2onnx_runtime import view

from flow2onnx.errors import BundleError

__all__ = [
    "Answers",
    "Check",
    "Comparison",
    "Difference",
    "Left",
    "Output",
    "Report",
    "Timing",
    "Written",
]


_CHANCE = 1.05  # times of one model differ by so much between two measurements


@dataclass(frozen=True)
class Check:
    """One line of a report; `ok` is None for what could not be checked, and `detail` says why."""

    check: str
    ok: bool | None
    detail: str


@dataclass(frozen=True, kw_only=True)
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
class Difference:
    """One output of a reduced model against float32's; `max_rel` is over elements above 1e-4."""

    name: str
    max_abs: float
    max_rel: float
    mean_abs: float


@dataclass(frozen=True)
class Answers:
    """The classes that a reduced model chooses: how many are float32's, how many are right."""

    count: int
    agreement: float
    accuracy: float | None = None
    float32_accuracy: float | None = None

    @property
    def drop(self) -> float | None:
        """The accuracy that is lost."""
        if self.accuracy is None or self.float32_accuracy is None:
            return None
        return self.float32_accuracy - self.accuracy


@dataclass(frozen=True)
class Timing:
    """Milliseconds of `batch` rows on one thread of the CPU: the median of `runs` of each model."""

    batch: int
    runs: int
    ms: float
    float32_ms: float


@dataclass(frozen=True)
class Left:
    """Operators that stay in float32, and why."""

    operator: str
    count: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A reduced export beside the float32 one; `reduced` counts its operators, `left` the others.

    `bytes` are those of all files.
    """

    precision: str
    data: str
    differences: tuple[Difference, ...]
    answers: Answers | None
    bytes: int
    float32_bytes: int
    timing: Timing
    reduced: dict[str, int]
    left: tuple[Left, ...]

    @property
    def is_slower(self) -> bool:
        """True if the reduced model takes longer than the float32 one, by more than chance."""
        return self.timing.ms > _CHANCE * self.timing.float32_ms

    def worst(self) -> str:
        """The output that differs most, in words."""
        most = max(self.differences, key=lambda d: d.max_abs)
        return f"{most.name} differs by at most {most.max_abs:.1e}"

    def table(self) -> list[tuple[str, str, str]]:
        """The figures of the reduced and of the float32 model, as text."""
        answers, timing = self.answers, self.timing
        rows = [
            ("size", f"{self.bytes:,} bytes", f"{self.float32_bytes:,} bytes"),
            (
                f"latency, {timing.batch} rows",
                f"{timing.ms:.3f} ms",
                f"{timing.float32_ms:.3f} ms",
            ),
        ]
        if answers is not None:
            rows.append(("same answers", f"{answers.agreement:.2%}", f"of {answers.count}"))
        if answers is not None and answers.accuracy is not None:
            full = answers.float32_accuracy
            assert full is not None, "labels are for both models"
            rows.append(("accuracy", f"{answers.accuracy:.2%}", f"{full:.2%}"))
        reduced = ", ".join(f"{op} ×{n}" for op, n in self.reduced.items())
        rows.append(("operators reduced", str(sum(self.reduced.values())), reduced or "none"))
        rows += [
            ("left in float32" if not i else "", f"{o.operator} ×{o.count}", o.reason)
            for i, o in enumerate(self.left)
        ]
        return rows


@dataclass(frozen=True)
class Written:
    """The files of an export, and what is to be said of them."""

    files: Sequence[Path]
    rows: Sequence[Check] = ()
    comparison: Comparison | None = None


@dataclass(frozen=True)
class Report:
    """The checks of `subject` in order, and the outputs that were compared.

    A model in another precision than the job's comes with a `comparison`.

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
    comparison: Comparison | None = None

    @property
    def ok(self) -> bool:
        """True if nothing failed; what could not be checked has not."""
        return not any(row.ok is False for row in self.rows) and all(o.ok for o in self.outputs)

    def summary(self) -> str:
        """The verdict in one line.

        >>> Report("m.onnx", (Check("checker", True, "valid"),)).summary()
        'm.onnx: passed 1 check'
        """
        checks = [row for row in self.rows if row.check != "written" and row.ok is not None]
        failed = sum(not row.ok for row in checks) + sum(not o.ok for o in self.outputs)
        if failed:
            return f"{self.subject}: FAILED verification, {failed} of what was checked"
        said = ""
        if self.outputs:
            worst = max(o.max_abs for o in self.outputs)
            said = f", {_count(self.outputs, 'output')} within {worst:.1e} of the reference"
        return f"{self.subject}: passed {_count(checks, 'check')}{said}"

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

    def __repr__(self) -> str:
        """One line, however much was checked."""
        verdict = "passed" if self.ok else "FAILED"
        return f"<report on {self.subject}: {verdict}, {len(self.rows)} checks>"

    def _repr_html_(self) -> str:
        """The checks and the outputs in tables, for a notebook."""
        rows = [(_ok(r.ok), r.check, r.detail) for r in self.rows]
        parts = [view.table(("", "check", "result"), rows)]
        if self.outputs:
            titles = ("", "output", "type", "max abs", "max rel")
            parts.append(view.table(titles, map(_cells, self.outputs), titles[3:]))
        if self.comparison is not None:
            beside = ("", self.comparison.precision, "float32")
            parts.append(view.table(beside, self.comparison.table()))
        return view.html_block(f"{self.subject}: {'passed' if self.ok else 'FAILED'}", *parts)

    def __str__(self) -> str:
        head = f"{self.subject}: {'passed' if self.ok else 'FAILED'}"
        lines = [head, *_table([_ok(r.ok), r.check, r.detail] for r in self.rows)]
        if self.outputs:
            titles = ["", "output", "type", "max abs", "max rel"]
            lines += ["", *_table([titles, *(_cells(o) for o in self.outputs)])]
        if self.comparison is not None:
            lines += ["", *_comparison_lines(self.comparison)]
        return "\n".join(lines)


def _count(things: Sequence[object], what: str) -> str:
    return f"{len(things)} {what}{'' if len(things) == 1 else 's'}"


def _comparison_lines(comparison: Comparison) -> list[str]:
    titles = ["output", "max abs", "max rel", "mean"]
    rows = [[d.name, *map(_short, (d.max_abs, d.max_rel, d.mean_abs))]
            for d in comparison.differences]  # fmt: skip
    heads = [["", comparison.precision, "float32"], *comparison.table()]
    return [*_table(heads), f"  on {comparison.data}:", *_table([titles, *rows])]


def _short(number: float) -> str:
    return f"{number:.2e}"


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
