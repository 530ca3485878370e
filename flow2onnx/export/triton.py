"""Triton: a predict job as the next version of a model in a repository."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from flow2onnx_runtime import Options, Predictor, replace_file, replace_folder, save_safetensors
from flow2onnx_runtime.dtypes import find_element
from flow2onnx_runtime.model_config import DeclaredTensor, read_config
from flow2onnx_runtime.synthetic import random_array

from flow2onnx.errors import ArgumentError, BundleError
from flow2onnx.export.info import describe
from flow2onnx.export.job import export
from flow2onnx.export.report import Check, Report
from flow2onnx.export.session_view import Exportable

__all__ = ["config_text", "export_triton", "newest_version"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TYPES = {"float16": "FP16", "float32": "FP32", "float64": "FP64", "bfloat16": "BF16"}
_LABELS = "labels.txt"
_PRECISIONS = {"trt_fp16_enable": "FP16", "trt_int8_enable": "INT8"}
# Options of TensorRT under the names that Triton's backend gives them; these keep their own.
_RENAMED = {
    "trt_max_workspace_size": "max_workspace_size_bytes",
    "trt_int8_calibration_table_name": "int8_calibration_table_name",
    "trt_int8_use_native_calibration_table": "int8_use_native_calibration_table",
}
_TOLD = frozenset({
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
_CHECK_ROWS = 2
_CHECK_RTOL, _CHECK_ATOL = 5e-4, 5e-6  # half of what the server allows

Text = str | int | bool | Sequence["Text"] | Mapping[str, "Text"]
Array = np.ndarray[Any, np.dtype[Any]]


class _Word(str):
    """A name of the format's own, which stands without quotes."""


def export_triton(
    job: Exportable,
    repository: str | os.PathLike[str],
    *,
    name: str | None = None,
    labels: Sequence[str] | None = None,
    max_batch: int = 32,
    delay: float = 0.0,
    instances: int = 1,
    batch: int | None = None,
    sample_labels: object = None,
    **options: Any,  # those of `export`
) -> Report:
    """Write a predict job as the next version of a model in a Triton repository; verify it.

    ``REPOSITORY/NAME/N/`` gets model.onnx and check.safetensors, feeds and expected results by
    which `flow2onnx serve` tries a version before it answers. The first version brings
    config.pbtxt (and labels.txt) along: batches of up to `max_batch` rows, formed while requests
    wait for at most `delay` seconds, warm-up, `instances`, TensorRT if the job's configuration
    asks for it. A config.pbtxt that is there stays as it is, and must fit. With `batch`, the batch
    is fixed at that size and requests are not combined, and neither are they if an input or result
    has no batch. A version appears whole or not at all, and not at all if its verification fails.
    `labels` are the names of the classes; `sample_labels` is what `export` calls `labels`.
    """
    folder = Path(repository) / _checked_name(name or job.spec.name)
    _check(job, max_batch, delay, instances)
    number = newest_version(folder) + 1
    rows: list[Check] = []
    reports: list[Report] = []

    def version(stage: Path) -> Mapping[str, Any]:
        report = export(
            job, stage / "model.onnx", dynamic_batch=batch is None, batch=batch,
            labels=sample_labels, **options,
        )  # fmt: skip
        reports.append(report)
        if not report.ok:
            raise _RefusedError
        found = describe(stage / "model.onnx")
        rows.append(_store_check(stage, found))
        return found

    def extended(stage: Path) -> None:
        rows.append(_compare(folder / "config.pbtxt", version(stage), batch is not None))
        if labels is not None:
            _write(folder / _LABELS, _lines(labels))

    def new(stage: Path) -> None:
        (stage / str(number)).mkdir()
        found = version(stage / str(number))
        rows_of_one = max_batch if _combines(found) and not batch else 0
        config = config_text(job, folder.name, found, rows_of_one, delay, instances, labels)
        _write(stage / "config.pbtxt", config)
        rows.append(Check("config.pbtxt", True, "written"))
        rows.extend(_remarks(job, found, combines=bool(rows_of_one) or bool(batch)))
        if labels is not None:
            _write(stage / _LABELS, _lines(labels))

    try:
        if folder.exists():
            replace_folder(folder / str(number), extended)
        else:
            _make(folder.parent)
            replace_folder(folder, new)
    except _RefusedError:
        rows.append(Check("published", False, "the verification failed: nothing was written"))
    subject = str(folder / str(number))
    first = reports[0]
    return Report(subject, (*first.rows, *rows), first.outputs, first.comparison)


class _RefusedError(Exception):
    """The model that was exported is not fit to be published."""


def _check(job: Exportable, max_batch: int, delay: float, instances: int) -> None:
    if job.spec.kind == "train":
        raise ArgumentError(
            f"{job.spec.name} is a train job, which no server runs", hint="give its predict job"
        )
    if max_batch < 1 or instances < 1 or delay < 0:
        raise ArgumentError(
            f"max_batch={max_batch}, instances={instances}, delay={delay}",
            hint="give at least one row and one instance, and a delay of at least 0 seconds",
        )


