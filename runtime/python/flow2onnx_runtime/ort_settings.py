"""Names and values of ONNX Runtime's own settings, which it takes unchecked or refuses late."""

import difflib
import functools
import mmap
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

import onnxruntime.capi as _capi

from flow2onnx_runtime.errors import OptionsError

__all__ = [
    "CUDA_OPTIONS",
    "TENSORRT_OPTIONS",
    "check_provider_option",
    "check_run_entry",
    "check_session_entry",
    "session_keys",
]

_KEY = re.compile(rb"\0((?:session|optimization|ep)\.[A-Za-z0-9_.]*[A-Za-z0-9])(?=\0)")
_SWITCH = ("0", "1")

Check = tuple[str, Callable[[str], bool]]  # what is taken, in words, and whether a text is it
SWITCH: Check = ("'0' or '1'", _SWITCH.__contains__)
NUMBER: Check = ("a whole number as text, such as '1073741824'", str.isdecimal)
INTEGER: Check = ("a whole number as text", lambda text: text.removeprefix("-").isdecimal())
TEXT: Check = ("text", lambda text: True)


def _choice(*names: str) -> Check:
    return (" or ".join(map(repr, names)), names.__contains__)


def _options(**rows: Check) -> Mapping[str, Check]:
    return MappingProxyType(rows)


# What the CUDA provider of onnxruntime 1.31.1 parses.
CUDA_OPTIONS = _options(
    device_id=NUMBER,
    gpu_mem_limit=NUMBER,
    arena_extend_strategy=_choice("kNextPowerOfTwo", "kSameAsRequested"),
    cudnn_conv_algo_search=_choice("HEURISTIC", "EXHAUSTIVE", "DEFAULT"),
    cudnn_conv_use_max_workspace=SWITCH,
    cudnn_conv1d_pad_to_nc1d=SWITCH,
    do_copy_in_default_stream=SWITCH,
    enable_cuda_graph=SWITCH,
    enable_cudnn=SWITCH,
    enable_skip_layer_norm_strict_mode=SWITCH,
    fuse_conv_bias=SWITCH,
    prefer_nhwc=SWITCH,
    use_tf32=SWITCH,
    sdpa_kernel=NUMBER,
    use_ep_level_unified_stream=SWITCH,
    user_compute_stream=NUMBER,
    has_user_compute_stream=SWITCH,
    gpu_external_alloc=NUMBER,
    gpu_external_free=NUMBER,
    gpu_external_empty_cache=NUMBER,
    external_data_loader_reading_threads=NUMBER,
    tunable_op_enable=SWITCH,
    tunable_op_tuning_enable=SWITCH,
    tunable_op_max_tuning_duration_ms=NUMBER,
)

# What the TensorRT provider of onnxruntime 1.31.1 parses.
TENSORRT_OPTIONS = _options(
    device_id=NUMBER,
    user_compute_stream=NUMBER,
    has_user_compute_stream=SWITCH,
    trt_auxiliary_streams=INTEGER,
    trt_bf16_enable=SWITCH,
    trt_build_heuristics_enable=SWITCH,
    trt_builder_optimization_level=NUMBER,
    trt_context_memory_sharing_enable=SWITCH,
    trt_cuda_graph_enable=SWITCH,
    trt_detailed_build_log=SWITCH,
    trt_dla_core=NUMBER,
    trt_dla_enable=SWITCH,
    trt_dump_ep_context_model=SWITCH,
    trt_dump_subgraphs=SWITCH,
    trt_engine_cache_enable=SWITCH,
    trt_engine_cache_path=TEXT,
    trt_engine_cache_prefix=TEXT,
    trt_engine_decryption_enable=SWITCH,
    trt_engine_decryption_lib_path=TEXT,
    trt_engine_hw_compatible=SWITCH,
    trt_ep_context_embed_mode=NUMBER,
    trt_ep_context_file_path=TEXT,
    trt_extra_plugin_lib_paths=TEXT,
    trt_force_sequential_engine_build=SWITCH,
    trt_force_timing_cache=SWITCH,
    trt_fp16_enable=SWITCH,
    trt_int8_calibration_table_name=TEXT,
    trt_int8_enable=SWITCH,
    trt_int8_use_native_calibration_table=SWITCH,
    trt_layer_norm_fp32_fallback=SWITCH,
    trt_load_user_initializer=SWITCH,
    trt_max_partition_iterations=NUMBER,
    trt_max_workspace_size=NUMBER,
    trt_min_subgraph_size=NUMBER,
    trt_onnx_model_folder_path=TEXT,
    trt_op_types_to_exclude=TEXT,
    trt_preview_features=TEXT,
    trt_profile_max_shapes=TEXT,
    trt_profile_min_shapes=TEXT,
    trt_profile_opt_shapes=TEXT,
    trt_sparsity_enable=SWITCH,
    trt_tactic_sources=TEXT,
    trt_timing_cache_enable=SWITCH,
    trt_timing_cache_path=TEXT,
    trt_weight_stripped_engine_enable=SWITCH,
)

