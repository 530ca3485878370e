"""OneFlow's public symbols, as its releases had them: the rows of ``symbols.txt``."""

import functools
import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
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
    """A dotted name below `flow`, the releases that had it, and the text of its signature.

    `others` are the texts of other releases, by ``before 0.1.8`` or ``from 0.6.0``.
    """

    name: str
    releases: str
    text: str
    others: dict[str, str] = field(default_factory=dict)

    @property
    def signature(self) -> inspect.Signature:
        """The signature; empty for what is no function."""
        return _signature(self.text or "()")

    def signatures(self, when: str) -> tuple[tuple[str, inspect.Signature], ...]:
        """The signatures ``before`` a release, the newest first, or ``from`` one on, with it."""
        found = ((*key.split(), text) for key, text in self.others.items())
        return tuple((release, _signature(text)) for w, release, text in found if w == when)


def _signature(text: str) -> inspect.Signature:
    # The text is ours. The builtins hide nothing in it.
    parameters = text[1:-1].replace("=...", "=FunctionConfig()")
    return inspect.signature(eval(f"lambda {parameters}: None", dict(_MEANT)))


@functools.cache
def symbols() -> dict[str, Symbol]:
    """Every symbol by name."""
    lines = Path(__file__).with_name("symbols.txt").read_text(encoding="utf-8").splitlines()
    found: dict[str, Symbol] = {}
    for line in lines:
        row = [part.strip() for part in line.split("|")]
        if line.startswith(" "):
            found[next(reversed(found))].others[row[0]] = row[1]
        elif not line.startswith("#"):
            name, releases, text = [*row, ""][:3]
            found[name] = Symbol(name, releases, text)
    return found


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
