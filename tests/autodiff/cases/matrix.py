"""Matrix products."""

from tests.autodiff.cases.case import plain


def _gemm(x, y, bias=None, note="", **attrs):
    shapes = [x, y] if bias is None else [x, y, bias]
    return plain("Gemm", shapes, note, attrs=attrs, step=0.25)


MATRIX = [
    _gemm((3, 4), (4, 2)),
    _gemm((4, 3), (4, 2), note="ta", transA=1),
    _gemm((3, 4), (2, 4), note="tb", transB=1),
    _gemm((4, 3), (2, 4), note="ta-tb", transA=1, transB=1, alpha=0.5),
    _gemm((3, 4), (4, 2), (2,), "bias"),
    _gemm((3, 4), (2, 4), (3, 1), "bias-column", transB=1, beta=0.5),
    _gemm((4, 3), (4, 2), (3, 2), "bias-full", transA=1, alpha=2.0, beta=-1.0),
    _gemm((4, 3), (2, 4), (1, 2), "bias-row", transA=1, transB=1, alpha=-0.5, beta=2.0),
    _gemm((3, 4), (4, 2), (), "bias-scalar", beta=0.5),
    _gemm((3, 4), (4, 2), (1,), "bias-one"),
    plain("MatMul", [(3, 4), (4, 2)], step=0.25),
    plain("MatMul", [(2, 5, 3, 4), (2, 5, 4, 2)], "batch", step=0.25),
    plain("MatMul", [(2, 3, 4), (4, 2)], "stack-by-matrix", step=0.25),
    plain("MatMul", [(3, 4), (2, 4, 2)], "matrix-by-stack", step=0.25),
    plain("MatMul", [(2, 1, 3, 4), (5, 4, 2)], "broadcast", step=0.25),
    plain("MatMul", [(1, 3, 4), (5, 4, 2)], "one-by-stack", step=0.25),
]
