"""The dictionary form of an optimizer: `config.train.model_update_conf`."""

from collections.abc import Callable
from typing import Any

from flow2onnx.errors import ConfigError, UnsupportedError
from flow2onnx.optim.adam import Adam
from flow2onnx.optim.base import Optimizer
from flow2onnx.optim.clipping import by_global_norm
from flow2onnx.optim.schedules import Constant, PiecewiseConstantScheduler, Scheduler
from flow2onnx.optim.sgd import SGD

__all__ = ["from_conf"]

_OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "naive_conf": lambda rate, **kw: SGD(rate, momentum=0, **kw),
    "momentum_conf": lambda rate, beta=0.9, **kw: SGD(rate, momentum=beta, **kw),
    # recorded runs of the dictionary form are bias-corrected, unlike flow.optimizer.Adam
    "adam_conf": lambda rate, do_bias_correction=True, **kw: Adam(
        rate, do_bias_correction=do_bias_correction, **kw
    ),
}
_DECORATIONS = ("learning_rate_decay", "clip_conf")


def from_conf(
    conf: dict[str, Any], primary_lr: float | None, loss_scale: float | None
) -> Optimizer:
    """The optimizer that the dictionary describes, at the rate of `primary_lr`."""
    kinds = [k for k in conf if k in _OPTIMIZERS]
    others = [k for k in conf if k not in _OPTIMIZERS and k not in _DECORATIONS]
    if others:
        raise UnsupportedError(
            f"model_update_conf: {', '.join(others)} is not available in this version",
            hint=f"available: {', '.join([*_OPTIMIZERS, *_DECORATIONS])}",
        )
    if len(kinds) != 1:
        raise ConfigError(
            f"model_update_conf names {len(kinds)} optimizers",
            hint=f"one of {', '.join(_OPTIMIZERS)}",
        )
    clip = conf.get("clip_conf", {}).get("clip_by_global_norm")
    return _OPTIMIZERS[kinds[0]](
        _schedule(conf.get("learning_rate_decay"), primary_lr),
        **conf[kinds[0]],
        loss_scale_factor=loss_scale,
        grad_clipping=None if clip is None else by_global_norm(clip["clip_norm"]),
    )


def _schedule(decay: dict[str, Any] | None, primary_lr: float | None) -> Scheduler:
    if decay is None:
        # Without a rate real OneFlow leaves the variables unchanged.
        return Constant(0.0 if primary_lr is None else primary_lr)
    ((kind, fields),) = decay.items()
    if kind != "piecewise_constant_conf":
        raise UnsupportedError(
            f"learning_rate_decay: {kind} is not available in this version",
            hint="available: piecewise_constant_conf",
        )
    return PiecewiseConstantScheduler(fields["boundaries"], fields["values"])
