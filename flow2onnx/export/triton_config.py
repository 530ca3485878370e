"""config.pbtxt: what Triton is told of a model, and whether what it was told before still fits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flow2onnx_runtime.model_config import DeclaredTensor, read_config

from flow2onnx.errors import ArgumentError, BundleError
from flow2onnx.export.report import Check
from flow2onnx.trace.spec import JobSpec

__all__ = ["LABELS", "Serving", "compare_config", "config_text", "tensorrt_parameters"]

_TYPES = {"float16": "FP16", "float32": "FP32", "float64": "FP64", "bfloat16": "BF16"}
LABELS = "labels.txt"
_PRECISIONS = {"trt_fp16_enable": "FP16", "trt_int8_enable": "INT8"}
# Options of TensorRT under the names that Triton's backend gives them; these keep their own.
_RENAMED = {
    "trt_max_workspace_size": "max_workspace_size_bytes",
    "trt_int8_calibration_table_name": "int8_calibration_table_name",
    "trt_int8_use_native_calibration_table": "int8_use_native_calibration_table",
}
_SAME = frozenset({
    "trt_max_partition_iterations", "trt_min_subgraph_size", "trt_dla_enable", "trt_dla_core",
    "trt_engine_cache_enable", "trt_engine_cache_path", "trt_engine_cache_prefix",
    "trt_dump_subgraphs", "trt_force_sequential_engine_build", "trt_context_memory_sharing_enable",
    "trt_layer_norm_fp32_fallback", "trt_timing_cache_enable", "trt_timing_cache_path",
    "trt_force_timing_cache", "trt_detailed_build_log", "trt_build_heuristics_enable",
    "trt_sparsity_enable", "trt_builder_optimization_level", "trt_auxiliary_streams",
    "trt_tactic_sources", "trt_extra_plugin_lib_paths", "trt_profile_min_shapes",
    "trt_profile_max_shapes", "trt_profile_opt_shapes", "trt_cuda_graph_enable",
    "trt_dump_ep_context_model", "trt_ep_context_file_path", "trt_ep_context_embed_mode",
})  # fmt: skip
# What an export in a precision asks of TensorRT.
_NEEDED = {"fp16": "FP16", "int8": "INT8"}

Facts = Mapping[str, Any]  # of a model, as `describe` says them
Text = str | int | bool | Sequence["Text"] | Mapping[str, "Text"]


@dataclass(frozen=True)
class Serving:
    """Rows that requests may be combined to, seconds they wait for it, instances of the model."""

    max_batch: int = 32
    delay: float = 0.0
    instances: int = 1

    def __post_init__(self) -> None:
        if self.max_batch < 1 or self.instances < 1 or self.delay < 0:
            raise ArgumentError(
                f"max_batch={self.max_batch}, instances={self.instances}, delay={self.delay}",
                hint="give at least one row and one instance, and a delay of at least 0 seconds",
            )


class _Word(str):
    """A name of the format's own, which stands without quotes."""


def config_text(
    name: str,
    job: JobSpec,
    model: Facts,
    serving: Serving,
    labels: Sequence[str] | None = None,
    *,
    combines: bool,
) -> str:
    """The config.pbtxt of a model, with what its job asks of TensorRT.

    With `combines` requests share a run. `model` is what `describe` says of it; the last size of
    an output is the number of `labels`.
    """
    max_batch = serving.max_batch if combines else 0
    if labels is not None and all(t["shape"][-1:] != [len(labels)] for t in model["outputs"]):
        raise ArgumentError(
            f"{len(labels)} labels for outputs {[t['shape'] for t in model['outputs']]}",
            hint="the last size of an output must be their number",
        )
    fields: dict[str, Text] = {
        "name": name,
        "backend": "onnxruntime",
        "max_batch_size": max_batch,
        "input": [_tensor(t, combines) for t in model["inputs"]],
        "output": [_tensor(t, combines, labels) for t in model["outputs"]],
        "version_policy": {"latest": {"num_versions": 1}},
        "instance_group": [{"count": serving.instances, "kind": _Word("KIND_AUTO")}],
    }
    if combines:
        fields["dynamic_batching"] = {"max_queue_delay_microseconds": round(serving.delay * 1e6)}
    sizes = sorted({1, max_batch}) if combines else [0]
    fields["model_warmup"] = [_warmup(model["inputs"], size) for size in sizes]
    accelerator = _accelerator(job, model)
    if accelerator:
        fields["optimization"] = {
            "execution_accelerators": {"gpu_execution_accelerator": [accelerator]}
        }
    return _pbtxt(fields)


def _tensor(
    tensor: Mapping[str, Any], has_batch: bool, labels: Sequence[str] | None = None
) -> dict[str, Text]:
    port = _declare(tensor, has_batch)
    dims = list(port.shape[has_batch:])
    fields: dict[str, Text] = {
        "name": port.name,
        "data_type": _Word(f"TYPE_{port.datatype}"),
        "dims": dims or [1] * has_batch,
    }
    if has_batch and not dims:  # one number a row: Triton has no empty dims
        fields["reshape"] = {"shape": []}
    is_labelled = labels is not None and port.shape[-1:] == (len(labels),)
    return {**fields, "label_filename": LABELS} if is_labelled else fields


