"""Matrix products."""

from flow2onnx.autodiff.registry import attribute, no_gradient, vjp
from flow2onnx.graph import dims, rank_of, unbroadcast


def _swap(b, x):
    rank = rank_of(x)
    return b.Transpose(x, perm=[*range(rank - 2), rank - 1, rank - 2])


@vjp("MatMul")
def _(b, n, g):
    x, y = n.inputs
    if rank_of(x) == rank_of(y) == 2:
        return b.Gemm(g, y, transB=1), b.Gemm(x, g, transA=1)
    if min(rank_of(x), rank_of(y)) == 1:
        raise no_gradient(n, "with a vector")
    gx = unbroadcast(b, b.MatMul(g, _swap(b, y)), x)
    if rank_of(y) == 2:
        rows = b.Reshape(x, [-1, dims(x)[-1]]), b.Reshape(g, [-1, dims(g)[-1]])
        return gx, b.Gemm(*rows, transA=1)
    return gx, unbroadcast(b, b.MatMul(_swap(b, x), g), y)


@vjp("Gemm")
def _(b, n, g):
    x, y, *bias = n.inputs
    ta, tb = attribute(n, "transA", 0), attribute(n, "transB", 0)
    alpha, beta = attribute(n, "alpha", 1.0), attribute(n, "beta", 1.0)
    if ta:
        gx = b.Gemm(y, g, transA=tb, transB=1, alpha=alpha)
    else:
        gx = b.Gemm(g, y, transB=1 - tb, alpha=alpha)
    if tb:
        gy = b.Gemm(g, x, transA=1, transB=ta, alpha=alpha)
    else:
        gy = b.Gemm(x, g, transA=1 - ta, alpha=alpha)
    if not bias or bias[0] is None:
        return gx, gy
    scaled = g if beta == 1.0 else b.Mul(g, beta)
    return gx, gy, unbroadcast(b, scaled, bias[0])