def _lines(labels: Sequence[str]) -> str:
    return "".join(f"{label}\n" for label in labels)


def newest_version(folder: Path) -> int:
    """The highest version in a model's folder, 0 if there is none."""
    names = (p.name for p in folder.iterdir()) if folder.is_dir() else ()
    return max((int(n) for n in names if n.isascii() and n.isdigit()), default=0)


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ArgumentError(
            f"{name!r} cannot name a model in a repository", hint="letters, digits, . _ and -"
        )
    return name


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BundleError(f"{folder} cannot be made: {error.strerror}",
                          hint="give another repository") from error  # fmt: skip


def _compare(path: Path, found: Mapping[str, Any], is_fixed: bool) -> Check:
    """See that the config.pbtxt that is there fits the model."""
    if not path.exists():
        return Check("config.pbtxt", None, "there is none; servers work it out themselves")
    present = read_config(path)
    for what, ports in (("inputs", present.inputs), ("outputs", present.outputs)):
        own = {t["name"]: _port(t, bool(present.max_batch)) for t in found[what]}
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


def _port(tensor: Mapping[str, Any], has_batch: bool) -> DeclaredTensor:
    shape = tuple(s if isinstance(s, int) else -1 for s in tensor["shape"])
    shape = (-1, *shape[1:]) if has_batch else shape
    return DeclaredTensor(tensor["name"], _datatype(tensor["dtype"]), shape)


def _fits(declared: DeclaredTensor, own: DeclaredTensor | None) -> bool:
    return own is not None and declared.datatype == own.datatype and (
        len(declared.shape) == len(own.shape)
        and all(-1 in (a, b) or a == b for a, b in zip(declared.shape, own.shape, strict=True))
    )  # fmt: skip


def _datatype(element: str) -> str:
    return _TYPES.get(element, element.upper())


def config_text(
    job: Exportable,
    name: str,
    found: Mapping[str, Any],
    max_batch: int = 32,
    delay: float = 0.0,
    instances: int = 1,
    labels: Sequence[str] | None = None,
) -> str:
    """A config.pbtxt for a job whose model's `inputs` and `outputs` are those of `found`."""
    has_batch = max_batch > 0
    if labels is not None and all(t["shape"][-1:] != [len(labels)] for t in found["outputs"]):
        raise ArgumentError(
            f"{len(labels)} labels for outputs {[t['shape'] for t in found['outputs']]}",
            hint="the last size of an output must be their number",
        )
    config: dict[str, Text] = {
        "name": name,
        "backend": "onnxruntime",
        "max_batch_size": max_batch,
        "input": [_described(t, has_batch) for t in found["inputs"]],
        "output": [_described(t, has_batch, labels) for t in found["outputs"]],
        "version_policy": {"latest": {"num_versions": 1}},
        "instance_group": [{"count": instances, "kind": _Word("KIND_AUTO")}],
    }
    if has_batch:
        config["dynamic_batching"] = {"max_queue_delay_microseconds": round(delay * 1e6)}
    sizes = sorted({1, max_batch}) if has_batch else [0]
    config["model_warmup"] = [_warmup(found["inputs"], size) for size in sizes]
    accelerator = _accelerator(job, found.get("metadata", {}).get("flow2onnx.precision"))
    if accelerator:
        config["optimization"] = {
            "execution_accelerators": {"gpu_execution_accelerator": [accelerator]}
        }
    return _pbtxt(config)


def _combines(found: Mapping[str, Any]) -> bool:
    """Whether every input and output has a batch of any size first, as Triton asks for."""
    tensors = [*found["inputs"], *found["outputs"]]
    return all(t["shape"] and not isinstance(t["shape"][0], int) for t in tensors)


def _remarks(job: Exportable, found: Mapping[str, Any], *, combines: bool) -> list[Check]:
    """What config.pbtxt cannot say of the job."""
    rows = []
    if not combines:
        text = "max_batch_size is 0, requests are not combined: not everything has a batch first"
        rows.append(Check("batching", None, text))
    scalars = [t["name"] for t in (*found["inputs"], *found["outputs"]) if not t["shape"]]
    if scalars:
        text = "has no axes, which Triton refuses and `flow2onnx serve` takes; declare it as (1,)"
        rows.append(Check("scalars", None, f"{', '.join(scalars)} {text}"))
    _, dropped = _tensorrt(job, found["metadata"].get("flow2onnx.precision"))
    if dropped:
        text = f"Triton has no parameters for {', '.join(dropped)}: left out of config.pbtxt"
        rows.append(Check("TensorRT", None, text))
    return rows


def _described(
    tensor: Mapping[str, Any], has_batch: bool, labels: Sequence[str] | None = None
) -> dict[str, Text]:
    port = _port(tensor, has_batch)
    dims = list(port.shape[has_batch:])
    found: dict[str, Text] = {
        "name": port.name,
        "data_type": _Word(f"TYPE_{port.datatype}"),
        "dims": dims or [1] * has_batch,
    }
    if has_batch and not dims:  # one number a row: Triton has no empty dims
        found["reshape"] = {"shape": []}
    is_labelled = labels is not None and port.shape[-1:] == (len(labels),)
    return {**found, "label_filename": _LABELS} if is_labelled else found


