"""Adapters in a running model: the inputs that they fill, and which of them fit."""

from collections.abc import Mapping
from typing import Any

import onnxruntime as ort

from flow2onnx_runtime.adapters import Adapter
from flow2onnx_runtime.errors import StateError
from flow2onnx_runtime.tensor_info import TensorInfo, tensor_info

__all__ = ["adapter_values", "slots_of"]

_MARK = ".lora_"  # in the name of an input that an adapter fills: module, mark, which matrix


def slots_of(session: Any) -> dict[str, TensorInfo]:
    """The inputs of a session that adapters fill, by name.

    Each has a first value in the model, with which that computes what it does without an adapter.
    """
    found = (tensor_info("the model", a) for a in session.get_overridable_initializers())
    return {info.name: info for info in found if _MARK in info.name}


def adapter_values(slots: Mapping[str, TensorInfo], adapter: Adapter) -> dict[str, Any]:
    """An adapter as a model's slots take it: the runtime's values by the names of inputs.

    Modules may have PEFT's names, and numbers another precision than the slots. Raises `StateError`
    for an adapter of another model.
    """
    modules = list(dict.fromkeys(name.partition(_MARK)[0] for name in slots))
    if not modules:
        raise StateError(
            "the model has no slots for adapters", hint="flow2onnx lora slots FOLDER adds them"
        )
    given = adapter.named_for(modules).parameters()
    values, sizes = {}, dict[str, int]()
    for name, array in given.items():
        slot = slots.get(name)
        if slot is None or not slot.fits(array.shape, sizes):
            takes = "nothing" if slot is None else f"{list(slot.shape)}"
            raise StateError(
                f"the adapter is for another model: {name} is {list(array.shape)}, the model "
                f"takes {takes}"
            )
        # the runtime's value holds the array whose memory it borrows
        values[name] = ort.OrtValue.ortvalue_from_numpy(array.astype(slot.dtype, copy=False))
    return values
