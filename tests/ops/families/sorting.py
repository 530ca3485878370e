"""Orders, counts and what is unique."""

import numpy as np

from tests.ops.row import FLOATS, NUMBERS, Row

X = [(2, 5, 3)]
SORTED = (*FLOATS, "int32", "int64", "int8", "uint8")


def _in_top(targets, predictions, k):
    picked = np.take_along_axis(predictions, targets[:, None].astype(np.int64), 1)
    return (predictions > picked).sum(1) < k


def _unique(x):
    values, first, places, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.argsort(first)
    y, count = np.zeros(x.size, x.dtype), np.zeros(x.size)
    y[: len(order)], count[: len(order)] = values[order], counts[order]
    return [y, np.argsort(order)[places], count, np.asarray([len(order)])]


ROWS = [
    Row("sort", lambda x: np.sort(x, -1), X, dtypes=SORTED, grad=()),
    Row(
        "sort",
        lambda x: -np.sort(-x, 1),
        X,
        args={"axis": -2, "direction": "DESCENDING"},
        grad=(),
        note="descending",
    ),
    Row("sort", lambda x: x, [(3, 1)], grad=(), note="one"),
    Row(
        "argsort",
        lambda x: np.argsort(x, -1, kind="stable"),
        X,
        dtypes=SORTED,
        result="int32",
        grad=(),
    ),
    Row(
        "argsort",
        lambda x: np.argsort(-x, 0, kind="stable"),
        X,
        args={"axis": 0, "direction": "DESCENDING"},
        dtypes=(*FLOATS, "int32"),
        result="int32",
        grad=(),
        note="descending",
    ),
    Row(
        "math.top_k",
        lambda x: np.argsort(-x, -1, kind="stable")[..., :1],
        X,
        dtypes=(*FLOATS, "int32", "int64", "int8"),
        result="int32",
        grad=(),
    ),
    Row(
        "math.top_k",
        lambda x: np.argsort(-x, 1, kind="stable")[:, :3],
        X,
        args={"axis": 1, "k": 3},
        result="int32",
        grad=(),
        note="axis",
    ),
    Row(
        "math.top_k",
        lambda x: np.argsort(-x, -1, kind="stable"),
        X,
        args={"axis": -1, "k": 9},
        result="int32",
        grad=(),
        note="more",
    ),
    Row(
        "math.in_top_k",
        lambda t, p: _in_top(t, p, 2),
        [(6,), (6, 5)],
        args={"k": 2},
        ints={0: 5},
        result="int8",
        grad=(),
    ),
    Row(
        "math.in_top_k",
        lambda t, p: _in_top(t, p, 1),
        [(4,), (4, 3)],
        args={"k": 1},
        ints={0: 3},
        int_dtype="int64",
        result="int8",
        grad=(),
        note="first",
    ),
    Row(
        "count_not_finite",
        lambda x: np.asarray([0]),
        [(3, 4)],
        result="int64",
        grad=(),
    ),
    Row(
        "multi_count_not_finite",
        lambda x, y: np.asarray([0]),
        [(3, 4), (2,)],
        takes_list=True,
        result="int64",
        grad=(),
    ),
    Row(
        "elem_cnt",
        lambda x: np.asarray([24]),
        [(2, 3, 4)],
        dtypes=(*NUMBERS,),
        result="int32",
        grad=(),
    ),
    Row(
        "elem_cnt",
        lambda x: np.asarray([6]),
        [(2, 3)],
        args={"dtype": "flow.int64"},
        result="int64",
        grad=(),
        note="dtype",
    ),
    Row(
        "math.reduced_shape_elem_cnt",
        lambda x: np.asarray([24]),
        [(2, 3, 4)],
        result="int32",
        grad=(),
    ),
    Row(
        "math.reduced_shape_elem_cnt",
        lambda x: np.asarray([8]),
        [(2, 3, 4)],
        args={"axis": [0, -1], "dtype": "flow.float32"},
        result="float32",
        grad=(),
        note="axes",
    ),
    Row(
        "experimental.unique_with_counts",
        _unique,
        [(9,)],
        ints={0: 4},
        dtypes=("int32",),
        grad=(),
    ),
    Row(
        "experimental.unique_with_counts",
        _unique,
        [(7,)],
        args={"out_idx": "flow.int64"},
        ints={0: 4},
        int_dtype="int64",
        dtypes=("int64",),
        grad=(),
        note="long",
    ),
]
