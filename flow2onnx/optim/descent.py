"""Optimizers by name that go along the gradient or a momentum: sgd and lion."""

from dataclasses import dataclass

from flow2onnx.errors import ArgumentError
from flow2onnx.graph import Value
from flow2onnx.graph.types import dims
from flow2onnx.optim.base import Step
from flow2onnx.optim.rule import Rule

__all__ = ["Lion", "SGDRule"]


@dataclass(frozen=True, kw_only=True)
class SGDRule(Rule):
    """w - rate * v with v = momentum * v + (1 - dampening) * g, as torch.optim.SGD.

    The first v is g itself. With `nesterov` the step is along g + momentum * v (Sutskever et al.,
    "On the importance of initialization and momentum in deep learning", 2013, in torch's form).
    """

    lr: float = 1e-3
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    decoupled_weight_decay: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and (not self.momentum or self.dampening):
            raise ArgumentError(
                f"nesterov with momentum {self.momentum} and dampening {self.dampening}",
                hint="it needs a momentum above 0 and a dampening of 0",
            )

    @property
    def is_plain(self) -> bool:
        """True without momentum and decay."""
        return not self.momentum and not self.weight_decay

    def move(self, step: Step, name: str, w: Value, g: Value) -> Value:
        """The next value; the momentum is state beside the variable."""
        if not self.momentum:
            return self.down(step, w, g, step.rate)
        b, share = step.b, step.scale(g, 1.0 - self.dampening)
        if self.dampening:
            share = b.Where(b.Equal(step.counter, 0), g, share)
            share = b.Reshape(share, dims(g))  # the counter has a dimension, a scalar has none
        v = b.Add(step.scale(step.slot(name, "momentum_buffer"), self.momentum), share)
        step.assign(f"{name}-momentum_buffer", v)
        along = b.Add(g, step.scale(v, self.momentum)) if self.nesterov else v
        return self.down(step, w, along, step.rate)


@dataclass(frozen=True, kw_only=True)
class Lion(Rule):
    """w - rate * sign(beta1 m + (1 - beta1) g), then m = beta2 m + (1 - beta2) g.

    Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023, algorithm 2; the decay is
    decoupled, and defaults are the paper's.
    """

    lr: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.99
    weight_decay: float = 0.0

    @property
    def is_decoupled(self) -> bool:
        """True."""
        return True

    def move(self, step: Step, name: str, w: Value, g: Value) -> Value:
        """The next value; the momentum is state beside the variable."""
        b, m = step.b, step.slot(name, "m")
        mixed = b.Add(step.scale(m, self.beta1), step.scale(g, 1.0 - self.beta1))
        step.moving_mean(name, "m", self.beta2, g)
        return self.down(step, w, b.Sign(mixed), step.rate)
