"""`flow.function`: the generation before 0.1."""

from collections.abc import Callable
from typing import Any

from flow2onnx.api.global_function import spec_of
from flow2onnx.api.job import JobFunction, define
from flow2onnx.config import FunctionConfig
from flow2onnx.errors import ArgumentError
from flow2onnx.source import user_frame

__all__ = ["function"]


def function(
    function_config: FunctionConfig | None = None,
) -> Callable[[Callable[..., Any]], JobFunction]:
    """Make a function a job; it trains if some ``config.train`` setting was made."""
    config = FunctionConfig() if function_config is None else function_config
    if not isinstance(config, FunctionConfig):
        raise ArgumentError(
            f"flow.function takes a configuration, got {config!r}",
            source=user_frame(),
            hint="write @flow.function(config), with parentheses even when they are empty",
        )
    return lambda body: define(spec_of(body, config, "a"))
