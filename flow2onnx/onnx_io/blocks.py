"""Weights of MatMulNBits as arrays: read as real numbers, and written from them."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from flow2onnx.errors import BundleError, UnsupportedError

__all__ = ["Blocks", "inline_tensors", "read_blocks", "tensor_content"]

Array = np.ndarray[Any, Any]
_SMALLEST = 1e-8  # of a scale


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """Numbers (row, block, column of the block) as whole ones, `levels`.

    A number is (level - middle) * step; `middle` and `steps` are (row, block). `names` are those of
    the tensors for levels, steps and, where there are any, zero points, `kinds` their shapes and
    element types.
    """

    levels: Array
    steps: Array
    middle: Array
    bits: int
    columns: int
    names: tuple[str, ...]
    kinds: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]

    @property
    def real(self) -> Array:
        """The numbers, (row, column)."""
        whole = (self.levels - self.middle[..., None]) * self.steps[..., None]
        found: Array = whole.reshape(len(whole), -1)[:, : self.columns]
        return found

    def rounded(self, weight: Array) -> tuple[dict[str, Array], Array]:
        """The tensors of another weight (row, column) in the same form, and its numbers then."""
        wanted = np.zeros((len(weight), self.levels[0].size), np.float32)
        wanted[:, : self.columns] = weight
        wanted = wanted.reshape(self.levels.shape)
        top, middle = (1 << self.bits) - 1, self.middle
        kind = self.kinds[1][1]
        if len(self.names) > 2:
            low, high = np.minimum(wanted.min(-1), 0), np.maximum(wanted.max(-1), 0)
            steps = np.maximum((high - low) / top, _SMALLEST).astype(kind).astype(np.float32)
            middle = np.clip(np.rint(-low / steps), 0, top)
        else:
            # the number farthest from 0 at the lowest level, as the range is not symmetric
            far = np.take_along_axis(wanted, np.abs(wanted).argmax(-1)[..., None], -1)[..., 0]
            steps = np.where(np.abs(far) < _SMALLEST, _SMALLEST, -far / (1 << (self.bits - 1)))
            steps = steps.astype(kind).astype(np.float32)
        levels = np.clip(np.rint(wanted / steps[..., None]) + middle[..., None], 0, top)
        parts = (_pack(levels.astype(np.uint8), self.bits), steps.astype(kind),
                 _pack(middle.astype(np.uint8), self.bits))  # fmt: skip
        made = {
            name: part.reshape(shape)
            for name, part, (shape, _) in zip(self.names, parts, self.kinds, strict=False)
        }
        numbers = (levels - middle[..., None]) * steps[..., None]
        return made, numbers.reshape(len(weight), -1)[:, : self.columns]


def read_blocks(node: onnx.NodeProto, tensors: Mapping[str, Array]) -> Blocks:
    """The weight of a MatMulNBits, whose operands are among `tensors`."""
    settings = {a.name: a.i for a in node.attribute}
    bits, size = settings.get("bits", 4), settings["block_size"]
    rows, columns = settings["N"], settings["K"]
    if len(node.input) > 4 and node.input[4]:
        raise UnsupportedError(f"{node.name}: columns in another order (g_idx) are not read")
    names = tuple(n for n in node.input[1:4] if n in tensors)
    packed, scales, *points = (tensors[n] for n in names)
    blocks = -(-columns // size)
    middle = np.full((rows, blocks), 1 << (bits - 1), np.float32)
    if points and points[0].dtype != np.uint8:
        raise UnsupportedError(f"{node.name}: zero points that are no bytes are not read")
    if points:
        middle = _unpack(points[0].reshape(rows, -1), bits)[:, :blocks].astype(np.float32)
    return Blocks(
        levels=_unpack(packed.reshape(rows, blocks, -1), bits)[..., :size],
        steps=scales.reshape(rows, blocks).astype(np.float32),
        middle=middle, bits=bits, columns=columns, names=names,
        kinds=tuple((tensors[n].shape, tensors[n].dtype) for n in names),
    )  # fmt: skip


def tensor_content(tensor: onnx.TensorProto, folder: str) -> Array:
    """The content of a tensor, whose place was checked when the model was read."""
    if tensor.data_location != tensor.EXTERNAL:
        inside: Array = numpy_helper.to_array(tensor)
        return inside
    # onnx_ir refuses files of several names, as bundles give to a folder's data
    entries = {e.key: e.value for e in tensor.external_data}
    dtype, shape = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type), tuple(tensor.dims)
    count, start = math.prod(shape), int(entries.get("offset", 0))
    path = os.path.join(folder, entries["location"])
    content: Array = np.fromfile(path, dtype, count, offset=start)
    if content.size != count:
        raise BundleError(f"{entries['location']} ends before the tensor {tensor.name} in it does")
    return content.reshape(shape)


def inline_tensors(model: onnx.ModelProto, folder: str) -> None:
    """Put what lies in files of `folder` into a model, in place."""
    for tensor in model.graph.initializer:
        if tensor.data_location == tensor.EXTERNAL:
            tensor.CopyFrom(numpy_helper.from_array(tensor_content(tensor, folder), tensor.name))


def _unpack(levels: Array, bits: int) -> Array:
    """Whole numbers along the last axis, two of 4 bits in a byte, the first in the lower half."""
    if bits == 8:
        return levels
    if bits != 4:
        raise UnsupportedError(f"weights of {bits} bits are not read", hint="of 4 and 8 bits are")
    pairs = np.stack([levels & 15, levels >> 4], -1)
    return pairs.reshape(*levels.shape[:-1], -1)


def _pack(levels: Array, bits: int) -> Array:
    if bits == 8:
        return levels
    if levels.shape[-1] % 2:
        levels = np.concatenate([levels, np.zeros_like(levels[..., :1])], -1)
    whole: Array = levels[..., ::2] | (levels[..., 1::2] << 4)
    return whole
