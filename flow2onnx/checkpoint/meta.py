"""The `meta` file of a saved variable: OneFlow's VariableMetaInfo in protobuf text form."""

from flow2onnx_runtime.messages import parse_text, text_of

from flow2onnx.dtypes import DType, by_name, char
from flow2onnx.errors import CheckpointError
from flow2onnx.proto.saved_model import DATA_TYPES, VariableMetaInfo

__all__ = ["meta_text", "parse_meta"]

_DTYPE_OF = {
    number: char if name == "char" else by_name(name) for name, number in DATA_TYPES.items()
}
_MAX_RANK = 32  # of numpy 1


def meta_text(shape: tuple[int, ...], dtype: DType) -> str:
    """The text of a `meta` file, to the byte as OneFlow writes it."""
    info = VariableMetaInfo(shape={"dim": shape}, data_type=DATA_TYPES[dtype.name])
    return text_of(info)


def parse_meta(text: bytes, path: str) -> tuple[tuple[int, ...], DType]:
    """Shape and element type that any legal text form says; `path` names the file in errors."""
    try:
        info = parse_text(text.decode(), VariableMetaInfo)
    except ValueError as error:
        raise _bad_meta(path, str(error)) from None
    if not info.HasField("shape") or not info.HasField("data_type"):
        raise _bad_meta(path, "shape or data_type is missing")
    shape, dtype = tuple(info.shape.dim), _DTYPE_OF.get(info.data_type)
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
