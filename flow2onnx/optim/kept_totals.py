"""Sums over the variables of a job of which processes keep different parts: by transfers."""

from collections.abc import Mapping
from dataclasses import dataclass

from flow2onnx.graph import Builder, Value
from flow2onnx.graph.transfers import Transfer
from flow2onnx.graph.types import dims
from flow2onnx.optim.totals import Totals
from flow2onnx.trace.job import Job

__all__ = ["KeptTotals", "add_up"]


def add_up(job: Job, number: Value) -> Value:
    """The sum of what all processes have of a number."""
    return job.b.transfer(Transfer("all_reduce", dims(number)), number, dims(number), None)


@dataclass(frozen=True)
class KeptTotals(Totals):
    """The sums over variables of which processes keep parts, or which one of them keeps."""

    job: Job | None = None

    def of(self, b: Builder, numbers: Mapping[str, Value]) -> Value:
        """The sum of numbers of one type, given by variable."""
        assert self.job is not None, "a job keeps them"
        kept, parts, whole = self.job.kept, dict[int, list[Value]](), list[Value]()
        for name, number in numbers.items():
            if name not in kept:
                whole.append(number)
            else:
                place = kept[name].number if kept[name].kind == "at" else -1
                parts.setdefault(place, []).append(number)
        own = []
        for place, values in parts.items():
            total = _sum(b, values)
            if place >= 0:  # zeros elsewhere
                fill = Transfer("fill", dims(total), place)
                total = b.transfer(fill, total, dims(total), None)
            own.append(total)
        if own:
            whole.insert(0, add_up(self.job, _sum(b, own)))
        return _sum(b, whole)


def _sum(b: Builder, values: list[Value]) -> Value:
    total = values[0]
    for value in values[1:]:
        total = b.Add(total, value)
    return total
