"""Gathers and scatters."""

import numpy as np

from tests.autodiff.cases.case import ADDING, NO_DOUBLE, Case, moved

X = [(2, 3, 4)]


def _indices(*content):
    return np.asarray(content, np.int64)


def _narrow(*content):
    return np.asarray(content, np.int32)


INDEXING = [
    moved("Gather", "", X, lambda b, x: b.Gather(x, _indices(1, 0, 1))),
    moved("Gather", "axis", X, lambda b, x: b.Gather(x, _narrow(2, 2), axis=1)),
    moved("Gather", "matrix", X, lambda b, x: b.Gather(x, _indices([0, 3], [3, 1]), axis=2)),
    moved("Gather", "middle", X, lambda b, x: b.Gather(x, _indices([0], [2]), axis=1)),
    moved("Gather", "negative", X, lambda b, x: b.Gather(x, _indices(-1, 3, 0), axis=-1)),
    moved("Gather", "scalar", X, lambda b, x: b.Gather(x, np.asarray(1), axis=1)),
    moved("Gather", "vector", [(5,)], lambda b, x: b.Gather(x, _indices(4, 4, -5))),
    Case(
        "OneHot",
        lambda b, x: b.OneHot(_indices(2, 0, 9, -1), _indices(3), x),
        [(2,)],
        step=0.5,
        lacks=NO_DOUBLE,
    ),
    Case(
        "OneHot",
        lambda b, x: b.OneHot(_indices([2, 0], [1, 1]), _indices(3), x, axis=1),
        [(2,)],
        "axis",
        step=0.5,
        lacks=NO_DOUBLE,
    ),
    moved("GatherND", "", X, lambda b, x: b.GatherND(x, _indices([0, 1], [1, 2], [0, 1]))),
    moved("GatherND", "element", X, lambda b, x: b.GatherND(x, _indices([0, 1, 3], [1, -1, 0]))),
    moved("GatherND", "rows", X, lambda b, x: b.GatherND(x, _indices([[1], [0]], [[1], [1]]))),
    moved("GatherND", "batch", X, lambda b, x: b.GatherND(x, _indices([2], [0]), batch_dims=1)),
    moved(
        "GatherND",
        "batch-many",
        X,
        lambda b, x: b.GatherND(x, _indices([[2], [2]], [[0], [1]]), batch_dims=1),
    ),
    moved(
        "GatherND",
        "batch-two",
        X,
        lambda b, x: b.GatherND(x, np.arange(6).reshape(2, 3, 1) % 4, batch_dims=2),
    ),
    moved("GatherElements", "", X, lambda b, x: b.GatherElements(x, np.zeros((1, 2, 4), int))),
    moved(
        "GatherElements",
        "axis",
        [(3, 4)],
        lambda b, x: b.GatherElements(x, _indices([3, 3, -1], [0, 1, 0], [2, -4, 2]), axis=1),
    ),
    moved(
        "GatherElements",
        "narrow",
        [(3, 4)],
        lambda b, x: b.GatherElements(x, _narrow([2], [1], [1]), axis=-1),
    ),
    moved(
        "ScatterElements",
        "",
        [(3, 4), (3, 2)],
        lambda b, x, u: b.ScatterElements(x, _indices([0, 3], [1, -4], [2, 0]), u, axis=1),
    ),
    Case(
        "ScatterElements",
        lambda b, x, u: b.ScatterElements(x, _narrow([0, 0], [1, 0]), u, axis=0, reduction="add"),
        [(3, 4), (2, 2)],
        "add",
        step=0.5,
        dtypes=ADDING,
    ),
    moved(
        "ScatterND",
        "",
        [(4, 3), (2, 3)],
        lambda b, x, u: b.ScatterND(x, _indices([3], [1]), u),
    ),
    moved(
        "ScatterND",
        "elements",
        [(4, 3), (2, 2)],
        lambda b, x, u: b.ScatterND(x, _indices([[3, 0], [1, 1]], [[0, 2], [-2, -1]]), u),
    ),
    Case(
        "ScatterND",
        lambda b, x, u: b.ScatterND(x, _indices([3], [3], [0]), u, reduction="add"),
        [(4, 3), (3, 3)],
        "add",
        step=0.5,
        dtypes=ADDING,
    ),
]
