"""The protocol's messages over gRPC, made at run time: no generated code is shipped."""

from flow2onnx_runtime.messages import messages
from flow2onnx_runtime.model_config import DESCRIBED, ENUMS, PACKAGE

__all__ = ["MESSAGES", "SERVICE"]

SERVICE = f"{PACKAGE}.GRPCInferenceService"
_PROTOCOL = {
    "ServerLiveRequest": "",
    "ServerLiveResponse": "bool live = 1",
    "ServerReadyRequest": "",
    "ServerReadyResponse": "bool ready = 1",
    "ModelReadyRequest": "string name = 1; string version = 2",
    "ModelReadyResponse": "bool ready = 1",
    "ServerMetadataRequest": "",
    "ServerMetadataResponse": "string name = 1; string version = 2; repeated string extensions = 3",
    "ModelMetadataRequest": "string name = 1; string version = 2",
    "ModelMetadataResponse": "string name = 1; repeated string versions = 2; "
    "string platform = 3; repeated ModelMetadataResponse.TensorMetadata inputs = 4; "
    "repeated ModelMetadataResponse.TensorMetadata outputs = 5",
    "ModelMetadataResponse.TensorMetadata": "string name = 1; string datatype = 2; "
    "repeated int64 shape = 3",
    "InferParameter": "oneof:choice bool bool_param = 1; oneof:choice int64 int64_param = 2; "
    "oneof:choice string string_param = 3; oneof:choice double double_param = 4; "
    "oneof:choice uint64 uint64_param = 5",
    "InferTensorContents": "repeated bool bool_contents = 1; repeated int32 int_contents = 2; "
    "repeated int64 int64_contents = 3; repeated uint32 uint_contents = 4; "
    "repeated uint64 uint64_contents = 5; repeated float fp32_contents = 6; "
    "repeated double fp64_contents = 7; repeated bytes bytes_contents = 8",
    "ModelInferRequest": "string model_name = 1; string model_version = 2; string id = 3; "
    "map<string, InferParameter> parameters = 4; "
    "repeated ModelInferRequest.InferInputTensor inputs = 5; "
    "repeated ModelInferRequest.InferRequestedOutputTensor outputs = 6; "
    "repeated bytes raw_input_contents = 7",
    "ModelInferRequest.InferInputTensor": "string name = 1; string datatype = 2; "
    "repeated int64 shape = 3; map<string, InferParameter> parameters = 4; "
    "InferTensorContents contents = 5",
    "ModelInferRequest.InferRequestedOutputTensor": "string name = 1; "
    "map<string, InferParameter> parameters = 2",
    "ModelInferResponse": "string model_name = 1; string model_version = 2; string id = 3; "
    "map<string, InferParameter> parameters = 4; "
    "repeated ModelInferResponse.InferOutputTensor outputs = 5; "
    "repeated bytes raw_output_contents = 6",
    "ModelInferResponse.InferOutputTensor": "string name = 1; string datatype = 2; "
    "repeated int64 shape = 3; map<string, InferParameter> parameters = 4; "
    "InferTensorContents contents = 5",
    "ModelStreamInferResponse": "string error_message = 1; ModelInferResponse infer_response = 2",
    "ModelConfigRequest": "string name = 1; string version = 2",
    "ModelConfigResponse": "ModelConfig config = 1",
    "ModelStatisticsRequest": "string name = 1; string version = 2",
    "StatisticDuration": "uint64 count = 1; uint64 ns = 2",
    "InferStatistics": "StatisticDuration success = 1; StatisticDuration fail = 2; "
    "StatisticDuration queue = 3; StatisticDuration compute_input = 4; "
    "StatisticDuration compute_infer = 5; StatisticDuration compute_output = 6; "
    "StatisticDuration cache_hit = 7; StatisticDuration cache_miss = 8",
    "InferBatchStatistics": "uint64 batch_size = 1; StatisticDuration compute_input = 2; "
    "StatisticDuration compute_infer = 3; StatisticDuration compute_output = 4",
    "ModelStatistics": "string name = 1; string version = 2; uint64 last_inference = 3; "
    "uint64 inference_count = 4; uint64 execution_count = 5; "
    "InferStatistics inference_stats = 6; repeated InferBatchStatistics batch_stats = 7",
    "ModelStatisticsResponse": "repeated ModelStatistics model_stats = 1",
    "ModelRepositoryParameter": "oneof:choice bool bool_param = 1; "
    "oneof:choice int64 int64_param = 2; oneof:choice string string_param = 3; "
    "oneof:choice bytes bytes_param = 4",
    "RepositoryIndexRequest": "string repository_name = 1; bool ready = 2",
    "RepositoryIndexResponse": "repeated RepositoryIndexResponse.ModelIndex models = 1",
    "RepositoryIndexResponse.ModelIndex": "string name = 1; string version = 2; "
    "string state = 3; string reason = 4",
    "RepositoryModelLoadRequest": "string repository_name = 1; string model_name = 2; "
    "map<string, ModelRepositoryParameter> parameters = 3",
    "RepositoryModelLoadResponse": "",
    "RepositoryModelUnloadRequest": "string repository_name = 1; string model_name = 2; "
    "map<string, ModelRepositoryParameter> parameters = 3",
    "RepositoryModelUnloadResponse": "",
}
MESSAGES = messages(PACKAGE, {**DESCRIBED, **_PROTOCOL}, ENUMS, syntax="proto3")
