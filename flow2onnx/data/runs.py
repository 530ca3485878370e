"""Runs of trainings as their files tell them: curves of CSV files and of TensorBoard's events."""

import csv
import math
import os
from pathlib import Path

from flow2onnx_runtime import History
from flow2onnx_runtime.event_files import Event
from flow2onnx_runtime.messages import parse_bytes

from flow2onnx.errors import DataError
from flow2onnx.proto.event_files import read_records

__all__ = ["read_run"]

_EVENTS = "*tfevents*"
_HINT = "give a CSV file of fit or lora, a folder with one, or a folder of TensorBoard"


def read_run(path: str | os.PathLike[str]) -> History:
    """The rows of a run: of a CSV file, an event file, or the folder of either.

    Rows of events have the column ``step``. Raises DataError, with the file and the line, for
    what is missing or no run.
    """
    place = Path(path)
    if not os.path.lexists(place):
        raise DataError("there is no such run", place=str(place), hint=_HINT)
    try:
        if not place.is_dir():
            return _events([place]) if "tfevents" in place.name else _table(place)
        tables = sorted(place.glob("*.csv"))
        if tables:  # of lora, whose losses of each step stand beside those of epochs
            return _table(next((t for t in tables if t.stem != "steps"), tables[0]))
        events = sorted(place.rglob(_EVENTS))
    except OSError as error:
        raise DataError(
            f"cannot be read: {error.strerror}", place=str(place), hint=_HINT
        ) from error
    if not events:
        raise DataError("holds neither a CSV file nor events", place=str(place), hint=_HINT)
    return _events(events)


def _table(path: Path) -> History:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = list(csv.reader(file))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"is no CSV file: {error}", place=str(path), hint=_HINT) from error
    if not lines or not lines[0]:
        raise DataError("is empty", place=str(path), hint="train for an epoch first")
    names, rows = lines[0], []
    for number, cells in enumerate(lines[1:], 2):
        if len(cells) != len(names):
            raise DataError(
                f"has {len(cells)} numbers, of {len(names)} columns",
                place=f"{path}, line {number}",
                hint="the file is cut off, or no table of numbers",
            )
        rows.append({n: _number(c, path, number) for n, c in zip(names, cells, strict=True) if c})
    if not rows:
        raise DataError("has no rows", place=str(path), hint="train for an epoch first")
    return History(rows)


def _number(text: str, path: Path, line: int) -> float:
    try:
        return float(text)
    except ValueError:
        raise DataError(
            f"{text[:40]!r} is no number", place=f"{path}, line {line}", hint=_HINT
        ) from None


def _events(paths: list[Path]) -> History:
    """One row for each step; of several files the later ones win."""
    rows: dict[int, dict[str, float]] = {}
    for path in paths:
        for record in read_records(path):
            try:
                event = parse_bytes(record, Event)
            except ValueError as error:
                raise DataError(f"holds no event: {error}", place=str(path)) from error
            for value in event.summary.value:
                if value.HasField("simple_value"):
                    row = rows.setdefault(event.step, {"step": event.step})
                    row[value.tag] = value.simple_value
    if not any(math.isfinite(v) for row in rows.values() for v in row.values()):
        raise DataError(
            "has no curves", place=str(paths[0]), hint="flow.summary.scalar writes some"
        )
    return History([rows[step] for step in sorted(rows)])
