"""The state of training: named tensors in the runtime's memory, each in two buffers."""

import threading
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flow2onnx_runtime.buffers import Buffer, new_buffer
from flow2onnx_runtime.dtypes import Element, as_bits, element_of, named
from flow2onnx_runtime.errors import StateError

__all__ = ["State"]


class _Slot:
    """One tensor: its bit in the mask, and buffers[0], buffers[1]."""

    __slots__ = ("bit", "buffers", "element", "shape")

    def __init__(
        self, bit: int, shape: tuple[int, ...], element: Element, place: tuple[str, int]
    ) -> None:
        self.bit, self.shape, self.element = bit, shape, element
        self.buffers: tuple[Buffer, Buffer] = (
            new_buffer(place, shape, element),
            new_buffer(place, shape, element),
        )


class State:
    """Named tensors, each in two buffers of which one is current.

    A step reads the current buffers and writes the others; then the bits of what it wrote flip in
    `mask`. The second buffer is needed because the runtime may run an update before the last
    reader of the old value: one buffer bound as input and output gives wrong numbers, silently.

    `lock` guards `mask` and the contents; a `Program` holds it while it runs. Values go in and
    come out as copies. A bfloat16 tensor comes out as the uint16 bits of its values.

    >>> state = State()
    >>> state.add("w", np.zeros((2, 3), np.float32))
    >>> state.write("w", np.ones((2, 3), np.float32))
    >>> float(state.read("w").sum())
    6.0
    """

    def __init__(self, device: str = "cpu", device_id: int = 0) -> None:
        self.device, self.device_id = device, device_id
        self.lock = threading.RLock()
        self.mask = 0
        self.written = 0  # how often values were replaced by write or from_dict
        self._slots: dict[str, _Slot] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._slots

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self._slots)

    def names(self) -> tuple[str, ...]:
        """The tensors' names, in the order they were added."""
        return tuple(self._slots)

    def add(self, name: str, array: NDArray[Any], element: str | None = None) -> None:
        """Add a tensor with its first value; its shape and dtype are fixed from here on.

        `element` is only needed for ``"bfloat16"`` given as uint16 bits.
        """
        array = np.asarray(array)
        kind = named(element) if element else element_of(array.dtype, StateError, f"state {name}")
        if kind is None or not kind.takes(array.dtype):
            raise StateError(f"state {name}: {array.dtype} values cannot be {element} elements")
        with self.lock:
            if name in self._slots:
                raise StateError(f"state {name} is there already", hint="change it with write()")
            slot = _Slot(1 << len(self._slots), array.shape, kind, (self.device, self.device_id))
            slot.buffers[0].write(as_bits(array, kind))
            self._slots[name] = slot

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor."""
        return self._slot(name).shape

    def dtype(self, name: str) -> "np.dtype[Any]":
        """The numpy dtype in which a tensor goes in and out; uint16 for bfloat16."""
        return self._slot(name).element.numpy

    def element(self, name: str) -> str:
        """The element type's name, such as ``"float32"`` or ``"bfloat16"``."""
        return self._slot(name).element.name

    def bit(self, name: str) -> int:
        """The tensor's bit in `mask`: set when the second of its buffers is current."""
        return self._slot(name).bit

    def current(self, name: str) -> Any:
        """The OrtValue that holds the present value."""
        slot = self._slot(name)
        return slot.buffers[bool(self.mask & slot.bit)].value

    def other(self, name: str) -> Any:
        """The OrtValue that the next value is written to."""
        slot = self._slot(name)
        return slot.buffers[not self.mask & slot.bit].value

    def read(self, name: str) -> NDArray[Any]:
        """A copy of the present value."""
        slot = self._slot(name)
        with self.lock:
            return slot.buffers[bool(self.mask & slot.bit)].read()

    def write(self, name: str, array: NDArray[Any]) -> None:
        """Replace the present value; shape and dtype must be exactly the tensor's."""
        self._write({name: self._checked(name, array)})

    def to_dict(self) -> dict[str, NDArray[Any]]:
        """Copies of all present values, taken together."""
        with self.lock:
            return {name: self.read(name) for name in self._slots}

    def from_dict(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Replace all values. All are checked before any is written: all or nothing."""
        missing = [name for name in self._slots if name not in values]
        surplus = [name for name in values if name not in self._slots]
        if missing or surplus:
            parts = [f"lacks {_some(missing)}"] * bool(missing)
            parts += [f"has {_some(surplus)} that the state has not"] * bool(surplus)
            raise StateError(
                f"the values are not of this state: the given set {' and '.join(parts)}",
                hint="give exactly the names of State.names(); write() replaces single ones",
            )
        self._write({name: self._checked(name, values[name]) for name in self._slots})

    def nbytes(self) -> int:
        """Bytes of memory taken, both buffers of every tensor counted."""
        sizes = (
            int(np.prod(s.shape, dtype=np.int64)) * s.element.size for s in self._slots.values()
        )
        return 2 * sum(sizes)

    def _slot(self, name: str) -> _Slot:
        try:
            return self._slots[name]
        except KeyError:
            raise StateError(
                f"the state has no tensor {name}", hint=f"it has {_some(list(self._slots))}"
            ) from None

    def _checked(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
        slot, array = self._slot(name), np.asarray(array)
        if array.shape != slot.shape:
            raise StateError(
                f"state {name} has shape {slot.shape}, the given value {array.shape}",
                hint="a tensor's shape is fixed when it is added",
            )
        if not slot.element.takes(array.dtype):
            raise StateError(
                f"state {name} is {slot.element.name}, the given value {array.dtype}",
                hint=f"convert it: value.astype({slot.element.numpy.name!r})",
            )
        return as_bits(array, slot.element)

    def _write(self, values: Mapping[str, NDArray[Any]]) -> None:
        with self.lock:
            for name, array in values.items():
                slot = self._slots[name]
                slot.buffers[bool(self.mask & slot.bit)].write(array)
            self.written += 1


def _some(names: list[str], limit: int = 5) -> str:
    shown = ", ".join(names[:limit]) or "none"
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown
