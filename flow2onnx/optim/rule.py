"""The base of optimizers by name: settings that are checked, and decay in its two forms."""

from dataclasses import dataclass
from typing import ClassVar

from flow2onnx.graph import Value
from flow2onnx.optim.base import Step
from flow2onnx.optim.settings import check_settings

__all__ = ["Rule"]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How one variable moves: settings as fields, the formula in `move`.

    `lr` is the rate unless a schedule gives another. `weight_decay` is added to the gradient as
    weight_decay * w, or where a rule `is_decoupled` w loses rate * weight_decay * w at every step
    (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019).
    """

    # True if it can update some rows of a table and leave the others, slots included.
    updates_rows: ClassVar[bool] = True

    lr: float
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def is_decoupled(self) -> bool:
        """True if the decay takes its share of w itself, which some rules have a setting for."""
        return bool(getattr(self, "decoupled_weight_decay", False))

    @property
    def is_plain(self) -> bool:
        """True if a step is w - rate * g and nothing else."""
        return False

    @property
    def leaves_unread_rows(self) -> bool:
        """True if a row whose gradient is zero keeps its value, and its slots theirs."""
        return self.is_plain

    def updates_parts(self, w: Value) -> bool:
        """True if it moves some elements of a variable as it does when it has all of them."""
        return True

    def update(self, step: Step, name: str, w: Value, g: Value) -> Value:
        """The next value of variable `name`, now `w`, of gradient `g`."""
        b = step.b
        if self.weight_decay and self.is_decoupled:
            share = b.Mul(step.scalar(step.rate, w), step.scalar(self.weight_decay, w))
            w = b.Mul(w, b.Sub(step.scalar(1.0, w), share))
        elif self.weight_decay:
            g = b.Add(g, step.scale(w, self.weight_decay))
        return self.move(step, name, w, g)

    def move(self, step: Step, name: str, w: Value, g: Value) -> Value:
        """The next value of `w`, whose decay has been taken care of."""
        raise NotImplementedError

    def down(self, step: Step, w: Value, direction: Value, rate: Value) -> Value:
        """w - rate * direction."""
        return step.b.Sub(w, step.scale(direction, rate))
