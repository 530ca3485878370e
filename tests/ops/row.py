"""A row of the operator table."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import flow2onnx as flow

FLOATS = ("float32", "float64", "float16")
INTS = ("int32", "int64", "int8", "uint8")
NUMBERS = (*FLOATS, *INTS)
NO_DOUBLE = ("float64",)


@dataclass(frozen=True)
class Row:
    """One way to call an operator.

    `ref` takes the inputs, and the variables that the operator `owns`, as arrays; calls with
    several results return a list. Inputs are drawn from [low, high], whole numbers for `ints`
    (position to the number of values), none nearer than 0.05 to those in `avoid`, and with
    `distinct` no two nearer than 0.1 to each other. `dtypes` are what the operator is for;
    those in `lacks` have no kernel in the runtime. `result` is the element type of what comes
    out, if not that of the input. `grad` are the inputs that gradients reach.
    `how(operator, *blobs)` calls an operator that takes blobs in another way. One that is `ours`
    is none of OneFlow's.
    """

    name: str
    ref: Callable[..., Any]
    shapes: list[tuple[int, ...]]
    args: dict[str, Any] = field(default_factory=dict)
    dtypes: tuple[str, ...] = FLOATS
    result: str = ""
    lacks: tuple[str, ...] = ()
    low: float = -2.0
    high: float = 2.0
    avoid: tuple[float, ...] = ()
    ints: dict[int, int] = field(default_factory=dict)
    int_dtype: str = "int32"
    distinct: bool = False
    grad: tuple[int, ...] | None = None
    takes_list: bool = False
    how: Callable[..., Any] | None = None
    owns: dict[str, tuple[int, ...]] = field(default_factory=dict)
    note: str = ""
    ours: bool = False

    @property
    def id(self):
        return f"{self.name}-{self.note}" if self.note else self.name

    @property
    def varied(self):
        """The inputs that gradients reach."""
        if self.grad is not None:
            return self.grad
        return tuple(i for i in range(len(self.shapes)) if i not in self.ints)

    def call(self, *blobs):
        """The operator on blobs of the job being traced."""
        function = flow
        for part in self.name.split("."):
            function = getattr(function, part)
        args = {k: flow.__dict__[v[5:]] if _is_dtype(v) else v for k, v in self.args.items()}
        if self.how is not None:
            return self.how(function, *blobs)
        return function(list(blobs), **args) if self.takes_list else function(*blobs, **args)

    def draw(self, rng, dtype):
        """Inputs of this row."""
        return [
            rng.integers(0, self.ints[i], shape).astype(self.int_dtype)
            if i in self.ints
            else self._numbers(rng, shape, np.dtype(dtype))
            for i, shape in enumerate(self.shapes)
        ]

    def draw_owned(self, rng, dtype="float32"):
        """Values for the variables that the operator owns."""
        return {n: rng.uniform(-1, 1, s).astype(dtype) for n, s in self.owns.items()}

    def _numbers(self, rng, shape, dtype):
        if dtype.kind != "f":
            low = max(math.ceil(self.low), 0 if dtype.kind == "u" else -100)
            return rng.integers(low, math.floor(self.high) + 1, shape).astype(dtype)
        if self.distinct:
            size = math.prod(shape)
            return ((rng.permutation(size) - size / 2) * 0.125).reshape(shape).astype(dtype)
        x = rng.uniform(self.low, self.high, shape)
        for value in self.avoid:
            near = np.abs(x - value) < 0.05
            x = np.where(near, value + np.where(x < value, -0.1, 0.1), x)
        return x.astype(dtype)


def _is_dtype(value):
    return isinstance(value, str) and value.startswith("flow.")
