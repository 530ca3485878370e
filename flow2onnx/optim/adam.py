"""Optimizers that divide by a moving moment of the gradient: RMSProp, Adam and its kin."""

from flow2onnx.graph import Value
from flow2onnx.optim.base import Optimizer, Step
from flow2onnx.trace.registry import publish

__all__ = ["LAMB", "Adam", "AdamW", "LazyAdam", "RMSProp"]


class RMSProp(Optimizer):
    """w - rate * g / sqrt(d + epsilon), d the moving mean of g².

    If `centered`, the square of the moving mean of g is taken off d.
    """

    decay_rate: float
    epsilon: float
    centered: bool

    def update(self, step: Step, name: str, w: Value, g: Value) -> Value:
        """The next value; the moving means are state beside the variable."""
        b = step.b
        root = b.Sqrt(b.Add(self.spread(step, name, g), step.scalar(self.epsilon, w)))
        return b.Sub(w, step.scale(b.Div(g, root), step.rate))

    def spread(self, step: Step, name: str, g: Value) -> Value:
        """The moving mean of g², or if `centered` the moving variance."""
        b = step.b
        square = step.moving_mean(name, "mean_square", self.decay_rate, b.Mul(g, g))
        if not self.centered:
            return square
        mean = step.moving_mean(name, "mean_gradient", self.decay_rate, g)
        return b.Sub(square, b.Mul(mean, mean))


class AdamW(Optimizer):
    """w - rate' * (m / (sqrt(v) + epsilon) + decay * w), m and v the moving moments of g and g².

    By default the moments are not corrected for their start at 0, as in OneFlow; with
    `do_bias_correction` rate' = rate * sqrt(1 - beta2^t) / (1 - beta1^t), t counting from 1.
    Epsilon is not rescaled, and the decay is multiplied by rate' too.
    """

    updates_rows = True

    beta1: float
    beta2: float
    epsilon: float
    do_bias_correction: bool

    def update(self, step: Step, name: str, w: Value, g: Value) -> Value:
        """The next value; both moments are state beside the variable."""
        b = step.b
        m, v = self.moments(step, name, g)
        direction = b.Div(m, b.Add(b.Sqrt(v), step.scalar(self.epsilon, w)))
        decay = self.decay.of_variable(name)
        if decay:
            direction = b.Add(direction, step.scale(w, decay))
        return b.Sub(w, step.scale(direction, self._rate(step)))

    def moments(self, step: Step, name: str, g: Value) -> tuple[Value, Value]:
        """The moving means of g and g²."""
        m = step.moving_mean(name, "m", self.beta1, g)
        return m, step.moving_mean(name, "v", self.beta2, step.b.Mul(g, g))

    def corrections(self, step: Step) -> tuple[Value, Value]:
        """1 - beta^t of both moments: the correction for their start at 0."""
        return step.correction(self.beta1), step.correction(self.beta2)

    def _rate(self, step: Step) -> Value:
        if not self.do_bias_correction or not step.corrects_bias:
            return step.rate
        made: Value = step.once("corrected rate", lambda: self._corrected_rate(step))
        return made

    def _corrected_rate(self, step: Step) -> Value:
        b, (first, second) = step.b, self.corrections(step)
        return b.Mul(step.rate, b.Div(b.Sqrt(second), first))


class Adam(AdamW):
    """AdamW without decay."""


class LazyAdam(Adam):
    """Adam with bias correction; the rows of a table that a step did not read stay as they are."""

    do_bias_correction = True


class LAMB(AdamW):
    """w - rate * r * (u + decay * w), u the corrected Adam direction, r = |w| / |u|.

    r is 1 where a norm is 0. The correction uses the step under way, as OneFlow 0.8 fixed it.
    """

    updates_rows = False

    def update(self, step: Step, name: str, w: Value, g: Value) -> Value:
        """The next value; both moments are state beside the variable."""
        b = step.b
        m, v = self.moments(step, name, g)
        first, second = self.corrections(step)
        root = b.Sqrt(b.Div(v, step.scalar(second, v)))
        u = b.Div(b.Div(m, step.scalar(first, m)), b.Add(root, step.scalar(self.epsilon, w)))
        weight, direction = step.norm(w), step.norm(u)
        is_usable = b.And(b.Greater(weight, 0.0), b.Greater(direction, 0.0))
        divisor = b.Where(is_usable, direction, b.like(1.0, direction))
        trust = b.Where(is_usable, b.Div(weight, divisor), b.like(1.0, weight))
        decay = self.decay.of_variable(name)
        moved = b.Add(u, step.scale(w, decay)) if decay else u
        return b.Sub(w, step.scale(step.scale(moved, trust), step.rate))


for _optimizer in (RMSProp, Adam, AdamW, LAMB, LazyAdam):
    publish(f"optimizer.{_optimizer.__name__}", _optimizer)