# The CPU provider reads no option and takes any; of the others this module knows nothing.
_OF_PROVIDERS: Mapping[str, Mapping[str, Check]] = MappingProxyType(
    {
        "CPUExecutionProvider": _options(),
        "CUDAExecutionProvider": CUDA_OPTIONS,
        "TensorrtExecutionProvider": TENSORRT_OPTIONS,
    }
)

# Entries of which the runtime takes any text and silently reads it as "0" or as "1".
_SWITCHES = frozenset(
    {
        "session.disable_prepacking",
        "session.disable_cpu_ep_fallback",
        "session.disable_quant_qdq",
        "session.disable_double_qdq_remover",
        "session.enable_quant_qdq_cleanup",
        "session.disable_aot_function_inlining",
        "session.set_denormal_as_zero",
        "session.use_device_allocator_for_initializers",
        "session.use_env_allocators",
        "session.use_ort_model_bytes_for_initializers",
        "session.intra_op.allow_spinning",
        "session.inter_op.allow_spinning",
        "session.force_spinning_stop",
        "session.record_ep_graph_assignment_info",
        "session.strict_shape_type_inference",
        "session.qdqisint8allowed",
        "session.x64quantprecision",
        "optimization.enable_gelu_approximation",
        "optimization.enable_cast_chain_elimination",
    }
)
# Entries that `Options` has fields for: two ways of saying one thing could disagree.
_FIELDS = MappingProxyType(
    {
        "session.intra_op_num_threads": "intra_op_threads",
        "session.inter_op_num_threads": "inter_op_threads",
        "session.execution_mode": "parallel",
        "session.enable_cpu_mem_arena": "cpu_arena",
        "session.enable_mem_pattern": "memory_pattern",
        "session.graph_optimization_level": "optimization",
        "session.log_severity_level": "log_level",
        "session.enable_profiling": "profile",
        "session.use_deterministic_compute": "deterministic",
    }
)
_RUN_ENTRIES = _options(
    **{
        "memory.enable_memory_arena_shrinkage": (
            "devices such as 'cpu:0' or 'cpu:0;gpu:0'",
            lambda text: all(re.fullmatch(r"(cpu|gpu):\d+", part) for part in text.split(";")),
        ),
    }
)


@functools.cache
def session_keys() -> frozenset[str]:
    """The session configuration entries that the libraries of the installed runtime hold."""
    folder = Path(next(iter(_capi.__path__)))
    files = [p for p in folder.iterdir() if re.search(r"pybind11_state.*\.(so|pyd)$", p.name)]
    return frozenset(key for file in files for key in _keys_in(file))


def check_session_entry(key: str, value: str) -> None:
    """Raise `OptionsError` for an entry of the session's configuration that has no effect."""
    known = session_keys()
    if key in _FIELDS:
        raise OptionsError(
            f"session entry {key!r} is the option {_FIELDS[key]}",
            hint="set that option in place of the entry",
        )
    if known and key not in known:
        raise OptionsError(
            f"session entry {key!r}: {value!r} is not one the runtime knows",
            hint=_near(key, known, "keys are dotted names, such as 'session.disable_prepacking'"),
        )
    if key in _SWITCHES and value not in _SWITCH:
        raise OptionsError(
            f"session entry {key!r} takes {SWITCH[0]}, got {value!r}",
            hint="the runtime would take it unchecked",
        )


def check_run_entry(key: str, value: str) -> None:
    """Raise `OptionsError` for an entry of a run's configuration that has no effect."""
    if key == "gpu_graph_id":
        raise OptionsError(
            "run entry 'gpu_graph_id' is set by the program itself",
            hint="ask for capture with the CUDA option enable_cuda_graph",
        )
    if key == "disable_synchronize_execution_providers":
        raise OptionsError(
            f"run entry {key!r} would let results be read before they are computed",
            hint="leave it out: a program reads its results right after the run",
        )
    _check("run entry", key, value, _RUN_ENTRIES)


def check_provider_option(provider: str, name: str, value: str) -> None:
    """Raise `OptionsError` for an option that the provider does not have, or not with `value`."""
    table = _OF_PROVIDERS.get(provider)
    if table is not None:
        _check(f"{provider} option", name, value, table)


def _check(what: str, name: str, value: str, table: Mapping[str, Check]) -> None:
    if name not in table:
        raise OptionsError(
            f"{what} {name!r} does not exist",
            hint=_near(name, table, f"there are {', '.join(sorted(table)) or 'none'}"),
        )
    accepts, takes = table[name]
    if not takes(value):
        raise OptionsError(f"{what} {name!r} takes {accepts}, got {value!r}")


def _keys_in(file: Path) -> set[str]:
    with file.open("rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return {match[1].decode() for match in _KEY.finditer(data)}


def _near(name: str, known: Iterable[str], otherwise: str) -> str:
    near = difflib.get_close_matches(name, sorted(known), n=2)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else otherwise
