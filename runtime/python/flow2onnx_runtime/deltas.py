"""Differences between weights: what a device sends, and what the mean of many adds."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flow2onnx_runtime.dtypes import Element, find_element
from flow2onnx_runtime.errors import StateError
from flow2onnx_runtime.manifest import Manifest

__all__ = ["add_delta", "difference", "float_variables"]

_FLOATS = ("float16", "bfloat16", "float32", "float64")

Arrays = Mapping[str, NDArray[Any]]


def float_variables(manifest: Manifest) -> dict[str, Element]:
    """The tensors that a delta is of: variables of a float type."""
    kinds = {s.name: find_element(s.dtype) for s in manifest.state if s.role == "variable"}
    return {name: kind for name, kind in kinds.items() if kind and kind.name in _FLOATS}


def difference(new: Arrays, old: Arrays, kinds: Mapping[str, Element]) -> dict[str, NDArray[Any]]:
    """New minus old of the tensors in `kinds`, in float32 or float64."""
    _check(old, new, kinds)
    return {n: _wide(new[n], kind) - _wide(old[n], kind) for n, kind in kinds.items()}


def add_delta(
    values: Arrays, delta: Arrays, scale: float, kinds: Mapping[str, Element]
) -> dict[str, NDArray[Any]]:
    """The values of the tensors in `kinds`, plus `scale` times their delta."""
    surplus = [name for name in delta if name not in kinds]
    if surplus:
        raise StateError(
            f"the delta holds {surplus[0]}, which is no variable of a float type",
            hint="a delta is what Trainer.delta returns, or a mean of such",
        )
    _check(delta, values, kinds)
    moved = {}
    for name, kind in kinds.items():
        wide = _wide(values[name], kind)
        moved[name] = _narrow(wide + (scale * np.asarray(delta[name])).astype(wide.dtype), kind)
    return moved


def _check(given: Arrays, values: Arrays, kinds: Mapping[str, Element]) -> None:
    for name in kinds:
        if name not in given:
            raise StateError(f"{name} is missing", hint="give all variables of a float type")
        have, asked = np.shape(given[name]), values[name].shape
        if have != asked:
            raise StateError(f"{name} has shape {have}, the state's is {asked}")


def _wide(array: NDArray[Any], kind: Element) -> NDArray[Any]:
    if kind.is_bits:
        return (np.asarray(array).view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return np.asarray(array).astype(np.float64 if kind.name == "float64" else np.float32)


def _narrow(wide: NDArray[Any], kind: Element) -> NDArray[Any]:
    if not kind.is_bits:
        return wide.astype(kind.numpy)
    bits = wide.astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16  # to the nearest, ties to even
    return np.where(np.isnan(wide), 0x7FC0, rounded).astype(np.uint16)
