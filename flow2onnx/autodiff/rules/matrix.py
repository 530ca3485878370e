"""Matrix products."""

import functools

import numpy as np

from flow2onnx.autodiff.registry import attribute, vjp
from flow2onnx.errors import UnknownShapeError
from flow2onnx.graph.dimension import extents, is_known
from flow2onnx.graph.einsum import einsum_terms
from flow2onnx.graph.types import dtype_of, rank_of, sizes_of
from flow2onnx.lowering.broadcasts import unbroadcast
from flow2onnx.lowering.dimensions import check_constant, positions


def _swap(b, x):
    rank = rank_of(x)
    return b.Transpose(x, perm=[*range(rank - 2), rank - 1, rank - 2])


@vjp("MatMul")
def _(b, n, g):
    x, y = n.inputs
    if rank_of(x) == rank_of(y) == 2:
        return b.Gemm(g, y, transB=1), b.Gemm(x, g, transA=1)
    if min(rank_of(x), rank_of(y)) == 1:
        return _vector_gradients(b, x, y, g)
    gx = unbroadcast(b, b.MatMul(g, _swap(b, y)), x)
    if rank_of(y) == 2:
        rows = b.Reshape(x, [-1, sizes_of(x)[-1]]), b.Reshape(g, [-1, sizes_of(g)[-1]])
        return gx, b.Gemm(*rows, transA=1)
    return gx, unbroadcast(b, b.MatMul(_swap(b, x), g), y)


def _vector_gradients(b, x, y, g):
    """A vector on the left is a row, on the right a column."""
    row, column = rank_of(x) == 1, rank_of(y) == 1
    wide = b.Unsqueeze(x, [0]) if row else x
    tall = b.Unsqueeze(y, [1]) if column else y
    if row:
        g = b.Unsqueeze(g, [rank_of(g) - (0 if column else 1)])
    if column:
        g = b.Unsqueeze(g, [rank_of(g)])
    gx = unbroadcast(b, b.MatMul(g, _swap(b, tall)), wide)
    gy = unbroadcast(b, b.MatMul(_swap(b, wide), g), tall)
    return (b.Squeeze(gx, [0]) if row else gx), (b.Squeeze(gy, [1]) if column else gy)


@vjp("Det")
def _(b, n, g):
    # the slope of each element is its cofactor, which is a determinant too
    x = n.inputs[0]
    *batch, _, _ = extents(b, x)
    size = _matrix_size(x)
    own = b.Reshape(g, [*batch, 1, 1])
    if size == 1:
        return own
    check_constant(size - 1, size - 1, size, size)
    rows = np.asarray([[k for k in range(size) if k != i] for i in range(size)])
    # element (i, j): the rows without i, the columns without j
    places = rows[:, None, :, None] * size + rows[None, :, None, :]
    minors = b.Gather(b.Reshape(x, [*batch, size * size]), places, axis=len(batch))
    signs = (-1.0) ** np.add.outer(np.arange(size), np.arange(size))
    return b.Mul(own, b.Mul(b.Det(minors), signs.astype(dtype_of(x).numpy)))


def _matrix_size(x):
    """The size of square matrices: known if either side is."""
    known = [d for d in sizes_of(x)[-2:] if isinstance(d, int)]
    if not known:
        raise UnknownShapeError(f"the size of its matrices ({sizes_of(x)[-1]}) is free")
    return known[0]


@vjp("Einsum")
def _(b, n, g):
    terms, result = einsum_terms(n)
    wide = [_broadcast_operand(b, v, t, terms, n) for v, t in zip(n.inputs, terms, strict=True)]
    return [
        unbroadcast(b, _einsum_gradient(b, i, wide, terms, g, result), v)
        for i, v in enumerate(n.inputs)
    ]


def _broadcast_operand(b, v, term, terms, n):
    """An operand with its dimensions of 1 repeated as the others ask for."""
    sizes = {}
    for other, letters in zip(n.inputs, terms, strict=True):
        for c, d in zip(letters, extents(b, other), strict=True):
            sizes[c] = _wider(d, sizes.get(c, 1))
    shape = [sizes[c] for c in term]
    return v if list(extents(b, v)) == shape else b.Expand(v, shape)


def _wider(d, other):
    """The size that two broadcast to; of two known at run time only the larger one."""
    if is_known(d, other):
        return max(d, other) if d else 0
    if is_known(d) or is_known(other):
        known, free = (d, other) if is_known(d) else (other, d)
        return free if known == 1 else known
    return d if d == other else d.at_least(other)


def _einsum_gradient(b, i, operands, terms, g, result):
    term, x = terms[i], operands[i]
    others = [(t, v) for k, (t, v) in enumerate(zip(terms, operands, strict=True)) if k != i]
    known = set(result).union(*(t for t, _ in others))
    letters = "".join(dict.fromkeys(term))
    kept = "".join(c for c in letters if c in known)
    equation = f"{','.join([result, *(t for t, _ in others)])}->{kept}"
    made = b.Einsum(g, *(v for _, v in others), equation=equation)
    sizes = dict(zip(term, extents(b, x), strict=True))
    # what only this operand has was summed: every element of it gets the whole gradient
    made = b.Reshape(made, [sizes[c] if c in kept else 1 for c in letters])
    made = b.Expand(made, [sizes[c] for c in letters])
    return made if letters == term else _keep_diagonal(b, made, letters, term, sizes, x)


def _keep_diagonal(b, g, letters, term, sizes, x):
    """`g` where indices that have one letter are equal, 0 elsewhere."""
    first = [term.index(c) for c in letters]
    shape = [sizes[c] if i in first else 1 for i, c in enumerate(term)]
    if not is_known(*sizes.values()):
        return b.Mul(b.Reshape(g, shape), _diagonal_at_run_time(b, term, sizes, dtype_of(x)))
    check_constant(*(sizes[c] for c in term))
    grids = np.indices([sizes[c] for c in term], sparse=True)
    mask = np.ones([1] * len(term), dtype=bool)
    for i, c in enumerate(term):
        mask = mask & (grids[i] == grids[term.index(c)])
    return b.Mul(b.Reshape(g, shape), mask.astype(dtype_of(x).numpy))


def _diagonal_at_run_time(b, term, sizes, dtype):
    """Ones where indices that have one letter are equal, zeros elsewhere."""
    rank = len(term)
    grids = [
        b.Reshape(positions(b, sizes[c]), [-1 if k == i else 1 for k in range(rank)])
        for i, c in enumerate(term)
    ]
    again = [i for i, c in enumerate(term) if term.index(c) != i]
    met = [b.Equal(grids[i], grids[term.index(term[i])]) for i in again]
    return b.Cast(functools.reduce(b.And, met), to=dtype)


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
