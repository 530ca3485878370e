"""Products and rows of weights in 4 or 8 bits: the runtime's MatMulNBits, GatherBlockQuantized.

The weights are whole numbers and not trained: gradients go to what is multiplied, to the scales and
to the bias.
"""

import numpy as np

from flow2onnx.autodiff.registry import attribute, no_gradient, vjp
from flow2onnx.graph.dimension import extents
from flow2onnx.graph.types import dtype_of, rank_of
from flow2onnx.lowering.broadcasts import unbroadcast
from flow2onnx.lowering.dimensions import check_constant
from flow2onnx.lowering.scatters import scatter_sum

_TABLE = "com.microsoft::GatherBlockQuantized"


@vjp("com.microsoft::MatMulNBits")
def _(b, n, g):
    x, _, scales, _, order, bias = _operands(n)
    if order is not None:
        raise no_gradient(n, "with g_idx")
    columns, rows = attribute(n, "K"), attribute(n, "N")
    gx = b.MatMul(g, _weight(b, n, scales))
    flat = [b.Reshape(v, [-1, size]) for v, size in ((g, rows), (x, columns))]
    slope = b.MatMul(b.Transpose(flat[0], perm=[1, 0]), flat[1])
    steps = b.Mul(slope, _weight(b, n, _ones(b, scales)))
    g_scales = b.Reshape(_block_sums(b, steps, attribute(n, "block_size")), extents(b, scales))
    return gx, None, g_scales, None, None, None if bias is None else unbroadcast(b, g, bias)


def _operands(n):
    return [*n.inputs, *[None] * 6][:6]


def _ones(b, scales):
    return b.Expand(b.like(1.0, scales), extents(b, scales))


def _weight(b, n, scales):
    """The weights (N, K) as real numbers, with these scales.

    The rows of a table in three dimensions are read: the bytes of the product's operand as they
    lie, so that nothing is repacked and no copy outlives the node.
    """
    _, packed, _, points, *_ = _operands(n)
    bits, size = attribute(n, "bits", 4), attribute(n, "block_size")
    columns, rows = attribute(n, "K"), attribute(n, "N")
    if bits not in (4, 8):
        raise no_gradient(n, f"of {bits} bits")
    blocks = -(-columns // size)
    check_constant(rows)
    operands = [packed, np.arange(rows), b.Reshape(scales, [rows, blocks, 1])]
    is_real = points is not None and dtype_of(points) == dtype_of(scales)
    if points is not None and not is_real:
        operands.append(_zero_points(b, points, bits, rows, blocks))
    attrs = {"bits": bits, "block_size": size, "gather_axis": 0, "quantize_axis": 2}
    weight = b.emit(_TABLE, operands, attrs)[0]
    if is_real:  # the table took the middle for the zero point
        middle = b.like(float(1 << (bits - 1)), points)
        apart = b.Mul(b.Sub(middle, b.Reshape(points, [rows, blocks])),
                      b.Reshape(scales, [rows, blocks]))  # fmt: skip
        weight = b.Add(weight, b.Unsqueeze(apart, [2]))
    flat = b.Reshape(weight, [rows, blocks * size])
    return flat if blocks * size == columns else b.Slice(flat, [0], [columns], [1])


def _zero_points(b, points, bits, rows, blocks):
    """The zero points, one byte for each block: (N, blocks, 1)."""
    raw = b.Reshape(points, [rows, -1])
    if bits == 4:  # two in a byte, the first in the lower half
        low = b.BitwiseAnd(raw, np.uint8(15))
        high = b.BitShift(raw, np.uint8(4), direction="RIGHT")
        pairs = b.Concat(b.Unsqueeze(low, [2]), b.Unsqueeze(high, [2]), axis=2)
        raw = b.Slice(b.Reshape(pairs, [rows, -1]), [0], [blocks], [1])
    return b.Unsqueeze(raw, [2])


def _block_sums(b, x, size):
    """The sums of blocks along the last axis; the last block may be short."""
    width = extents(b, x)[-1]
    blocks = -(-width // size)
    missing = blocks * size - width
    whole = b.Pad(x, [*[0] * (2 * rank_of(x) - 1), missing]) if missing else x
    return b.ReduceSum(b.Reshape(whole, [*extents(b, x)[:-1], blocks, size]), [-1], keepdims=0)


@vjp(_TABLE)
def _(b, n, g):
    data, indices, scales, points = [*n.inputs, None][:4]
    last = rank_of(data) - 1
    is_plain = attribute(n, "gather_axis", 0) == 0 and attribute(n, "quantize_axis", 1) == last
    if not is_plain:
        raise no_gradient(n, "other than of rows in blocks along the last axis")
    attrs = {k: a.value for k, a in n.attributes.items()}
    operands = [data, indices, _ones(b, scales), *([] if points is None else [points])]
    steps = b.Mul(g, b.emit(_TABLE, operands, attrs)[0])
    sums = _block_sums(b, steps, attribute(n, "block_size", 128))
    return None, None, scatter_sum(b, "ScatterND", extents(b, scales),
                                   b.Unsqueeze(indices, [-1]), sums), None  # fmt: skip
