"""The state of training: named tensors in the runtime's memory, each in one or two buffers."""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flow2onnx_runtime.buffers import Buffer, new_buffer
from flow2onnx_runtime.dtypes import Element, as_bits, element_of, find_element
from flow2onnx_runtime.errors import StateError
from flow2onnx_runtime.interrupts import uninterrupted

__all__ = ["State"]


class _Slot:
    """One tensor: its bit in the mask, and two buffers, each made when it is first asked for."""

    __slots__ = ("_buffers", "_place", "bit", "element", "shape")

    def __init__(
        self, bit: int, shape: tuple[int, ...], element: Element, place: tuple[str, int]
    ) -> None:
        self.bit, self.shape, self.element, self._place = bit, shape, element, place
        self._buffers: list[Buffer | None] = [None, None]

    def buffer(self, is_second: bool) -> Buffer:
        """The first or the second buffer."""
        found = self._buffers[is_second]
        if found is None:
            found = self._buffers[is_second] = new_buffer(self._place, self.shape, self.element)
        return found

    def nbytes(self) -> int:
        """Bytes of the buffers there are."""
        size = int(np.prod(self.shape, dtype=np.int64)) * self.element.size
        return size * sum(buffer is not None for buffer in self._buffers)


class State:
    """Named tensors, each in up to two buffers of which one is current.

    A step reads the current buffers and writes the others; then the bits of what it wrote flip in
    `mask`. The second buffer is needed where the runtime may run an update before the last reader
    of the old value: one buffer bound as input and output gives wrong numbers then, silently. A
    tensor that every program updates in place never has a second one. A program that fails while
    it updates in place leaves these tensors `torn`, as does a device that fails while values are
    copied to it: who reads one gets a `StateError` until they all have been given new values.

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
        self.torn: frozenset[str] = frozenset()  # those that may have been changed in part
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
        kind = (
            find_element(element)
            if element
            else element_of(array.dtype, StateError, f"state {name}")
        )
        if kind is None or not kind.takes(array.dtype):
            raise StateError(f"state {name}: {array.dtype} values cannot be {element} elements")
        self._add(name, array.shape, kind).buffer(False).write(as_bits(array, kind))

    def reserve(self, name: str, shape: Sequence[int], element: str) -> Any:
        """Add a tensor of undefined content; returns the OrtValue to write its first value to."""
        kind = find_element(element)
        if kind is None:
            raise StateError(f"state {name}: {element} is no element type")
        return self._add(name, tuple(shape), kind).buffer(False).value

    def _add(self, name: str, shape: tuple[int, ...], kind: Element) -> _Slot:
        with self.lock:
            if name in self._slots:
                raise StateError(f"state {name} is there already", hint="change it with write()")
            slot = _Slot(1 << len(self._slots), shape, kind, (self.device, self.device_id))
            self._slots[name] = slot
            return slot

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
        return slot.buffer(bool(self.mask & slot.bit)).value

    def other(self, name: str) -> Any:
        """The OrtValue that the next value is written to."""
        slot = self._slot(name)
        return slot.buffer(not self.mask & slot.bit).value

    def check_whole(self, names: Iterable[str]) -> None:
        """Raise `StateError` if one of `names` was being changed in place when that failed."""
        broken = sorted(self.torn.intersection(names)) if self.torn else []
        if broken:
            raise StateError(
                f"{_some(broken)} were being changed when that failed: their values are "
                "neither the old nor the new ones",
                hint="load a saved state, or give them new values; in_place=False of a Trainer or "
                "of make_trainable, or config.runtime.in_place(False) of a job, keeps the old ones "
                "in a second buffer",
            )

    def read(self, name: str) -> NDArray[Any]:
        """A copy of the present value."""
        slot = self._slot(name)
        with self.lock:
            self.check_whole((name,))
            return slot.buffer(bool(self.mask & slot.bit)).read()

    def lend(self, name: str) -> NDArray[Any]:
        """The present value for reading, on the host without a copy; the caller holds `lock`.

        It is no more than memory once the lock is free: a step may change it.
        """
        slot = self._slot(name)
        self.check_whole((name,))
        return slot.buffer(bool(self.mask & slot.bit)).lend()

    def read_into(self, name: str, array: NDArray[Any]) -> None:
        """Copy the present value to `array`, which has its shape and dtype."""
        slot = self._slot(name)
        with self.lock:
            self.check_whole((name,))
            slot.buffer(bool(self.mask & slot.bit)).read_into(array)

    def write(self, name: str, array: NDArray[Any]) -> None:
        """Replace the present value; shape and dtype must be exactly the tensor's."""
        self.write_all({name: array})

    def write_all(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Replace these values or none: all are checked before any is written, and Ctrl-C waits."""
        checked = {name: self._check(name, array) for name, array in values.items()}
        names = frozenset(checked)
        with self.lock, uninterrupted():
            self.torn |= names
            for name, array in checked.items():
                slot = self._slots[name]
                slot.buffer(bool(self.mask & slot.bit)).write(array)
            self.torn -= names
            self.written += 1

    def to_dict(self) -> dict[str, NDArray[Any]]:
        """Copies of all present values, taken together."""
        with self.lock:
            return {name: self.read(name) for name in self._slots}

    def from_dict(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Replace all values, as `write_all` does; others than those of the state are refused."""
        missing = [name for name in self._slots if name not in values]
        surplus = [name for name in values if name not in self._slots]
        if missing or surplus:
            parts = [f"lacks {_some(missing)}"] * bool(missing)
            parts += [f"has {_some(surplus)} that the state has not"] * bool(surplus)
            raise StateError(
                f"the values are not of this state: the given set {' and '.join(parts)}",
                hint="give exactly the names of State.names(); write() replaces single ones",
            )
        self.write_all(values)

    def nbytes(self) -> int:
        """Bytes of memory taken by the buffers there are: one or two of each tensor."""
        return sum(slot.nbytes() for slot in self._slots.values())

    def _slot(self, name: str) -> _Slot:
        try:
            return self._slots[name]
        except KeyError:
            raise StateError(
                f"the state has no tensor {name}", hint=f"it has {_some(list(self._slots))}"
            ) from None

    def _check(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
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


def _some(names: list[str], limit: int = 5) -> str:
    shown = ", ".join(names[:limit]) or "none"
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown
