"""The protocol's messages, made when they are first asked for: no generated code is shipped."""

from functools import cache
from typing import Any

from google.protobuf import (  # type: ignore[import-untyped]  # shipped without types
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)

__all__ = ["SERVICE", "message_class"]

SERVICE = "inference.GRPCInferenceService"

# One message a line: NAME: field=number type, …; `*` repeats, `map<…>` maps, `a|b` choose one.
# A name with a dot lies within another. Field numbers are the protocol's.
_MESSAGES = """
ServerLiveRequest:
ServerLiveResponse: live=1 bool
ServerReadyRequest:
ServerReadyResponse: ready=1 bool
ModelReadyRequest: name=1 string, version=2 string
ModelReadyResponse: ready=1 bool
ServerMetadataRequest:
ServerMetadataResponse: name=1 string, version=2 string, extensions=3 *string
ModelMetadataRequest: name=1 string, version=2 string
ModelMetadataResponse: name=1 string, versions=2 *string, platform=3 string, \
inputs=4 *ModelMetadataResponse.TensorMetadata, outputs=5 *ModelMetadataResponse.TensorMetadata
ModelMetadataResponse.TensorMetadata: name=1 string, datatype=2 string, shape=3 *int64
InferParameter: bool_param=1 |bool, int64_param=2 |int64, string_param=3 |string, \
double_param=4 |double, uint64_param=5 |uint64
InferTensorContents: bool_contents=1 *bool, int_contents=2 *int32, int64_contents=3 *int64, \
uint_contents=4 *uint32, uint64_contents=5 *uint64, fp32_contents=6 *float, \
fp64_contents=7 *double, bytes_contents=8 *bytes
ModelInferRequest: model_name=1 string, model_version=2 string, id=3 string, \
parameters=4 map<InferParameter>, inputs=5 *ModelInferRequest.InferInputTensor, \
outputs=6 *ModelInferRequest.InferRequestedOutputTensor, raw_input_contents=7 *bytes
ModelInferRequest.InferInputTensor: name=1 string, datatype=2 string, shape=3 *int64, \
parameters=4 map<InferParameter>, contents=5 InferTensorContents
ModelInferRequest.InferRequestedOutputTensor: name=1 string, parameters=2 map<InferParameter>
ModelInferResponse: model_name=1 string, model_version=2 string, id=3 string, \
parameters=4 map<InferParameter>, outputs=5 *ModelInferResponse.InferOutputTensor, \
raw_output_contents=6 *bytes
ModelInferResponse.InferOutputTensor: name=1 string, datatype=2 string, shape=3 *int64, \
parameters=4 map<InferParameter>, contents=5 InferTensorContents
ModelStreamInferResponse: error_message=1 string, infer_response=2 ModelInferResponse
ModelConfigRequest: name=1 string, version=2 string
ModelConfigResponse: config=1 ModelConfig
ModelStatisticsRequest: name=1 string, version=2 string
StatisticDuration: count=1 uint64, ns=2 uint64
InferStatistics: success=1 StatisticDuration, fail=2 StatisticDuration, \
queue=3 StatisticDuration, compute_input=4 StatisticDuration, compute_infer=5 StatisticDuration, \
compute_output=6 StatisticDuration, cache_hit=7 StatisticDuration, cache_miss=8 StatisticDuration
InferBatchStatistics: batch_size=1 uint64, compute_input=2 StatisticDuration, \
compute_infer=3 StatisticDuration, compute_output=4 StatisticDuration
ModelStatistics: name=1 string, version=2 string, last_inference=3 uint64, \
inference_count=4 uint64, execution_count=5 uint64, inference_stats=6 InferStatistics, \
batch_stats=7 *InferBatchStatistics
ModelStatisticsResponse: model_stats=1 *ModelStatistics
ModelRepositoryParameter: bool_param=1 |bool, int64_param=2 |int64, string_param=3 |string, \
bytes_param=4 |bytes
RepositoryIndexRequest: repository_name=1 string, ready=2 bool
RepositoryIndexResponse: models=1 *RepositoryIndexResponse.ModelIndex
RepositoryIndexResponse.ModelIndex: name=1 string, version=2 string, state=3 string, \
reason=4 string
RepositoryModelLoadRequest: repository_name=1 string, model_name=2 string, \
parameters=3 map<ModelRepositoryParameter>
RepositoryModelLoadResponse:
RepositoryModelUnloadRequest: repository_name=1 string, model_name=2 string, \
parameters=3 map<ModelRepositoryParameter>
RepositoryModelUnloadResponse:
ModelInstanceGroup: name=1 string, count=2 int32, gpus=3 *int32, kind=4 ModelInstanceGroup.Kind
ModelTensorReshape: shape=1 *int64
ModelInput: name=1 string, data_type=2 DataType, dims=4 *int64, reshape=5 ModelTensorReshape
ModelOutput: name=1 string, data_type=2 DataType, dims=3 *int64, label_filename=4 string, \
reshape=5 ModelTensorReshape
ModelVersionPolicy: latest=1 |ModelVersionPolicy.Latest, all=2 |ModelVersionPolicy.All, \
specific=3 |ModelVersionPolicy.Specific
ModelVersionPolicy.Latest: num_versions=1 uint32
ModelVersionPolicy.All:
ModelVersionPolicy.Specific: versions=1 *int64
ModelQueuePolicy: default_timeout_microseconds=2 uint64, max_queue_size=4 uint32
ModelDynamicBatching: preferred_batch_size=1 *int32, max_queue_delay_microseconds=2 uint64, \
default_queue_policy=6 ModelQueuePolicy
ModelWarmup: name=1 string, batch_size=2 uint32, inputs=3 map<ModelWarmup.Input>, count=4 uint32
ModelWarmup.Input: data_type=1 DataType, dims=2 *int64, zero_data=3 |bool, random_data=4 |bool, \
input_data_file=5 |string
ModelSequenceBatching:
ModelEnsembling:
ModelOptimizationPolicy: execution_accelerators=4 ModelOptimizationPolicy.ExecutionAccelerators
ModelOptimizationPolicy.ExecutionAccelerators: \
gpu_execution_accelerator=1 *ModelOptimizationPolicy.ExecutionAccelerators.Accelerator, \
cpu_execution_accelerator=2 *ModelOptimizationPolicy.ExecutionAccelerators.Accelerator
ModelOptimizationPolicy.ExecutionAccelerators.Accelerator: name=1 string, parameters=2 map<string>
ModelConfig: name=1 string, platform=2 string, version_policy=3 ModelVersionPolicy, \
max_batch_size=4 int32, input=5 *ModelInput, output=6 *ModelOutput, \
instance_group=7 *ModelInstanceGroup, default_model_filename=8 string, \
dynamic_batching=11 |ModelDynamicBatching, optimization=12 ModelOptimizationPolicy, \
sequence_batching=13 |ModelSequenceBatching, ensemble_scheduling=15 |ModelEnsembling, \
model_warmup=16 *ModelWarmup, backend=17 string
"""
_ENUMS = {
    "DataType": "TYPE_INVALID TYPE_BOOL TYPE_UINT8 TYPE_UINT16 TYPE_UINT32 TYPE_UINT64 TYPE_INT8 "
    "TYPE_INT16 TYPE_INT32 TYPE_INT64 TYPE_FP16 TYPE_FP32 TYPE_FP64 TYPE_STRING TYPE_BF16",
    "ModelInstanceGroup.Kind": "KIND_AUTO KIND_GPU KIND_CPU KIND_MODEL",
}
_PACKAGE = "inference"
_Field = descriptor_pb2.FieldDescriptorProto


@cache
def _pool() -> Any:
    """A pool of our own: other libraries may hold the same names in the common one."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(_file().SerializeToString())
    return pool


@cache
def message_class(name: str) -> Any:
    """The class of a message such as ``inference.ModelInferRequest``."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(name))


def _file() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="flow2onnx_inference.proto", package=_PACKAGE, syntax="proto3"
    )
    places: dict[str, Any] = {"": file}
    # a message's parent is made before it, wherever its line stands
    for line in sorted(_MESSAGES.strip().splitlines(), key=lambda text: text.split(":")[0]):
        name, _, fields = line.partition(":")
        parent, _, own = name.rpartition(".")
        where = places[parent].nested_type if parent else file.message_type
        places[name] = where.add(name=own)
        for text in filter(None, (part.strip() for part in fields.split(", "))):
            _add_field(places[name], name, text)
    for name, values in _ENUMS.items():
        parent, _, own = name.rpartition(".")
        enum = places[parent].enum_type.add(name=own)
        for number, value in enumerate(values.split()):
            enum.value.add(name=value, number=number)
    return file


def _add_field(message: Any, path: str, text: str) -> None:
    head, _, kind = text.strip().partition(" ")
    name, _, number = head.partition("=")
    field = message.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
    if kind.startswith(("*", "map<")):
        field.label = _Field.LABEL_REPEATED
    if kind.startswith("|"):
        if not message.oneof_decl:
            message.oneof_decl.add(name="choice")
        field.oneof_index = 0
    if kind.startswith("map<"):
        kind = f"{path}.{_add_entry(message, name, kind[4:-1])}"
    _set_type(field, kind.lstrip("*|"))


def _add_entry(message: Any, name: str, kind: str) -> str:
    """A map from text, which protobuf stores as a repeated message of key and value."""
    own = "".join(part.title() for part in name.split("_")) + "Entry"
    entry = message.nested_type.add(name=own)
    entry.options.map_entry = True
    for number, (part, what) in enumerate((("key", "string"), ("value", kind)), 1):
        field = entry.field.add(name=part, number=number, label=_Field.LABEL_OPTIONAL)
        _set_type(field, what)
    return own


def _set_type(field: Any, kind: str) -> None:
    if kind in _ENUMS:
        field.type = _Field.TYPE_ENUM
    elif kind[0].isupper():
        field.type = _Field.TYPE_MESSAGE
    else:
        field.type = getattr(_Field, f"TYPE_{kind.upper()}")
        return
    field.type_name = f".{_PACKAGE}.{kind}"
