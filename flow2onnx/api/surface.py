"""The tree of names below `flow`: built once from the registry, the fronts and the aliases.

What is for models from elsewhere needs the runtime, and is imported when it is asked for.
"""

import sys
from types import ModuleType
from typing import Any

from flow2onnx_runtime.on_demand import import_on_demand

from flow2onnx import dtypes, ops, optim, typing
from flow2onnx.api import (
    distribute,
    environment,
    hparams,
    keras,
    models,
    onnx_export,
    projector,
    saved_model,
    scope,
    serving,
    session,
    summary,
    tensor_def,
    watch,
)
from flow2onnx.api.aliases import ALIASES, deprecated
from flow2onnx.api.function import function
from flow2onnx.api.global_function import global_function
from flow2onnx.api.unsupported import UNSUPPORTED
from flow2onnx.api.user_op import user_op_builder
from flow2onnx.config import (
    CONFIG,
    ENV,
    ExecutionConfig,
    FunctionConfig,
    Settings,
    SettingsFacade,
)
from flow2onnx.config import function_config as function_config_class
from flow2onnx.data import mnist
from flow2onnx.errors import ContextError
from flow2onnx.source import user_frame
from flow2onnx.trace import blob as hints
from flow2onnx.trace.context import current_job, traced_job
from flow2onnx.trace.registry import entries

__all__ = [
    "LATE_NAMES",
    "MIRRORS",
    "NAMES",
    "ON_DEMAND",
    "import_named",
    "publish",
    "top_level_names",
]

ON_DEMAND = {
    "engine": ("accelerate",),
    "imported": (
        "from_training_info", "grad", "hvp", "jacobian", "jvp", "lora", "lora_network",
        "make_trainable", "vjp",
    ),
}  # fmt: skip


def _current_global_function_desc() -> Any:
    """The configuration of the job being traced; `IsTrainable()` is True for a train job."""
    return _Description(current_job("current_global_function_desc"))


class _Description:
    """The job being traced, as libraries written for OneFlow ask about it."""

    def __init__(self, job: Any) -> None:
        self._job, self.job_func = job, job.spec.function
        self.function_attribute = self.job_config_proto = job.spec.config.function_desc

    def IsTrainable(self) -> bool:
        """True for a train job."""
        return bool(self._job.is_trainable)


def _settings() -> Settings:
    job = traced_job()
    if job is not None:
        raise ContextError(
            "settings of the session cannot be made inside a job function",
            job=job.spec.name,
            source=user_frame(),
            hint="make them before the first call of a job",
        )
    return session.current_session().settings


def _below(namespace: str, home: Any, *names: str) -> dict[str, Any]:
    """Names of a module, or of an object, by their dotted names below `flow`."""
    prefix = f"{namespace}." if namespace else ""
    return {f"{prefix}{name}": getattr(home, name) for name in names}


