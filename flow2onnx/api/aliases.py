"""Retired names: what to call instead, and since when."""

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["ALIASES", "Alias", "deprecated"]


@dataclass(frozen=True)
class Alias:
    """An old dotted name below `flow`, the name that replaced it, and the release that did."""

    old: str
    new: str
    since: str


ALIASES = (
    Alias("copy", "identity", "0.1.1"),
    Alias("name_scope", "scope.namespace", "0.1.3"),
    Alias("deprecated.variable_scope", "scope.namespace", "0.1.3"),
    Alias("experimental.name_scope", "scope.namespace", "0.1.3"),
    Alias("placement.current_scope", "current_scope", "0.1.5"),
    Alias("scope.current_scope", "current_scope", "0.1.5"),
    Alias("consistent_user_op_builder", "user_op_builder", "0.3.1"),
    Alias("optimizer.PolynomialSchduler", "optimizer.PolynomialScheduler", "0.3.3"),
    Alias("keras.activations.gelu", "math.gelu", "0.1.3"),
    Alias("keras.activations.sigmoid", "math.sigmoid", "0.1.3"),
    Alias("keras.activations.tanh", "math.tanh", "0.1.3"),
    Alias("keras.activations.gelu_grad", "math.gelu_grad", "0.1.3"),
    Alias("keras.activations.tanh_grad", "math.tanh_grad", "0.1.3"),
    Alias("keras.maths.add", "math.add", "0.1.3"),
    Alias("fixed_placement", "scope.placement", "0.1.3"),
    Alias("device_prior_placement", "scope.placement", "0.1.3"),
    Alias("distribute.mirrored_strategy", "scope.mirrored_view", "0.1.5"),
    Alias("distribute.consistent_strategy", "scope.consistent_view", "0.1.5"),
    Alias("distribute.mirrored_strategy_enabled", "scope.mirrored_view_enabled", "0.1.5"),
    Alias("distribute.consistent_strategy_enabled", "scope.consistent_view_enabled", "0.1.5"),
)


def deprecated(alias: Alias, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` under its old name, which warns."""

    @functools.wraps(function)
    def old(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(
            f"flow.{alias.old} is flow.{alias.new} since {alias.since}",
            DeprecationWarning,
            stacklevel=2,
        )
        return function(*args, **kwargs)

    old.__is_deprecated_func_or_class__ = True  # type: ignore[attr-defined]  # flow.is_deprecated
    return old
