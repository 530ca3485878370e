"""Questions of a program about its surroundings, and switches that change nothing here."""

import logging
from collections.abc import Callable
from typing import Any

from flow2onnx_runtime.dtypes import Array
from flow2onnx_runtime.world import launched_world

from flow2onnx.api import models
from flow2onnx.api.session import current_session
from flow2onnx.errors import CheckpointError, ConfigError
from flow2onnx.graph import Builder, Value
from flow2onnx.source import user_frame
from flow2onnx.trace.op import op

__all__ = [
    "current_machine_id",
    "current_resource",
    "eager_execution_enabled",
    "enable_eager_execution",
    "enable_typing_check",
    "get_compile_flags",
    "get_cuda_version",
    "get_interface_blob_value",
    "inter_job_reuse_mem_strategy",
    "is_deprecated",
    "never",
    "range_pop",
    "range_push",
    "set_interface_blob_value",
    "unique_str",
    "with_cuda",
]

_log = logging.getLogger("flow2onnx.config")
_STRATEGIES = ("reuse_mem_priority", "parallelism_priority", "custom_parallelism")


def current_machine_id() -> int:
    """The number of this machine among those that run the processes of a job."""
    return launched_world().machine


def current_resource() -> dict[str, Any]:
    """Every setting of `flow.config` with its value."""
    return current_session().settings.current_resource()


def unique_str(prefix: str) -> str:
    """`prefix` and a number that this session has not used with it."""
    return current_session().unique_str(prefix)


def is_deprecated(func_or_class: Callable[..., Any]) -> bool:
    """True for a retired name."""
    return bool(getattr(func_or_class, "__is_deprecated_func_or_class__", False))


def eager_execution_enabled() -> bool:
    """True if jobs run operator by operator: never here."""
    return False


def enable_eager_execution(val: bool = True) -> None:
    """Let a function be decorated anew at each call; it is traced once and compiled even so."""
    current_session().redefines = bool(val)
    if val:
        _note("enable_eager_execution has no effect: jobs are traced once and compiled")


def inter_job_reuse_mem_strategy(
    strategy_str: str, job_set: Any = None, **kwargs: list[Any]
) -> None:
    """Nothing: ONNX Runtime plans memory itself."""
    if strategy_str not in _STRATEGIES:
        raise ConfigError(
            f"{strategy_str!r} is no strategy of inter_job_reuse_mem_strategy",
            source=user_frame(),
            hint=f"they are {', '.join(_STRATEGIES)}",
        )
    _note("inter_job_reuse_mem_strategy has no effect: ONNX Runtime plans memory itself")


def _note(text: str) -> None:
    _log.warning("%s: %s", user_frame() or "flow2onnx", text)


def enable_typing_check(val: bool = True) -> None:
    """Demand annotations for the parameters and the result of every job defined from here on."""
    current_session().demands_annotations = val


def get_interface_blob_value(op_name: str) -> Array:
    """The present value of a variable."""
    known = models.get_all_variables()
    if op_name not in known:
        raise CheckpointError(
            f'"{op_name}" is not a variable name',
            source=user_frame(),
            hint="flow.get_all_variables() has the names",
        )
    return known[op_name].numpy()


def set_interface_blob_value(op_name: str, ndarray: Array) -> None:
    """Give a variable a value."""
    models.load_variables({op_name: ndarray}, ignore_mismatch=False)


def get_compile_flags() -> list[str]:
    """The flags for compiling operators against OneFlow: none."""
    return []


def get_cuda_version() -> str:
    """The CUDA release this package was compiled for: it is not compiled."""
    return ""


def with_cuda() -> bool:
    """True if jobs can run on a GPU."""
    return current_session().has_gpu()


def never() -> bool:
    """False: this part of OneFlow is not here."""
    return False


def range_push(range_name: str) -> None:
    """Nothing: the profiler's ranges belong to OneFlow's engine."""


def range_pop() -> None:
    """Nothing."""


@op("profiler.nvtx_start")
def nvtx_start(b: Builder, x: Value, mark_prefix: str, name: str | None = None) -> Value:
    """The value itself; no mark is set."""
    return b.Identity(x)


@op("profiler.nvtx_end")
def nvtx_end(b: Builder, x: Value, mark_prefix: str, name: str | None = None) -> Value:
    """The value itself; no mark is set."""
    return b.Identity(x)
