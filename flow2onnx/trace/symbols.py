"""OneFlow's public symbols, as its releases had them: the rows of ``symbols.txt``."""

import functools
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from flow2onnx import dtypes

__all__ = ["ANYTHING", "Symbol", "annotated_signature", "symbols"]


class _Anything:
    """A default of OneFlow's that stands for an object, whichever."""

    def __repr__(self) -> str:
        return "..."


ANYTHING = _Anything()
_MEANT = {
    "flow": SimpleNamespace(**{name: getattr(dtypes, name) for name in dtypes.__all__}),
    "distribute": SimpleNamespace(broadcast=lambda: ANYTHING),
    "FunctionConfig": lambda: ANYTHING,
}


@dataclass(frozen=True)
class Symbol:
    """A dotted name below `flow`, the releases that had it, and the text of its signature."""

    name: str
    releases: str
    text: str

    @property
    def signature(self) -> inspect.Signature:
        """The signature; empty for what is no function."""
        text = (self.text or "()").replace("=...", "=FunctionConfig()")
        # The text is ours. The builtins hide nothing in it.
        return inspect.signature(eval(f"lambda {text[1:-1]}: None", dict(_MEANT)))


@functools.cache
def symbols() -> dict[str, Symbol]:
    """Every symbol by name."""
    lines = Path(__file__).with_name("symbols.txt").read_text(encoding="utf-8").splitlines()
    rows = ([part.strip() for part in line.split("|")] for line in lines if line[0] != "#")
    return {row[0]: Symbol(*row, *[""] * (3 - len(row))) for row in rows}


def annotated_signature(name: str, own: Sequence[inspect.Parameter]) -> inspect.Signature:
    """A symbol's signature, annotated as our own parameters of the names or at the places are."""
    rows, known = symbols()[name].signature.parameters.values(), {p.name: p for p in own}
    pairs = [(row, known.get(row.name) or own[i]) for i, row in enumerate(rows)]
    return inspect.Signature([
        row.replace(
            annotation=ours.annotation,
            default=ours.default if row.default is ANYTHING else row.default,
        )
        for row, ours in pairs
    ])  # fmt: skip
