"""The arguments of a call: checked against the placeholders and made ready to feed."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from flow2onnx_runtime.dtypes import Array

from flow2onnx.dtypes import DType
from flow2onnx.errors import ArgumentError, DTypeError, FlowError, ShapeError, UnsupportedError
from flow2onnx.typing.annotations import ParameterSpec, PlaceholderSpec

__all__ = ["check_arguments"]


def check_arguments(
    params: Sequence[ParameterSpec],
    names: Sequence[str],
    args: Sequence[object],
    job_name: str,
    devices: int = 1,
) -> list[Array]:
    """The arrays of a call, one per placeholder in order, in C order and the declared dtype.

    A placeholder of lists has one for each of the `devices`, one behind the other.

    An array that already is as declared is not copied. Only conversions that keep every value
    of the dtype are made: int32 becomes float64, float64 never becomes float32.
    """
    if len(args) != len(params):
        listed = ", ".join(names) or "none"
        raise ArgumentError(
            f"{len(params)} arguments are declared ({listed}), {len(args)} were passed",
            hint="pass one value per parameter, by position",
            job=job_name,
        )
    arrays: list[Array] = []
    try:
        for spec, name, value in zip(params, names, args, strict=True):
            if type(value) is np.ndarray and _is_as_declared(spec, value):
                arrays.append(value)  # a step of a small job takes no longer than this may
            else:
                arrays += _arrays(spec, name, value, devices)
        return arrays
    except FlowError as error:
        raise error.located(job_name, None, None) from None


def _is_as_declared(spec: ParameterSpec, array: Array) -> bool:
    """True for an array that is fed as it is."""
    return (
        isinstance(spec, PlaceholderSpec)
        and spec.kind == "numpy"
        and array.shape == spec.shape
        and array.dtype == spec.dtype.numpy
        and array.flags.c_contiguous
    )


def _arrays(spec: ParameterSpec, path: str, value: object, devices: int) -> Iterator[Array]:
    if isinstance(spec, PlaceholderSpec):
        yield from _ARRAYS_OF[spec.kind](spec, path, value, devices)
    elif isinstance(spec, dict):
        for key, item in _checked_dict(spec, path, value).items():
            yield from _arrays(spec[key], f"{path}[{key!r}]", item, devices)
    else:
        for index, item in enumerate(_checked_sequence(spec, path, value)):
            yield from _arrays(spec[index], f"{path}[{index}]", item, devices)


def _checked_dict(
    spec: dict[Any, ParameterSpec], path: str, value: object
) -> dict[Any, object]:  # keys as declared, any hashable
    if not isinstance(value, dict):
        raise _wrong_class(path, "a dict", value)
    if value.keys() != spec.keys():
        raise ArgumentError(
            f"argument {path}: keys {list(spec)} are declared, {list(value)} were passed",
            hint="pass exactly the declared keys",
        )
    return {key: value[key] for key in spec}


def _checked_sequence(
    spec: tuple[ParameterSpec, ...] | list[ParameterSpec], path: str, value: object
) -> Sequence[object]:
    if not isinstance(value, list | tuple):
        raise _wrong_class(path, "a tuple or list", value)
    if len(value) != len(spec):
        raise ArgumentError(
            f"argument {path}: {len(spec)} elements are declared, {len(value)} were passed",
            hint="pass one element per placeholder",
        )
    return value


def _single_array(spec: PlaceholderSpec, path: str, value: object, devices: int) -> Iterator[Array]:
    if not isinstance(value, np.ndarray):
        raise _wrong_class(path, f"a numpy.ndarray of shape {spec.shape}", value)
    if value.shape != spec.shape:
        raise ShapeError(
            f"argument {path}: shape {spec.shape} is declared, {value.shape} was passed",
            hint=_shape_hint(spec, value.shape),
        )
    yield _convert(spec, path, value)


def _shape_hint(spec: PlaceholderSpec, shape: tuple[int, ...]) -> str:
    differs = [i for i, (a, b) in enumerate(zip(spec.shape, shape, strict=False)) if a != b]
    if len(shape) == len(spec.shape) and differs == [spec.batch_axis]:
        return "pass full batches, or declare tp.ListNumpy.Placeholder for smaller ones"
    return "reshape the array, or declare the shape it has"


def _arrays_of_list(
    spec: PlaceholderSpec, path: str, value: object, devices: int
) -> Iterator[Array]:
    for i, array in enumerate(_per_device(path, value, "array", devices)):
        if type(array) is not np.ndarray:
            raise _wrong_class(f"{path}[{i}]", "a numpy.ndarray", array)
        yield _check_bound(spec, f"{path}[{i}]", array)


def _arrays_of_lists(
    spec: PlaceholderSpec, path: str, value: object, devices: int
) -> Iterator[Array]:
    for i, arrays in enumerate(_per_device(path, value, "list", devices)):
        if type(arrays) is not list or any(type(a) is not np.ndarray for a in arrays):
            raise _wrong_class(f"{path}[{i}]", "a list of numpy.ndarray", arrays)
        if len(arrays) != 1:
            raise UnsupportedError(
                f"argument {path}: a tensor list of {len(arrays)} arrays has no counterpart in "
                "ONNX",
                hint="pass one array per call: [[array]]",
            )
        yield _check_bound(spec, f"{path}[{i}][0]", arrays[0])


def _per_device(path: str, value: object, item: str, devices: int) -> Sequence[Any]:
    """The elements of a list, which the caller checks; there is one for each device."""
    if not isinstance(value, list | tuple):
        raise _wrong_class(path, f"a list of one {item} per device", value)
    if len(value) != devices:
        remedy = f"pass a list of {devices}, or change flow.config.gpu_device_num"
        raise ArgumentError(
            f"argument {path}: one {item} per device is asked for, {len(value)} were passed",
            hint="the job has one device: pass a list of one" if devices == 1 else remedy,
        )
    return value


def _check_bound(spec: PlaceholderSpec, path: str, array: Array) -> Array:
    """A varying array: the declared rank, at most the declared number of elements."""
    if array.ndim != len(spec.shape) or array.size > math.prod(spec.shape):
        raise ShapeError(
            f"argument {path}: at most shape {spec.shape} is declared, {array.shape} was passed",
            hint="declare the largest shape that occurs",
        )
    return _convert(spec, path, array)


_ARRAYS_OF = {
    "numpy": _single_array,
    "list": _arrays_of_list,
    "listlist": _arrays_of_lists,
}


def _convert(spec: PlaceholderSpec, path: str, array: Array) -> Array:
    wanted = spec.dtype
    if array.dtype != wanted.numpy and not _keeps_values(array.dtype, wanted):
        raise DTypeError(
            f"argument {path}: {wanted.name} is declared, {array.dtype} was passed",
            hint=_conversion_hint(path, array.dtype, wanted),
        )
    return np.asarray(array, dtype=wanted.numpy, order="C")


def _conversion_hint(path: str, given: "np.dtype[Any]", wanted: DType) -> str:
    """A hint at how the array becomes one of numbers."""
    cast = f"{path}.astype({wanted.numpy.type.__name__!r})"
    match given.kind:
        case "U" | "S" | "T":
            return (
                f"numpy.unique({path}, return_inverse=True)[1] numbers the texts, for classes; "
                f"digits are read by {cast}"
            )
        case "O":
            return (
                "it holds Python objects, as of rows of different lengths: pad them to one, or "
                f"give {cast} if each is a number"
            )
        case "M" | "m":
            return f"make numbers of the times first: {path}.astype('int64') counts units"
        case "c":
            return f"pass {path}.real and {path}.imag as two inputs"
    return f"pass {cast}"


def _keeps_values(given: "np.dtype[Any]", wanted: DType) -> bool:
    # numpy calls int64 to float64 safe, yet float64 holds integers to 2**53 only
    rounds = given.kind in "iu" and given.itemsize >= 8 and wanted.is_floating_point
    return np.can_cast(given, wanted.numpy, "safe") and not rounds


def _wrong_class(path: str, wanted: str, value: object) -> ArgumentError:
    remedy = "pass numpy.asarray(value)" if wanted.startswith("a numpy") else f"pass {wanted}"
    return ArgumentError(
        f"argument {path}: {wanted} is asked for, {type(value).__name__} was passed", hint=remedy
    )
