"""The fields of `Options` that are options of a session, and what the runtime calls them."""

from types import MappingProxyType

__all__ = ["SESSION_OPTIONS", "runtime_names"]

# field: attributes of the runtime's `SessionOptions`; the last takes the value, and one before it
# is a switch that has to be on.
SESSION_OPTIONS = MappingProxyType({
    "optimization": ("graph_optimization_level",),
    "log_level": ("log_severity_level",),
    "memory_pattern": ("enable_mem_pattern",),
    "memory_reuse": ("enable_mem_reuse",),
    "cpu_arena": ("enable_cpu_mem_arena",),
    "deterministic": ("use_deterministic_compute",),
    "intra_op_threads": ("intra_op_num_threads",),
    "inter_op_threads": ("inter_op_num_threads",),
    "parallel": ("execution_mode",),
    "profile": ("enable_profiling", "profile_file_prefix"),
    "optimized_path": ("optimized_model_filepath",),
})  # fmt: skip


def runtime_names(setting: str) -> tuple[str, ...]:
    """The runtime's names for a field of `Options`; an entry of the session has its own."""
    return (setting,) if "." in setting else SESSION_OPTIONS[setting]
