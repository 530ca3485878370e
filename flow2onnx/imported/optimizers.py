"""The optimizer of an imported model: one by name, or a `flow.optimizer` object.

Those by name are one table for jobs, imported models and the command line: `optim.named`.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from flow2onnx.errors import ArgumentError
from flow2onnx.imported.parameters import Parameter
from flow2onnx.optim.base import Optimizer
from flow2onnx.optim.groups import match_groups, read_group
from flow2onnx.optim.loss_scale import dynamic_loss_scale
from flow2onnx.optim.named import OPTIMIZERS, NamedOptimizer, named_optimizer
from flow2onnx.optim.named_schedules import SCHEDULES

__all__ = ["OPTIMIZERS", "SCHEDULES", "optimizer_of", "read_group", "split_frozen"]


def optimizer_of(given: object, is_float16: bool, **options: Any) -> Optimizer:
    """The optimizer that is given, or the one that a text such as ``adam(beta1=0.8)`` names.

    `options` are those of `flow.optimizer.named`, for one that is named; in float16 it scales the
    loss. Averages of weights can be asked of any.
    """
    if isinstance(given, Optimizer):
        return _with_averages(given, options)
    if not isinstance(given, str):
        raise ArgumentError(
            f"optimizer is {given!r}", hint=f"{', '.join(OPTIMIZERS)}, or a flow.optimizer object"
        )
    if is_float16:
        options["loss_scale_policy"] = dynamic_loss_scale(65536.0)
    return named_optimizer(given, **options)


def _with_averages(optimizer: Optimizer, options: dict[str, Any]) -> Optimizer:
    ema = options.pop("ema")
    for name, value in options.items():
        if value is not None:
            raise ArgumentError(
                f"{name}= is for optimizers by name", hint="give it to the optimizer itself"
            )
    if ema is not None and optimizer.ema is not None:
        raise ArgumentError("ema is given twice", hint="once is enough")
    made = copy(optimizer)
    made.ema = ema if optimizer.ema is None else optimizer.ema
    return made


def split_frozen(
    optimizer: Optimizer, parameters: Sequence[Parameter]
) -> tuple[Optimizer, float | None, tuple[Parameter, ...]]:
    """The optimizer of the tensors that change, the decay of their averages, and all parameters.

    Those of frozen groups are not trained: they become constants. A group without a tensor that is
    trained, or with one of another group, raises.
    """
    if not isinstance(optimizer, NamedOptimizer):
        return optimizer, optimizer.ema, tuple(parameters)
    names = {p.name: p.aliases for p in parameters if p.is_trained}
    chosen = match_groups(tuple(optimizer.members), names)
    frozen = {n for group, found in chosen.items() if group.frozen for n in found}
    kept = (replace(p, is_trained=False, reason="frozen") if p.name in frozen else p
            for p in parameters)  # fmt: skip
    return optimizer.for_names(chosen), optimizer.ema, tuple(kept)
