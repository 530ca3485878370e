"""The whole numbers that an input may hold: class numbers, rows of a table.

A runtime reads -1 as the last class, and raises its own text for a number that is too large.
"""

from dataclasses import dataclass

import numpy as np

from flow2onnx_runtime.dtypes import Array

__all__ = ["IndexRange"]

# Of a type of whole numbers, by character as two have eight bytes: the one without a sign, and the
# largest number.
_UNSIGNED = {c: (np.dtype(c.upper()), int(np.iinfo(c).max)) for c in "bhilq"}


@dataclass(frozen=True)
class IndexRange:
    """Numbers from `least` on and below `below`, and `ignored` where there is such a number.

    Those of classes begin with 0; a table is read from its end by numbers below 0. `layer` is what
    reads them.
    """

    least: int
    below: int
    layer: str = ""
    ignored: int | None = None

    def complaint(self, name: str, array: Array) -> tuple[str, str] | None:
        """The fault of the array given for an input of that name, and a hint; else None."""
        if not array.size or self._are_within(array):
            return None
        wrong = (array < self.least) | (array >= self.below)
        if self.ignored is not None:
            wrong &= array != self.ignored
        count = int(np.count_nonzero(wrong))
        if not count:
            return None
        place = tuple(int(i) for i in np.argwhere(wrong)[0]) if wrong.ndim else ()
        noun, kind = ("index", "rows") if self.least < 0 else ("label", "classes")
        allowed = "" if self.ignored is None else f" (or {self.ignored})"
        return (
            f"argument {name}: the {noun} {array[place]} at {list(place)} is none of the "
            f"{self.below} {kind}, {self.least} to {self.below - 1}{allowed}",
            f"{count} of {array.size} are outside",
        )

    def _are_within(self, array: Array) -> bool:
        """True if all are in the range itself; one reduction for classes, as steps are short."""
        unsigned, largest = _UNSIGNED.get(array.dtype.char, (None, 0))
        if self.least or unsigned is None or self.below > largest:
            return bool(array.min() >= self.least and array.max() < self.below)
        # what is negative is a large number as unsigned; the method would look at options first
        return bool(np.maximum.reduce(array.view(unsigned), axis=None) < self.below)
