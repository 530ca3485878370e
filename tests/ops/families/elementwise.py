"""One operand or two, element by element."""

import numpy as np

from tests.ops.reference import erf, gelu, no_nan, sigmoid
from tests.ops.row import FLOATS, INTS, NO_DOUBLE, NUMBERS, Row

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
    _unary("math.erf", erf, lacks=NO_DOUBLE),
    _unary("math.exp", np.exp),
    _unary("math.expm1", np.expm1, lacks=NO_DOUBLE),
    _unary("math.floor", np.floor, avoid=(-2, -1, 0, 1, 2)),
    _unary("math.gelu", gelu, lacks=NO_DOUBLE),
    _unary("math.log", np.log, low=0.2),
    _unary("math.log1p", np.log1p, low=-0.8),
    _unary("math.negative", np.negative, dtypes=(*FLOATS, "int32", "int64", "int8")),
    _unary("math.reciprocal", np.reciprocal, low=0.3),
    _unary("math.reciprocal_no_nan", no_nan, low=0.3),
    _unary("math.relu", lambda x: np.maximum(x, 0), avoid=(0,)),
    _unary("math.round", np.round, avoid=(-1.5, -0.5, 0.5, 1.5)),
    _unary("math.rsqrt", lambda x: x**-0.5, low=0.3),
    _unary("math.sigmoid", sigmoid),
    _unary("math.sigmoid_v2", sigmoid),
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


ROWS = [*UNARY, *BINARY]
