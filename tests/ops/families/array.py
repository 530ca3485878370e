"""Tensors as arrays: constants, casts, shapes, joining, products."""

import numpy as np

from tests.ops.row import NUMBERS, Row

SHAPE = (3, 4)
X = [(2, 3, 4)]


def _cast(to, **options):
    ref = np.trunc if "int" in to else lambda x: x
    return Row("cast", ref, X, args={"dtype": f"flow.{to}"}, result=to, note=to, **options)


ARRAY = [
    Row("identity", lambda x: x, X, dtypes=NUMBERS),
    Row("cast_to_static_shape", lambda x: x, X, dtypes=NUMBERS),
    Row("amp_white_identity", lambda x: x, X),
    Row("parallel_cast", lambda x: x, X, dtypes=NUMBERS),
    Row("hierarchical_parallel_cast", lambda x: x, X, args={"parallel_distribution": ["B"]}),
    Row("identity_n", lambda *x: list(x), [SHAPE, (2,)], takes_list=True, dtypes=NUMBERS),
    *(_cast("float64", dtypes=NUMBERS), _cast("float16"), _cast("float32")),
    *(_cast("int32", grad=()), _cast("int8", grad=()), _cast("uint8", grad=(), low=0)),
    Row(
        "constant",
        lambda: np.full((2, 3), 1.5),
        [],
        dtypes=("float32",),
        args={"value": 1.5, "dtype": "flow.float32", "shape": (2, 3)},
    ),
    Row(
        "constant",
        lambda: np.full((1,), 7),
        [],
        dtypes=("int64",),
        args={"value": 7, "dtype": "flow.int64"},
        note="no-shape",
    ),
    Row(
        "constant_scalar",
        lambda: np.full((1,), 3.0),
        [],
        dtypes=("float16",),
        args={"value": 3, "dtype": "flow.float16"},
    ),
    Row(
        "constant_like", lambda x: np.full_like(x, 2), X, args={"value": 2}, dtypes=NUMBERS, grad=()
    ),
    Row(
        "constant_like",
        lambda x: np.full(x.shape, 2),
        X,
        result="int8",
        args={"value": 2, "dtype": "flow.int8"},
        grad=(),
        note="dtype",
    ),
    Row("ones_like", np.ones_like, X, dtypes=NUMBERS, grad=()),
    Row("zeros_like", np.zeros_like, X, dtypes=NUMBERS, grad=()),
    Row("ones", lambda: np.ones((2, 3)), [], args={"shape": (2, 3)}, dtypes=("float32",)),
    Row(
        "zeros",
        lambda: np.zeros((2,)),
        [],
        args={"shape": [2], "dtype": "flow.int32"},
        dtypes=("int32",),
    ),
    Row("reshape", lambda x: x.reshape(4, 6), X, args={"shape": (4, -1)}, dtypes=NUMBERS),
    Row("reshape_like", lambda x, y: x.reshape(6, 4), [(2, 3, 4), (6, 4)], grad=(0,)),
    Row("flatten", np.ravel, X, dtypes=NUMBERS),
    Row("flatten", lambda x: x.reshape(6, 4), X, args={"end_dim": 1}, note="leading"),
    Row("flatten", lambda x: x.reshape(2, 12), X, args={"start_dim": -2}, note="negative"),
    Row("transpose", lambda x: x.transpose(2, 0, 1), X, args={"perm": (2, 0, 1)}, dtypes=NUMBERS),
    Row("transpose", lambda x: x.transpose(0, 2, 1), X, args={"perm": [0, -1, 1]}, note="negative"),
    Row("expand_dims", lambda x: x[None], X, args={"axis": 0}, dtypes=NUMBERS),
    Row("expand_dims", lambda x: x[..., None], X, args={"axis": -1}, note="negative"),
    Row("squeeze", np.squeeze, [(1, 3, 1, 2)], dtypes=NUMBERS),
    Row("squeeze", lambda x: x.squeeze(-2), [(1, 3, 1, 2)], args={"axis": [-2]}, note="axis"),
    Row("squeeze", lambda x: x, [(3, 2)], note="nothing"),
    Row("squeeze", np.ravel, [(1, 1)], note="one-left"),
    Row(
        "concat",
        lambda *x: np.concatenate(x),
        [(2, 3), (1, 3), (4, 3)],
        takes_list=True,
        dtypes=NUMBERS,
    ),
    Row(
        "concat",
        lambda *x: np.concatenate(x, -1),
        [(2, 3), (2, 1)],
        args={"axis": -1},
        takes_list=True,
        note="negative",
    ),
    Row("concat", lambda x: x, [(2, 3)], takes_list=True, note="one"),
    Row("stack", lambda *x: np.stack(x), [SHAPE, SHAPE], takes_list=True, dtypes=NUMBERS),
    Row(
        "stack",
        lambda *x: np.stack(x, -1),
        [SHAPE, SHAPE],
        args={"axis": -1},
        takes_list=True,
        note="negative",
    ),
    Row(
        "stack",
        lambda *x: np.stack(x, -2),
        [(2, 3, 4)] * 2,
        args={"axis": -2},
        takes_list=True,
        note="inner",
    ),
    Row("matmul", np.matmul, [(3, 4), (4, 2)]),
    Row(
        "matmul",
        lambda a, b: 0.5 * a.T @ b.T,
        [(4, 3), (2, 4)],
        args={"transpose_a": True, "transpose_b": True, "alpha": 0.5},
        note="transposed",
    ),
    Row("matmul", np.matmul, [(2, 5, 3, 4), (2, 5, 4, 2)], note="batch"),
    Row(
        "matmul",
        lambda a, b: 2 * a.swapaxes(-1, -2) @ b.swapaxes(-1, -2),
        [(5, 4, 3), (5, 2, 4)],
        args={"transpose_a": True, "transpose_b": True, "alpha": 2.0},
        note="batch-transposed",
    ),
    Row(
        "matmul",
        lambda a, b: a @ b.T,
        [(5, 3, 4), (2, 4)],
        args={"transpose_b": True},
        note="broadcast",
    ),
]


ROWS = [*ARRAY]
