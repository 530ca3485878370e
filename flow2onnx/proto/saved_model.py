"""The messages of saved models and saved variables, as far as programs look into them.

Field numbers are those of `oneflow/core/serving/saved_model.proto` and what it includes; of an
operator only the name and the device are described, and other fields are kept unread.
"""

from flow2onnx_runtime.messages import messages

__all__ = ["DATA_TYPES", "GraphDef", "JobSignatureDef", "SavedModel", "VariableMetaInfo"]

# OneFlow's element types in the order of their numbers, with our names of those that blobs have.
_TYPES = (
    ("kInvalidDataType", ""), ("kChar", "char"), ("kFloat", "float32"), ("kDouble", "float64"),
    ("kInt8", "int8"), ("kInt32", "int32"), ("kInt64", "int64"), ("kUInt8", "uint8"),
    ("kOFRecord", ""), ("kFloat16", "float16"), ("kTensorBuffer", ""), ("kBFloat16", "bfloat16"),
    ("kBool", "bool"),
)  # fmt: skip
DATA_TYPES = {ours: number for number, (_, ours) in enumerate(_TYPES) if ours}
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
        "VariableMetaInfo": "optional ShapeProto shape = 1; optional DataType data_type = 2",
    },
    {"DataType": {name: number for number, (name, _) in enumerate(_TYPES)}},
)
SavedModel, GraphDef = _CLASSES["SavedModel"], _CLASSES["GraphDef"]
JobSignatureDef, VariableMetaInfo = _CLASSES["JobSignatureDef"], _CLASSES["VariableMetaInfo"]
