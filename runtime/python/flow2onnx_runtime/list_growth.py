"""How long the lists of sizes become that a model puts together.

Runtimes carry the content of shapes and other short lists from node to node while they open a
model. A list that is put together with itself 40 times has 10^12 numbers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

__all__ = ["CARRIERS", "ListSteps"]

CONCAT = b"Concat"
# The operators that runtimes compute on lists that they know. All but Concat make none that is
# longer than what they are given.
CARRIERS = frozenset(
    {CONCAT, b"Add", b"Cast", b"Div", b"Gather", b"Identity", b"Mul", b"Slice", b"Squeeze", b"Sub",
     b"Unsqueeze"}
)  # fmt: skip


@dataclass
class ListSteps:
    """The nodes of a body that put lists together or carry them, by the names of what they make.

    A node is its operator, or the key of the function that it calls, and the names that it reads.
    `outputs` are those of a function.
    """

    makers: dict[bytes, tuple[object, Sequence[bytes]]] = field(default_factory=dict)
    outputs: list[bytes] = field(default_factory=list)

    def lengths(self, growth: Callable[[object], int]) -> dict[bytes, int]:
        """The length of all that is made, where what is not made here is 1 long.

        `growth` says how many times longer a function's outputs are than what it reads. The nodes
        may be in any order.
        """
        found: dict[bytes, int] = {}
        for name in self.makers:
            todo = [name]
            while todo:
                kind, reads = self.makers[todo[-1]]
                found.setdefault(todo[-1], 0)  # 0 while it is worked on: a circle ends here
                missing = [r for r in reads if r in self.makers and r not in found]
                if missing:
                    todo += missing
                    continue
                sizes = [found.get(read, 1) for read in reads]
                made = sum(sizes) if kind == CONCAT else max(sizes, default=1) * growth(kind)
                found[todo.pop()] = max(made, 1)
        return found

    def longest(self, growth: Callable[[object], int]) -> int:
        """The length of the longest output."""
        found = self.lengths(growth)
        return max((found.get(name, 1) for name in self.outputs), default=1)

    def total(self, growth: Callable[[object], int]) -> int:
        """The length of all lists that are put together here, or made longer by functions."""
        return sum(
            n
            for name, n in self.lengths(growth).items()
            if (kind := self.makers[name][0]) == CONCAT or growth(kind) > 1
        )
