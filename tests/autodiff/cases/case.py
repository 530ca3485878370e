"""A case: a node, and the inputs it is differentiated at."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

NO_DOUBLE = ("float64",)
# the runtime opens a scatter that adds half precision numbers, and then refuses to run it
ADDING = ("float64", "float32")


@dataclass(frozen=True)
class Case:
    """`make(b, *inputs)` appends the node, and what it needs, and returns its outputs.

    Inputs are drawn from [low, high], none nearer than 0.05 to those in `avoid`; with `distinct`
    no two are nearer than 0.1 to each other. `step` is how far the difference quotient of single
    precision goes: long where the function is linear or quadratic. `lacks` are the element types
    in which the runtime has no kernel for the node or for its gradient. `branches` are the
    functions of the rule that have to be taken; `opset` the first that has the node's form.
    """

    op_type: str
    make: Callable[..., Any]
    shapes: list[tuple[int, ...]]
    note: str = ""
    low: float = -2.0
    high: float = 2.0
    avoid: tuple[float, ...] = ()
    distinct: bool = False
    step: float = 0.01
    dtypes: tuple[str, ...] = ("float64", "float32", "float16")
    lacks: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()
    opset: int = 21

    @property
    def id(self):
        return f"{self.op_type}-{self.note}" if self.note else self.op_type

    def draw(self, rng, dtype):
        """One array for each shape."""
        return [self._numbers(rng, shape).astype(dtype) for shape in self.shapes]

    def _numbers(self, rng, shape):
        size = int(np.prod(shape))
        if self.distinct:
            return ((rng.permutation(size) - size / 2) * 0.125).reshape(shape)
        x = rng.uniform(self.low, self.high, shape)
        for value in self.avoid:
            near = np.abs(x - value) < 0.05
            x = np.where(near, value + np.where(x < value, -0.1, 0.1), x)
        return np.asarray(x)


def plain(op_type, shapes, note="", *, attrs=None, outputs=0, **options):
    """A case that is the node on its inputs."""

    def make(b, *inputs):
        made = b.emit(op_type, inputs, attrs or {}, outputs)
        return made if len(made) > 1 else made[0]

    return Case(op_type, make, shapes, note, **options)


S = (3, 4)


def moved(op_type, note, shapes, make):
    return Case(op_type, make, shapes, note, step=0.5)
