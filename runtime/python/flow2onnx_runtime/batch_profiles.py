"""Shapes that a provider plans its engines for, where a model leaves its rows free.

TensorRT builds an engine for the shapes that it has seen, which takes minutes, and builds another
for the first batch outside of them. Told the least, the best and the largest batch beforehand, it
builds one.
"""

import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from flow2onnx_runtime.errors import OptionsError
from flow2onnx_runtime.provider_checks import Model, ProviderSpec, split
from flow2onnx_runtime.providers import provider_named
from flow2onnx_runtime.wire import Buffer, GroupError, WireError, fields, varint

__all__ = ["Rows", "check_rows", "with_profile"]

Rows = tuple[int, int, int]  # the least, the best and the most of a batch

_Shape = list[int | None]  # None for a free axis

# The numbers of the fields that are read, by message of onnx.proto.
_MODEL_GRAPH, _GRAPH_TENSOR, _GRAPH_INPUT = 7, 5, 11
_TENSOR_NAME, _VALUE_NAME, _VALUE_TYPE = 8, 1, 2
_TYPE_TENSOR, _TENSOR_SHAPE, _SHAPE_AXIS, _AXIS_SIZE = 1, 2, 1, 1


def check_rows(rows: object) -> None:
    """Raise `OptionsError` unless `rows` are three counts, none smaller than the one before."""
    match rows:
        case (int(least), int(best), int(most)) if 1 <= least <= best <= most:
            return
    raise OptionsError(
        f"batch_profile is {rows!r}",
        hint="give the least, the best and the most rows of a batch, such as (1, 8, 32)",
    )


def with_profile(model: Model, providers: Sequence[ProviderSpec], rows: Rows) -> list[ProviderSpec]:
    """The providers, those that plan ahead with the shapes of batches of so many rows.

    Inputs whose sizes are all given need none. Raises `OptionsError` for an input with another free
    axis than its first one, with a name that no option can hold, and for shapes given by hand too.
    """
    return [_plan(model, provider, rows) for provider in providers]


def _plan(model: Model, provider: ProviderSpec, rows: Rows) -> ProviderSpec:
    name, given = split(provider)
    options = provider_named(name).profile_options
    if options is None:
        return provider
    twice = [option for option in options if option in given]
    if twice:
        raise OptionsError(
            f"batch_profile is given, and {twice[0]} of {name} too", hint="give one of the two"
        )
    shapes = _free_shapes(model)
    if not shapes:
        return provider
    texts = [_text(shapes, count) for count in rows]
    return name, {**given, **dict(zip(options, texts, strict=True))}


def _text(shapes: Mapping[str, _Shape], rows: int) -> str:
    """``x:8x3x224x224,y:8x5``: each input with `rows` for its free axis."""
    return ",".join(
        f"{name}:{'x'.join(str(rows if size is None else size) for size in shape)}"
        for name, shape in shapes.items()
    )


def _free_shapes(model: Model) -> dict[str, _Shape]:
    """The shapes of the inputs whose rows are free, by name."""
    shapes = {name: shape for name, shape in _inputs(model).items() if None in shape}
    for name, shape in shapes.items():
        free = [axis for axis, size in enumerate(shape) if size is None]
        if free != [0]:
            raise OptionsError(
                f"batch_profile says how many rows there are, and axis {free[-1]} of {name} is "
                f"free too",
                hint="give trt_profile_min_shapes, trt_profile_opt_shapes and "
                "trt_profile_max_shapes by hand, or export with that axis fixed",
            )
        if {":", ","} & set(name):
            raise OptionsError(
                f"input {name!r} has a name that a shape profile cannot hold",
                hint="name it without colon and comma",
            )
    return shapes


def _inputs(model: Model) -> dict[str, _Shape]:
    """The shapes of a model's inputs, initializers left out, by name."""
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
            "batch_profile reads the inputs of an ONNX model, and this is none",
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


def _size(content: Buffer, start: int, end: int) -> int | None:
    sizes = [varint(content, f) for f in fields(content, start, end) if f.number == _AXIS_SIZE]
    return sizes[-1] if sizes else None
