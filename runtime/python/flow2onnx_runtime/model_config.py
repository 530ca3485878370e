"""config.pbtxt: what a model repository, as Triton reads it, says of a model."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import json_format  # type: ignore[import-untyped]  # shipped without types

from flow2onnx_runtime.errors import BundleError
from flow2onnx_runtime.messages import messages, parse_text

__all__ = ["DESCRIBED", "ENUMS", "PACKAGE", "DeclaredTensor", "ModelConfig", "read_config"]

PACKAGE = "inference"  # of the protocol's messages, some of which hold a ModelConfig
_ACCELERATORS = "ModelOptimizationPolicy.ExecutionAccelerators"
DESCRIBED = {
    "ModelInstanceGroup": "string name = 1; int32 count = 2; repeated int32 gpus = 3; "
    "ModelInstanceGroup.Kind kind = 4",
    "ModelTensorReshape": "repeated int64 shape = 1",
    "ModelInput": "string name = 1; DataType data_type = 2; repeated int64 dims = 4; "
    "ModelTensorReshape reshape = 5",
    "ModelOutput": "string name = 1; DataType data_type = 2; repeated int64 dims = 3; "
    "string label_filename = 4; ModelTensorReshape reshape = 5",
    "ModelVersionPolicy": "oneof:choice ModelVersionPolicy.Latest latest = 1; "
    "oneof:choice ModelVersionPolicy.All all = 2; "
    "oneof:choice ModelVersionPolicy.Specific specific = 3",
    "ModelVersionPolicy.Latest": "uint32 num_versions = 1",
    "ModelVersionPolicy.All": "",
    "ModelVersionPolicy.Specific": "repeated int64 versions = 1",
    "ModelQueuePolicy": "uint64 default_timeout_microseconds = 2; uint32 max_queue_size = 4",
    "ModelDynamicBatching": "repeated int32 preferred_batch_size = 1; "
    "uint64 max_queue_delay_microseconds = 2; ModelQueuePolicy default_queue_policy = 6",
    "ModelWarmup": "string name = 1; uint32 batch_size = 2; "
    "map<string, ModelWarmup.Input> inputs = 3; uint32 count = 4",
    "ModelWarmup.Input": "DataType data_type = 1; repeated int64 dims = 2; "
    "oneof:choice bool zero_data = 3; oneof:choice bool random_data = 4; "
    "oneof:choice string input_data_file = 5",
    "ModelSequenceBatching": "",
    "ModelEnsembling": "",
    "ModelOptimizationPolicy": f"{_ACCELERATORS} execution_accelerators = 4",
    _ACCELERATORS: f"repeated {_ACCELERATORS}.Accelerator gpu_execution_accelerator = 1; "
    f"repeated {_ACCELERATORS}.Accelerator cpu_execution_accelerator = 2",
    f"{_ACCELERATORS}.Accelerator": "string name = 1; map<string, string> parameters = 2",
    "ModelConfig": "string name = 1; string platform = 2; ModelVersionPolicy version_policy = 3; "
    "int32 max_batch_size = 4; repeated ModelInput input = 5; "
    "repeated ModelOutput output = 6; repeated ModelInstanceGroup instance_group = 7; "
    "string default_model_filename = 8; "
    "oneof:choice ModelDynamicBatching dynamic_batching = 11; "
    "ModelOptimizationPolicy optimization = 12; "
    "oneof:choice ModelSequenceBatching sequence_batching = 13; "
    "oneof:choice ModelEnsembling ensemble_scheduling = 15; "
    "repeated ModelWarmup model_warmup = 16; string backend = 17",
}
_DATA_TYPES = (
    "INVALID", "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
    "FP16", "FP32", "FP64", "STRING", "BF16",
)  # fmt: skip
ENUMS = {
    "DataType": {f"TYPE_{name}": number for number, name in enumerate(_DATA_TYPES)},
    "ModelInstanceGroup.Kind": {"KIND_AUTO": 0, "KIND_GPU": 1, "KIND_CPU": 2, "KIND_MODEL": 3},
}
_MESSAGE = messages(PACKAGE, DESCRIBED, ENUMS, syntax="proto3")["ModelConfig"]

_BACKENDS = ("", "onnxruntime")
_PLATFORMS = ("", "onnxruntime_onnx")


@dataclass(frozen=True)
class DeclaredTensor:
    """An input or output as declared: `shape` includes the batch where there is one.

    A column has one number in each row, which clients give, or get, with a last size of 1.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    labels: str | None = None
    is_column: bool = False


@dataclass(frozen=True)
class ModelConfig:
    """The content of a model's config.pbtxt; `max_batch` is None where there is none.

    `batches`: requests are to be combined; `latest` versions are served unless `specific`
    ones are; `warmups`: shapes by input to run before serving.
    """

    max_batch: int | None = None
    batches: bool = True
    delay: float | None = None
    queue: int | None = None
    instances: int = 1
    latest: int = 1
    specific: tuple[int, ...] | None = None
    inputs: tuple[DeclaredTensor, ...] = ()
    outputs: tuple[DeclaredTensor, ...] = ()
    warmups: tuple[dict[str, tuple[int, ...]], ...] = ()
    file: str = "model.onnx"
    accelerators: tuple[str, ...] = ()
    raw: Any = None  # the message itself, which no types are known of

    @property
    def is_declared(self) -> bool:
        """True if the inputs and outputs are written down."""
        return bool(self.inputs and self.outputs)

    @property
    def columns(self) -> frozenset[str]:
        """The inputs and outputs with one number in each row."""
        return frozenset(p.name for p in (*self.inputs, *self.outputs) if p.is_column)

    def to_dict(self) -> dict[str, Any]:
        """The configuration in the protocol's JSON form."""
        found: dict[str, Any] = json_format.MessageToDict(
            self.raw, preserving_proto_field_name=True
        )
        _restore_numbers(self.raw, found)
        return {"max_batch_size": 0, **found}  # clients read it, also where there is no batch


