"""Adapters in a running model: the inputs that they fill, and which of them fit."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from flow2onnx_runtime.adapters import ADAPTER_SUFFIX, FACTOR, PEFT_CONFIG, Adapter
from flow2onnx_runtime.dtypes import Array
from flow2onnx_runtime.errors import StateError
from flow2onnx_runtime.tensor_info import TensorInfo, tensor_info

__all__ = ["adapter_arrays", "adapter_files", "adapter_values", "slot_rows", "slots_of"]

_ELEMENTS = ("float32", "float16", "float64")
_MARK = ".lora_"  # in the name of an input that an adapter fills: module, mark, which matrix


def slots_of(session: Any) -> dict[str, TensorInfo]:
    """The inputs of a session that adapters fill, by name.

    Each has a first value in the model, with which that computes what it does without an adapter.
    """
    found = (tensor_info("the model", a) for a in session.get_overridable_initializers())
    return {info.name: info for info in found if _MARK in info.name}


def adapter_arrays(slots: Mapping[str, TensorInfo], adapter: Adapter) -> dict[str, Array]:
    """An adapter's arrays as a model's slots take them, by the names of inputs.

    Modules may have PEFT's names, and numbers another precision than the slots. Raises `StateError`
    for an adapter of another model.
    """
    modules = slot_rows(slots)
    if not modules:
        raise StateError(
            "the model has no slots for adapters", hint="flow2onnx lora slots FOLDER adds them"
        )
    arrays, sizes = dict[str, Array](), dict[str, int]()
    for name, array in adapter.named_for(modules).parameters().items():
        slot = slots.get(name)
        if slot is None and name.endswith(FACTOR):
            raise StateError(
                f"the adapter is one of DoRA, and the model has no slot {name}",
                hint="flow2onnx lora slots FOLDER --dora adds such, to the model as it was before",
            )
        if slot is None or not slot.fits(array.shape, sizes):
            sizes_text = () if slot is None else map(_size_text, slot.shape)
            takes = " x ".join(sizes_text) or "nothing"
            raise StateError(
                f"the adapter is for another model: {name} is "
                f"{' x '.join(map(str, array.shape))}, the model takes {takes}",
                hint="train one for this model",
            )
        if slot.element not in _ELEMENTS:
            raise StateError(f"{name} is {slot.element}, and adapters are {' or '.join(_ELEMENTS)}")
        arrays[name] = np.ascontiguousarray(array, slot.dtype)
    return arrays


def _size_text(size: int | str) -> str:
    """A size of a slot; those that an adapter chooses have long names."""
    return str(size) if isinstance(size, int) else "its rank"


def slot_rows(slots: Mapping[str, TensorInfo]) -> dict[str, int]:
    """The modules that have slots, with the widths of what they compute, 0 where it is free."""
    found: dict[str, int] = {}
    for name, info in slots.items():
        module, _, which = name.partition(_MARK)
        found.setdefault(module, 0)
        if which.startswith("B") and len(info.shape) == 2 and isinstance(info.shape[1], int):
            found[module] = info.shape[1]
    return found


def adapter_values(slots: Mapping[str, TensorInfo], adapter: Adapter) -> dict[str, Any]:
    """`adapter_arrays` as the runtime's values, which runs take beside their feeds."""
    arrays = adapter_arrays(slots, adapter)
    # each value holds the array whose memory it borrows
    return {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in arrays.items()}


def adapter_files(folder: Path) -> dict[str, Path]:
    """The adapters in a folder by name: files NAME.onnx_adapter, and folders NAME of PEFT."""
    found = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.suffix == ADAPTER_SUFFIX and path.is_file():
            found[path.name.removesuffix(ADAPTER_SUFFIX)] = path
        elif (path / PEFT_CONFIG).is_file():
            found[path.name] = path
    return found
