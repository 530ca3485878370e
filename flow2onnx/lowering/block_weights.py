"""Rows of weights in 4 or 8 bits as real numbers, read by the runtime's GatherBlockQuantized."""

from dataclasses import dataclass

import numpy as np

from flow2onnx.graph import Builder, Value
from flow2onnx.graph.dimension import extents
from flow2onnx.graph.types import dtype_of, rank_of
from flow2onnx.lowering.dimensions import check_constant

__all__ = ["TABLE", "BlockWeight", "block_sums"]

TABLE = "com.microsoft::GatherBlockQuantized"


@dataclass(frozen=True, kw_only=True)
class BlockWeight:
    """The weight (rows, columns) of a MatMulNBits: whole numbers in blocks along the columns.

    `packed`, `scales` and `points` are its operands, `points` None where the middle is zero;
    `block` is the count of columns that share a scale.
    """

    packed: Value
    scales: Value
    points: Value | None
    bits: int
    block: int
    rows: int
    columns: int

    @property
    def blocks(self) -> int:
        """The count of blocks of a row; the last may be short."""
        return -(-self.columns // self.block)

    def whole(self, b: Builder, scales: Value | None = None) -> Value:
        """All rows, in float; with other `scales` if they are given."""
        check_constant(self.rows)
        return self._real(b, b.const(np.arange(self.rows)), scales, self.rows)

    def at(self, b: Builder, places: Value, count: int | None = None) -> Value:
        """The rows at `places`, a vector of int64 of `count` elements if that is known."""
        return self._real(b, places, None, -1 if count is None else count)

    def _real(self, b: Builder, places: Value, scales: Value | None, count: int) -> Value:
        """Rows of a table in three dimensions: the bytes of the product's operand as they lie, so
        that nothing is repacked and no copy outlives the node.
        """
        scales = self.scales if scales is None else scales
        operands = [self.packed, places, b.Reshape(scales, [self.rows, self.blocks, 1])]
        points = self.points
        real = points if points is not None and dtype_of(points) == dtype_of(scales) else None
        if points is not None and real is None:
            operands.append(self._zero_points(b, points))
        attrs = {"bits": self.bits, "block_size": self.block, "gather_axis": 0, "quantize_axis": 2}
        weight = b.emit(TABLE, operands, attrs)[0]
        if real is not None:  # the table took the middle for the zero point
            middle = b.like(float(1 << (self.bits - 1)), real)
            steps = b.Reshape(scales, [self.rows, self.blocks])
            apart = b.Mul(b.Sub(middle, b.Reshape(real, [self.rows, self.blocks])), steps)
            weight = b.Add(weight, b.Unsqueeze(b.Gather(apart, places), [2]))
        flat: Value = b.Reshape(weight, [count, self.blocks * self.block])
        if self.blocks * self.block == self.columns:
            return flat
        cut: Value = b.Slice(flat, [0], [self.columns], [1])
        return cut

    def _zero_points(self, b: Builder, points: Value) -> Value:
        """The zero points, one byte for each block: (rows, blocks, 1)."""
        raw = b.Reshape(points, [self.rows, -1])
        if self.bits == 4:  # two in a byte, the first in the lower half
            low = b.BitwiseAnd(raw, np.uint8(15))
            high = b.BitShift(raw, np.uint8(4), direction="RIGHT")
            pairs = b.Concat(b.Unsqueeze(low, [2]), b.Unsqueeze(high, [2]), axis=2)
            raw = b.Slice(b.Reshape(pairs, [self.rows, -1]), [0], [self.blocks], [1])
        whole: Value = b.Unsqueeze(raw, [2])
        return whole


def block_sums(b: Builder, x: Value, size: int) -> Value:
    """The sums of blocks along the last axis; the last block may be short."""
    width = extents(b, x)[-1]
    blocks = -(-width // size)
    missing = blocks * size - width
    whole = b.Pad(x, [*[0] * (2 * rank_of(x) - 1), missing]) if missing else x
    parts = b.Reshape(whole, [*extents(b, x)[:-1], blocks, size])
    sums: Value = b.ReduceSum(parts, [-1], keepdims=0)
    return sums
