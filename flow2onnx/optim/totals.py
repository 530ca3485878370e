"""Numbers of the variables of a job added up, where each process may know its part of some."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from flow2onnx.graph import Builder, Value

__all__ = ["WHOLE_TOTALS", "Totals"]


@dataclass(frozen=True)
class Totals:
    """The sums over variables; of those that are `divided` `over_ranks` adds up the parts."""

    divided: frozenset[str] = frozenset()
    over_ranks: Callable[[Value], Value] | None = None

    def of(self, b: Builder, numbers: Mapping[str, Value]) -> Value:
        """The sum of numbers of one type, given by variable."""
        own = [v for name, v in numbers.items() if name in self.divided]
        rest = [v for name, v in numbers.items() if name not in self.divided]
        if own:
            assert self.over_ranks is not None, "parts add up over ranks"
            rest.insert(0, self.over_ranks(_sum(b, own)))
        return _sum(b, rest)


def _sum(b: Builder, values: Sequence[Value]) -> Value:
    total = values[0]
    for value in values[1:]:
        total = b.Add(total, value)
    return total


WHOLE_TOTALS = Totals()
