"""One row or more for each operator: how to call it, and what it means in numpy.

A family of operators is a module of `tests.ops.families` with a list `ROWS`.
"""

from importlib import import_module
from pathlib import Path

from tests.ops.row import FLOATS, INTS, NUMBERS, Row

__all__ = ["FLOATS", "INTS", "NUMBERS", "ROWS", "Row"]

_FAMILIES = sorted(p.stem for p in (Path(__file__).parent / "families").glob("*.py"))
ROWS: list[Row] = [
    row for name in _FAMILIES for row in import_module(f"tests.ops.families.{name}").ROWS
]
