"""Slices, gathers, selections."""

import numpy as np

from tests.ops.row import NUMBERS, Row

SHAPE = (3, 4)


def _index(x, *items):
    return x[items]


INDEXING = [
    Row(
        "slice",
        lambda x: x[:, 1:3, 2:],
        [(2, 4, 5)],
        args={"begin": [None, 1, -3], "size": [None, 2, -1]},
        dtypes=NUMBERS,
    ),
    Row(
        "slice_v2",
        lambda x: x[1:, ::-1, 4:0:-2],
        [(2, 4, 5)],
        args={"slice_tup_list": [(1, None, None), (None, None, -1), (4, 0, -2)]},
        dtypes=NUMBERS,
    ),
    Row(
        "slice_v2",
        lambda x: x[:, 1:4:2],
        [(2, 4, 5)],
        args={"slice_tup_list": [(None, None, None), (1, 4, 2)]},
        note="leading",
    ),
    Row(
        "slice_v2",
        lambda x: x[-2:-1, :-1],
        [(3, 4)],
        args={"slice_tup_list": [(-2, -1, 1), (None, -1, None)]},
        note="negative",
    ),
    Row("gather", lambda x, i: x[i], [(4, 3), (2, 2)], ints={1: 4}, dtypes=NUMBERS),
    Row(
        "gather",
        lambda x, i: x[:, i],
        [(2, 4, 3), (5,)],
        args={"axis": 1},
        ints={1: 4},
        int_dtype="int64",
        note="axis",
    ),
    Row(
        "gather",
        lambda x, i: x[..., i],
        [(2, 4, 3), (5, 2)],
        args={"axis": -1},
        ints={1: 3},
        int_dtype="int8",
        note="negative",
    ),
    Row(
        "gather",
        lambda x, i: np.stack([a[j] for a, j in zip(x, i, strict=True)]),
        [(3, 4, 2), (3, 5)],
        args={"batch_dims": 1},
        ints={1: 4},
        note="batch",
    ),
    Row(
        "one_hot",
        lambda i: np.eye(5)[i],
        [(2, 3)],
        args={"depth": 5},
        dtypes=("float32",),
        ints={0: 5},
        grad=(),
    ),
    Row(
        "one_hot",
        lambda i: np.moveaxis(np.where(np.eye(4)[i] == 1, 3, -1), -1, 1),
        [(2, 3)],
        dtypes=("int32",),
        args={"depth": 4, "on_value": 3, "off_value": -1, "axis": 1, "dtype": "flow.int32"},
        ints={0: 4},
        int_dtype="int64",
        grad=(),
        note="axis",
    ),
    Row(
        "one_hot",
        lambda i: np.moveaxis(np.eye(4)[i], -1, 0),
        [(2, 3)],
        dtypes=("float64",),
        args={"depth": 4, "axis": -3, "dtype": "flow.float64"},
        ints={0: 4},
        int_dtype="int8",
        grad=(),
        note="front",
    ),
    Row(
        "where",
        np.where,
        [(3, 1), (2, 3, 4), (4,)],
        ints={0: 2},
        int_dtype="int8",
        dtypes=NUMBERS,
    ),
    Row("where", np.where, [SHAPE, SHAPE, SHAPE], ints={0: 2}, note="same"),
]


ROWS = [*INDEXING]
