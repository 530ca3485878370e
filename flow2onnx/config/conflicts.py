"""Sets of settings of which each is fine and all together are not."""

import functools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from flow2onnx.config.function_config import FunctionConfig
from flow2onnx.config.table import Record
from flow2onnx.errors import ConfigError

__all__ = ["check_conflicts", "warn_of_idle"]

_log = logging.getLogger("flow2onnx.config")


Settings = FunctionConfig | Record  # those of a job, or `flow.config`'s


@dataclass(frozen=True)
class _Set:
    """The settings that hold for a job: its own and the session's, and whether it trains."""

    job: Settings
    session: Settings
    trains: bool

    def is_set(self, name: str, value: object) -> bool:
        """True if the program itself asked for this value, by a name as users write it."""
        record, short = self._home(name)
        return short in record.values() and record.value(short) == value

    def source(self, name: str) -> str | None:
        record, short = self._home(name)
        return record.source(short)

    def value(self, name: str) -> Any:  # of the kind the row names
        record, short = self._home(name)
        return record.value(short)

    def _home(self, name: str) -> tuple[Settings, str]:
        short = name.removeprefix("flow.config.")
        return (self.job if short == name else self.session), short


@dataclass(frozen=True)
class _Rule:
    """`wrong` names the flags that collide, the one to blame first; none where all is well."""

    wrong: Callable[[_Set], tuple[str, ...]]
    why: str
    hint: str


_TF32 = "flow.config.enable_tensor_float_32_compute"
_DETERMINISTIC = "cudnn_conv_use_deterministic_algo_only"


def _both(first: tuple[str, object], second: tuple[str, object]) -> Callable[[_Set], Any]:
    """Both flags set by the program, each to the value beside it."""
    return lambda s: (first[0], second[0]) if s.is_set(*first) and s.is_set(*second) else ()


def _int8_without_table(s: _Set) -> tuple[str, ...]:
    quantized = s.value("enable_quantization_aware_training")
    calibrated = s.value("tensorrt.int8_calibration") or quantized
    return () if calibrated or not s.is_set("tensorrt.use_int8", True) else ("tensorrt.use_int8",)


def _sequential_with_width(s: _Set) -> tuple[str, ...]:
    wide = s.value("runtime.inter_op_num_threads") is not None
    parallel = s.value("runtime.execution_mode") == "parallel"
    return ("runtime.inter_op_num_threads",) if wide and not parallel else ()


def _graph_and_tensorrt(s: _Set) -> tuple[str, ...]:
    both = s.value("runtime.enable_cuda_graph") and s.value("use_tensorrt") and not s.trains
    return ("runtime.enable_cuda_graph", "use_tensorrt") if both else ()


def _graph_and_recompute(s: _Set) -> tuple[str, ...]:
    both = s.value("runtime.enable_cuda_graph") and s.value("runtime.recompute")
    return ("runtime.enable_cuda_graph", "runtime.recompute") if both else ()


def _pattern_without_plan(s: _Set) -> tuple[str, ...]:
    for flag in ("use_memory_allocation_algorithm_v2", "enable_reused_mem"):
        if s.is_set("runtime.enable_mem_pattern", True) and s.is_set(flag, False):
            return ("runtime.enable_mem_pattern", flag)
    return ()


def _cache_of_nothing(s: _Set) -> tuple[str, ...]:
    is_off = s.value("runtime.graph_optimization_level") == "disable"
    kept = is_off and s.value("runtime.graph_cache") is not None
    return ("runtime.graph_cache", "runtime.graph_optimization_level") if kept else ()


