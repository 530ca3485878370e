"""Matrix products."""

import string

import numpy as np

from flow2onnx.autodiff.registry import attribute, vjp
from flow2onnx.graph.types import dims, dtype_of, rank_of, sizes_of
from flow2onnx.lowering.broadcasts import unbroadcast


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
    *batch, size, _ = dims(x)
    own = b.Reshape(g, [*batch, 1, 1])
    if size == 1:
        return own
    rows = np.asarray([[k for k in range(size) if k != i] for i in range(size)])
    # element (i, j): the rows without i, the columns without j
    places = rows[:, None, :, None] * size + rows[None, :, None, :]
    minors = b.Gather(b.Reshape(x, [*batch, size * size]), places, axis=len(batch))
    signs = (-1.0) ** np.add.outer(np.arange(size), np.arange(size))
    return b.Mul(own, b.Mul(b.Det(minors), signs.astype(dtype_of(x).numpy)))


@vjp("Einsum")
def _(b, n, g):
    terms, result = _terms(n)
    wide = [_broadcast_operand(b, v, t, terms, n) for v, t in zip(n.inputs, terms, strict=True)]
    return [
        unbroadcast(b, _einsum_gradient(b, i, wide, terms, g, result), v)
        for i, v in enumerate(n.inputs)
    ]


def _terms(n):
    """The letters of every operand and of the result, with letters for what `...` stands for."""
    text = attribute(n, "equation").replace(" ", "")
    left, *right = text.split("->")
    terms = left.split(",")
    free = [c for c in string.ascii_letters if c not in text]
    ranks = [rank_of(v) - len(t) + 3 for v, t in zip(n.inputs, terms, strict=True) if "..." in t]
    more = "".join(free[: max(ranks, default=0)])

    def expand_ellipsis(term, rank):
        return term.replace("...", more[len(more) - (rank - len(term) + 3) :] if rank else more)

    if right:
        result = right[0].replace("...", more)
    else:
        once = sorted(c for c in set(left) - set(".,") if left.count(c) == 1)
        result = more + "".join(once)
    full = [
        expand_ellipsis(t, rank_of(v)) if "..." in t else t
        for v, t in zip(n.inputs, terms, strict=True)
    ]
    return full, result


def _broadcast_operand(b, v, term, terms, n):
    """An operand with its dimensions of 1 repeated as the others ask for."""
    sizes = {}
    for other, letters in zip(n.inputs, terms, strict=True):
        for c, d in zip(letters, dims(other), strict=True):
            sizes[c] = max(d, sizes.get(c, 1)) if d else 0
    shape = [sizes[c] for c in term]
    return v if list(dims(v)) == shape else b.Expand(v, shape)


def _einsum_gradient(b, i, operands, terms, g, result):
    term, x = terms[i], operands[i]
    others = [(t, v) for k, (t, v) in enumerate(zip(terms, operands, strict=True)) if k != i]
    known = set(result).union(*(t for t, _ in others))
    letters = "".join(dict.fromkeys(term))
    kept = "".join(c for c in letters if c in known)
    equation = f"{','.join([result, *(t for t, _ in others)])}->{kept}"
    made = b.Einsum(g, *(v for _, v in others), equation=equation)
    sizes = dict(zip(term, dims(x), strict=True))
    # what only this operand has was summed: every element of it gets the whole gradient
    made = b.Reshape(made, [sizes[c] if c in kept else 1 for c in letters])
    made = b.Expand(made, [sizes[c] for c in letters])
    return made if letters == term else _keep_diagonal(b, made, letters, term, sizes, x)


def _keep_diagonal(b, g, letters, term, sizes, x):
    """`g` where indices that have one letter are equal, 0 elsewhere."""
    first = [term.index(c) for c in letters]
    shape = [sizes[c] if i in first else 1 for i, c in enumerate(term)]
    grids = np.indices([sizes[c] for c in term], sparse=True)
    mask = np.ones([1] * len(term), dtype=bool)
    for i, c in enumerate(term):
        mask = mask & (grids[i] == grids[term.index(c)])
    return b.Mul(b.Reshape(g, shape), mask.astype(dtype_of(x).numpy))


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
