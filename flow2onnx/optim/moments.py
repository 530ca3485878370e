"""Optimizers by name of the family of Adam: adam, adamw, nadam, radam, adamax."""

from dataclasses import dataclass

from flow2onnx.dtypes import float32, float64
from flow2onnx.graph import Value
from flow2onnx.optim.base import Step
from flow2onnx.optim.rule import Rule

__all__ = ["AdamRule", "AdamWRule", "Adamax", "Moments", "NAdam", "RAdam"]


@dataclass(frozen=True, kw_only=True)
class Moments(Rule):
    """m and v, the moving means of g and g², which start at 0."""

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def moments(self, step: Step, name: str, g: Value) -> tuple[Value, Value]:
        """Both means after this step; they are state beside the variable."""
        m = step.moving_mean(name, "m", self.beta1, g)
        return m, step.moving_mean(name, "v", self.beta2, step.b.Mul(g, g))

    def root(self, step: Step, v: Value) -> Value:
        """sqrt(v / (1 - beta2^t)) + eps."""
        b, beta = step.b, self.beta2
        share = step.once("root", lambda: b.Sqrt(step.unbiased(beta)))
        return b.Add(b.Div(b.Sqrt(v), step.scalar(share, v)), step.scalar(self.eps, v))

    def unbiased_rate(self, step: Step) -> Value:
        """rate / (1 - beta1^t) in float64."""
        rate = step.precise_rate()
        made: Value = step.once("unbiased", lambda: step.b.Div(rate, step.unbiased(self.beta1)))
        return made


@dataclass(frozen=True, kw_only=True)
class AdamRule(Moments):
    """w - rate * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps), as torch.optim.Adam.

    Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015, algorithm 1. With `amsgrad`
    v is the largest so far (Reddi et al., "On the Convergence of Adam and Beyond", 2018).
    """

    lr: float = 1e-3
    amsgrad: bool = False
    decoupled_weight_decay: bool = False

    def move(self, step: Step, name: str, w: Value, g: Value) -> Value:
        """The next value; both means, and the largest v, are state beside the variable."""
        b, (m, v) = step.b, self.moments(step, name, g)
        if self.amsgrad:
            v = b.Max(step.slot(name, "max_v"), v)
            step.assign(f"{name}-max_v", v)
        return self.down(step, w, b.Div(m, self.root(step, v)), self.unbiased_rate(step))


@dataclass(frozen=True, kw_only=True)
class AdamWRule(AdamRule):
    """adam with decoupled decay, as torch.optim.AdamW.

    Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019, algorithm 2.
    """

    weight_decay: float = 1e-2
    decoupled_weight_decay: bool = True


@dataclass(frozen=True, kw_only=True)
class NAdam(Moments):
    """w - rate * (c1 g + c2 m) / (sqrt(v / (1 - beta2^t)) + eps), as torch.optim.NAdam.

    c1 = (1 - mu_t) / (1 - mu_1 ... mu_t), c2 = mu_(t+1) / (1 - mu_1 ... mu_(t+1)), with
    mu_t = beta1 (1 - 0.96^(t momentum_decay) / 2): Dozat, "Incorporating Nesterov Momentum into
    Adam", 2016.
    """

    lr: float = 2e-3
    momentum_decay: float = 4e-3
    decoupled_weight_decay: bool = False

    def move(self, step: Step, name: str, w: Value, g: Value) -> Value:
        """The next value; both means are state beside the variable, the product is the job's."""
        b, (m, v) = step.b, self.moments(step, name, g)
        now, then = step.once("nadam", lambda: self._rates(step))
        root = self.root(step, v)
        w = self.down(step, w, b.Div(g, root), now)
        return self.down(step, w, b.Div(m, root), then)

    def _rates(self, step: Step) -> tuple[Value, Value]:
        """rate * c1 and rate * c2 in float64."""
        b, rate = step.b, step.precise_rate()
        now, then = self._mu(step, step.time()), self._mu(step, b.Add(step.time(), 1.0))
        product = self._product(step, now)
        first = b.Div(b.Sub(1.0, now), b.Sub(1.0, product))
        second = b.Div(then, b.Sub(1.0, b.Mul(product, then)))
        return b.Mul(rate, first), b.Mul(rate, second)

    def _mu(self, step: Step, t: Value) -> Value:
        b = step.b
        power = b.Pow(b.const([0.96], float64), b.Mul(t, self.momentum_decay))
        return b.Mul(b.Sub(1.0, b.Mul(power, 0.5)), self.beta1)

    def _product(self, step: Step, mu: Value) -> Value:
        """mu_1 ... mu_t, state of the job that begins at 1."""
        job, b = step.job, step.b
        name = job.spec.state_name(f"MuProduct-{self.beta1:g}-{self.momentum_decay:g}")
        if name in job.updates:  # of another group with these settings
            return b.Cast(job.updates[name], to=float64)
        product = b.Mul(b.Cast(job.counter(name, float32, 1.0), to=float64), mu)
        job.assign(name, b.Cast(product, to=float32))
        return product


