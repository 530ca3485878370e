"""Changes of weights put into them: into real numbers and 8 bits, and what 4 bits would lose."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from flow2onnx.errors import BundleError, UnsupportedError
from flow2onnx.onnx_io.adapter_slots import Product, products

__all__ = ["MergedWeights", "merge_changes"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class MergedWeights:
    """New contents of tensors by name, of the shapes and types that they had.

    `lost` is, by module of 4 bits, the size of what rounding to the grid changes, by that of the
    change itself: 1 and more is as if there were no adapter.
    """

    tensors: Mapping[str, Array]
    lost: Mapping[str, float]


def merge_changes(
    model: onnx.ModelProto, folder: str, changes: Mapping[str, Array]
) -> MergedWeights:
    """The tensors of a model with `changes`, (columns, rows) by module, added to its weights.

    Raises UnsupportedError for a weight that something else reads, too.
    """
    nodes = {n.name: n for n in model.graph.node}
    protos = {t.name: t for t in model.graph.initializer}
    tensors: dict[str, Array] = {}
    lost: dict[str, float] = {}
    for product in products(model):
        if not any(m in changes for m in product.modules):
            continue
        node = nodes[product.node]
        change = _whole_change(product, changes)
        _check_alone(model, node.input[1], product)
        stored = {n: _content(protos[n], folder) for n in node.input[1:] if n in protos}
        if node.op_type == "MatMulNBits":
            found, error = _requantize(node, stored, change)
            if error is not None:
                lost[product.modules[0]] = error
            tensors |= found
        else:
            name, weight = node.input[1], stored[node.input[1]]
            turned = change.T if weight.shape != change.shape else change
            tensors[name] = (weight.astype(np.float32) + turned).astype(weight.dtype)
    return MergedWeights(tensors, lost)


def _whole_change(product: Product, changes: Mapping[str, Array]) -> Array:
    """The change of a product's whole weight, zeros where a module of it has none."""
    parts = [
        changes.get(s.module, np.zeros((s.columns, s.rows), np.float32)) for s in product.slots
    ]
    whole: Array = np.concatenate(parts, axis=1)
    return whole


def _check_alone(model: onnx.ModelProto, weight: str, product: Product) -> None:
    readers = [n.name for n in model.graph.node if weight in n.input]
    if len(readers) > 1:
        raise UnsupportedError(
            f"the weight of {product.modules[0]} is read in {len(readers)} places, "
            f"{', '.join(readers[:2])}",
            hint="serve the adapter beside the model: it changes one of them alone",
        )


def _content(tensor: onnx.TensorProto, folder: str) -> Array:
    """The content of a tensor, whose place was checked when the model was read."""
    if tensor.data_location != tensor.EXTERNAL:
        inside: Array = numpy_helper.to_array(tensor)
        return inside
    # onnx_ir refuses files of several names, as bundles give to a folder's data
    entries = {e.key: e.value for e in tensor.external_data}
    dtype, shape = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type), tuple(tensor.dims)
    count, start = math.prod(shape), int(entries.get("offset", 0))
    content: Array = np.fromfile(
        os.path.join(folder, entries["location"]), dtype, count, offset=start
    )
    if content.size != count:
        raise BundleError(f"{entries['location']} ends before the tensor {tensor.name} in it does")
    return content.reshape(shape)


def _requantize(
    node: onnx.NodeProto, stored: Mapping[str, Array], change: Array
) -> tuple[dict[str, Array], float | None]:
    """Bytes, scales and zero points of changed weights; of 4 bits the share that is lost."""
    settings = {a.name: a.i for a in node.attribute}
    bits, size = settings.get("bits", 4), settings["block_size"]
    rows, columns = settings["N"], settings["K"]
    names = list(node.input[1:4])
    packed, scales, *points = (stored[n] for n in names if n in stored)
    if points and points[0].dtype != np.uint8:
        raise UnsupportedError(f"{node.name}: zero points that are no bytes cannot be merged into")
    blocks = -(-columns // size)
    levels = _unpack(packed.reshape(rows, blocks, -1), bits)
    middle = np.full((rows, blocks), 1 << (bits - 1), np.float32)
    if points:
        middle = _unpack(points[0].reshape(rows, -1), bits)[:, :blocks].astype(np.float32)
    steps = scales.reshape(rows, blocks).astype(np.float32)
    weight = (levels - middle[..., None]) * steps[..., None]
    padded = np.zeros((rows, blocks * size), np.float32)
    padded[:, :columns] = change.T
    wanted = weight + padded.reshape(weight.shape)
    top = (1 << bits) - 1
    if points:
        low, high = np.minimum(wanted.min(-1), 0), np.maximum(wanted.max(-1), 0)
        steps = np.maximum((high - low) / top, 1e-8).astype(scales.dtype).astype(np.float32)
        middle = np.clip(np.rint(-low / steps), 0, top)
    else:
        steps = np.maximum(np.abs(wanted).max(-1), 1e-8) / ((1 << (bits - 1)) - 1)
        steps = steps.astype(scales.dtype).astype(np.float32)
    rounded = np.clip(np.rint(wanted / steps[..., None]) + middle[..., None], 0, top)
    error = (rounded - middle[..., None]) * steps[..., None] - wanted
    made = {
        names[0]: _packed(rounded.astype(np.uint8), bits).reshape(packed.shape),
        names[1]: steps.astype(scales.dtype).reshape(scales.shape),
    }
    if points:
        made[names[2]] = _packed(middle.astype(np.uint8), bits).reshape(points[0].shape)
    size_of_change = float(np.linalg.norm(change))
    share = float(np.linalg.norm(error)) / size_of_change if size_of_change else 0.0
    return made, share if bits < 8 else None


def _unpack(levels: Array, bits: int) -> Array:
    """Whole numbers along the last axis, two of 4 bits in a byte, the first in the lower half."""
    if bits == 8:
        return levels
    if bits != 4:
        raise UnsupportedError(f"weights of {bits} bits cannot be merged into")
    pairs = np.stack([levels & 15, levels >> 4], -1)
    return pairs.reshape(*levels.shape[:-1], -1)


def _packed(levels: Array, bits: int) -> Array:
    if bits == 8:
        return levels
    if levels.shape[-1] % 2:
        levels = np.concatenate([levels, np.zeros_like(levels[..., :1])], -1)
    whole: Array = levels[..., ::2] | (levels[..., 1::2] << 4)
    return whole
