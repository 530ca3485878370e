"""Runs without copies: feeds and results stay in memory of the caller; a run can be stopped."""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from flow2onnx_runtime.buffers import wrap_array
from flow2onnx_runtime.dtypes import Element, as_bits, element_named
from flow2onnx_runtime.errors import FeedError
from flow2onnx_runtime.program import Program, TensorInfo
from flow2onnx_runtime.run_errors import run_error

__all__ = ["NO_OUTPUTS", "Given", "ZeroCopyProgram", "from_dlpack", "is_ort_value", "run_options"]

Given = Any  # an ndarray, or an OrtValue, which is shipped without types
NO_OUTPUTS: Mapping[str, NDArray[Any]] = MappingProxyType({})
_HOST = 1  # kDLCPU
_FATAL = 4  # a run that is stopped would else be logged as an error


def from_dlpack(info: TensorInfo, value: Any) -> Given:
    """A tensor of another library, by DLPack, over the same memory; anything else as it is.

    It is numpy's array if it is in host memory and numpy has the element type, else the runtime's
    value. Raises `FeedError` for one that cannot be shared.
    """
    if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack_device__"):
        return value
    try:
        if value.__dlpack_device__()[0] == _HOST and info.element != "bfloat16":
            return np.from_dlpack(value)
        return _runtime_value(value, is_bool=info.element == "bool")
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise FeedError(
            f"{info.name}: the tensor cannot be shared: {error}",
            hint="detach it from its gradient, make it contiguous, or pass an array",
        ) from error


def is_ort_value(value: Given) -> bool:
    """True for the runtime's value, False for an array."""
    return isinstance(value, ort.OrtValue)


def _runtime_value(tensor: Any, *, is_bool: bool) -> Any:
    from onnxruntime.capi.onnxruntime_pybind11_state import OrtValue

    # until 1.31 truths came as bytes, and had to be said to be truths
    says_bool = "is_bool_tensor" in (OrtValue.from_dlpack.__doc__ or "")
    return ort.OrtValue(OrtValue.from_dlpack(tensor.__dlpack__(), *((is_bool,) * says_bool)))


def run_options(program: Program) -> Any:
    """RunOptions for runs of a program, which end at the next node once `terminate` is set."""
    options = program.lane_options() or ort.RunOptions()
    options.log_severity_level = _FATAL
    return options


class ZeroCopyProgram:
    """A program that touches no state but to read it, run where inputs and results lie."""

    def __init__(self, program: Program) -> None:
        self._program, self._session = program, program.session
        self._feeds = [info.name for info in program.feeds]
        self._results = [info.name for info in program.results]
        both = (*program.feeds, *program.results)
        self._has_entries = bool(program.options.run_entries)
        self._is_plain = not program.reads and not any(
            element_named(i.element).is_bits for i in both
        )

    def fit_feeds(self, values: Sequence[Given]) -> list[Given]:
        """The values as the feeds take them; raises `FeedError` for what does not fit."""
        if not any(map(is_ort_value, values)):
            return list(self._program.check_feeds(values))
        return self._fit_each(values, {})

    def run(
        self,
        values: Sequence[Given],
        out: Mapping[str, NDArray[Any]] = NO_OUTPUTS,
        options: Any = None,  # RunOptions: shipped without types
        slots: Mapping[str, Any] = NO_OUTPUTS,
    ) -> list[NDArray[Any]]:
        """Run once; results are in `out` where it names them, else in memory of their own.

        That memory is the runtime's, held by the array itself: it stays as it is for as long as
        the array is there. Any number of runs may be under way at once. `slots` are the runtime's
        values of inputs that have a first value in the model, such as those of an adapter.
        """
        if self._is_plain and not out and not any(map(is_ort_value, values)):
            arrays = self._program.check_feeds(values)
            feeds = {**dict(zip(self._feeds, arrays, strict=True)), **slots}
            found: list[NDArray[Any]]
            found = self._run_guarded(self._session.run, self._results, feeds, options)
            return found
        return self._run_bound(values, out, options, slots)

    def _run_bound(
        self,
        values: Sequence[Given],
        out: Mapping[str, NDArray[Any]],
        options: Any,
        slots: Mapping[str, Any],
    ) -> list[NDArray[Any]]:
        program, sizes = self._program, dict[str, int]()
        binding = self._session.io_binding()
        fitted = self._fit_each(values, sizes)
        held = [_bound(binding, *pair) for pair in zip(program.feeds, fitted, strict=True)]
        for name in program.reads:
            binding.bind_ortvalue_input(name, program.state.current(name))
        for name, value in slots.items():
            binding.bind_ortvalue_input(name, value)
        for info in program.results:
            if info.name in out:
                held.append(_target(program, info, out[info.name], sizes))
                binding.bind_ortvalue_output(info.name, held[-1])
            else:
                binding.bind_output(info.name, "cpu")
        self._run_guarded(self._session.run_with_iobinding, binding, options)
        found = binding.get_outputs_as_ortvaluevector()  # whose iterator is a hundred times slower
        return [
            out[info.name] if info.name in out else _array(found[i], element_named(info.element))
            for i, info in enumerate(program.results)
        ]

    def _fit_each(self, values: Sequence[Given], sizes: dict[str, int]) -> list[Given]:
        program = self._program
        return [
            _check_value(program, info, value, sizes)
            if is_ort_value(value)
            else program.fit_feed(info, value, sizes)
            for info, value in zip(program.feeds, values, strict=True)
        ]

    def _run_guarded(self, run: Callable[..., Any], *arguments: Any) -> Any:
        *others, options = arguments
        if options is None and self._has_entries:
            options = self._program.lane_options()
        try:
            return run(*others, options)
        except Exception as error:  # the runtime's exceptions have no common base
            hint = "an array given for a result must have the shape that comes out"
            place = self._program.options.device
            raise run_error(self._program.name, error, place, hint) from error


