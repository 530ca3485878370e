"""Optimizers by name that divide by a sum or mean of g²: rmsprop, adagrad, adadelta."""

from dataclasses import dataclass

from flow2onnx.graph import Value
from flow2onnx.optim.base import Step
from flow2onnx.optim.rule import Rule

__all__ = ["Adadelta", "Adagrad", "RMSPropRule"]


@dataclass(frozen=True, kw_only=True)
class RMSPropRule(Rule):
    """w - rate * g / (sqrt(s) + eps), s = alpha s + (1 - alpha) g², as torch.optim.RMSprop.

    If `centered` the square of the moving mean of g is taken off s (Graves, "Generating Sequences
    With Recurrent Neural Networks", 2013). With a momentum the step is along
    u = momentum u + g / (sqrt(s) + eps). Hinton, lectures on neural networks, 6e, 2012.
    """

    lr: float = 1e-2
    alpha: float = 0.99
    eps: float = 1e-8
    momentum: float = 0.0
    centered: bool = False

    def move(self, step: Step, name: str, w: Value, g: Value) -> Value:
        """The next value; the moving means and the momentum are state beside the variable."""
        b = step.b
        square = step.moving_mean(name, "mean_square", self.alpha, b.Mul(g, g))
        if self.centered:
            mean = step.moving_mean(name, "mean_gradient", self.alpha, g)
            # rounding can make it negative, of which there is no root
            square = b.Relu(b.Sub(square, b.Mul(mean, mean)))
        along = b.Div(g, b.Add(b.Sqrt(square), step.scalar(self.eps, g)))
        if self.momentum:
            along = b.Add(step.scale(step.slot(name, "momentum_buffer"), self.momentum), along)
            step.assign(f"{name}-momentum_buffer", along)
        return self.down(step, w, along, step.rate)


@dataclass(frozen=True, kw_only=True)
class Adagrad(Rule):
    """w - rate / (1 + (t - 1) lr_decay) * g / (sqrt(s) + eps), s the sum of all g² so far.

    As torch.optim.Adagrad; s begins at `initial_accumulator_value`. Duchi et al., "Adaptive
    Subgradient Methods for Online Learning and Stochastic Optimization", 2011.
    """

    lr: float = 1e-2
    lr_decay: float = 0.0
    initial_accumulator_value: float = 0.0
    eps: float = 1e-10

    @property
    def leaves_unread_rows(self) -> bool:
        """True without decay: nothing is added to the sum, and 0 divided by its root is 0."""
        return self.weight_decay == 0 and self.eps > 0

    def move(self, step: Step, name: str, w: Value, g: Value) -> Value:
        """The next value; the sum is state beside the variable."""
        b = step.b
        total = b.Add(step.slot(name, "sum", self.initial_accumulator_value), b.Mul(g, g))
        step.assign(f"{name}-sum", total)
        root = b.Add(b.Sqrt(total), step.scalar(self.eps, w))
        return self.down(step, w, b.Div(g, root), self._rate(step))

    def _rate(self, step: Step) -> Value:
        if not self.lr_decay:
            return step.rate
        b = step.b
        slowed = b.Add(b.Mul(b.Sub(step.time(), 1.0), self.lr_decay), 1.0)
        return b.Div(step.precise_rate(), slowed)


@dataclass(frozen=True, kw_only=True)
class Adadelta(Rule):
    """w - rate * d with d = sqrt(a + eps) / sqrt(s + eps) * g, as torch.optim.Adadelta.

    s and a are the moving means of g² and, from the last step, of d²: Zeiler, "ADADELTA: An
    Adaptive Learning Rate Method", 2012, algorithm 1.
    """

    lr: float = 1.0
    rho: float = 0.9
    eps: float = 1e-6

    def move(self, step: Step, name: str, w: Value, g: Value) -> Value:
        """The next value; both means are state beside the variable."""
        b, eps = step.b, step.scalar(self.eps, w)
        square = step.moving_mean(name, "mean_square", self.rho, b.Mul(g, g))
        past = b.Add(step.slot(name, "mean_delta"), eps)
        # one root of the quotient would be less exact where both are small
        delta = b.Mul(b.Div(b.Sqrt(past), b.Sqrt(b.Add(square, eps))), g)
        step.moving_mean(name, "mean_delta", self.rho, b.Mul(delta, delta))
        return self.down(step, w, delta, step.rate)
