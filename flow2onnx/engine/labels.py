"""Labels that are fed, checked before the step: a runtime takes -1 for the last class."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from flow2onnx_runtime.dtypes import Array

from flow2onnx.compile import CompiledJob
from flow2onnx.errors import ArgumentError
from flow2onnx.graph.class_numbers import ClassNumbers, class_numbers

__all__ = ["FedLabels", "fed_labels"]


@dataclass(frozen=True)
class FedLabels:
    """The position of an array of labels among those that are fed, and what they may be."""

    position: int
    name: str
    numbers: ClassNumbers

    def check(self, arrays: Sequence[Array]) -> None:
        """Raise ArgumentError for a label outside [0, classes)."""
        labels = arrays[self.position]
        if not labels.size or self._are_within(labels):
            return
        wrong = (labels < 0) | (labels >= self.numbers.classes)
        place = tuple(int(i) for i in np.argwhere(wrong)[0]) if wrong.ndim else ()
        raise ArgumentError(
            f"argument {self.name}: the label {labels[place]} at {list(place)} is none of the "
            f"{self.numbers.classes} classes, 0 to {self.numbers.classes - 1}",
            hint=f"{int(wrong.sum())} of {labels.size} labels are outside",
        ).located(None, self.numbers.layer, self.numbers.source)

    def _are_within(self, labels: Array) -> bool:
        """True if all are classes; one reduction, as this is done at every step."""
        unsigned = _UNSIGNED.get(labels.dtype.char)
        if unsigned is None or self.numbers.classes > np.iinfo(labels.dtype).max:
            return bool(labels.min() >= 0 and labels.max() < self.numbers.classes)
        # what is negative is a large number as unsigned
        return bool(labels.view(unsigned).max() < self.numbers.classes)


# By character, as there are two types of eight bytes.
_UNSIGNED = {c: np.dtype(c.upper()) for c in "bhilq"}


def fed_labels(job: CompiledJob) -> Iterator[FedLabels]:
    """The arrays of labels that a call of the job is given."""
    values = {v.name: v for v in job.model.graph.inputs}
    for position, name in enumerate(job.feeds):
        found = class_numbers(values[name]) if name in values else None
        if found is not None:
            yield FedLabels(position, name, found)
