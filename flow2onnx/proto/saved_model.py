"""The messages of a saved model, as far as programs look into them.

Field numbers are those of `oneflow/core/serving/saved_model.proto` and what it includes; of an
operator only the name and the device are described, and other fields are kept unread.
"""

from flow2onnx_runtime.messages import messages

__all__ = ["DATA_TYPES", "GraphDef", "JobSignatureDef", "SavedModel"]

# OneFlow's numbers of element types, by our names of them.
DATA_TYPES = {
    "char": 1,
    "float32": 2,
    "float64": 3,
    "int8": 4,
    "int32": 5,
    "int64": 6,
    "uint8": 7,
    "float16": 9,
    "bfloat16": 11,
    "bool": 12,
}
_NAMES = {
    "kInvalidDataType": 0,
    "kChar": 1,
    "kFloat": 2,
    "kDouble": 3,
    "kInt8": 4,
    "kInt32": 5,
    "kInt64": 6,
    "kUInt8": 7,
    "kOFRecord": 8,
    "kFloat16": 9,
    "kTensorBuffer": 10,
    "kBFloat16": 11,
    "kBool": 12,
}
_CLASSES = messages(
    "oneflow",
    {
        "ShapeProto": "repeated int64 dim = 1",
        "LogicalBlobId": "optional string op_name = 1; optional string blob_name = 2",
        "InterfaceBlobConf": "optional ShapeProto shape = 1; optional DataType data_type = 2; "
        "optional bool is_dynamic = 3",
        "JobInputDef": "required LogicalBlobId lbi = 1; required InterfaceBlobConf blob_conf = 2",
        "JobOutputDef": "required LogicalBlobId lbi = 1",
        "JobSignatureDef": "map<string, JobInputDef> inputs = 1; "
        "map<string, JobOutputDef> outputs = 2",
        "OperatorConf": "required string name = 1; optional string device_tag = 4",
        "GraphDef": "repeated OperatorConf op_list = 1; "
        "map<string, JobSignatureDef> signatures = 2; optional string default_signature_name = 3",
        "SavedModel": "required string name = 1; required int64 version = 2; "
        "required string checkpoint_dir = 3; map<string, GraphDef> graphs = 4; "
        "optional string default_graph_name = 5",
    },
    {"DataType": _NAMES},
)
SavedModel, GraphDef = _CLASSES["SavedModel"], _CLASSES["GraphDef"]
JobSignatureDef = _CLASSES["JobSignatureDef"]