_RULES = (
    _Rule(_both((_TF32, True), (_DETERMINISTIC, True)),
          "TF32 lets cuDNN and cuBLAS choose kernels that round their inputs, which deterministic "
          "results exclude",
          f"call {_TF32}(False), or leave {_DETERMINISTIC} off"),
    _Rule(_both(("runtime.use_tf32", True), (_DETERMINISTIC, True)),
          "TF32 lets cuDNN and cuBLAS choose kernels that round their inputs, which deterministic "
          "results exclude",
          f"call config.runtime.use_tf32(False), or leave {_DETERMINISTIC} off"),
    _Rule(_both(("runtime.use_tf32", False), (_TF32, True)),
          "they are one switch of the runtime", "set one of them"),
    _Rule(_both(("runtime.use_tf32", True), (_TF32, False)),
          "they are one switch of the runtime", "set one of them"),
    _Rule(_int8_without_table,
          "int8 needs the ranges of the tensors",
          "call config.tensorrt.int8_calibration(path) with a calibration table"),
    _Rule(_sequential_with_width,
          "only parallel execution runs several operators at once",
          "call config.runtime.execution_mode('parallel') too, or set intra_op_num_threads"),
    _Rule(_both(("runtime.enable_cuda_graph", True), ("runtime.execution_mode", "parallel")),
          "a CUDA graph is captured from operators that run one after another",
          "leave runtime.execution_mode at 'sequential'"),
    _Rule(_graph_and_tensorrt,
          "the switch captures what CUDA runs, and TensorRT has one of its own",
          "call config.runtime.provider_option('tensorrt', 'trt_cuda_graph_enable', 'True') "
          "instead"),
    _Rule(_graph_and_recompute,
          "computing again waits for a number that the host reads, and a captured graph has none",
          "set one of them"),
    _Rule(_pattern_without_plan,
          "memory that is not planned cannot be allocated in one piece", "set one of them"),
    _Rule(_both(("enable_cudnn", False), ("runtime.fuse_conv_bias", True)),
          "it is cuDNN that adds the bias", "leave enable_cudnn on"),
    _Rule(_both(("enable_inplace", False), ("runtime.in_place", True)),
          "state updated in its own buffer is an operator that writes into its input",
          "set one of them"),
    _Rule(_both(("runtime.enable_cpu_mem_arena", False), ("runtime.enable_mem_pattern", True)),
          "memory planned in one piece is a piece of the arena", "leave the arena on"),
    _Rule(_both(("runtime.execution_mode", "parallel"), ("runtime.enable_mem_pattern", True)),
          "the runtime plans the memory of operators that run one after another",
          "leave runtime.execution_mode at 'sequential'"),
    _Rule(_cache_of_nothing,
          "nothing is rewritten that could be kept", "leave one of them out"),
)  # fmt: skip
# Settings that say how, and the switch that says whether: without it they do nothing.
_SWITCH_OF = {
    "qat.": "enable_quantization_aware_training",
    "runtime.mixed_precision_dtype": "enable_auto_mixed_precision",
    "runtime.recompute_products": "runtime.recompute",
    "runtime.tuning_cache_path": "runtime.autotune",
    "runtime.profile_file_prefix": "runtime.enable_profiling",
}


def check_conflicts(job: Settings, session: Settings, *, trains: bool) -> None:
    """Raise `ConfigError` for settings of a job and its session that contradict each other."""
    held = _Set(job, session, trains)
    for flags, rule in _broken(held):
        shown = " with ".join(f"{name}({held.value(name)!r})" for name in flags)
        raise ConfigError(f"{shown}: {rule.why}", hint=rule.hint, source=held.source(flags[0]))


def _broken(held: _Set) -> Iterator[tuple[tuple[str, ...], _Rule]]:
    yield from ((flags, rule) for rule in _RULES if (flags := rule.wrong(held)))


def warn_of_idle(job: FunctionConfig) -> None:
    """Say once which settings of a job have no effect, as the switch that they belong to is off."""
    for begin, switch in _SWITCH_OF.items():
        idle = tuple(name for name in job.values() if name.startswith(begin))
        if idle and not job.value(switch):
            _warn_once(idle, switch)


@functools.cache
def _warn_once(idle: tuple[str, ...], switch: str) -> None:
    _log.warning("%s: no effect without %s(True)", ", ".join(idle), switch)
