"""Numbers that are fed, checked before the step: a runtime takes -1 for the last class."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flow2onnx_runtime.dtypes import Array
from flow2onnx_runtime.index_ranges import IndexRange

from flow2onnx.compile import CompiledJob
from flow2onnx.errors import ArgumentError
from flow2onnx.graph.class_numbers import index_numbers
from flow2onnx.graph.deferred_model import inputs_of

__all__ = ["FedLabels", "fed_labels"]


@dataclass(frozen=True)
class FedLabels:
    """The position of an array of labels among those that are fed, and what they may be."""

    position: int
    name: str
    range: IndexRange
    source: str | None

    def check(self, arrays: Sequence[Array]) -> None:
        """Raise ArgumentError for a number outside the range."""
        found = self.range.complaint(self.name, arrays[self.position])
        if found is not None:
            message, hint = found
            raise ArgumentError(message, hint=hint).located(None, self.range.layer, self.source)


def fed_labels(job: CompiledJob) -> Iterator[FedLabels]:
    """The arrays of labels, and of numbers of rows, that a call of the job is given."""
    values = {v.name: v for v in inputs_of(job.model)}
    for position, name in enumerate(job.feeds):
        found = index_numbers(values[name]) if name in values else None
        if found is not None:
            numbers = IndexRange(found.least, found.below, found.layer, found.ignored)
            yield FedLabels(position, name, numbers, found.source)
