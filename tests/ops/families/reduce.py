"""Reductions."""

import numpy as np

from tests.ops.reference import full
from tests.ops.row import NUMBERS, Row


def _reduced(name, ref, **options):
    x = [(2, 3, 4)]
    kinds = [
        ("full", {}, full(ref)),
        ("axis", {"axis": 1}, lambda x: ref(x, axis=1)),
        ("negative", {"axis": -1}, lambda x: ref(x, axis=-1)),
        ("axes", {"axis": [0, -1]}, lambda x: ref(x, axis=(0, 2))),
        ("kept", {"axis": (1,), "keepdims": True}, lambda x: ref(x, axis=1, keepdims=True)),
        ("none", {"axis": []}, lambda x: x),
    ]
    return [Row(name, r, x, args=a, note=n, **options) for n, a, r in kinds]


REDUCE = [
    *_reduced("math.reduce_sum", np.sum, dtypes=NUMBERS),
    *_reduced("math.reduce_mean", np.mean),
    *_reduced("math.reduce_max", np.max, distinct=True, dtypes=NUMBERS),
    *_reduced("math.reduce_min", np.min, distinct=True, dtypes=NUMBERS),
    *_reduced("math.reduce_variance", np.var)[:-1],
    Row(
        "math.reduce_variance",
        np.zeros_like,
        [(2, 3)],
        args={"axis": []},
        note="none",
    ),
    Row("math.argmax", lambda x: x.argmax(-1), [(3, 5)], grad=(), dtypes=NUMBERS, result="int32"),
    Row("math.argmax", lambda x: x.argmax(-1)[None], [(5,)], grad=(), result="int32", note="one"),
    Row(
        "math.argmax",
        lambda x: x.argmax(1),
        [(2, 4, 3)],
        args={"axis": 1},
        result="int32",
        grad=(),
        note="axis",
    ),
]


ROWS = [*REDUCE]