def _bound(binding: Any, info: TensorInfo, value: Given) -> Any:
    """Bind an input; returns what must live until the run is over."""
    if is_ort_value(value):
        binding.bind_ortvalue_input(info.name, value)
        return value
    plain = value if _is_plain(value) else value.copy(order="C")
    element = element_named(info.element)
    if not element.is_bits:
        binding.bind_cpu_input(info.name, plain)
        return plain
    held = wrap_array(plain, element)
    binding.bind_ortvalue_input(info.name, held)
    return held


def _check_value(program: Program, info: TensorInfo, value: Any, sizes: dict[str, int]) -> Any:
    if value.data_type() != element_named(info.element).onnx or not info.fits(value.shape(), sizes):
        raise FeedError(
            f"{program.name} takes {info}, got a {value.data_type()} of shape "
            f"{tuple(value.shape())}",
            hint="convert it before",
        )
    return value


def _target(program: Program, info: TensorInfo, array: NDArray[Any], sizes: dict[str, int]) -> Any:
    element = element_named(info.element)
    if not isinstance(array, np.ndarray) or not element.takes(array.dtype):
        what = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        raise FeedError(
            f"{program.name}: {info.name} is {info.element}, out has {what}",
            hint=f"give np.empty(shape, {info.dtype.name!r})",
        )
    if not info.fits(array.shape, dict(sizes)):
        raise FeedError(
            f"{program.name}: {info.name} has shape {info.shape}, out has {array.shape}",
            hint="the number of dimensions and every fixed or repeated size must match",
        )
    if not (_is_plain(array) and array.flags.writeable):
        raise FeedError(
            f"{program.name}: out for {info.name} is strided, unaligned or read-only",
            hint="give a contiguous array that may be written",
        )
    return wrap_array(as_bits(array, element), element)


def _is_plain(array: NDArray[Any]) -> bool:
    return array.flags.c_contiguous and array.flags.aligned


def _array(value: Any, element: Element) -> NDArray[Any]:
    if not element.is_bits:
        found: NDArray[Any] = value.numpy()
        return found
    # OrtValue.numpy() has no bfloat16; the bits are in host memory, which the value keeps.
    shape = tuple(value.shape())
    memory = (ctypes.c_uint8 * (prod(shape) * element.size)).from_address(value.data_ptr())
    memory.holder = value
    return np.ndarray(shape, element.numpy, memory)
