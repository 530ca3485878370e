"""The optimizer of an imported model: one by name, or a `flow.optimizer` object.

Those by name are one table for jobs, imported models and the command line: `optim.named`.
"""

from typing import Any

from flow2onnx.errors import ArgumentError
from flow2onnx.optim.base import Optimizer
from flow2onnx.optim.loss_scale import dynamic_loss_scale
from flow2onnx.optim.named import OPTIMIZERS, NamedOptimizer, named_optimizer

__all__ = ["OPTIMIZERS", "frozen_patterns", "optimizer_of"]


def optimizer_of(given: object, lr: object, is_float16: bool, **options: Any) -> Optimizer:
    """The optimizer that is given, or the one that a text such as ``adam(beta1=0.8)`` names.

    `lr` and `options` are those of `flow.optimizer.named`, for one that is named; in float16 it
    scales the loss.
    """
    options["lr"] = lr
    if isinstance(given, Optimizer):
        for name, value in options.items():
            if value is not None:
                raise ArgumentError(
                    f"{name}= is for optimizers by name", hint="give it to the optimizer itself"
                )
        return given
    if not isinstance(given, str):
        raise ArgumentError(
            f"optimizer is {given!r}", hint=f"{', '.join(OPTIMIZERS)}, or a flow.optimizer object"
        )
    if is_float16:
        options["loss_scale_policy"] = dynamic_loss_scale(65536.0)
    return named_optimizer(given, **options)


def frozen_patterns(optimizer: Optimizer) -> tuple[Optimizer, tuple[str, ...]]:
    """The optimizer without its frozen groups, and their patterns."""
    if not isinstance(optimizer, NamedOptimizer) or not optimizer.frozen:
        return optimizer, ()
    return optimizer.without_frozen(), optimizer.frozen
