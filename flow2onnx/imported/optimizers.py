"""Optimizers by name, with torch's settings, defaults and formulas for those that torch has.

OneFlow's own, which differ in where epsilon and decay stand, are `flow.optimizer` objects.
"""

from collections.abc import Callable
from typing import Any

from flow2onnx.errors import ArgumentError
from flow2onnx.graph import Value
from flow2onnx.imported.call_text import find_entry
from flow2onnx.optim.adam import LAMB, AdamW, RMSProp
from flow2onnx.optim.base import Optimizer, Step
from flow2onnx.optim.clipping import GlobalNorm, by_global_norm
from flow2onnx.optim.loss_scale import dynamic_loss_scale
from flow2onnx.optim.schedules import Scheduler, constant_rate
from flow2onnx.optim.sgd import LARS, SGDW

__all__ = ["OPTIMIZERS", "optimizer_of"]

Rate = float | Scheduler
Made = Callable[..., Optimizer]


class _TorchAdam(AdamW):
    """w - rate * (m / c1) / (sqrt(v / c2) + epsilon), after w has lost rate * decay * w."""

    updates_rows = False

    def update(self, step: Step, name: str, w: Value, g: Value) -> Value:
        """The next value; c1 and c2 correct the moments' start at 0."""
        b = step.b
        m, v = self.moments(step, name, g)
        first, second = self.corrections(step)
        root = b.Div(b.Sqrt(v), step.scalar(b.Sqrt(second), w))
        direction = b.Div(m, b.Add(root, step.scalar(self.epsilon, w)))
        decay = self.decay.of_variable(name)
        if decay:
            w = b.Sub(w, step.scale(step.scale(w, decay), step.rate))
        return b.Sub(w, step.scale(direction, b.Div(step.rate, first)))


class _TorchRMSProp(RMSProp):
    """w - rate * g / (sqrt(d) + epsilon), d the moving mean of g², or variance if `centered`."""

    def update(self, step: Step, name: str, w: Value, g: Value) -> Value:
        """The next value; the moving means are state beside the variable."""
        b = step.b
        root = b.Add(b.Sqrt(self.spread(step, name, g)), step.scalar(self.epsilon, w))
        return b.Sub(w, step.scale(b.Div(g, root), step.rate))


class _Adagrad(Optimizer):
    """w - rate * g / (sqrt(s) + epsilon), s the sum of all g² so far."""

    epsilon: float

    def update(self, step: Step, name: str, w: Value, g: Value) -> Value:
        """The next value; the sum is state beside the variable."""
        b = step.b
        total = b.Add(step.slot(name, "sum"), b.Mul(g, g))
        step.assign(f"{name}-sum", total)
        root = b.Add(b.Sqrt(total), step.scalar(self.epsilon, w))
        return b.Sub(w, step.scale(b.Div(g, root), step.rate))


def sgd(
    lr: Rate = 0.01, momentum: float = 0.0, clip_norm: float | None = None, **scaling: Any
) -> Optimizer:
    """w - lr * v with v = momentum * v + g."""
    return SGDW(_rate(lr), momentum=momentum, grad_clipping=_clip(clip_norm), **scaling)


def adam(
    lr: Rate = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    clip_norm: float | None = None,
    **scaling: Any,
) -> Optimizer:
    """Adam with bias correction."""
    betas: dict[str, Any] = {"beta1": beta1, "beta2": beta2, "epsilon": eps}
    return _TorchAdam(_rate(lr), grad_clipping=_clip(clip_norm), **betas, **scaling)


def adamw(
    lr: Rate = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.01,
    clip_norm: float | None = None,
    **scaling: Any,
) -> Optimizer:
    """Adam with bias correction and decay beside it."""
    return adam(lr, beta1, beta2, eps, clip_norm, weight_decay=weight_decay, **scaling)


def rmsprop(
    lr: Rate = 0.01,
    alpha: float = 0.99,
    eps: float = 1e-8,
    centered: bool = False,
    clip_norm: float | None = None,
    **scaling: Any,
) -> Optimizer:
    """RMSProp."""
    own: dict[str, Any] = {"decay_rate": alpha, "epsilon": eps, "centered": centered}
    return _TorchRMSProp(_rate(lr), grad_clipping=_clip(clip_norm), **own, **scaling)


def adagrad(
    lr: Rate = 0.01, eps: float = 1e-10, clip_norm: float | None = None, **scaling: Any
) -> Optimizer:
    """Adagrad."""
    return _Adagrad(_rate(lr), epsilon=eps, grad_clipping=_clip(clip_norm), **scaling)


def lamb(
    lr: Rate = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-6,
    weight_decay: float = 0.0,
    clip_norm: float | None = None,
    **scaling: Any,
) -> Optimizer:
    """LAMB with bias correction."""
    own: dict[str, Any] = {
        "beta1": beta1,
        "beta2": beta2,
        "epsilon": eps,
        "weight_decay": weight_decay,
    }
    return LAMB(_rate(lr), grad_clipping=_clip(clip_norm), **own, **scaling)


def lars(
    lr: Rate = 0.01, momentum: float = 0.9, clip_norm: float | None = None, **scaling: Any
) -> Optimizer:
    """LARS."""
    clip = _clip(clip_norm)
    return LARS(_rate(lr), momentum_beta=momentum, grad_clipping=clip, **scaling)


OPTIMIZERS: dict[str, Made] = {
    "sgd": sgd, "adam": adam, "adamw": adamw, "rmsprop": rmsprop, "adagrad": adagrad, "lamb": lamb,
    "lars": lars,
}  # fmt: skip


def optimizer_of(given: object, lr: object, is_float16: bool) -> Optimizer:
    """The optimizer that is given, or the one that a text such as ``adam(beta1=0.8)`` names.

    `lr` is a rate or a schedule for one that is named. In float16 a named one scales the loss.
    """
    if isinstance(given, Optimizer):
        if lr is not None:
            raise ArgumentError("lr= is for optimizers by name", hint="this one has its schedule")
        return given
    if not isinstance(given, str):
        raise ArgumentError(
            f"optimizer is {given!r}", hint=f"{', '.join(OPTIMIZERS)}, or a flow.optimizer object"
        )
    make, settings = find_entry(OPTIMIZERS, given, "optimizer")
    if lr is not None:
        if "lr" in settings:
            raise ArgumentError("the learning rate is given twice", hint="once is enough")
        settings["lr"] = lr
    if is_float16:
        settings["loss_scale_policy"] = dynamic_loss_scale(65536.0)
    made: Optimizer = make(**settings)
    return made


def _rate(lr: object) -> Scheduler:
    if isinstance(lr, Scheduler):
        return lr
    if isinstance(lr, bool) or not isinstance(lr, int | float) or not 0 <= lr < float("inf"):
        raise ArgumentError(
            f"lr is {lr!r}", hint="give a number of at least 0, or a flow.optimizer schedule"
        )
    return constant_rate(float(lr))


def _clip(norm: float | None) -> GlobalNorm | None:
    return None if norm is None else by_global_norm(norm)
