"""Changes of weights put into them: into real numbers and 8 bits, and what 4 bits would lose."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from flow2onnx.errors import UnsupportedError
from flow2onnx.onnx_io.adapter_slots import Product, products
from flow2onnx.onnx_io.blocks import read_blocks, tensor_content

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
        stored = {n: tensor_content(protos[n], folder) for n in node.input[1:] if n in protos}
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


def _requantize(
    node: onnx.NodeProto, stored: Mapping[str, Array], change: Array
) -> tuple[dict[str, Array], float | None]:
    """Bytes, scales and zero points of changed weights; of 4 bits the share that is lost."""
    blocks = read_blocks(node, stored)
    wanted = blocks.real + change.T
    made, numbers = blocks.rounded(wanted)
    size = float(np.linalg.norm(change))
    share = float(np.linalg.norm(numbers - wanted)) / size if size else 0.0
    return made, share if blocks.bits < 8 else None
