"""Products and rows of weights in 4 or 8 bits: the runtime's MatMulNBits, GatherBlockQuantized.

The weights are whole numbers and not trained: gradients go to what is multiplied, to the scales and
to the bias.
"""

from flow2onnx.autodiff.registry import attribute, no_gradient, vjp
from flow2onnx.graph.dimension import extents
from flow2onnx.graph.types import rank_of
from flow2onnx.lowering.block_weights import TABLE, BlockWeight, block_sums
from flow2onnx.lowering.broadcasts import unbroadcast
from flow2onnx.lowering.scatters import scatter_sum


@vjp("com.microsoft::MatMulNBits")
def _(b, n, g):
    x, _, scales, _, order, bias = _operands(n)
    if order is not None:
        raise no_gradient(n, "with g_idx")
    columns, rows = attribute(n, "K"), attribute(n, "N")
    weight = _weight(n)
    gx = b.MatMul(g, weight.whole(b))
    flat = [b.Reshape(v, [-1, size]) for v, size in ((g, rows), (x, columns))]
    slope = b.MatMul(b.Transpose(flat[0], perm=[1, 0]), flat[1])
    steps = b.Mul(slope, weight.whole(b, _ones(b, scales)))
    g_scales = b.Reshape(block_sums(b, steps, attribute(n, "block_size")), extents(b, scales))
    return gx, None, g_scales, None, None, None if bias is None else unbroadcast(b, g, bias)


def _operands(n):
    return [*n.inputs, *[None] * 6][:6]


def _ones(b, scales):
    return b.Expand(b.like(1.0, scales), extents(b, scales))


def _weight(n):
    """The weight of a product."""
    _, packed, scales, points, *_ = _operands(n)
    bits = attribute(n, "bits", 4)
    if bits not in (4, 8):
        raise no_gradient(n, f"of {bits} bits")
    return BlockWeight(
        packed=packed, scales=scales, points=points, bits=bits, block=attribute(n, "block_size"),
        rows=attribute(n, "N"), columns=attribute(n, "K"),
    )  # fmt: skip


@vjp(TABLE)
def _(b, n, g):
    data, indices, scales, points = [*n.inputs, None][:4]
    last = rank_of(data) - 1
    is_plain = attribute(n, "gather_axis", 0) == 0 and attribute(n, "quantize_axis", 1) == last
    if not is_plain:
        raise no_gradient(n, "other than of rows in blocks along the last axis")
    attrs = {k: a.value for k, a in n.attributes.items()}
    operands = [data, indices, _ones(b, scales), *([] if points is None else [points])]
    steps = b.Mul(g, b.emit(TABLE, operands, attrs)[0])
    sums = block_sums(b, steps, attribute(n, "block_size", 128))
    return None, None, scatter_sum(b, "ScatterND", extents(b, scales),
                                   b.Unsqueeze(indices, [-1]), sums), None  # fmt: skip