def _warmup(inputs: Sequence[Mapping[str, Any]], size: int) -> dict[str, Text]:
    entries: list[Text] = []
    for tensor in inputs:
        port = _port(tensor, size > 0)
        dims = [1 if s < 0 else s for s in port.shape[size > 0 :]] or [1] * (size > 0)
        value: dict[str, Text] = {"data_type": _Word(f"TYPE_{port.datatype}"), "dims": dims}
        entries.append({"key": port.name, "value": {**value, "zero_data": True}})
    rows: dict[str, Text] = {"batch_size": size} if size else {}
    return {"name": f"rows of {size}" if size else "once", **rows, "inputs": entries}


def _tensorrt(
    job: Exportable, precision: str | None
) -> tuple[dict[str, str] | None, tuple[str, ...]]:
    """TensorRT's parameters, if the job's configuration asks for it, and what is not among them."""
    config = job.spec.config
    if "tensorrt" not in config.providers():
        return None, ()
    free = {
        name.partition(".")[2]: value
        for name, value in config.value("runtime.provider_option").items()
        if name.startswith("tensorrt.")
    }
    asked = {**config.provider_options("tensorrt"), **free}
    on = [o for o in _PRECISIONS if asked.get(o) in ("1", "True", "true")]
    asked = {o: value for o, value in asked.items() if o not in _PRECISIONS}
    needed = _NEEDED.get(precision or "")
    chosen = needed or (_PRECISIONS[on[-1]] if on else None)
    told: dict[str, str] = {"precision_mode": chosen} if chosen else {}
    told |= {_RENAMED.get(o, o): v for o, v in asked.items() if o in {*_RENAMED, *_TOLD}}
    dropped = [o for o in asked if o not in _RENAMED and o not in _TOLD]
    dropped += [o for o in on if _PRECISIONS[o] != chosen]  # there is one precision only
    table = _RENAMED["trt_int8_calibration_table_name"]
    if precision == "int8" and table in told:
        del told[table]  # refused beside ranges in the model
        dropped.append("trt_int8_calibration_table_name")
    return told, tuple(dropped)


def _accelerator(job: Exportable, precision: str | None) -> dict[str, Text] | None:
    """TensorRT, if the job's configuration asks for it, with what Triton can be told of it."""
    told, _ = _tensorrt(job, precision)
    if told is None:
        return None
    parameters: list[Text] = [{"key": key, "value": value} for key, value in told.items()]
    return {"name": "tensorrt", "parameters": parameters}


def _store_check(stage: Path, found: Mapping[str, Any]) -> Check:
    """Store feeds and what an unoptimised session makes of them, if it does so every time."""
    predict = Predictor(stage / "model.onnx", Options(optimization="disable"))
    draws = np.random.default_rng(0)
    feeds = {t["name"]: _made(t, draws) for t in found["inputs"]}
    results, again = predict(**feeds), predict(**feeds)
    if any(results[n].tobytes() != again[n].tobytes() for n in results):
        return Check("check.safetensors", None, "not stored: results differ from run to run")
    if not _is_steady(stage, feeds, results):
        text = (
            "not stored: other kernels round so differently that it could not be told from faults"
        )
        return Check("check.safetensors", None, text)
    tensors = {f"feeds/{n}": a for n, a in feeds.items()}
    tensors |= {f"results/{n}": a for n, a in results.items()}
    elements = {f"feeds/{t['name']}": t["dtype"] for t in found["inputs"]}
    elements |= {f"results/{t['name']}": t["dtype"] for t in found["outputs"]}
    save_safetensors(stage / "check.safetensors", tensors, elements=elements)
    return Check("check.safetensors", True, f"{len(results)} results to try a version by")


def _is_steady(stage: Path, feeds: Mapping[str, Array], results: Mapping[str, Array]) -> bool:
    """Whether the optimised session, whose kernels are others, gives the same within tolerance."""
    found = Predictor(stage / "model.onnx")(**feeds)
    return all(
        np.allclose(_numbers(found[n]), _numbers(value), _CHECK_RTOL, _CHECK_ATOL, equal_nan=True)
        for n, value in results.items()
    )


def _numbers(value: Array) -> Array:
    return value if value.dtype == np.uint16 else value.astype(np.float64)


def _made(tensor: Mapping[str, Any], draws: np.random.Generator) -> Array:
    """Values that any model takes: small numbers, and indices 0 and 1."""
    element = find_element(tensor["dtype"])
    assert element is not None, "the runtime has opened the model"
    shape = [s if isinstance(s, int) else _CHECK_ROWS for s in tensor["shape"]]
    return random_array(draws, shape, element.numpy, is_bfloat16=element.is_bits)


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


def _write(path: Path, text: str) -> None:
    def write(file: BinaryIO) -> None:
        file.write(text.encode())

    try:
        replace_file(path, write)
    except OSError as error:
        raise BundleError(f"{path} cannot be written: {error.strerror}",
                          hint="check the permissions and the free space") from error  # fmt: skip
