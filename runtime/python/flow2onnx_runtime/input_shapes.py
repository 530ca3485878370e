"""The shapes of a model's inputs, read from its bytes before a session is opened."""

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from flow2onnx_runtime.errors import OptionsError
from flow2onnx_runtime.provider_checks import Model
from flow2onnx_runtime.wire import Buffer, GroupError, WireError, fields, varint

__all__ = ["input_shapes"]

_Shape = list[int | str | None]  # a free axis is its name, or None without one

# The numbers of the fields that are read, by message of onnx.proto.
_MODEL_GRAPH, _GRAPH_TENSOR, _GRAPH_INPUT = 7, 5, 11
_TENSOR_NAME, _VALUE_NAME, _VALUE_TYPE = 8, 1, 2
_TYPE_TENSOR, _TENSOR_SHAPE, _SHAPE_AXIS, _AXIS_SIZE, _AXIS_NAME = 1, 2, 1, 1, 2


def input_shapes(model: Model, option: str) -> dict[str, _Shape]:
    """The shapes of a model's inputs by name, initializers left out.

    Raises `OptionsError` for what is no ONNX model, which `option` asked to read.
    """
    try:
        if isinstance(model, bytes):
            return dict(_parse(model))
        with Path(model).open("rb") as file:
            if not os.fstat(file.fileno()).st_size:
                return {}
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return dict(_parse(content))
    except (WireError, GroupError, UnicodeDecodeError):
        raise OptionsError(
            f"{option} reads the inputs of an ONNX model, and this is none",
            hint="give the .onnx file, not one in another format",
        ) from None


def _parse(content: Buffer) -> Iterator[tuple[str, _Shape]]:
    for model in fields(content, 0, len(content)):
        if model.number == _MODEL_GRAPH:
            values, constants = [], set()
            for field in fields(content, model.start, model.end):
                if field.number == _GRAPH_INPUT:
                    values.append(_value(content, field.start, field.end))
                elif field.number == _GRAPH_TENSOR:
                    constants.add(_name(content, field.start, field.end, _TENSOR_NAME))
            yield from (value for value in values if value[0] not in constants)


def _name(content: Buffer, start: int, end: int, number: int) -> str:
    names = [f for f in fields(content, start, end) if f.number == number]
    return str(content[names[-1].start : names[-1].end], "utf-8") if names else ""


def _value(content: Buffer, start: int, end: int) -> tuple[str, _Shape]:
    """Name and shape of a ValueInfoProto; the shape is empty where it has none."""
    spans = [(start, end)]
    for number in (_VALUE_TYPE, _TYPE_TENSOR, _TENSOR_SHAPE):
        spans = [
            (f.start, f.end) for span in spans for f in fields(content, *span) if f.number == number
        ]
    axes = [f for span in spans for f in fields(content, *span) if f.number == _SHAPE_AXIS]
    return _name(content, start, end, _VALUE_NAME), [_size(content, a.start, a.end) for a in axes]


def _size(content: Buffer, start: int, end: int) -> int | str | None:
    found = [f for f in fields(content, start, end) if f.number in (_AXIS_SIZE, _AXIS_NAME)]
    if not found:
        return None
    last = found[-1]
    if last.number == _AXIS_SIZE:
        return varint(content, last)
    return str(content[last.start : last.end], "utf-8") or None
