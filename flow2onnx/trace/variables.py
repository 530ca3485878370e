"""Variables: what a job keeps between calls, and how they are regularized."""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Literal

from flow2onnx_runtime.divided import part_size

from flow2onnx.dtypes import DType
from flow2onnx.errors import VariableError
from flow2onnx.graph import Builder, Value
from flow2onnx.trace.initializers import Initializer

__all__ = ["Regularizer", "Role", "Variable", "check_same"]

Role = Literal["variable", "slot", "counter"]


@dataclass(frozen=True)
class Regularizer:
    """Adds ``l1 * sign(w) + l2 * w`` to the gradient of `w`; the loss itself does not change."""

    l1: float = 0.0
    l2: float = 0.0

    def apply(self, b: Builder, g: Value, w: Value) -> Value:
        """The gradient `g` of `w` with the regularizer's own added."""
        if self.l1:
            g = b.Add(g, b.Mul(b.Sign(w), self.l1))
        return b.Add(g, b.Mul(w, self.l2)) if self.l2 else g


@dataclass(frozen=True, kw_only=True)
class Variable:
    """A named tensor that lives from call to call.

    A variable is the user's, a slot an optimizer's (``w-momentum``), a counter a job's (its train
    step). Only variables that are trainable get gradients. A slot may lie in `parts`, of which each
    process that trains the job keeps one: its elements end to end, then zeros, in equal parts.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    initializer: Initializer
    role: Role = "variable"
    _: KW_ONLY
    is_trainable: bool = True
    regularizer: Regularizer | None = None
    model_name: str = "weight"
    seed: int | None = None
    source: str | None = None
    owner: str | None = None  # of a slot
    parts: int = 1

    @property
    def kept_shape(self) -> tuple[int, ...]:
        """The shape of what one process keeps."""
        return self.shape if self.parts == 1 else (part_size(self.shape, self.parts),)

    @property
    def nbytes(self) -> int:
        """The bytes of one copy of what one process keeps."""
        return math.prod(self.kept_shape) * self.dtype.numpy.itemsize


def check_same(first: Variable, second: Variable, job: str, other: str | None = None) -> None:
    """Jobs that share a variable must mean the same by it; the first is of the job `other`."""
    for field in ("shape", "dtype", "parts"):
        here, there = getattr(second, field), getattr(first, field)
        if here != there:
            raise VariableError(
                f"variable {second.name!r} has {field} {here}, but {there} "
                f"{f'in job {other}' if other else 'in another place'}"
                f"{f', {first.source}' if first.source else ''}",
                job=job,
                source=second.source,
                hint="variables are shared by name: use another name or the same shape and dtype",
            )
