"""`flow.optimizer`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import builtins as _builtins
import collections.abc as _collections_abc
import flow2onnx.optim.adam as _flow2onnx_optim_adam
import flow2onnx.optim.base as _flow2onnx_optim_base
import flow2onnx.optim.clipping as _flow2onnx_optim_clipping
import flow2onnx.optim.combined as _flow2onnx_optim_combined
import flow2onnx.optim.named as _flow2onnx_optim_named
import flow2onnx.optim.schedules as _flow2onnx_optim_schedules
import flow2onnx.optim.sgd as _flow2onnx_optim_sgd
import flow2onnx.optim.warmup as _flow2onnx_optim_warmup
import typing as _typing
import typing_extensions as _typing_extensions

class Adam(_flow2onnx_optim_adam.Adam):
    """AdamW without decay."""
    def __init__(self, lr_scheduler: _flow2onnx_optim_schedules.Scheduler | _builtins.float | _collections_abc.Callable[..., _typing.Any], beta1: _builtins.float = 0.9, beta2: _builtins.float = 0.999, epsilon: _builtins.float = 1e-08, do_bias_correction: _builtins.bool = False, loss_scale_factor: _builtins.float | None = None, grad_clipping: _flow2onnx_optim_clipping.Clipping | None = None, train_step_lbn: _builtins.str | None = None, loss_scale_policy: _typing.Any = None, variables: _collections_abc.Sequence[_builtins.str] | _collections_abc.Callable[[], _collections_abc.Sequence[_builtins.str]] | None = None) -> None: ...
class AdamW(_flow2onnx_optim_adam.AdamW):
    """w - rate' * (m / (sqrt(v) + epsilon) + decay * w), m and v the moving moments of g and g².

    By default the moments are not corrected for their start at 0, as in OneFlow; with
    `do_bias_correction` rate' = rate * sqrt(1 - beta2^t) / (1 - beta1^t), t counting from 1.
    Epsilon is not rescaled, and the decay is multiplied by rate' too.
    """
    def __init__(self, lr_scheduler: _flow2onnx_optim_schedules.Scheduler | _builtins.float | _collections_abc.Callable[..., _typing.Any], beta1: _builtins.float = 0.9, beta2: _builtins.float = 0.999, epsilon: _builtins.float = 1e-08, do_bias_correction: _builtins.bool = False, loss_scale_factor: _builtins.float | None = None, weight_decay: _builtins.float | None = None, weight_decay_includes: _typing.Any = None, weight_decay_excludes: _typing.Any = None, grad_clipping: _flow2onnx_optim_clipping.Clipping | None = None, train_step_lbn: _builtins.str | None = None, loss_scale_policy: _typing.Any = None, variables: _collections_abc.Sequence[_builtins.str] | _collections_abc.Callable[[], _collections_abc.Sequence[_builtins.str]] | None = None) -> None: ...
class CombinedOptimizer(_flow2onnx_optim_combined.CombinedOptimizer):
    """Each member trains the variables that it names; the loss scale is common."""
    def __init__(self, optimizers: _collections_abc.Sequence[_flow2onnx_optim_base.Optimizer], loss_scale_factor: _builtins.float | None = None, train_step_lbn: _builtins.str | None = None, loss_scale_policy: _typing.Any = None) -> None: ...
class CosineScheduler(_flow2onnx_optim_schedules.CosineScheduler):
    """base ((1 - alpha) (1 + cos(π q / steps)) / 2 + alpha) with q = min(k, steps)."""
    def __init__(self, base_lr: _builtins.float, steps: _builtins.int, alpha: _builtins.float = 0.0, warmup: _flow2onnx_optim_warmup.Warmup | None = None) -> None: ...
class CustomScheduler(_flow2onnx_optim_schedules.CustomScheduler):
    """The rate is a blob of the job, named by its logical blob name ``op/out``."""
    def __init__(self, lbn: _builtins.str) -> None: ...
class ExponentialScheduler(_flow2onnx_optim_schedules.ExponentialScheduler):
    """base * decay_rate^(k / steps)."""
    def __init__(self, base_lr: _builtins.float, steps: _builtins.int, decay_rate: _builtins.float, staircase: _builtins.bool = False, warmup: _flow2onnx_optim_warmup.Warmup | None = None) -> None: ...
class InverseTimeScheduler(_flow2onnx_optim_schedules.InverseTimeScheduler):
    """base / (1 + decay_rate k / steps)."""
    def __init__(self, base_lr: _builtins.float, steps: _builtins.int, decay_rate: _builtins.float, staircase: _builtins.bool = False, warmup: _flow2onnx_optim_warmup.Warmup | None = None) -> None: ...
class LAMB(_flow2onnx_optim_adam.LAMB):
    """w - rate * r * (u + decay * w), u the corrected Adam direction, r = |w| / |u|.

    r is 1 where a norm is 0. The correction uses the step under way, as OneFlow 0.8 fixed it.
    """
    def __init__(self, lr_scheduler: _flow2onnx_optim_schedules.Scheduler | _builtins.float | _collections_abc.Callable[..., _typing.Any], beta1: _builtins.float = 0.9, beta2: _builtins.float = 0.999, epsilon: _builtins.float = 1e-06, loss_scale_factor: _builtins.float | None = None, weight_decay: _builtins.float | None = None, weight_decay_includes: _typing.Any = None, weight_decay_excludes: _typing.Any = None, grad_clipping: _flow2onnx_optim_clipping.Clipping | None = None, train_step_lbn: _builtins.str | None = None, loss_scale_policy: _typing.Any = None, variables: _collections_abc.Sequence[_builtins.str] | _collections_abc.Callable[[], _collections_abc.Sequence[_builtins.str]] | None = None) -> None: ...
class LARS(_flow2onnx_optim_sgd.LARS):
    """w + v - η * decay * w with v = momentum * v - η * g.

    η = rate * coefficient * |w| / (ε + |g| + decay * |w|), or the rate itself where a norm is 0.
    """
    def __init__(self, lr_scheduler: _flow2onnx_optim_schedules.Scheduler | _builtins.float | _collections_abc.Callable[..., _typing.Any], momentum_beta: _builtins.float = 0.9, epsilon: _builtins.float = 1e-09, lars_coefficient: _builtins.float = 0.0001, loss_scale_factor: _builtins.float | None = None, weight_decay: _builtins.float | None = None, weight_decay_includes: _typing.Any = None, weight_decay_excludes: _typing.Any = None, grad_clipping: _flow2onnx_optim_clipping.Clipping | None = None, train_step_lbn: _builtins.str | None = None, loss_scale_policy: _typing.Any = None, variables: _collections_abc.Sequence[_builtins.str] | _collections_abc.Callable[[], _collections_abc.Sequence[_builtins.str]] | None = None) -> None: ...
class LazyAdam(_flow2onnx_optim_adam.LazyAdam):
    """Adam with bias correction; the rows of a table that a step did not read stay as they are."""
    def __init__(self, lr_scheduler: _flow2onnx_optim_schedules.Scheduler | _builtins.float | _collections_abc.Callable[..., _typing.Any], beta1: _builtins.float = 0.9, beta2: _builtins.float = 0.999, epsilon: _builtins.float = 1e-08, loss_scale_factor: _builtins.float | None = None, grad_clipping: _flow2onnx_optim_clipping.Clipping | None = None, train_step_lbn: _builtins.str | None = None, loss_scale_policy: _typing.Any = None, variables: _collections_abc.Sequence[_builtins.str] | _collections_abc.Callable[[], _collections_abc.Sequence[_builtins.str]] | None = None) -> None: ...
class LinearCosineScheduler(_flow2onnx_optim_schedules.LinearCosineScheduler):
    """base ((alpha + l) c + beta), l = 1 - q/steps, c = (1 + cos(2π num_periods q/steps))/2."""
    def __init__(self, base_lr: _builtins.float, steps: _builtins.int, num_periods: _builtins.float = 0.5, alpha: _builtins.float = 0.0, beta: _builtins.float = 0.001, warmup: _flow2onnx_optim_warmup.Warmup | None = None) -> None: ...
class NaturalExpScheduler(_flow2onnx_optim_schedules.NaturalExpScheduler):
    """base * e^(-decay_rate k / steps)."""
    def __init__(self, base_lr: _builtins.float, steps: _builtins.int, decay_rate: _builtins.float, staircase: _builtins.bool = False, warmup: _flow2onnx_optim_warmup.Warmup | None = None) -> None: ...
class PiecewiseConstantScheduler(_flow2onnx_optim_schedules.PiecewiseConstantScheduler):
    """values[i], i being the number of boundaries that lie before the step.

    A boundary belongs to the values before it: up to and including step boundaries[0] the rate is
    values[0].
    """
    def __init__(self, boundaries: _collections_abc.Sequence[_builtins.int], values: _collections_abc.Sequence[_builtins.float], warmup: _flow2onnx_optim_warmup.Warmup | None = None) -> None: ...
class PiecewiseScalingScheduler(_flow2onnx_optim_schedules.PiecewiseScalingScheduler):
    """base_lr * s[i] with s = 1 and then the scales, which do not accumulate."""
    def __init__(self, base_lr: _builtins.float, boundaries: _collections_abc.Sequence[_builtins.int], scale: _builtins.float | _collections_abc.Sequence[_builtins.float], warmup: _flow2onnx_optim_warmup.Warmup | None = None) -> None: ...
@_typing_extensions.deprecated("use flow.optimizer.PolynomialScheduler")
def PolynomialSchduler(base_lr: _builtins.float, steps: _builtins.int, end_learning_rate: _builtins.float = 0.0001, power: _builtins.float = 1.0, cycle: _builtins.bool = False, warmup: _flow2onnx_optim_warmup.Warmup | None = None) -> None:
    """(base - end) (1 - q / d)^power + end with q = min(k, steps) and d = steps.

    With `cycle` q = k and d is the next multiple of steps; step 0 is as step 1 then.
    """
class PolynomialScheduler(_flow2onnx_optim_schedules.PolynomialScheduler):
    """(base - end) (1 - q / d)^power + end with q = min(k, steps) and d = steps.

    With `cycle` q = k and d is the next multiple of steps; step 0 is as step 1 then.
    """
    def __init__(self, base_lr: _builtins.float, steps: _builtins.int, end_learning_rate: _builtins.float = 0.0001, power: _builtins.float = 1.0, cycle: _builtins.bool = False, warmup: _flow2onnx_optim_warmup.Warmup | None = None) -> None: ...
class RMSProp(_flow2onnx_optim_adam.RMSProp):
    """w - rate * g / sqrt(d + epsilon), d the moving mean of g².

    If `centered`, the square of the moving mean of g is taken off d.
    """
    def __init__(self, lr_scheduler: _flow2onnx_optim_schedules.Scheduler | _builtins.float | _collections_abc.Callable[..., _typing.Any], decay_rate: _builtins.float = 0.99, epsilon: _builtins.float = 1e-08, centered: _builtins.bool = False, loss_scale_factor: _builtins.float | None = None, grad_clipping: _flow2onnx_optim_clipping.Clipping | None = None, train_step_lbn: _builtins.str | None = None, loss_scale_policy: _typing.Any = None, variables: _collections_abc.Sequence[_builtins.str] | _collections_abc.Callable[[], _collections_abc.Sequence[_builtins.str]] | None = None) -> None: ...
class SGD(_flow2onnx_optim_sgd.SGD):
    """w + v with v = momentum * v - rate * g; without momentum w - rate * g."""
    def __init__(self, lr_scheduler: _flow2onnx_optim_schedules.Scheduler | _builtins.float | _collections_abc.Callable[..., _typing.Any], loss_scale_factor: _builtins.float | None = None, momentum: _builtins.float = 0.9, grad_clipping: _flow2onnx_optim_clipping.Clipping | None = None, train_step_lbn: _builtins.str | None = None, loss_scale_policy: _typing.Any = None, variables: _collections_abc.Sequence[_builtins.str] | _collections_abc.Callable[[], _collections_abc.Sequence[_builtins.str]] | None = None) -> None: ...
class SGDW(_flow2onnx_optim_sgd.SGDW):
    """w + v - rate * decay * w with v = momentum * v - rate * g.

    The rate is inside v, so changing it does not rescale what v holds.
    """
    def __init__(self, lr_scheduler: _flow2onnx_optim_schedules.Scheduler | _builtins.float | _collections_abc.Callable[..., _typing.Any], loss_scale_factor: _builtins.float | None = None, momentum: _builtins.float = 0.9, weight_decay: _builtins.float | None = None, weight_decay_includes: _typing.Any = None, weight_decay_excludes: _typing.Any = None, grad_clipping: _flow2onnx_optim_clipping.Clipping | None = None, train_step_lbn: _builtins.str | None = None, loss_scale_policy: _typing.Any = None, variables: _collections_abc.Sequence[_builtins.str] | _collections_abc.Callable[[], _collections_abc.Sequence[_builtins.str]] | None = None) -> None: ...
from flow2onnx.optimizer import grad_clipping as grad_clipping
from flow2onnx.optimizer import loss_scale as loss_scale
def named(name: _builtins.str, lr: _builtins.float | _flow2onnx_optim_schedules.Scheduler | _collections_abc.Callable[..., _typing.Any] | None = None, *, schedule: _builtins.str | _flow2onnx_optim_schedules.Scheduler | None = None, groups: _collections_abc.Mapping[_builtins.str | _builtins.tuple[_builtins.str, ...], _collections_abc.Mapping[_builtins.str, _typing.Any]] | None = None, clip_norm: _builtins.float | None = None, clip_value: _builtins.float | None = None, ema: _builtins.float | None = None, loss_scale_policy: _typing.Any = None, variables: _collections_abc.Sequence[_builtins.str] | _collections_abc.Callable[[], _collections_abc.Sequence[_builtins.str]] | None = None) -> _flow2onnx_optim_named.NamedOptimizer:
    """The optimizer that a text such as ``adamw(weight_decay=0.1)`` names.

    `lr` is its rate, a schedule of `flow.optimizer` or a function of the step, `schedule` one by
    name, such as ``cosine(total_steps=1000)``. `groups` maps shell patterns of variable names to
    what differs for them: `lr`, `weight_decay`, `optimizer`, or `frozen`. Gradients are limited to
    [-clip_value, clip_value] each, and then their joint norm to `clip_norm`. With `ema` the slots
    ``w-ema`` hold averages ema * average + (1 - ema) * w. `lr`, `schedule` and the clips may stand
    in the text too.

    >>> import flow2onnx as flow
    >>> flow.optimizer.named("lion", 1e-4, groups={"*-bias": {"weight_decay": 0.0}}).rule
    Lion(lr=0.0001, weight_decay=0.0, beta1=0.9, beta2=0.99)
    """
def schedule(name: _builtins.str, lr: _builtins.float) -> _flow2onnx_optim_schedules.Scheduler:
    """The schedule that a text such as ``cosine(total_steps=1000)`` names, of the rate `lr`."""
from flow2onnx.optimizer import warmup as warmup
