"""The tree of names below `flow`: built once from the registry, the fronts and the aliases."""

import sys
from types import ModuleType
from typing import Any

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
    summary,
    tensor_def,
    watch,
)
from flow2onnx.api.aliases import ALIASES, deprecated
from flow2onnx.api.foreign import (
    accelerate,
    from_training_info,
    grad,
    hvp,
    jacobian,
    jvp,
    make_trainable,
    vjp,
)
from flow2onnx.api.function import function
from flow2onnx.api.global_function import global_function
from flow2onnx.api.session import clear_default_session, current_session, sync_default_session
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
from flow2onnx.data.mnist import load_mnist
from flow2onnx.errors import ContextError
from flow2onnx.source import user_frame
from flow2onnx.trace import blob as hints
from flow2onnx.trace.context import current_job, traced_job
from flow2onnx.trace.registry import entries

__all__ = ["MIRRORS", "NAMES", "publish", "top_level_names"]


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
    return current_session().settings


# What is not an operator, by dotted name.
_FRONTS: dict[str, Any] = {
    "ExecutionConfig": ExecutionConfig,
    "FixedTensorDef": tensor_def.FixedTensorDef,
    "FunctionConfig": FunctionConfig,
    "MirroredTensorDef": tensor_def.MirroredTensorDef,
    "MirroredTensorListDef": tensor_def.MirroredTensorListDef,
    "checkpoint.get": models.get,
    "checkpoint.save": models.save,
    "clear_default_session": clear_default_session,
    "config": SettingsFacade(CONFIG, _settings),
    "convert_oneflow_dtype_to_numpy_dtype": dtypes.convert_oneflow_dtype_to_numpy_dtype,
    "current_global_function_desc": _current_global_function_desc,
    "data.load_mnist": load_mnist,
    "current_machine_id": environment.current_machine_id,
    "current_resource": environment.current_resource,
    "current_scope": scope.current_scope,
    "distribute.assert_is_valid_distribute": distribute.assert_is_valid_distribute,
    "distribute.auto": hints.auto,
    "distribute.broadcast": hints.broadcast,
    "distribute.split": hints.split,
    "distributed.get_rank": distribute.get_rank,
    "distributed.get_world_size": distribute.get_world_size,
    "dtypes": dtypes.dtypes,
    "eager_execution_enabled": environment.eager_execution_enabled,
    "enable_eager_execution": environment.enable_eager_execution,
    "experimental.enable_typing_check": environment.enable_typing_check,
    "experimental.get_interface_blob_value": environment.get_interface_blob_value,
    "experimental.scope.config": scope.config,
    "experimental.set_interface_blob_value": environment.set_interface_blob_value,
    "accelerate": accelerate,
    "env": SettingsFacade(ENV, _settings),
    "from_training_info": from_training_info,
    "function": function,
    "function_config": function_config_class,
    "get_all_variables": models.get_all_variables,
    "global_function": global_function,
    "grad": grad,
    "hvp": hvp,
    "inter_job_reuse_mem_strategy": environment.inter_job_reuse_mem_strategy,
    "is_deprecated": environment.is_deprecated,
    "jacobian": jacobian,
    "jvp": jvp,
    "load": models.get,
    "load_variables": models.load_variables,
    "make_trainable": make_trainable,
    "onnx.export": onnx_export.export,
    "profiler.range_pop": environment.range_pop,
    "profiler.range_push": environment.range_push,
    "save": models.save_variables,
    "saved_model.GraphBuilder": saved_model.GraphBuilder,
    "saved_model.ModelBuilder": saved_model.ModelBuilder,
    "saved_model.SignatureBuilder": saved_model.SignatureBuilder,
    "serving.InferenceSession": serving.InferenceSession,
    "serving.ModelVersionPolicy": serving.ModelVersionPolicy,
    "serving.SessionOption": serving.SessionOption,
    "scope.consistent_view": scope.consistent_view,
    "scope.consistent_view_enabled": scope.consistent_view_enabled,
    "scope.mirrored_view": scope.mirrored_view,
    "scope.mirrored_view_enabled": scope.mirrored_view_enabled,
    "scope.namespace": scope.namespace,
    "scope.placement": scope.placement,
    "summary.Graph": projector.Graph,
    "summary.HParam": hparams.HParam,
    "summary.Hparam": hparams.HParam,
    "summary.IntegerRange": hparams.IntegerRange,
    "summary.Metric": hparams.Metric,
    "summary.Projector": projector.Projector,
    "summary.RealRange": hparams.RealRange,
    "summary.ValueSet": hparams.ValueSet,
    "summary.create_summary_writer": summary.create_summary_writer,
    "summary.flush_summary_writer": summary.flush_summary_writer,
    "summary.histogram": summary.histogram,
    "summary.hparams": hparams.hparams,
    "summary.image": summary.image,
    "summary.pb": summary.pb,
    "summary.scalar": summary.scalar,
    "summary.text": hparams.text,
    "sync_default_session": sync_default_session,
    "sysconfig.get_compile_flags": environment.get_compile_flags,
    "sysconfig.get_cuda_version": environment.get_cuda_version,
    "sysconfig.get_link_flags": environment.get_compile_flags,
    "sysconfig.has_rpc_backend_grpc": environment.never,
    "sysconfig.has_rpc_backend_local": environment.never,
    "sysconfig.with_cuda": environment.with_cuda,
    "sysconfig.with_xla": environment.never,
    "train.CheckPoint": models.CheckPoint,
    "train.SimpleCheckPointManager": models.SimpleCheckPointManager,
    "typing": typing,
    "unique_str": environment.unique_str,
    "user_op_builder": user_op_builder,
    "util.unique_str": environment.unique_str,
    "vjp": vjp,
    "watch": watch.watch,
    "watch_diff": watch.watch_diff,
    **{
        name: getattr(dtypes, name)
        for name in ("record", "tensor_buffer", "char", "double", "float", "float16", "float32",
                     "float64", "int8", "int32", "int64", "uint8", "bfloat16")
    },
}  # fmt: skip


def _all() -> dict[str, Any]:
    assert all((ops, optim, keras)), "importing them fills the registry"
    names = {**UNSUPPORTED, **{n: e.function for n, e in entries().items()}, **_FRONTS}
    return {**names, **{a.old: deprecated(a, names[a.new]) for a in ALIASES}}


def _mirrors() -> dict[str, Any]:
    """Every name once more below `flow.experimental`, as from 0.4.0."""
    names = {f"experimental.{n}": v for n, v in NAMES.items() if not n.startswith("experimental.")}
    return {n: v for n, v in names.items() if n not in NAMES}


NAMES = _all()
MIRRORS = _mirrors()


def top_level_names() -> list[str]:
    """The names directly below `flow`."""
    return sorted({name.partition(".")[0] for name in NAMES})


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