def _warmup(inputs: Sequence[Mapping[str, Any]], size: int) -> dict[str, Text]:
    entries: list[Text] = []
    for tensor in inputs:
        port = _declare(tensor, size > 0)
        dims = [1 if s < 0 else s for s in port.shape[size > 0 :]] or [1] * (size > 0)
        value: dict[str, Text] = {"data_type": _Word(f"TYPE_{port.datatype}"), "dims": dims}
        entries.append({"key": port.name, "value": {**value, "zero_data": True}})
    rows: dict[str, Text] = {"batch_size": size} if size else {}
    return {"name": f"rows of {size}" if size else "once", **rows, "inputs": entries}


def tensorrt_parameters(
    job: JobSpec, model: Facts
) -> tuple[dict[str, str] | None, tuple[str, ...]]:
    """TensorRT's parameters, if the job's configuration asks for it, and what is not among them."""
    config = job.config
    if "tensorrt" not in config.providers():
        return None, ()
    precision = model["metadata"].get("flow2onnx.precision")
    free = {
        name.partition(".")[2]: value
        for name, value in config.value("runtime.provider_option").items()
        if name.startswith("tensorrt.")
    }
    asked = {**config.provider_options("tensorrt"), **free}
    on = [o for o in _PRECISIONS if asked.get(o) in ("1", "True", "true")]
    asked = {o: value for o, value in asked.items() if o not in _PRECISIONS}
    chosen = _NEEDED.get(precision) or (_PRECISIONS[on[-1]] if on else None)
    parameters: dict[str, str] = {"precision_mode": chosen} if chosen else {}
    parameters |= {_RENAMED.get(o, o): v for o, v in asked.items() if o in {*_RENAMED, *_SAME}}
    dropped = [o for o in asked if o not in _RENAMED and o not in _SAME]
    dropped += [o for o in on if _PRECISIONS[o] != chosen]  # there is one precision only
    table = "trt_int8_calibration_table_name"
    if precision == "int8" and parameters.pop(_RENAMED[table], None) is not None:
        dropped.append(table)  # refused beside ranges in the model
    return parameters, tuple(dropped)


def _accelerator(job: JobSpec, model: Facts) -> dict[str, Text] | None:
    """TensorRT, if the job's configuration asks for it, with what Triton can be told of it."""
    parameters, _ = tensorrt_parameters(job, model)
    if parameters is None:
        return None
    entries: list[Text] = [{"key": key, "value": value} for key, value in parameters.items()]
    return {"name": "tensorrt", "parameters": entries}


def compare_config(path: Path, model: Facts, *, is_fixed: bool) -> Check:
    """Raise BundleError unless the config.pbtxt that is there fits a model."""
    if not path.exists():
        return Check("config.pbtxt", None, "there is none; servers work it out themselves")
    present = read_config(path)
    for what, ports in (("inputs", present.inputs), ("outputs", present.outputs)):
        own = {t["name"]: _declare(t, bool(present.max_batch)) for t in model[what]}
        wrong = [p for p in ports if not _fits(p, own.get(p.name))]
        if wrong or (ports and what == "inputs" and len(ports) < len(own)):
            raise BundleError(
                f"{path} declares other {what} than the job has: "
                f"{', '.join(p.name for p in wrong) or 'fewer'}",
                hint="choose another name for the model, or remove the file",
            )
    if present.max_batch and is_fixed:
        raise BundleError(
            f"{path} has max_batch_size {present.max_batch}, the batch is fixed",
            hint="leave batch out, or choose another name",
        )
    return Check("config.pbtxt", True, "kept as it was; it fits")


def _declare(tensor: Mapping[str, Any], has_batch: bool) -> DeclaredTensor:
    shape = tuple(s if isinstance(s, int) else -1 for s in tensor["shape"])
    shape = (-1, *shape[1:]) if has_batch else shape
    datatype = _TYPES.get(tensor["dtype"], tensor["dtype"].upper())
    return DeclaredTensor(tensor["name"], datatype, shape)


def _fits(declared: DeclaredTensor, own: DeclaredTensor | None) -> bool:
    return own is not None and declared.datatype == own.datatype and (
        len(declared.shape) == len(own.shape)
        and all(-1 in (a, b) or a == b for a, b in zip(declared.shape, own.shape, strict=True))
    )  # fmt: skip


def _pbtxt(fields: Mapping[str, Text], indent: str = "") -> str:
    """Fields in protobuf's text format."""
    return "".join(_line(name, value, indent) for name, value in fields.items())


def _line(name: str, value: Text, indent: str) -> str:
    if isinstance(value, Mapping):
        return f"{indent}{name} {{\n{_pbtxt(value, indent + '  ')}{indent}}}\n"
    if isinstance(value, Sequence) and not isinstance(value, str):
        if all(isinstance(item, int) for item in value):
            return f"{indent}{name}: [{', '.join(map(str, value))}]\n"
        return "".join(_line(name, item, indent) for item in value)
    return f"{indent}{name}: {_scalar(value)}\n"


def _scalar(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, _Word) or not isinstance(value, str):
        return str(value)
    text = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'
