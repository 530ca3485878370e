"""The history of a training: one row of numbers for each epoch."""

import csv
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flow2onnx_runtime import view
from flow2onnx_runtime.curves import curve_names, curve_picture, merge_validation
from flow2onnx_runtime.files import replace_bytes

__all__ = ["History"]

Row = dict[str, float]


class History(Sequence[Row]):
    """The rows of a training: ``epoch``, ``step``, ``loss``, ``val_loss``, metrics, ``seconds``.

    >>> history = History([{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25}])
    >>> history["loss"]
    [0.5, 0.25]
    >>> history
    <2 epochs: loss 0.25>
    """

    def __init__(self, rows: Sequence[Mapping[str, float]] = ()) -> None:
        self.rows: list[Row] = [dict(row) for row in rows]
        self.stopped: str | None = None

    def __getitem__(self, key: Any) -> Any:
        """The column of a name, or the row of a number."""
        if isinstance(key, str):
            if key not in self.columns:
                raise KeyError(f"{key}: there are {', '.join(self.columns) or 'no columns'}")
            return [row.get(key, float("nan")) for row in self.rows]
        return self.rows[key]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of what there is, in order."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row))

    @property
    def last(self) -> Row:
        """The last row; empty before the first epoch is over."""
        return self.rows[-1] if self.rows else {}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the rows as a CSV file, whole or not at all."""
        text = io.StringIO()
        table = csv.DictWriter(text, self.columns, restval="", lineterminator="\n")
        table.writeheader()
        table.writerows(self.rows)
        replace_bytes(path, text.getvalue().encode())

    def plot(
        self,
        path: str | os.PathLike[str],
        *,
        over: str = "epoch",
        curves: Sequence[str] | None = None,
    ) -> None:
        """Draw curves, training and validation together, to a picture (.png, .svg, .pdf).

        `over` is the column along which they go, `curves` are the columns drawn, all unless told.
        """
        if self.rows:
            self[over]  # raises for a column that is not there
        names = curve_names(n for n in self.columns if curves is None or n in curves)
        ending = os.path.splitext(os.fspath(path))[1][1:] or "png"
        picture = curve_picture({"training": self}, merge_validation(names), over, ending)
        replace_bytes(path, picture)

    def _repr_html_(self) -> str:
        """The rows in a table, for a notebook."""
        cells = [[_figure(row.get(name)) for name in self.columns] for row in self.rows]
        return view.html_block(repr(self)[1:-1], view.table(self.columns, cells, self.columns))

    def __repr__(self) -> str:
        shown = [f"{n} {self.last[n]:.4g}" for n in curve_names(self.last)]
        why = f"; stopped: {self.stopped}" if self.stopped else ""
        count = f"{len(self.rows)} epoch{'s' * (len(self.rows) != 1)}"
        return f"<{count}{': ' * bool(shown)}{', '.join(shown)}{why}>"


def _figure(number: float | None) -> str | None:
    """A number of a row with four digits; counts are whole."""
    return None if number is None else f"{number:,}" if isinstance(number, int) else f"{number:.4g}"
