"""The messages of TensorBoard's event files and of OneFlow's projector files."""

from flow2onnx_runtime.messages import messages

__all__ = ["STRINGS", "Event", "HParamsPluginData", "Summary", "SummaryProjector"]

_EVENTS = messages(
    "oneflow.summary",
    {
        "TensorShapeProto": "repeated TensorShapeProto.Dim dim = 2",
        "TensorShapeProto.Dim": "required int64 size = 1; optional string name = 2",
        "TensorProto": "required TensorDataType dtype = 1; "
        "required TensorShapeProto tensor_shape = 2; optional int32 version_number = 3; "
        "optional bytes tensor_content = 4; repeated float float_val = 5 [packed]; "
        "repeated double double_val = 6 [packed]; repeated int32 int_val = 7 [packed]; "
        "repeated bytes string_val = 8; repeated int64 int64_val = 9 [packed]; "
        "repeated bool bool_val = 10 [packed]",
        "SummaryMetadata": "required PluginData plugin_data = 1; optional string display_name = 2; "
        "optional string summary_description = 3",
        "PluginData": "required string plugin_name = 1; optional bytes content = 2",
        "HistogramProto": "required double min = 1; required double max = 2; "
        "required double num = 3; required double sum = 4; required double sum_squares = 5; "
        "repeated double bucket_limit = 6 [packed]; repeated double bucket = 7 [packed]",
        "Image": "required int32 height = 1; required int32 width = 2; "
        "required int32 colorspace = 3; required bytes encoded_image_string = 4",
        "Summary": "repeated SummaryValue value = 1",
        "SummaryValue": "optional string node_name = 7; required string tag = 1; "
        "optional SummaryMetadata metadata = 9; oneof:value float simple_value = 2; "
        "oneof:value bytes obsolete_old_style_histogram = 3; oneof:value Image image = 4; "
        "oneof:value HistogramProto histo = 5; oneof:value TensorProto tensor = 8",
        "Event": "required double wall_time = 1; optional int64 step = 2; "
        "oneof:what string file_version = 3; oneof:what bytes graph_def = 4; "
        "oneof:what Summary summary = 5; oneof:what bytes meta_graph_def = 9",
    },
    {"TensorDataType": {"DT_INVALID": 0, "DT_FLOAT": 1, "DT_STRING": 7}},
)
_PLUGINS = messages(
    "oneflow.summary",
    {
        "SessionStartInfo": "map<string, google.protobuf.Value> hparams = 1; "
        "required string group_name = 4; required double start_time_secs = 5; "
        "map<string, google.protobuf.Value> metrics = 6",
        "HParamsPluginData": "required int32 version = 1; "
        "oneof:data SessionStartInfo session_start_info = 3",
    },
)
_PROJECTOR = messages(
    "oneflow.summary",
    {
        "MetaData": "required ProjectorType type = 1; optional string content = 2",
        "TensorShape": "repeated Dim dim = 1",
        "Dim": "required int64 size = 1; optional string name = 2",
        "Tensor": "required string dtype = 1; required TensorShape shape = 2; "
        "optional bytes content = 3",
        "Sample": "required string name = 1; required SampleType type = 2; required Tensor X = 3",
        "Projector": "required string tag = 1; optional int64 step = 2; "
        "required double WALL_TIME = 3; required Tensor value = 4; optional Tensor label = 5",
        "SummaryProjector": "required MetaData metadata = 6; optional Sample sample = 2; "
        "repeated Projector projector = 1",
    },
    {
        "ProjectorType": {"EMBEDDING": 0, "EXCEPTION": 1},
        "SampleType": {"IMAGE": 0, "AUDIO": 1, "TEXT": 2},
    },
)
Event, Summary = _EVENTS["Event"], _EVENTS["Summary"]
HParamsPluginData = _PLUGINS["HParamsPluginData"]
SummaryProjector = _PROJECTOR["SummaryProjector"]
STRINGS = 7  # the number of DT_STRING
