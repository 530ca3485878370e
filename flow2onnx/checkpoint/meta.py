"""The `meta` file of a saved variable: OneFlow's VariableMetaInfo in protobuf text form."""

from flow2onnx_runtime.messages import messages, parse_text, text_of

from flow2onnx.dtypes import (
    DType,
    bfloat16,
    bool_,
    char,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
    uint8,
)
from flow2onnx.errors import CheckpointError

__all__ = ["meta_text", "parse_meta"]

# OneFlow's data_type.proto; a variable never is one of those without an element type here.
_DATA_TYPES = (
    ("kInvalidDataType", 0, None),
    ("kChar", 1, char),
    ("kFloat", 2, float32),
    ("kDouble", 3, float64),
    ("kInt8", 4, int8),
    ("kInt32", 5, int32),
    ("kInt64", 6, int64),
    ("kUInt8", 7, uint8),
    ("kOFRecord", 8, None),
    ("kFloat16", 9, float16),
    ("kTensorBuffer", 10, None),
    ("kBFloat16", 11, bfloat16),
    ("kBool", 12, bool_),
)
_DTYPE_OF = {number: dtype for _, number, dtype in _DATA_TYPES}
_NUMBER_OF = {dtype: number for _, number, dtype in _DATA_TYPES}  # int8 is kInt8, the later one
_MAX_RANK = 32  # of numpy 1
_VariableMetaInfo = messages(
    "oneflow",
    {
        "ShapeProto": "repeated int64 dim = 1",
        "VariableMetaInfo": "optional ShapeProto shape = 1; optional DataType data_type = 2",
    },
    {"DataType": {name: number for name, number, _ in _DATA_TYPES}},
)["VariableMetaInfo"]


def meta_text(shape: tuple[int, ...], dtype: DType) -> str:
    """The text of a `meta` file, to the byte as OneFlow writes it."""
    info = _VariableMetaInfo(shape={"dim": shape}, data_type=_NUMBER_OF[dtype])
    return text_of(info)


def parse_meta(text: bytes, path: str) -> tuple[tuple[int, ...], DType]:
    """Shape and element type that any legal text form says; `path` names the file in errors."""
    try:
        info = parse_text(text.decode(), _VariableMetaInfo)
    except ValueError as error:
        raise _bad_meta(path, str(error)) from None
    if not info.HasField("shape") or not info.HasField("data_type"):
        raise _bad_meta(path, "shape or data_type is missing")
    shape, dtype = tuple(info.shape.dim), _DTYPE_OF[info.data_type]
    if dtype is None:
        raise _bad_meta(path, f"data_type {info.data_type} is no type of a variable")
    if len(shape) > _MAX_RANK or any(dim < 0 for dim in shape):
        raise _bad_meta(path, f"{shape} is no shape")
    return shape, dtype


def _bad_meta(path: str, reason: str) -> CheckpointError:
    return CheckpointError(
        f"{path} does not tell shape and data_type: {reason}",
        hint="load an earlier checkpoint, or delete this file and give both to numpy_as",
    )
