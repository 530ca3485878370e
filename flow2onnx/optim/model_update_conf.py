"""The dictionary form of an optimizer: `config.train.model_update_conf`."""

from collections.abc import Callable
from typing import Any

from flow2onnx.errors import ConfigError, UnsupportedError
from flow2onnx.optim.adam import LAMB, Adam, AdamW, LazyAdam, RMSProp
from flow2onnx.optim.base import Optimizer
from flow2onnx.optim.clipping import by_global_norm
from flow2onnx.optim.schedules import (
    CosineScheduler,
    ExponentialScheduler,
    InverseTimeScheduler,
    LinearCosineScheduler,
    NaturalExpScheduler,
    PiecewiseConstantScheduler,
    PiecewiseScalingScheduler,
    PolynomialScheduler,
    Scheduler,
)
from flow2onnx.optim.sgd import LARS, SGDW
from flow2onnx.optim.warmup import Warmup, constant, linear

__all__ = ["from_conf"]

Conf = dict[str, Any]

_OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "naive_conf": lambda rate, **fields: SGDW(rate, momentum=0, **fields),
    "momentum_conf": lambda rate, beta, **fields: SGDW(rate, momentum=beta, **fields),
    "rmsprop_conf": RMSProp,
    "lars_conf": LARS,
    "adam_conf": lambda rate, amsgrad, **fields: _adam(rate, amsgrad, **fields),
    "lazy_adam_conf": LazyAdam,
    "lamb_conf": LAMB,
}
_WITHOUT_DECAY = ("rmsprop_conf", "lazy_adam_conf")
_DECAYS: dict[str, Callable[..., Scheduler]] = {
    "exponential_conf": ExponentialScheduler,
    "inverse_time_conf": InverseTimeScheduler,
    "natural_exp_conf": NaturalExpScheduler,
    "polynomial_conf": PolynomialScheduler,
    "cosine_conf": CosineScheduler,
    "linear_cosine_conf": LinearCosineScheduler,
}


def _adam(rate: Scheduler, amsgrad: bool, **fields: Any) -> Optimizer:
    if amsgrad:
        raise UnsupportedError("adam_conf: amsgrad has no counterpart", hint="leave it out")
    return AdamW(rate, **fields) if "weight_decay" in fields else Adam(rate, **fields)


def from_conf(
    conf: Conf,
    primary_lr: float | None,
    loss_scale: float | None,
    secondary_lr: float | None = None,
) -> Optimizer:
    """The optimizer that the dictionary describes, at the rate of `primary_lr`.

    Variables whose `model_name` is "bias" move at the rate of `secondary_lr`, if there is one.
    """
    kinds = [k for k in conf if k in _OPTIMIZERS]
    if "adagrad_conf" in conf:
        raise UnsupportedError(
            "adagrad_conf belongs to a later API", hint=f"one of {', '.join(_OPTIMIZERS)}"
        )
    if len(kinds) != 1:
        raise ConfigError(
            f"model_update_conf names {len(kinds)} optimizers",
            hint=f"one of {', '.join(_OPTIMIZERS)}",
        )
    clip = conf.get("clip_conf", {}).get("clip_by_global_norm")
    optimizer = _OPTIMIZERS[kinds[0]](
        _schedule(conf, primary_lr),
        **conf[kinds[0]],
        **({} if kinds[0] in _WITHOUT_DECAY else _decay(conf.get("weight_decay_conf"))),
        loss_scale_factor=loss_scale,
        grad_clipping=None if clip is None else by_global_norm(clip["clip_norm"]),
    )
    if secondary_lr is not None:
        optimizer.bias_scheduler = _schedule(conf, secondary_lr)
    return optimizer


def _decay(conf: Conf | None) -> Conf:
    if conf is None:
        return {}
    chosen = {
        f"weight_decay_{k}": list(conf[k]["pattern"]) for k in ("includes", "excludes") if k in conf
    }
    return {"weight_decay": conf["weight_decay_rate"], **chosen}


def _schedule(conf: Conf, primary_lr: float | None) -> Scheduler:
    # Without a rate real OneFlow leaves the variables unchanged.
    base, warmup = primary_lr or 0.0, _warmup(conf.get("warmup_conf"))
    decay = conf.get("learning_rate_decay")
    if decay is None:
        return PiecewiseConstantScheduler(boundaries=[], values=[base], warmup=warmup)
    ((kind, fields),) = decay.items()
    if kind == "piecewise_constant_conf":
        return PiecewiseConstantScheduler(**fields, warmup=warmup)
    if kind == "piecewise_scaling_conf":
        first, *scales = fields["scales"]
        scales = [s / first for s in scales]
        return PiecewiseScalingScheduler(
            base_lr=base * first, boundaries=fields["boundaries"], scale=scales, warmup=warmup
        )
    own = {"steps" if k == "decay_batches" else k: v for k, v in fields.items()}
    return _DECAYS[kind](base_lr=base, **own, warmup=warmup)


def _warmup(conf: Conf | None) -> Warmup | None:
    if conf is None:
        return None
    ((kind, fields),) = conf.items()
    if kind == "constant_conf":
        return constant(fields["warmup_batches"], fields["multiplier"])
    return linear(fields["warmup_batches"], fields["start_multiplier"])
