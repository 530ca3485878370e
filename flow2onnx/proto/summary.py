"""The messages of TensorBoard's plug-in for hyper-parameters and of OneFlow's projector files."""

from flow2onnx_runtime.event_files import Event, Summary
from flow2onnx_runtime.messages import messages

__all__ = ["STRINGS", "Event", "HParamsPluginData", "Summary", "SummaryProjector"]

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
HParamsPluginData = _PLUGINS["HParamsPluginData"]
SummaryProjector = _PROJECTOR["SummaryProjector"]
STRINGS = 7  # the number of DT_STRING