# What is not an operator, by dotted name: first what is called as in the module that has it.
_FRONTS: dict[str, Any] = {
    **_below("", tensor_def, "FixedTensorDef", "MirroredTensorDef", "MirroredTensorListDef"),
    **_below("", dtypes, "dtypes", "convert_oneflow_dtype_to_numpy_dtype", "record",
             "tensor_buffer", "char", "double", "float", "float16", "float32", "float64", "int8",
             "int32", "int64", "uint8", "bfloat16"),
    **_below("", environment, "current_machine_id", "current_resource", "eager_execution_enabled",
             "enable_eager_execution", "inter_job_reuse_mem_strategy", "is_deprecated",
             "unique_str"),
    **_below("", models, "get_all_variables", "load_variables"),
    **_below("", session, "clear_default_session", "sync_default_session"),
    **_below("", watch, "watch", "watch_diff"),
    **_below("checkpoint", models, "get", "save"),
    **_below("data", mnist, "load_mnist"),
    **_below("distribute", hints, "auto", "broadcast", "split"),
    **_below("distribute", distribute, "assert_is_valid_distribute"),
    **_below("distributed", distribute, "get_rank", "get_world_size"),
    **_below("experimental", environment, "enable_typing_check", "get_interface_blob_value",
             "set_interface_blob_value"),
    **_below("experimental.scope", scope, "config"),
    **_below("onnx", onnx_export, "export"),
    **_below("profiler", environment, "range_pop", "range_push"),
    **_below("saved_model", saved_model, "GraphBuilder", "ModelBuilder", "SignatureBuilder"),
    **_below("scope", scope, "consistent_view", "consistent_view_enabled", "mirrored_view",
             "mirrored_view_enabled", "namespace", "placement"),
    **_below("serving", serving, "InferenceSession", "ModelVersionPolicy", "SessionOption"),
    **_below("summary", hparams, "HParam", "IntegerRange", "Metric", "RealRange", "ValueSet",
             "hparams", "text"),
    **_below("summary", projector, "Graph", "Projector"),
    **_below("summary", summary, "create_summary_writer", "flush_summary_writer", "histogram",
             "image", "pb", "scalar"),
    **_below("sysconfig", environment, "get_compile_flags", "get_cuda_version", "with_cuda"),
    **_below("train", models, "CheckPoint", "SimpleCheckPointManager"),
    "Blob": hints.Blob,
    "Size": hints.Size,
    "int": _below("", dtypes, "int32")["int32"],
    "ExecutionConfig": ExecutionConfig,
    "FunctionConfig": FunctionConfig,
    "config": SettingsFacade(CONFIG, _settings),
    "current_global_function_desc": _current_global_function_desc,
    "current_scope": scope.current_scope,
    "env": SettingsFacade(ENV, _settings),
    "function": function,
    "function_config": function_config_class,
    "global_function": global_function,
    "load": models.get,
    "save": models.save_variables,
    "summary.Hparam": hparams.HParam,
    "sysconfig.get_link_flags": environment.get_compile_flags,
    "sysconfig.has_rpc_backend_grpc": environment.never,
    "sysconfig.has_rpc_backend_local": environment.never,
    "sysconfig.with_xla": environment.never,
    "typing": typing,
    "user_op_builder": user_op_builder,
    "util.unique_str": environment.unique_str,
}  # fmt: skip


def _all() -> dict[str, Any]:
    assert all((ops, optim, keras)), "importing them fills the registry"
    names = {**UNSUPPORTED, **{n: e.function for n, e in entries().items()}, **_FRONTS}
    return {**names, **{a.old: deprecated(a, names[a.new]) for a in ALIASES}}


def _mirrors() -> dict[str, Any]:
    """Every name once more below `flow.experimental`, as from 0.4.0."""
    names = {f"experimental.{n}": v for n, v in NAMES.items() if not n.startswith("experimental.")}
    return {n: v for n, v in names.items() if n not in NAMES}


import_named = import_on_demand("flow2onnx", ON_DEMAND)
LATE_NAMES = frozenset(name for names in ON_DEMAND.values() for name in names)
NAMES = _all()
MIRRORS = _mirrors()


def top_level_names() -> list[str]:
    """The names directly below `flow`."""
    return sorted({name.partition(".")[0] for name in NAMES} | LATE_NAMES)


def publish(package: ModuleType) -> None:
    """Put every name below `package`, making the modules between, so that imports work too."""
    for name, value in sorted((NAMES | MIRRORS).items()):
        *path, last = name.split(".")
        target = package
        for part in path:
            target = _module(target, part)
        setattr(target, last, value)


def _module(parent: ModuleType, name: str) -> ModuleType:
    full = f"{parent.__name__}.{name}"
    found = parent.__dict__.get(name)
    if isinstance(found, ModuleType):
        return found
    module = ModuleType(full, f"`flow.{name}`")
    module.__path__ = []  # a package, so that `import flow2onnx.nn` finds it in sys.modules
    sys.modules.setdefault(full, module)
    setattr(parent, name, sys.modules[full])
    return sys.modules[full]
