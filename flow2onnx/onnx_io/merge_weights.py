"""Changes of weights put into them: into real numbers and 8 bits, and what 4 bits would lose."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from flow2onnx.errors import BundleError, UnsupportedError
from flow2onnx.onnx_io.adapter_slots import Product, Slot, products
from flow2onnx.onnx_io.blocks import read_blocks, tensor_content

__all__ = ["MergedWeights", "merge_changes", "module_weights", "real_weights"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class MergedWeights:
    """New contents of tensors by name, of the shapes and types that they had.

    `lost` is, by module of 4 bits, the size of what rounding to the grid changes, by that of the
    change itself: 1 and more is as if there were no adapter.
    """

    tensors: Mapping[str, Array]
    lost: Mapping[str, float]


def module_weights(
    model: onnx.ModelProto, folder: str, modules: Collection[str]
) -> Iterator[tuple[Slot, Array]]:
    """The weights of modules as real numbers in float32, one after the other, with their slots.

    A weight is (columns, rows), of a convolution (rows, columns / groups, *kernel). Those of few
    bits are the numbers that these stand for.
    """
    nodes = {n.name: n for n in model.graph.node}
    protos = {t.name: t for t in model.graph.initializer}
    for product in products(model):
        if not any(m in modules for m in product.modules):
            continue
        node = nodes[product.node]
        whole = _real_weight(node, protos, folder)
        ends = np.cumsum([slot.rows for slot in product.slots])[:-1]
        parts = np.split(whole, ends, axis=1) if len(product.slots) > 1 else [whole]
        for slot, part in zip(product.slots, parts, strict=True):
            if slot.module in modules:
                yield slot, part


def real_weights(model: onnx.ModelProto, folder: str) -> dict[str, Array]:
    """The weights of the products with real numbers, (columns, rows) by module, in float32."""
    nodes = {n.name: n for n in model.graph.node}
    plain = {
        m
        for p in products(model)
        for m in p.modules
        if nodes[p.node].op_type != "MatMulNBits" and not p.slots[0].kernel
    }
    return {slot.module: part for slot, part in module_weights(model, folder, plain)}


def _real_weight(
    node: onnx.NodeProto, protos: Mapping[str, onnx.TensorProto], folder: str
) -> Array:
    """The weight of a product, (columns, rows), or of a convolution as it is, in float32."""
    if node.op_type == "MatMulNBits":
        stored = {n: tensor_content(protos[n], folder) for n in node.input[1:4] if n in protos}
        return read_blocks(node, stored).real.T
    weight: Array = tensor_content(protos[node.input[1]], folder).astype(np.float32)
    return weight.T if _is_turned(node) else weight


def _is_turned(node: onnx.NodeProto) -> bool:
    """True if the weight of a product is stored (rows, columns)."""
    return any(a.name == "transB" and a.i for a in node.attribute)


def merge_changes(
    model: onnx.ModelProto,
    folder: str,
    changes: Mapping[str, Array],
    base: Mapping[str, Array] | None = None,
    factors: Mapping[str, Array] | None = None,
) -> MergedWeights:
    """The tensors of a model with `changes`, (columns, rows) by module, added to its weights.

    The sums are multiplied with `factors`, (rows) by module. With `base`, real numbers that its
    weights of few bits were rounded from, these are rounded again from the sums, and nothing counts
    as lost. Raises UnsupportedError for a weight that something else reads, too, and for a
    convolution of several groups, BundleError for a base that lacks one or has it otherwise.
    """
    nodes = {n.name: n for n in model.graph.node}
    protos = {t.name: t for t in model.graph.initializer}
    tensors: dict[str, Array] = {}
    lost: dict[str, float] = {}
    for product in products(model):
        if not any(m in changes for m in product.modules):
            continue
        node = nodes[product.node]
        change, factor = _whole_change(product, changes), _whole_factor(product, factors or {})
        _check_alone(model, node.input[1], product)
        stored = {n: tensor_content(protos[n], folder) for n in node.input[1:] if n in protos}
        if node.op_type == "MatMulNBits":
            real = None if base is None else _from_base(product, base)
            found, error = _requantize(node, stored, change, real, factor)
            if error is not None:
                lost[product.modules[0]] = error
            tensors |= found
        else:
            name, weight = node.input[1], stored[node.input[1]]
            tensors[name] = _merged(weight, change, factor, is_turned=_is_turned(node))
    return MergedWeights(tensors, lost)


def _merged(weight: Array, change: Array, factor: Array | None, *, is_turned: bool) -> Array:
    """A weight as it is stored with a change added, times factors of its rows."""
    whole = weight.astype(np.float32) + (change.T if is_turned else change)
    if factor is not None:
        whole = whole * (factor[:, None] if is_turned else factor)
    merged: Array = whole.astype(weight.dtype)
    return merged


def _whole_change(product: Product, changes: Mapping[str, Array]) -> Array:
    """The change of a product's whole weight, zeros where a module of it has none."""
    first = product.slots[0]
    if first.kernel:
        if first.groups > 1:
            raise UnsupportedError(
                f"{first.module} is a convolution of {first.groups} groups, and its adapter reads "
                "the channels of all",
                hint="keep it beside the weights (--beside)",
            )
        return changes[first.module]
    parts = [
        changes.get(s.module, np.zeros((s.columns, s.rows), np.float32)) for s in product.slots
    ]
    whole: Array = np.concatenate(parts, axis=1)
    return whole


def _whole_factor(product: Product, factors: Mapping[str, Array]) -> Array | None:
    """The factors of all rows of a product, ones where a module has none; None if all are."""
    if not any(m in factors for m in product.modules):
        return None
    ones = [factors.get(s.module, np.ones(s.rows, np.float32)) for s in product.slots]
    return np.concatenate(ones)


def _check_alone(model: onnx.ModelProto, weight: str, product: Product) -> None:
    readers = [n.name for n in model.graph.node if weight in n.input]
    if len(readers) > 1:
        raise UnsupportedError(
            f"the weight of {product.modules[0]} is read in {len(readers)} places, "
            f"{', '.join(readers[:2])}",
            hint="serve the adapter beside the model: it changes one of them alone",
        )


def _from_base(product: Product, base: Mapping[str, Array]) -> Array:
    """The weight of a product, of the modules that are packed in it."""
    for slot in product.slots:
        shape = base[slot.module].shape if slot.module in base else None
        if shape != (slot.columns, slot.rows):
            raise BundleError(
                f"the base has no weight of {slot.module} with {slot.columns} x {slot.rows} real "
                "numbers" + (f", but one of {shape[0]} x {shape[1]}" if shape else ""),
                hint="give the folder that the model was rounded from, in float32 or float16",
            )
    return np.concatenate([base[m] for m in product.modules], axis=1)


def _requantize(
    node: onnx.NodeProto,
    stored: Mapping[str, Array],
    change: Array,
    real: Array | None,
    factor: Array | None,
) -> tuple[dict[str, Array], float | None]:
    """Bytes, scales and zero points of changed weights; of 4 bits the share that is lost.

    The weights are those stored, or `real` (columns, rows).
    """
    blocks = read_blocks(node, stored)
    wanted = (blocks.real if real is None else real.T) + change.T
    if factor is not None:
        wanted = wanted * factor[:, None]
    made, numbers = blocks.rounded(wanted)
    if real is not None or blocks.bits == 8:
        return made, None
    size = float(np.linalg.norm(wanted - blocks.real))
    return made, float(np.linalg.norm(numbers - wanted)) / size if size else 0.0
