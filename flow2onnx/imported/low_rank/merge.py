"""merge_adapter, keep_adapter: a model folder with an adapter in its weights, or beside them."""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from flow2onnx_runtime.adapters import Adapter
from flow2onnx_runtime.dtypes import Array
from flow2onnx_runtime.files import replace_folder
from flow2onnx_runtime.slots import adapter_arrays

from flow2onnx.errors import BundleError, UnsupportedError
from flow2onnx.export.files import link_file
from flow2onnx.imported.low_rank.dora import complete_dora
from flow2onnx.imported.low_rank.fitting import fit_to_model
from flow2onnx.imported.low_rank.folder import LanguageModel, open_language_model
from flow2onnx.imported.low_rank.slots import write_folder
from flow2onnx.onnx_io.adapter_slots import (
    add_slots,
    choose_products,
    products,
    rename_slots,
    slot_inputs,
    slots_of,
)
from flow2onnx.onnx_io.language_model import fill_initializers
from flow2onnx.onnx_io.merge_weights import merge_changes, real_weights

__all__ = ["keep_adapter", "merge_adapter"]


def merge_adapter(
    model: str | os.PathLike[str],
    adapter: Adapter,
    output: str | os.PathLike[str],
    base: str | os.PathLike[str] | None = None,
) -> None:
    """Write a folder whose weights are those of `model` with an adapter added.

    Weights are real numbers or of 8 bits; other files are second names of the old ones. Into 4 bits
    an adapter is not merged: UnsupportedError says what share of it rounding would take. With
    `base`, the same model in real numbers, the sums of its weights and the adapter are rounded.
    """
    language, target = open_language_model(model), Path(output)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BundleError(f"{target} is there already", hint="give a folder that is not")
    proto = language.copy()
    whole = complete_dora(adapter, model)
    known = fit_to_model(whole, language)
    changes = {m: np.float32(known.scale(m)) * _change(*p) for m, p in known.pairs.items()}
    merged = merge_changes(
        proto, os.fspath(language.folder), changes, _real_weights(base), known.factors
    )
    if merged.lost:
        share = float(np.mean(list(merged.lost.values())))
        raise UnsupportedError(
            f"rounding to 4 bits would change weights by {share:.0%} of what the adapter does",
            hint="keep it beside the weights (--beside), serve it by name, merge it into real "
            "numbers, or give these as base (--base)",
        )
    replace_folder(target, lambda place: _fill(place, language, proto, merged.tensors))


def keep_adapter(
    model: str | os.PathLike[str], adapter: Adapter, output: str | os.PathLike[str]
) -> None:
    """Write a folder whose model has an adapter in it, as constants beside weights of any kind.

    It computes what the model with slots does with this adapter, and needs no adapter, but takes
    slots for another. All other files are second names of the old ones.
    """
    language = open_language_model(model)
    proto = language.copy()
    whole = complete_dora(adapter, model)
    known = fit_to_model(whole, language)
    if not slots_of(proto):
        chosen = choose_products(products(proto), sorted(known.pairs))
        add_slots(proto, chosen, factors=known.is_dora)
    fill_initializers(proto, adapter_arrays(slot_inputs(proto), known))
    rename_slots(proto)
    write_folder(language, Path(output), proto.SerializeToString(deterministic=True))


def _change(a: Array, b: Array) -> Array:
    """The sum of a pair for its weight, in float32: (columns, rows), or as a convolution has it."""
    down, up = a.astype(np.float32), b.astype(np.float32)
    if a.ndim == 2:
        product: Array = down @ up
        return product
    window: Array = np.tensordot(up.reshape(up.shape[:2]), down, 1) if _is_whole(a, b) else down
    return window


def _is_whole(a: Array, b: Array) -> bool:
    """True for a pair of one group; that of several has no weight of the module's shape."""
    return bool(a.shape[0] == b.shape[1])


def _real_weights(base: str | os.PathLike[str] | None) -> dict[str, Array] | None:
    if base is None:
        return None
    language = open_language_model(base)
    return real_weights(language.proto, os.fspath(language.folder))


def _fill(
    place: Path, language: LanguageModel, proto: Any, tensors: dict[str, Array] | Any
) -> None:
    """Write the model and copies of the files in which a tensor changes; link the others."""
    changed = _external(proto, tensors)
    for path in sorted(language.folder.iterdir()):
        if not path.is_file() or path.name == language.path.name:
            continue
        if path.name in changed:
            shutil.copyfile(path, place / path.name)
            with open(place / path.name, "r+b") as file:
                for start, array in changed[path.name]:
                    file.seek(start)
                    file.write(np.ascontiguousarray(array).tobytes())
        else:
            link_file(path, place / path.name)
    for tensor in proto.graph.initializer:
        if tensor.name in tensors and tensor.data_location != tensor.EXTERNAL:
            tensor.ClearField("float_data")
            tensor.raw_data = np.ascontiguousarray(tensors[tensor.name]).tobytes()
    (place / language.path.name).write_bytes(proto.SerializeToString(deterministic=True))


def _external(proto: Any, tensors: Any) -> dict[str, list[tuple[int, Array]]]:
    """For each data file the places of changed tensors, and what goes there."""
    found: dict[str, list[tuple[int, Array]]] = {}
    for tensor in proto.graph.initializer:
        if tensor.name in tensors and tensor.data_location == tensor.EXTERNAL:
            entries = {e.key: e.value for e in tensor.external_data}
            places = found.setdefault(entries["location"], [])
            places.append((int(entries.get("offset", 0)), tensors[tensor.name]))
    return found
