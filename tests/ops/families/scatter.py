"""Coordinates: reading and writing what they point to, and sums of segments."""

import numpy as np

from tests.ops.row import FLOATS, NUMBERS, Row

ADDED = (*FLOATS, "int32", "int64")


def _at(indices):
    return tuple(np.moveaxis(indices.astype(np.int64), -1, 0))


def _added(base, indices, updates):
    y = np.array(base)
    np.add.at(y, _at(indices), updates)
    return y


def _fixed(base, updates):
    y = base.copy()
    y[[3, 0, 1]] = updates
    return y


def _segments(data, ids, count, axis=0):
    rows = np.moveaxis(data, range(axis, axis + ids.ndim), range(ids.ndim))
    total = np.zeros((count, *rows.shape[ids.ndim :]), data.dtype)
    for at in np.ndindex(*ids.shape):
        if 0 <= ids[at] < count:
            total[ids[at]] += rows[at]
    return np.moveaxis(total, 0, axis)


def _batch_segments(data, ids, count):
    lead = ids.shape[:-1]
    total = np.zeros((*lead, count, *data.shape[ids.ndim :]), data.dtype)
    for at in np.ndindex(*lead):
        total[at] = _segments(data[at], ids[at], count)
    return total


def _updated(*slices):
    def ref(x, update):
        y = x.copy()
        y[slices] = update
        return y

    return ref


