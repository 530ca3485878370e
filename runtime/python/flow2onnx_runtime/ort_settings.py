"""Entries of a session's and of a run's configuration, which ONNX Runtime takes unchecked."""

import functools
import mmap
import re
from pathlib import Path
from types import MappingProxyType

import onnxruntime.capi as _capi

from flow2onnx_runtime.errors import OptionsError
from flow2onnx_runtime.option_checks import SWITCH, check, options
from flow2onnx_runtime.spelling import spelling_hint

__all__ = [
    "FOLDER_ENTRY",
    "check_run_entry",
    "check_session_entry",
    "session_keys",
]

# The libraries have this text in pieces, as a compiler copies it, so that none is found in them.
FOLDER_ENTRY = "session.model_external_initializers_file_folder_path"
_KEY = re.compile(rb"\0((?:session|optimization|ep)\.[A-Za-z0-9_.]*[A-Za-z0-9])(?=\0)")

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
_RUN_ENTRIES = options(
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
    found = frozenset(key for file in files for key in _keys_in(file))
    return found | {FOLDER_ENTRY} if found else found


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
            hint=spelling_hint(
                key, known, "keys are dotted names, such as 'session.disable_prepacking'"
            ),
        )
    if key in _SWITCHES and not SWITCH[1](value):
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
    check("run entry", key, value, _RUN_ENTRIES)


def _keys_in(file: Path) -> set[str]:
    with file.open("rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return {match[1].decode() for match in _KEY.finditer(data)}
