"""The `meta` file of a saved variable: OneFlow's VariableMetaInfo in protobuf text form."""

from typing import Any

from google.protobuf import (  # type: ignore[import-untyped]  # shipped without types
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
)

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


def meta_text(shape: tuple[int, ...], dtype: DType) -> str:
    """The text of a `meta` file, to the byte as OneFlow writes it."""
    info = _VariableMetaInfo(shape={"dim": shape}, data_type=_NUMBER_OF[dtype])
    return str(text_format.MessageToString(info))


def parse_meta(text: bytes, path: str) -> tuple[tuple[int, ...], DType]:
    """Shape and element type that any legal text form says; `path` names the file in errors."""
    info = _VariableMetaInfo()
    try:
        text_format.Parse(text.decode(), info)
    except (text_format.ParseError, UnicodeDecodeError) as error:
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


def _message_class() -> Any:  # classes that protobuf makes at run time have no static type
    """OneFlow's VariableMetaInfo, described here so that no generated code is needed."""
    file = descriptor_pb2.FileDescriptorProto(name="variable_meta_info.proto", package="oneflow")
    enum = file.enum_type.add(name="DataType")
    for name, number, _ in _DATA_TYPES:
        enum.value.add(name=name, number=number)
    kind = descriptor_pb2.FieldDescriptorProto
    shape = file.message_type.add(name="ShapeProto")
    shape.field.add(name="dim", number=1, label=kind.LABEL_REPEATED, type=kind.TYPE_INT64)
    info = file.message_type.add(name="VariableMetaInfo")
    for number, name, of, type_name in (
        (1, "shape", kind.TYPE_MESSAGE, "ShapeProto"),
        (2, "data_type", kind.TYPE_ENUM, "DataType"),
    ):
        info.field.add(
            name=name,
            number=number,
            label=kind.LABEL_OPTIONAL,
            type=of,
            type_name=f".oneflow.{type_name}",
        )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("oneflow.VariableMetaInfo"))


_VariableMetaInfo = _message_class()
