"""Curves of trainings: which columns of their rows are curves, and a picture of them."""

import importlib
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flow2onnx_runtime.errors import OptionsError
from flow2onnx_runtime.view.texts import clean

__all__ = [
    "VALIDATION",
    "curve_names",
    "curve_picture",
    "finite_points",
    "merge_validation",
    "plotting",
]

VALIDATION = "val_"  # what the names of validation's columns begin with

Rows = Sequence[Mapping[str, float]]

_COUNTS = ("epoch", "step", "seconds")


def curve_names(columns: Iterable[str]) -> list[str]:
    """The columns that are curves: all but counts, each once, in order."""
    return [name for name in dict.fromkeys(columns) if name not in _COUNTS]


def merge_validation(names: Sequence[str]) -> list[str]:
    """The names without validation's columns of others among them, which share their axes."""
    return [
        name
        for name in names
        if not (name.startswith(VALIDATION) and name.removeprefix(VALIDATION) in names)
    ]


def finite_points(rows: Rows, over: str, name: str) -> list[tuple[float, float]]:
    """The points of the column `name` along `over`, those whose numbers are finite."""
    pairs = [(row[over], row[name]) for row in rows if over in row and name in row]
    return [(x, y) for x, y in pairs if math.isfinite(x) and math.isfinite(y)]


def curve_picture(runs: Mapping[str, Rows], names: Sequence[str], over: str, ending: str) -> bytes:
    """A picture (``png``, ``svg``, ``pdf``): axes for each curve, a colour for each run by title.

    Validation is dashed. Raises `OptionsError` where matplotlib is not installed.
    """
    figure = plotting()(figsize=(7.2, 2.6 * max(len(names), 1) + 0.6), layout="constrained")
    for axes, name in zip(
        figure.subplots(max(len(names), 1), squeeze=False)[:, 0], names, strict=False
    ):
        for number, (title, rows) in enumerate(runs.items()):
            for column, style in ((name, "-"), (f"{VALIDATION}{name}", "--")):
                points = finite_points(rows, over, column)
                if points:
                    label = _plain(title if style == "-" else f"{title}, validation")
                    look = {"color": f"C{number % 10}", "marker": "." if len(points) < 60 else ""}
                    axes.plot(*zip(*points, strict=True), style, label=label, **look)
        axes.set_ylabel(_plain(name))
        axes.set_xlabel(over)
        if all(float(x).is_integer() for line in axes.lines for x in line.get_xdata()):
            axes.xaxis.get_major_locator().set_params(integer=True)  # there is no step 1.2
        axes.grid(alpha=0.25)
        if axes.lines:
            axes.legend(fontsize="small")
    picture = io.BytesIO()
    figure.savefig(picture, format=ending, dpi=150)
    return picture.getvalue()


def _plain(text: str) -> str:
    """A text that matplotlib takes for no formula and for no hidden label."""
    return clean(text).replace("$", r"\$").lstrip("_") or "run"


def plotting() -> Any:  # matplotlib is no requirement, and has no types here
    """matplotlib's figure, drawn without a display; `OptionsError` where it is not installed."""
    try:
        return importlib.import_module("matplotlib.figure").Figure
    except ImportError as error:
        raise OptionsError(
            f"a plot needs matplotlib, which cannot be imported: {error}",
            hint="pip install matplotlib",
        ) from error