ROWS = [
    Row("gather_nd", lambda p, i: p[_at(i)], [(3, 4), (2, 5, 2)], ints={1: 3}, dtypes=NUMBERS),
    Row(
        "gather_nd",
        lambda p, i: p[_at(i)],
        [(3, 4, 2), (4, 1)],
        ints={1: 3},
        int_dtype="int64",
        note="slices",
    ),
    Row("gather_nd", lambda p, i: p[_at(i)][None], [(3, 4), (2,)], ints={1: 3}, note="one"),
    Row(
        "scatter_nd",
        lambda i, u: _added(np.zeros((5, 2), u.dtype), i, u),
        [(6, 1), (6, 2)],
        args={"shape": (5, 2)},
        ints={0: 5},
        dtypes=ADDED,
    ),
    Row(
        "scatter_nd",
        lambda i, u: _added(np.zeros((3, 4)), i, u),
        [(2, 3, 2), (2, 3)],
        args={"shape": [3, 4]},
        ints={0: 3},
        int_dtype="int64",
        note="elements",
    ),
    Row(
        "tensor_scatter_nd_add",
        _added,
        [(5, 2), (6, 1), (6, 2)],
        ints={1: 5},
        dtypes=ADDED,
    ),
    Row(
        "slice_update",
        _updated(slice(None), slice(1, 3)),
        [(2, 4, 3), (2, 2, 3)],
        args={"slice_tup_list": [(None, None, None), (1, 3, None)]},
        dtypes=NUMBERS,
    ),
    Row(
        "slice_update",
        _updated(slice(None, None, -2), slice(None), slice(-1, None)),
        [(4, 2, 3), (2, 2, 1)],
        args={"slice_tup_list": [(None, None, -2), (None, None, None), (-1, None, 1)]},
        note="back",
    ),
    Row(
        "slice_update",
        lambda x, u: u,
        [(4, 2), (4, 2)],
        args={"slice_tup_list": [(None, None, None)]},
        grad=(1,),
        note="all",
    ),
    Row(
        "tensor_scatter_nd_update",
        lambda p, i, u: np.where(np.arange(5)[:, None] == i, u, p),
        [(5, 2), (1, 1), (1, 2)],
        ints={1: 5},
        dtypes=NUMBERS,
    ),
    Row(
        "dim_gather",
        lambda x, i: np.take_along_axis(x, i.astype(np.int64), 0),
        [(3, 4), (2, 4)],
        ints={1: 3},
        dtypes=NUMBERS,
        how=lambda f, x, i: f(x, 0, i),
    ),
    Row(
        "dim_gather",
        lambda x, i: np.take_along_axis(x, i.astype(np.int64), -1),
        [(2, 3, 4), (2, 3, 6)],
        ints={1: 4},
        int_dtype="int64",
        how=lambda f, x, i: f(x, -1, i),
        note="negative",
    ),
    Row(
        "masked_fill",
        lambda x, m: np.where(m, 7, x),
        [(2, 3), (2, 3)],
        {"value": 7},
        ints={1: 2},
        int_dtype="int8",
        dtypes=NUMBERS,
    ),
    Row(
        "masked_fill",
        lambda x, m: np.where(m, -0.5, x),
        [(2, 3), (3,)],
        {"value": -0.5},
        ints={1: 2},
        note="broadcast",
    ),
    Row(
        "nonzero",
        lambda x: np.stack(np.nonzero(x)),
        [(3, 4)],
        ints={0: 2},
        dtypes=("float32",),
        result="int32",
        grad=(),
    ),
    Row(
        "argwhere",
        np.argwhere,
        [(3, 4)],
        low=-1,
        high=1,
        dtypes=NUMBERS,
        result="int32",
        grad=(),
    ),
    Row(
        "argwhere",
        np.argwhere,
        [(2, 3, 2)],
        args={"dtype": "flow.int64"},
        ints={0: 2},
        int_dtype="int8",
        dtypes=("float32",),
        result="int64",
        grad=(),
        note="long",
    ),
    Row("where", np.argwhere, [(3, 4)], ints={0: 2}, dtypes=("int32",), grad=(), note="alone"),
    Row("diag", np.diag, [(4,)], dtypes=NUMBERS),
    Row("diag", lambda x: np.diag(x, -2), [(3,)], args={"diagonal": -2}, note="below"),
    Row("diag", np.diag, [(3, 5)], dtypes=NUMBERS, note="of"),
    Row("diag", lambda x: np.diag(x, 2), [(3, 4)], args={"diagonal": 2}, note="of-above"),
    Row("diag", lambda x: np.diag(x, -1), [(3, 4)], args={"diagonal": -1}, note="of-below"),
    Row(
        "math.unsorted_segment_sum",
        lambda d, s: _segments(d, s, 3),
        [(6, 2), (6,)],
        args={"num_segments": 3},
        ints={1: 4},
        dtypes=ADDED,
    ),
    Row(
        "math.unsorted_segment_sum",
        lambda d, s: _segments(d, s, 4, 1),
        [(2, 5, 3), (5,)],
        args={"num_segments": 4, "axis": -2},
        ints={1: 4},
        int_dtype="int64",
        note="axis",
    ),
    Row(
        "math.unsorted_segment_sum",
        lambda d, s: _segments(d, s, 3, 1),
        [(2, 4, 5, 3), (4, 5)],
        args={"num_segments": 3, "axis": 1},
        ints={1: 3},
        note="axes",
    ),
    Row(
        "math.unsorted_segment_sum_like",
        lambda d, s, like: _segments(d, s, 3),
        [(6, 2), (6,), (3, 2)],
        ints={1: 3},
        grad=(0,),
    ),
    Row(
        "math.unsorted_batch_segment_sum",
        lambda d, s: _batch_segments(d, s, 3),
        [(2, 5), (2, 5)],
        args={"num_segments": 3},
        ints={1: 4},
    ),
    Row(
        "math.unsorted_batch_segment_sum",
        lambda d, s: _batch_segments(d, s, 2),
        [(2, 3, 4, 2), (2, 3, 4)],
        args={"num_segments": 2},
        ints={1: 2},
        int_dtype="int64",
        note="deep",
    ),
    Row(
        "experimental.logical_slice",
        lambda x: x[1:, ::2],
        [(3, 5, 2)],
        args={"slice_tup_list": [(1, None, None), (None, None, 2)]},
        dtypes=NUMBERS,
    ),
]
