"""The dictionary form of an optimizer: `config.train.model_update_conf`."""

from collections.abc import Callable
from typing import Any

from flow2onnx.errors import ConfigError, UnsupportedError
from flow2onnx.optim.adam import LAMB, Adam, AdamW, LazyAdam
from flow2onnx.optim.base import Optimizer
from flow2onnx.optim.clipping import by_global_norm
from flow2onnx.optim.lars import LARS
from flow2onnx.optim.rmsprop import RMSProp
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
    constant_rate,
)
from flow2onnx.optim.sgd import SGDW
from flow2onnx.optim.warmup import Warmup, constant, linear

__all__ = ["from_conf"]

Conf = dict[str, Any]

# By key of the dictionary: the optimizer, and whether it takes a weight decay.
_OPTIMIZERS: dict[str, tuple[Callable[..., Optimizer], bool]] = {
    "naive_conf": (lambda rate, **kw: SGDW(rate, momentum=0, **kw), True),
    "momentum_conf": (lambda rate, beta, **kw: SGDW(rate, momentum=beta, **kw), True),
    "rmsprop_conf": (RMSProp, False),
    "lars_conf": (LARS, True),
    "adam_conf": (lambda rate, amsgrad, **kw: _adam(rate, amsgrad, **kw), True),
    "lazy_adam_conf": (LazyAdam, False),
    "lamb_conf": (LAMB, True),
}
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
    make, takes_decay = _OPTIMIZERS[kinds[0]]
    clip = conf.get("clip_conf", {}).get("clip_by_global_norm")
    optimizer = make(
        _schedule(conf, primary_lr),
        **conf[kinds[0]],
        **(_decay(conf.get("weight_decay_conf")) if takes_decay else {}),
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
        return PiecewiseConstantScheduler([], [base], warmup) if warmup else constant_rate(base)
    ((kind, fields),) = decay.items()
    if kind == "piecewise_constant_conf":
        return PiecewiseConstantScheduler(fields["boundaries"], fields["values"], warmup)
    if kind == "piecewise_scaling_conf":
        first, *scales = fields["scales"]
        return PiecewiseScalingScheduler(base * first, fields["boundaries"],
                                         [s / first for s in scales], warmup)  # fmt: skip
    steps = fields["decay_batches"]
    rest = {k: v for k, v in fields.items() if k != "decay_batches"}
    return _DECAYS[kind](base, steps, **rest, warmup=warmup)


def _warmup(conf: Conf | None) -> Warmup | None:
    if conf is None:
        return None
    ((kind, fields),) = conf.items()
    if kind == "constant_conf":
        return constant(fields["warmup_batches"], fields["multiplier"])
    return linear(fields["warmup_batches"], fields["start_multiplier"])