@dataclass(frozen=True, kw_only=True)
class RAdam(Moments):
    """adam whose rate is rectified by the variance that v has so far, as torch.optim.RAdam.

    Liu et al., "On the Variance of the Adaptive Learning Rate and Beyond", 2020, algorithm 2: with
    r = 2 / (1 - beta2) - 1 and r_t = r - 2 t beta2^t / (1 - beta2^t), a step is along
    m / (1 - beta1^t) while r_t <= 5, and afterwards adam's times
    sqrt((r_t - 4) (r_t - 2) r / ((r - 4) (r - 2) r_t)), with eps beside sqrt(v) alone.
    """

    lr: float = 1e-3
    decoupled_weight_decay: bool = False

    def move(self, step: Step, name: str, w: Value, g: Value) -> Value:
        """The next value; both means are state beside the variable."""
        b, (m, v) = step.b, self.moments(step, name, g)
        is_rectified = step.once("radam is", lambda: b.Greater(self._freedom(step), 5.0))
        factor = step.scalar(step.once("radam factor", lambda: self._factor(step)), v)
        root = b.Add(b.Sqrt(v), step.scalar(self.eps, v))
        # a factor of shape (1,) or of v's rank, and the truth beside it
        shape = list(factor.shape or ())
        truth = is_rectified if len(shape) == 1 else b.Reshape(is_rectified, shape)
        scale = b.Where(truth, b.Div(factor, root), step.scalar(1.0, v))
        return self.down(step, w, b.Mul(m, scale), self.unbiased_rate(step))

    def _freedom(self, step: Step) -> Value:
        """r_t."""
        b, beta = step.b, self.beta2
        share = b.Div(b.Mul(b.Mul(step.time(), 2.0), step.power(beta)), step.unbiased(beta))
        return b.Sub(2.0 / (1.0 - beta) - 1.0, share)

    def _factor(self, step: Step) -> Value:
        """The rectification times sqrt(1 - beta2^t); at least 0, where it is not used."""
        b, whole, now = step.b, 2.0 / (1.0 - self.beta2) - 1.0, self._freedom(step)
        above = b.Mul(b.Mul(b.Sub(now, 4.0), b.Sub(now, 2.0)), whole)
        below = b.Mul(now, (whole - 4.0) * (whole - 2.0))
        rectified = b.Max(b.Div(above, below), b.const([0.0], float64))
        return b.Sqrt(b.Mul(rectified, step.unbiased(self.beta2)))


@dataclass(frozen=True, kw_only=True)
class Adamax(Moments):
    """w - rate / (1 - beta1^t) * m / u with u = max(beta2 u, |g| + eps), as torch.optim.Adamax.

    Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015, algorithm 2.
    """

    lr: float = 2e-3

    def move(self, step: Step, name: str, w: Value, g: Value) -> Value:
        """The next value; m and u are state beside the variable."""
        b = step.b
        m = step.moving_mean(name, "m", self.beta1, g)
        size = b.Add(b.Abs(g), step.scalar(self.eps, g))
        u = b.Max(step.scale(step.slot(name, "u"), self.beta2), size)
        step.assign(f"{name}-u", u)
        return self.down(step, w, b.Div(m, u), self.unbiased_rate(step))
