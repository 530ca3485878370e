"""The operators that the seeds, LeNet and MLP are made of."""

import math

import numpy as np

import flow2onnx as flow
from tests.ops.row import FLOATS, INTS, NO_DOUBLE, NUMBERS, Row

# --- references that numpy has no function for ------------------------------------------------


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _log_softmax(x, axis=-1):
    shifted = x - x.max(axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))


def _softmax(x, axis=-1):
    return np.exp(_log_softmax(x, axis))


def _gelu(x):
    return 0.5 * x * (1 + _erf(x / np.sqrt(2)))


def _full(function):
    """A reduction over everything, which has shape (1,)."""
    return lambda x: np.reshape(function(x), (1,))


def _no_nan(x):
    return np.where(x == 0, 0, 1 / np.where(x == 0, 1, x))


def _picked(labels, table):
    """table[..., label] of each sample."""
    labels = labels.reshape(table.shape[:-1])
    return np.take_along_axis(table, labels[..., None].astype(np.int64), -1)[..., 0]


def conv(x, w, strides, before, after, dilations, groups=1):
    """A convolution, channels first, by summing over the taps of the kernel."""
    axes = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0), *zip(before, after, strict=True)])
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    out = [(n - r) // s + 1 for n, r, s in zip(x.shape[2:], reach, strides, strict=True)]
    per_group = x.shape[1] // groups, w.shape[0] // groups
    y = np.zeros((x.shape[0], w.shape[0], *out))
    for g in range(groups):
        xs = x[:, g * per_group[0] : (g + 1) * per_group[0]]
        rows = slice(g * per_group[1], (g + 1) * per_group[1])
        for tap in np.ndindex(*w.shape[2:]):
            where = tuple(
                slice(t * d, t * d + (o - 1) * s + 1, s)
                for t, d, o, s in zip(tap, dilations, out, strides, strict=True)
            )
            letters = "hij"[:axes]
            y[:, rows] += np.einsum(
                f"nc{letters},kc->nk{letters}", xs[(..., *where)], w[(rows, slice(None), *tap)]
            )
    return y


def pool(x, how, kernel, strides, before, after):
    """A pool, channels first; padding takes no part."""
    axes = x.ndim - 2
    pads = [(0, 0), (0, 0), *zip(before, after, strict=True)]
    padded = np.pad(x, pads, constant_values=np.nan)
    out = [(n - k) // s + 1 for n, k, s in zip(padded.shape[2:], kernel, strides, strict=True)]
    y = np.empty((*x.shape[:2], *out))
    for at in np.ndindex(*out):
        window = tuple(slice(i * s, i * s + k) for i, s, k in zip(at, strides, kernel, strict=True))
        y[(..., *at)] = how(padded[(..., *window)], axis=tuple(range(2, 2 + axes)))
    return y


def last(function):
    """A channels-first reference on channels-last blobs."""

    def called(x, *w):
        moved = [np.moveaxis(a, -1, 1) for a in (x, *w)]
        return np.moveaxis(function(*moved), 1, -1)

    return called


# --- the rows ---------------------------------------------------------------------------------

SHAPE = (3, 4)


def _unary(name, ref, **options):
    return Row(name, ref, [SHAPE], **options)


UNARY = [
    _unary("math.abs", np.abs, avoid=(0,), dtypes=NUMBERS),
    _unary("math.acos", np.arccos, low=-0.9, high=0.9, lacks=NO_DOUBLE),
    _unary("math.acosh", np.arccosh, low=1.2, high=4, lacks=NO_DOUBLE),
    _unary("math.asin", np.arcsin, low=-0.9, high=0.9, lacks=NO_DOUBLE),
    _unary("math.asinh", np.arcsinh, lacks=NO_DOUBLE),
    _unary("math.atan", np.arctan, lacks=NO_DOUBLE),
    _unary("math.atanh", np.arctanh, low=-0.9, high=0.9, lacks=NO_DOUBLE),
    _unary("math.ceil", np.ceil, avoid=(-2, -1, 0, 1, 2)),
    _unary("math.cos", np.cos),
    _unary("math.cosh", np.cosh, lacks=NO_DOUBLE),
    _unary("math.erf", _erf, lacks=NO_DOUBLE),
    _unary("math.exp", np.exp),
    _unary("math.expm1", np.expm1, lacks=NO_DOUBLE),
    _unary("math.floor", np.floor, avoid=(-2, -1, 0, 1, 2)),
    _unary("math.gelu", _gelu, lacks=NO_DOUBLE),
    _unary("math.log", np.log, low=0.2),
    _unary("math.log1p", np.log1p, low=-0.8),
    _unary("math.negative", np.negative, dtypes=(*FLOATS, "int32", "int64", "int8")),
    _unary("math.reciprocal", np.reciprocal, low=0.3),
    _unary("math.reciprocal_no_nan", _no_nan, low=0.3),
    _unary("math.relu", lambda x: np.maximum(x, 0), avoid=(0,)),
    _unary("math.round", np.round, avoid=(-1.5, -0.5, 0.5, 1.5)),
    _unary("math.rsqrt", lambda x: x**-0.5, low=0.3),
    _unary("math.sigmoid", _sigmoid),
    _unary("math.sigmoid_v2", _sigmoid),
    _unary("math.sign", np.sign, avoid=(0,), dtypes=NUMBERS),
    _unary("math.sin", np.sin),
    _unary("math.sinh", np.sinh, lacks=NO_DOUBLE),
    _unary("math.softplus", lambda x: np.log1p(np.exp(x)), lacks=NO_DOUBLE),
    _unary("math.sqrt", np.sqrt, low=0.2),
    _unary("math.square", np.square, dtypes=NUMBERS),
    _unary("math.tan", np.tan, low=-1, high=1, lacks=NO_DOUBLE),
    _unary("math.tanh", np.tanh),
    _unary("nn.leaky_relu", lambda x: np.where(x >= 0, x, 0.2 * x), avoid=(0,), lacks=NO_DOUBLE),
    _unary(
        "nn.leaky_relu",
        lambda x: np.where(x >= 0, x, 0.5 * x),
        avoid=(0,),
        args={"alpha": 0.5},
        lacks=NO_DOUBLE,
        note="alpha",
    ),
    _unary(
        "math.clip_by_value",
        lambda x: np.clip(x, -1, 0.5),
        args={"min_value": -1, "max_value": 0.5},
        avoid=(-1, 0.5),
    ),
    _unary(
        "math.clip_by_value",
        lambda x: np.clip(x, -1, 1),
        args={"min_value": -1, "max_value": 1},
        dtypes=("int32", "int64", "int8"),
        grad=(),
        note="int",
    ),
    _unary(
        "math.clip_by_value",
        lambda x: np.maximum(x, 0.5),
        args={"min_value": 0.5},
        avoid=(0.5,),
        note="min",
    ),
    _unary(
        "math.clip_by_value",
        lambda x: np.minimum(x, 0.5),
        args={"max_value": 0.5},
        avoid=(0.5,),
        note="max",
    ),
]


def _binary(name, ref, **options):
    note = options.pop("note", "")
    prefix = f"{note}-" if note else ""
    return [
        Row(name, ref, [SHAPE, SHAPE], note=f"{prefix}same", **options),
        Row(name, ref, [(2, 3, 1), (3, 4)], note=f"{prefix}both-broadcast", **options),
        Row(name, ref, [(2, 3), (1,)], note=f"{prefix}one", **options),
    ]


def _compared(name, ref):
    return _binary(name, ref, dtypes=NUMBERS, result="int8", grad=())


BINARY = [
    *_binary("math.add", np.add, dtypes=NUMBERS),
    *_binary("math.subtract", np.subtract, dtypes=NUMBERS),
    *_binary("math.multiply", np.multiply, dtypes=NUMBERS),
    *_binary("math.divide", np.divide, low=0.5),
    *_binary("math.squared_difference", lambda x, y: (x - y) ** 2, dtypes=(*FLOATS, "int32")),
    *_binary("math.maximum", np.maximum, dtypes=NUMBERS),
    *_binary("math.minimum", np.minimum, dtypes=NUMBERS),
    *_binary("math.mod", np.mod, low=0.7, high=9, grad=()),
    *_binary("math.mod", np.mod, low=1, high=9, grad=(), dtypes=INTS, note="int"),
    *_binary("math.pow", np.power, low=0.5),
    *_compared("math.equal", np.equal),
    *_compared("math.not_equal", np.not_equal),
    *_compared("math.less", np.less),
    *_compared("math.less_equal", np.less_equal),
    *_compared("math.greater", np.greater),
    *_compared("math.greater_equal", np.greater_equal),
    *_compared("math.logical_and", np.logical_and),
    _unary("math.add", lambda x: x + 3, args={"y": 3}, dtypes=NUMBERS, note="number"),
    _unary("math.subtract", lambda x: x - 3, args={"y": 3}, note="number"),
    _unary("math.multiply", lambda x: x * 3, args={"y": 3}, dtypes=NUMBERS, note="number"),
    _unary("math.divide", lambda x: x / 4, args={"y": 4}, note="by-number"),
    _unary("math.divide", lambda x: x * 0, args={"y": 0}, note="by-zero"),
    _unary("math.pow", lambda x: x**3, args={"y": 3}, note="number"),
    _unary("math.pow", lambda x: x**-0.5, args={"y": -0.5}, low=0.5, note="root"),
    _unary("math.less", lambda x: x < 0.5, args={"y": 0.5}, result="int8", grad=(), note="number"),
    Row("math.add_n", lambda *x: sum(x), [SHAPE] * 3, takes_list=True, dtypes=NUMBERS),
    Row("math.add_n", lambda x: x, [SHAPE], takes_list=True, note="one"),
]


def _reduced(name, ref, **options):
    x = [(2, 3, 4)]
    kinds = [
        ("full", {}, _full(ref)),
        ("axis", {"axis": 1}, lambda x: ref(x, axis=1)),
        ("negative", {"axis": -1}, lambda x: ref(x, axis=-1)),
        ("axes", {"axis": [0, -1]}, lambda x: ref(x, axis=(0, 2))),
        ("kept", {"axis": (1,), "keepdims": True}, lambda x: ref(x, axis=1, keepdims=True)),
        ("none", {"axis": []}, lambda x: x),
    ]
    return [Row(name, r, x, args=a, note=n, **options) for n, a, r in kinds]


REDUCE = [
    *_reduced("math.reduce_sum", np.sum, dtypes=(*FLOATS, "int32", "int64")),
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


X = [(2, 3, 4)]


def _cast(to, **options):
    ref = np.trunc if "int" in to else lambda x: x
    return Row("cast", ref, X, args={"dtype": f"flow.{to}"}, result=to, note=to, **options)


ARRAY = [
    Row("identity", lambda x: x, X, dtypes=NUMBERS),
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


def _conv_row(name, shapes, reference, note="", /, **args):
    return Row(name, reference, shapes, args=args, lacks=NO_DOUBLE, note=note)


def _pool_rows(axes):
    first = {2: "NCHW", 3: "NCDHW"}[axes]
    extents = {2: (7, 6), 3: (5, 6, 4)}[axes]
    pairs = [[0, 0], [0, 0], *[[1, 0]] * axes]
    upper = [(-n) % 2 for n in extents]  # what stride 2 and kernel 2 need in total

    def kinds(how):
        ones, twos, threes, none = (1,) * axes, (2,) * axes, (3,) * axes, (0,) * axes
        return [
            ("valid", dict(ksize=2, strides=2, padding="VALID"), (how, twos, twos, none, none)),
            ("lower", dict(ksize=2, strides=2, padding="SAME"), (how, twos, twos, upper, none)),
            (
                "upper",
                dict(ksize=2, strides=2, padding="SAME_UPPER"),
                (how, twos, twos, none, upper),
            ),
            (
                "overlap",
                dict(ksize=threes, strides=1, padding="VALID"),
                (how, threes, ones, none, none),
            ),
            (
                "pairs",
                dict(ksize=twos, strides=None, padding=pairs),
                (how, twos, twos, ones, none),
            ),
        ]

    rows = []
    lacks = {np.nanmax: (), np.nanmean: NO_DOUBLE}
    for name, how in ((f"nn.max_pool{axes}d", np.nanmax), (f"nn.avg_pool{axes}d", np.nanmean)):
        for note, args, (h, k, s, before, after) in kinds(how):

            def ref(x, h=h, k=k, s=s, before=before, after=after):
                return pool(x, h, k, s, before, after)

            rows.append(
                Row(
                    name,
                    ref,
                    [(2, 2, *extents)],
                    args,
                    note=note,
                    distinct=True,
                    lacks=lacks[how],
                )
            )
        rows.append(
            Row(
                name,
                last(
                    lambda x, h=how: pool(x, h, (2,) * axes, (2,) * axes, (0,) * axes, (0,) * axes)
                ),
                [(2, *extents, 2)],
                {"ksize": 2, "strides": 2, "padding": "VALID", "data_format": f"N{first[2:]}C"},
                note="last",
                distinct=True,
                lacks=lacks[how],
            )
        )
        after = [-(n + 1 - 2) % 2 for n in extents]
        rows.append(
            Row(
                name,
                lambda x, h=how, after=after: pool(
                    x, h, (2,) * axes, (2,) * axes, (1,) * axes, after
                ),
                [(2, 2, *extents)],
                {"ksize": 2, "strides": 2, "padding": pairs, "ceil_mode": True},
                note="ceil",
                distinct=True,
                lacks=lacks[how],
            )
        )
    return rows


CONVOLUTION = [
    _conv_row(
        "nn.conv1d",
        [(2, 3, 9), (4, 3, 3)],
        lambda x, w: conv(x, w, (2,), (0,), (0,), (1,)),
        strides=2,
        padding="VALID",
    ),
    _conv_row(
        "nn.conv1d",
        [(2, 9, 3), (4, 3, 3)],
        last(lambda x, w: conv(x, w, (1,), (2,), (2,), (2,))),
        "last",
        strides=1,
        padding="SAME",
        dilations=2,
        data_format="NWC",
    ),
    _conv_row(
        "nn.conv2d",
        [(2, 3, 6, 5), (4, 3, 3, 3)],
        lambda x, w: conv(x, w, (1, 1), (0, 0), (0, 0), (1, 1)),
        strides=1,
        padding="VALID",
    ),
    _conv_row(
        "nn.conv2d",
        [(2, 6, 6, 5), (4, 6, 2, 3)],
        lambda x, w: conv(x, w, (2, 1), (0, 1), (0, 1), (1, 1)),
        "same",
        strides=[2, 1],
        padding="SAME",
    ),
    _conv_row(
        "nn.conv2d",
        [(2, 3, 6, 5), (4, 3, 2, 2)],
        lambda x, w: conv(x, w, (1, 1), (1, 1), (0, 0), (1, 1)),
        "same-lower",
        strides=1,
        padding="SAME_LOWER",
    ),
    _conv_row(
        "nn.conv2d",
        [(2, 3, 6, 5), (4, 3, 2, 2)],
        lambda x, w: conv(x, w, (1, 1), (0, 0), (1, 1), (1, 1)),
        "same-upper",
        strides=1,
        padding="SAME_UPPER",
    ),
    _conv_row(
        "nn.conv2d",
        [(2, 4, 6, 5), (6, 2, 3, 2)],
        lambda x, w: conv(x, w, (1, 2), (1, 0), (2, 3), (2, 1), 2),
        "groups",
        strides=(1, 2),
        padding=[[0, 0], [0, 0], [1, 2], [0, 3]],
        dilations=[2, 1],
        groups=2,
    ),
    _conv_row(
        "nn.conv2d",
        [(2, 6, 5, 3), (4, 3, 3, 3)],
        last(lambda x, w: conv(x, w, (1, 1), (1, 1), (1, 1), (1, 1))),
        "last",
        strides=1,
        padding="SAME",
        data_format="NHWC",
    ),
    _conv_row(
        "nn.conv3d",
        [(2, 2, 4, 5, 3), (3, 2, 2, 3, 1)],
        lambda x, w: conv(x, w, (1, 2, 1), (0, 0, 0), (0, 0, 0), (1, 1, 1)),
        strides=(1, 2, 1),
        padding="VALID",
    ),
    _conv_row(
        "nn.conv3d",
        [(2, 4, 5, 3, 2), (3, 2, 3, 1, 2)],
        last(lambda x, w: conv(x, w, (1, 1, 1), (0, 1, 0), (0, 1, 0), (1, 1, 1))),
        "last",
        strides=1,
        padding=[[0, 0], [0, 0], [1, 1], [0, 0], [0, 0]],
        data_format="NDHWC",
    ),
]


def _biased(x, bias, axis):
    return x + bias.reshape([-1 if i == axis else 1 for i in range(x.ndim)])


NN = [
    Row("nn.bias_add", lambda x, b: _biased(x, b, 1), [(2, 3, 4, 5), (3,)]),
    Row("nn.bias_add", lambda x, b: _biased(x, b, 1), [(2, 3), (3,)], note="matrix"),
    Row(
        "nn.bias_add",
        lambda x, b: _biased(x, b, 3),
        [(2, 3, 4, 5), (5,)],
        args={"data_format": "NHWC"},
        note="last",
    ),
    Row("nn.softmax", _softmax, [(3, 5)]),
    Row("nn.softmax", lambda x: _softmax(x, 1), [(2, 4, 3)], args={"axis": 1}, note="axis"),
    Row("nn.softmax", lambda x: _softmax(x, 0), [(2, 3)], args={"axis": -2}, note="negative"),
    Row("nn.logsoftmax", _log_softmax, [(3, 5)]),
    Row("nn.logsoftmax", lambda x: _log_softmax(x, 1), [(2, 4, 3)], args={"axis": 1}, note="axis"),
    Row("nn.dropout", lambda x: x, [SHAPE], args={"rate": 0.0}, note="no-rate"),
    Row("nn.dropout", lambda x: x, [SHAPE], args={"rate": 0.5}, grad=(), note="predict"),
]

LOSSES = [
    Row(
        "nn.sparse_softmax_cross_entropy_with_logits",
        lambda z, x: -_picked(z, _log_softmax(x)),
        [(6,), (6, 4)],
        ints={0: 4},
    ),
    Row(
        "nn.sparse_softmax_cross_entropy_with_logits",
        lambda z, x: -_picked(z, _log_softmax(x)),
        [(2, 3, 1), (2, 3, 4)],
        ints={0: 4},
        int_dtype="int8",
        note="column",
    ),
    Row(
        "nn.softmax_cross_entropy_with_logits",
        lambda z, x: -(z * _log_softmax(x)).sum(-1),
        [(2, 3, 4), (2, 3, 4)],
        low=0,
        high=1,
        grad=(1,),
    ),
    Row(
        "nn.sigmoid_cross_entropy_with_logits",
        lambda z, x: np.log1p(np.exp(x)) - x * z,
        [SHAPE, SHAPE],
        avoid=(0,),
        grad=(1,),
    ),
    Row(
        "nn.sparse_cross_entropy",
        lambda z, p: -np.log(_picked(z, p)),
        [(5,), (5, 3)],
        ints={0: 3},
        int_dtype="int64",
        low=0.2,
        high=1,
    ),
]


def _layer(layer, x, reference, owns, note="", /, **args):
    return Row(layer, reference, [x], args=args, dtypes=("float32",), owns=owns, note=note)


LAYERS = [
    _layer(
        "layers.dense",
        (3, 4),
        lambda x, w, b: x @ w.T + b,
        {"Dense-weight": (5, 4), "Dense-bias": (5,)},
        units=5,
    ),
    _layer(
        "layers.dense",
        (2, 3, 4),
        lambda x, w: np.tanh(x @ w.T),
        {"fc-weight": (5, 4)},
        "rank-3",
        units=5,
        use_bias=False,
        name="fc",
        activation=lambda x, name: flow.math.tanh(x, name=name),
    ),
    _layer(
        "layers.conv1d",
        (2, 3, 7),
        lambda x, w, b: _biased(conv(x, w, (1,), (1,), (1,), (1,)), b, 1),
        {"Conv1d-weight": (4, 3, 3), "Conv1d-bias": (4,)},
        filters=4,
        kernel_size=3,
        padding="SAME",
    ),
    _layer(
        "layers.conv2d",
        (2, 4, 6, 5),
        lambda x, w, b: _biased(conv(x, w, (2, 2), (0, 0), (0, 0), (1, 1), 2), b, 1),
        {"Conv2d-weight": (6, 2, 3, 3), "Conv2d-bias": (6,)},
        filters=6,
        kernel_size=3,
        strides=2,
        groups=2,
    ),
    _layer(
        "layers.conv2d",
        (2, 6, 5, 3),
        lambda x, w, b: _biased(
            last(lambda x, w: conv(x, w, (1, 1), (0, 0), (0, 0), (2, 1)))(x, w), b, 3
        ),
        {"kernels": (4, 3, 2, 3), "offsets": (4,)},
        "last",
        filters=4,
        kernel_size=(3, 2),
        dilation_rate=(2, 1),
        data_format="NHWC",
        weight_name="kernels",
        bias_name="offsets",
    ),
    _layer(
        "layers.conv3d",
        (1, 2, 4, 3, 5),
        lambda x, w: conv(x, w, (1, 1, 1), (0, 0, 0), (0, 0, 0), (1, 1, 1)),
        {"Conv3d-weight": (3, 2, 2, 2, 2)},
        filters=3,
        kernel_size=2,
        use_bias=False,
    ),
]

ROWS = [
    *UNARY,
    *BINARY,
    *REDUCE,
    *ARRAY,
    *INDEXING,
    *CONVOLUTION,
    *_pool_rows(2),
    *_pool_rows(3),
    *NN,
    *LOSSES,
    *LAYERS,
]