def _restore_numbers(message: Any, found: dict[str, Any]) -> None:
    """Undo in place that JSON of protobuf has 64-bit integers as text: the protocol's has not."""
    for field, value in message.ListFields():
        name, kind = field.name, field.message_type
        if field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64):
            is_list = isinstance(found[name], list)
            found[name] = list(value) if is_list else value
        elif kind is None:
            continue
        elif kind.GetOptions().map_entry:
            if kind.fields_by_name["value"].message_type is not None:
                for key in value:
                    _restore_numbers(value[key], found[name][str(key)])
        else:
            is_list = isinstance(found[name], list)
            parts = zip(value, found[name], strict=True) if is_list else [(value, found[name])]
            for part, shown in parts:
                _restore_numbers(part, shown)


def read_config(path: Path) -> ModelConfig:
    """The configuration in a file; raises `BundleError` for what cannot be served."""
    try:
        message = parse_text(path.read_text("utf-8"), _MESSAGE, allow_unknown=True)
    except (OSError, ValueError) as error:
        raise BundleError(f"{path.name} cannot be read: {error}") from error
    _check(message)
    return _config(message)


def _check(message: Any) -> None:
    if message.backend not in _BACKENDS or message.platform not in _PLATFORMS:
        raise BundleError(
            f"config.pbtxt asks for {message.backend or message.platform}",
            hint='only ONNX models are served: backend: "onnxruntime"',
        )
    kinds = ("sequence_batching", "ensemble_scheduling")
    strange = [kind for kind in kinds if message.HasField(kind)]
    if strange or not all(_is_shaped(p, message.max_batch_size) for p in
                          (*message.input, *message.output)):  # fmt: skip
        raise BundleError(
            f"config.pbtxt asks for {strange[0] if strange else 'reshape'}, which is not served",
            hint="only models without a state, with the shapes that they have",
        )
    name = message.default_model_filename
    if name and (Path(name).name != name or name in (".", "..")):
        raise BundleError(f"default_model_filename is {name!r}", hint="a name without folders")
    if message.max_batch_size < 0:
        raise BundleError(f"max_batch_size is {message.max_batch_size}", hint="0 for no batching")


def _is_shaped(port: Any, batch: int) -> bool:
    """True if a port has the shape it declares; dims of 1 may stand for none, one number a row."""
    is_number = bool(batch) and list(port.dims) == [1] and not port.reshape.shape
    return is_number or not port.HasField("reshape")


def _config(message: Any) -> ModelConfig:
    batch, dynamic = message.max_batch_size, message.HasField("dynamic_batching")
    batching = message.dynamic_batching
    policy = message.version_policy
    accelerators = message.optimization.execution_accelerators
    is_specific = policy.HasField("specific")
    numbers = [p.name for p in message.input if p.HasField("reshape")]
    return ModelConfig(
        max_batch=batch,
        batches=batch > 1 and dynamic,
        delay=batching.max_queue_delay_microseconds / 1e6,
        queue=batching.default_queue_policy.max_queue_size or None,
        instances=sum(group.count or 1 for group in message.instance_group) or 1,
        latest=10**9 if policy.HasField("all") else policy.latest.num_versions or 1,
        specific=tuple(policy.specific.versions) if is_specific else None,
        inputs=tuple(_port(p, batch) for p in message.input),
        outputs=tuple(_port(p, batch) for p in message.output),
        warmups=tuple(_warmup(w, batch, numbers) for w in message.model_warmup),
        file=message.default_model_filename or "model.onnx",
        accelerators=tuple(a.name for a in accelerators.gpu_execution_accelerator),
        raw=message,
    )


def _port(message: Any, batch: int) -> DeclaredTensor:
    kind = message.DESCRIPTOR.fields_by_name["data_type"].enum_type
    named = kind.values_by_number.get(message.data_type)  # None: the parser takes any number
    if named is None:
        raise BundleError(
            f"data_type of {message.name!r} is {message.data_type}",
            hint=f"name it: {', '.join(value.name for value in kind.values)}",
        )
    datatype = named.name.removeprefix("TYPE_")
    dims = () if message.HasField("reshape") else tuple(message.dims)
    shape = ((-1,) if batch else ()) + dims
    labels = getattr(message, "label_filename", "") or None
    if labels and Path(labels).name != labels:
        raise BundleError(f"label_filename is {labels!r}", hint="a name without folders")
    return DeclaredTensor(message.name, datatype, shape, labels, message.HasField("reshape"))


def _warmup(message: Any, batch: int, numbers: Collection[str]) -> dict[str, tuple[int, ...]]:
    rows = (max(1, message.batch_size),) if batch else ()
    return {
        name: rows + (() if name in numbers else tuple(value.dims))
        for name, value in message.inputs.items()
    }
