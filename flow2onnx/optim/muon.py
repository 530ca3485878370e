"""Muon: the momentum of a matrix, made nearly orthogonal; adamw for all that is no matrix."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from flow2onnx.errors import ArgumentError
from flow2onnx.graph import Value
from flow2onnx.graph.types import dims
from flow2onnx.optim.base import Step
from flow2onnx.optim.moments import AdamWRule
from flow2onnx.optim.rule import Rule

__all__ = ["Muon"]

# Of the polynomial a x + b x³ + c x⁵ whose iterates take singular values to about 1.
_A, _B, _C = 3.4445, -4.7750, 2.0315


@dataclass(frozen=True, kw_only=True)
class Muon(Rule):
    """w - rate * s * O(u), u = momentum m + (1 - momentum) g with m the moving mean of g.

    O takes the singular values of a matrix to about 1 by `ns_steps` Newton-Schulz iterations
    x <- a x + (b x xᵀ + c (x xᵀ)²) x from u / max(|u|, eps): Jordan et al., "Muon: An optimizer for
    hidden layers in neural networks", 2024. Without `nesterov` u = m. s is sqrt(max(1, rows /
    columns)), with adjust_lr="spectral_unclamped" sqrt(rows / columns), and with "match_rms_adamw"
    0.2 sqrt(max(rows, columns)) (Liu et al., "Muon is Scalable for LLM Training", 2025); rows and
    columns are those of the weight as the model has it. As torch.optim.Muon, which iterates in
    bfloat16; here it is the type of the weight. Tensors of other ranks than 2 move by adamw of the
    adamw_ settings, at the rate of the matrices unless `adamw_lr` is given.
    """

    updates_rows: ClassVar[bool] = False

    lr: float = 1e-3
    weight_decay: float = 0.1
    momentum: float = 0.95
    nesterov: bool = True
    ns_steps: int = 5
    eps: float = 1e-7
    adjust_lr: Literal["original", "match_rms_adamw", "spectral_unclamped"] = "original"
    adamw_lr: float | None = None
    adamw_beta1: float = 0.9
    adamw_beta2: float = 0.999
    adamw_eps: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.adamw_lr is not None and not self.lr:
            raise ArgumentError("adamw_lr beside a rate of 0", hint="give lr= above 0")

    @property
    def is_decoupled(self) -> bool:
        """True."""
        return True

    def updates_parts(self, w: Value) -> bool:
        """False for a matrix, whose singular values are those of all its elements."""
        return len(dims(w)) != 2

    def update(self, step: Step, name: str, w: Value, g: Value) -> Value:
        """The next value: a matrix by Muon, anything else by adamw."""
        if len(dims(w)) == 2:
            return super().update(step, name, w, g)
        return self._adamw().update(self._other_step(step), name, w, g)

    def move(self, step: Step, name: str, w: Value, g: Value) -> Value:
        """The next value of a matrix; the momentum is state beside it."""
        b = step.b
        m = step.moving_mean(name, "momentum_buffer", self.momentum, g)
        if self.nesterov:
            m = b.Add(step.scale(g, 1.0 - self.momentum), step.scale(m, self.momentum))
        moved = step.scale(self._orthogonal(step, m), self._share(*dims(w)))
        return self.down(step, w, moved, step.rate)

    def _share(self, rows: int, columns: int) -> float:
        """The part of the rate that the shape of a matrix decides."""
        if self.adjust_lr == "match_rms_adamw":
            return 0.2 * math.sqrt(max(rows, columns))
        ratio = rows / columns
        return math.sqrt(ratio if self.adjust_lr == "spectral_unclamped" else max(1.0, ratio))

    def _orthogonal(self, step: Step, x: Value) -> Value:
        """A matrix with the singular vectors of `x`, whose singular values are about 1."""
        b, (rows, columns) = step.b, dims(x)
        is_tall = rows > columns
        x = b.Transpose(x, perm=[1, 0]) if is_tall else x
        norm = step.norm(x)
        x = b.Div(x, step.scalar(b.Max(norm, b.like([self.eps], norm)), x))
        for _ in range(self.ns_steps):
            gram = b.Gemm(x, x, transB=1)
            x = b.Gemm(b.Gemm(gram, gram, gram, alpha=_C, beta=_B), x, x, beta=_A)
        return b.Transpose(x, perm=[1, 0]) if is_tall else x

    def _adamw(self) -> AdamWRule:
        return AdamWRule(
            beta1=self.adamw_beta1,
            beta2=self.adamw_beta2,
            eps=self.adamw_eps,
            weight_decay=self.weight_decay,
        )

    def _other_step(self, step: Step) -> Step:
        """The step at the rate of the inner adamw."""
        if self.adamw_lr is None:
            return step
        share = self.adamw_lr / self.lr
        made: Step = step.once("adamw", lambda: replace(step, rate=step.b.Mul(step.rate, share)))
        return made
