"""Inputs declared as default values: `FixedTensorDef` and its kin.

To a type checker each is the blob that the body of the job sees in its place.
"""

import inspect
from collections.abc import Container, Sequence
from typing import Any, cast

from flow2onnx.dtypes import DType, float32
from flow2onnx.errors import AnnotationError, FlowError
from flow2onnx.source import user_frame
from flow2onnx.trace.blob import Blob
from flow2onnx.typing import ListListNumpy, ListNumpy, Numpy, ParameterSpec, PlaceholderSpec

__all__ = [
    "FixedTensorDef",
    "MirroredTensorDef",
    "MirroredTensorListDef",
    "defaults_of",
    "uses_tensor_defs",
]


def FixedTensorDef(  # a class in OneFlow
    shape: tuple[int, ...],
    dtype: DType = float32,
    batch_axis: int | None = 0,
    split_axis: Any = "same_with_batch_axis",
    name: str | None = None,
) -> Blob:
    """One array of exactly this shape."""
    return _declared(Numpy.Placeholder, shape, dtype, batch_axis)


def MirroredTensorDef(
    shape: tuple[int, ...], dtype: DType = float32, batch_axis: int = 0, name: str | None = None
) -> Blob:
    """A list of one array per device, of at most this shape."""
    return _declared(ListNumpy.Placeholder, shape, dtype, batch_axis)


def MirroredTensorListDef(
    shape: tuple[int, ...], dtype: DType = float32, batch_axis: int = 0, name: str | None = None
) -> Blob:
    """A list of one list of arrays per device."""
    return _declared(ListListNumpy.Placeholder, shape, dtype, batch_axis)


def _declared(
    kind: type[PlaceholderSpec], shape: Any, dtype: DType, batch_axis: int | None
) -> Blob:
    """A placeholder of a kind, whose shape may be a list; its errors name the user's line."""
    try:
        whole = tuple(shape) if isinstance(shape, list) else shape
        return cast(Blob, kind(whole, dtype, batch_axis))
    except FlowError as error:
        raise error.located(None, None, user_frame()) from None


def uses_tensor_defs(parameters: Sequence[inspect.Parameter], annotated: Container[str]) -> bool:
    """True if inputs are declared by default values, and none by an annotation."""
    return bool(parameters) and all(
        p.default is not p.empty and p.name not in annotated for p in parameters
    )


def defaults_of(parameters: Sequence[inspect.Parameter]) -> tuple[ParameterSpec, ...]:
    """The inputs that the default values declare."""
    return tuple(_spec(p.default, p.name) for p in parameters)


def _spec(default: Any, name: str) -> ParameterSpec:
    if isinstance(default, PlaceholderSpec):
        return default
    if isinstance(default, list | tuple):
        return tuple(_spec(d, f"{name}[{i}]") for i, d in enumerate(default))
    if isinstance(default, dict):
        return {k: _spec(d, f"{name}[{k!r}]") for k, d in default.items()}
    raise AnnotationError(
        f"the default of parameter {name} is {default!r}",
        hint="make it a flow.FixedTensorDef(shape)",
    )
