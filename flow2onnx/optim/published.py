"""Publishing what optimizers are made of: their errors point at the user's line."""

import functools
from collections.abc import Callable
from typing import Any

from flow2onnx.errors import FlowError
from flow2onnx.source import user_frame
from flow2onnx.trace.context import traced_job
from flow2onnx.trace.registry import register

__all__ = ["publish"]


def publish(name: str, made: Any) -> None:
    """Publish a class, or a function, as ``flow.optimizer.<name>``."""
    full = f"optimizer.{name}"
    if isinstance(made, type):
        made.__init__ = _pointing(made.__init__, full)  # type: ignore[misc]  # wraps the class's own
        register(full, made)
    else:
        register(full, _pointing(made, full))


def _pointing(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def public(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except FlowError as error:
            job = traced_job()
            raise error.located(job.spec.name if job else None, name, user_frame()) from None

    return public
