"""One case or more for each gradient rule: a node, and the inputs it is differentiated at."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from flow2onnx.dtypes import bool_, float32, float64

NO_DOUBLE = ("float64",)
# the runtime opens a scatter that adds half precision numbers, and then refuses to run it
ADDING = ("float64", "float32")


@dataclass(frozen=True)
class Case:
    """`make(b, *inputs)` appends the node, and what it needs, and returns its outputs.

    Inputs are drawn from [low, high], none nearer than 0.05 to those in `avoid`; with `distinct`
    no two are nearer than 0.1 to each other. `step` is how far the difference quotient of single
    precision goes: long where the function is linear or quadratic. `lacks` are the element types
    in which the runtime has no kernel for the node or for its gradient. `branches` are the
    functions of the rule that have to be taken.
    """

    op_type: str
    make: Callable[..., Any]
    shapes: list[tuple[int, ...]]
    note: str = ""
    low: float = -2.0
    high: float = 2.0
    avoid: tuple[float, ...] = ()
    distinct: bool = False
    step: float = 0.01
    dtypes: tuple[str, ...] = ("float64", "float32", "float16")
    lacks: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()

    @property
    def id(self):
        return f"{self.op_type}-{self.note}" if self.note else self.op_type

    def draw(self, rng, dtype):
        """One array for each shape."""
        return [self._numbers(rng, shape).astype(dtype) for shape in self.shapes]

    def _numbers(self, rng, shape):
        size = int(np.prod(shape))
        if self.distinct:
            return ((rng.permutation(size) - size / 2) * 0.125).reshape(shape)
        x = rng.uniform(self.low, self.high, shape)
        for value in self.avoid:
            near = np.abs(x - value) < 0.05
            x = np.where(near, value + np.where(x < value, -0.1, 0.1), x)
        return np.asarray(x)


def _plain(op_type, shapes, note="", *, attrs=None, outputs=0, **options):
    """A case that is the node on its inputs."""

    def make(b, *inputs):
        made = b.emit(op_type, inputs, attrs or {}, outputs)
        return made if len(made) > 1 else made[0]

    return Case(op_type, make, shapes, note, **options)


S = (3, 4)

UNARY = [
    _plain("Identity", [S], step=0.5),
    _plain("Neg", [S], step=0.5),
    _plain("Abs", [S], avoid=(0,)),
    _plain("Acos", [S], low=-0.8, high=0.8, lacks=NO_DOUBLE),
    _plain("Acosh", [S], low=1.4, high=4, lacks=NO_DOUBLE),
    _plain("Asin", [S], low=-0.8, high=0.8, lacks=NO_DOUBLE),
    _plain("Asinh", [S], lacks=NO_DOUBLE),
    _plain("Atan", [S], lacks=NO_DOUBLE),
    _plain("Atanh", [S], low=-0.8, high=0.8, lacks=NO_DOUBLE),
    _plain("Ceil", [S], avoid=(-2, -1, 0, 1, 2)),
    _plain("Cos", [S]),
    _plain("Cosh", [S], lacks=NO_DOUBLE),
    _plain("Erf", [S], lacks=NO_DOUBLE),
    _plain("Exp", [S]),
    _plain("Floor", [S], avoid=(-2, -1, 0, 1, 2)),
    _plain("Log", [S], low=0.3),
    _plain("Reciprocal", [S], low=0.4),
    _plain("Relu", [S], avoid=(0,)),
    _plain("LeakyRelu", [S], avoid=(0,), lacks=NO_DOUBLE),
    _plain("LeakyRelu", [S], "alpha", attrs={"alpha": 0.3}, avoid=(0,), lacks=NO_DOUBLE),
    _plain("Round", [S], avoid=(-1.5, -0.5, 0.5, 1.5)),
    _plain("Sigmoid", [S]),
    _plain("Sign", [S], avoid=(0,)),
    _plain("Sin", [S]),
    _plain("Sinh", [S], lacks=NO_DOUBLE),
    _plain("Softplus", [S], lacks=NO_DOUBLE),
    _plain("Sqrt", [S], low=0.3),
    _plain("Tan", [S], low=-1, high=1, lacks=NO_DOUBLE),
    _plain("Tanh", [S]),
    Case("Cast", lambda b, x: b.Cast(x, to=float64), [S], "double", step=0.5),
    Case("Cast", lambda b, x: b.Cast(x, to=float32), [S], "single", step=0.5),
    Case("Clip", lambda b, x: b.Clip(x, -1.0, 0.5), [S], avoid=(-1, 0.5)),
    Case("Clip", lambda b, x: b.Clip(x, None, 0.5), [S], "max", avoid=(0.5,)),
    Case("Clip", lambda b, x: b.Clip(x, -0.5), [S], "min", avoid=(-0.5,)),
    Case("Clip", lambda b, x: b.Clip(x), [S], "open", step=0.5),
    Case("Dropout", lambda b, x: b.Dropout(x, 0.5), [S], "inference", step=0.5),
    Case(
        "Dropout",
        lambda b, x: b.several("Dropout", x, 0.5, b.const(False, bool_), outputs=2)[0],
        [S],
        "said-inference",
        step=0.5,
    ),
]


def _broadcast(op_type, **options):
    """Equal shapes, one operand repeated, the other, both, and a scalar."""
    pairs = [
        ("same", [S, S]),
        ("second", [(2, 3, 4), (3, 1)]),
        ("first", [(1, 4), (2, 3, 4)]),
        ("both", [(2, 3, 1), (3, 4)]),
        ("scalar", [(), S]),
        ("ones", [(1, 1), (1,)]),
    ]
    return [_plain(op_type, shapes, note, **options) for note, shapes in pairs]


ARITHMETIC = [
    *_broadcast("Add", step=0.5),
    *_broadcast("Sub", step=0.5),
    *_broadcast("Mul", step=0.5),
    *_broadcast("Div", low=0.6),
    *_broadcast("Pow", low=0.6),
    *_broadcast("Max", distinct=True),
    *_broadcast("Min", distinct=True),
    Case("Mod", lambda b, x, y: b.Mod(x, y, fmod=1), [S, (4,)], low=1.1, high=1.9),
    Case("Mod", lambda b, x, y: b.Mod(b.Mul(x, 4.6), y, fmod=1), [S, S], "far", low=1.4, high=1.48),
    _plain("Max", [S, (4,), (3, 1)], "three", distinct=True),
    _plain("Min", [S], "one", step=0.5),
    _plain("Sum", [S, (4,), (2, 3, 1)], step=0.5),
    _plain("Sum", [S], "one", step=0.5),
    _plain("Mean", [S, (4,), (2, 3, 1)], step=0.5, lacks=NO_DOUBLE),
    Case("Pow", lambda b, x: b.Pow(x, 3.0), [S], "number"),
    Case("Pow", lambda b, x: b.Pow(x, np.asarray([2, 0, 1, 3])), [S], "whole-numbers"),
    Case("Pow", lambda b, x: b.Pow(2.0, x), [S], "of-number"),
    Case(
        "Where",
        lambda b, x, y: b.Where(b.const(np.arange(12).reshape(S) % 3 == 0), x, y),
        [S, S],
        step=0.5,
    ),
    Case(
        "Where",
        lambda b, x, y: b.Where(b.const(np.arange(6).reshape(2, 3, 1) % 2 == 0), x, y),
        [(3, 4), (4,)],
        "broadcast",
        step=0.5,
    ),
    Case("Where", lambda b, x: b.Where(b.Greater(x, 0.0), x, 0.0), [S], "self", avoid=(0,)),
]


def _prelu(note, x, slope):
    return Case(
        "PRelu", lambda b, x, y: b.PRelu(x, y), [x, slope], note, avoid=(0,), lacks=NO_DOUBLE
    )


ACTIVATION = [
    _plain("Elu", [S], avoid=(0,), lacks=NO_DOUBLE),
    _plain("Elu", [S], "alpha", attrs={"alpha": 0.3}, avoid=(0,), lacks=NO_DOUBLE),
    _prelu("", (2, 3, 4), (3, 4)),
    _prelu("shared", (2, 3, 4), (3, 1)),
]


def _gemm(x, y, bias=None, note="", **attrs):
    shapes = [x, y] if bias is None else [x, y, bias]
    return _plain("Gemm", shapes, note, attrs=attrs, step=0.25)


MATRIX = [
    _gemm((3, 4), (4, 2)),
    _gemm((4, 3), (4, 2), note="ta", transA=1),
    _gemm((3, 4), (2, 4), note="tb", transB=1),
    _gemm((4, 3), (2, 4), note="ta-tb", transA=1, transB=1, alpha=0.5),
    _gemm((3, 4), (4, 2), (2,), "bias"),
    _gemm((3, 4), (2, 4), (3, 1), "bias-column", transB=1, beta=0.5),
    _gemm((4, 3), (4, 2), (3, 2), "bias-full", transA=1, alpha=2.0, beta=-1.0),
    _gemm((4, 3), (2, 4), (1, 2), "bias-row", transA=1, transB=1, alpha=-0.5, beta=2.0),
    _gemm((3, 4), (4, 2), (), "bias-scalar", beta=0.5),
    _gemm((3, 4), (4, 2), (1,), "bias-one"),
    _plain("MatMul", [(3, 4), (4, 2)], step=0.25),
    _plain("MatMul", [(2, 5, 3, 4), (2, 5, 4, 2)], "batch", step=0.25),
    _plain("MatMul", [(2, 3, 4), (4, 2)], "stack-by-matrix", step=0.25),
    _plain("MatMul", [(3, 4), (2, 4, 2)], "matrix-by-stack", step=0.25),
    _plain("MatMul", [(2, 1, 3, 4), (5, 4, 2)], "broadcast", step=0.25),
    _plain("MatMul", [(1, 3, 4), (5, 4, 2)], "one-by-stack", step=0.25),
]


def _reduced(op_type, **options):
    def case(note, axes, **attrs):
        def make(b, x):
            operands = (x,) if axes is None else (x, np.asarray(axes, np.int64))
            return b.emit(op_type, operands, attrs)[0]

        return Case(op_type, make, [(2, 3, 4)], note, **options)

    return [
        case("all", None, keepdims=0),
        case("all-kept", None),
        case("axis", [1], keepdims=0),
        case("negative", [-1, 0], keepdims=0),
        case("kept", [-2]),
        case("empty", [], keepdims=0),
        case("empty-noop", [], noop_with_empty_axes=1),
    ]


def _cumsum(note, axis, **attrs):
    return Case("CumSum", lambda b, x: b.CumSum(x, axis, **attrs), [(2, 3, 4)], note, step=0.5)


REDUCTION = [
    *_reduced("ReduceSum", step=0.5),
    *_reduced("ReduceMean", step=0.5),
    *_reduced("ReduceMax", distinct=True),
    *_reduced("ReduceMin", distinct=True),
    *_reduced("ReduceSumSquare", step=0.5),
    *_reduced("ReduceL2", low=0.3),
    _cumsum("first", 0),
    _cumsum("negative", -1),
    _cumsum("exclusive", 1, exclusive=1),
    _cumsum("reverse", 2, reverse=1),
    _cumsum("both", 1, exclusive=1, reverse=1),
    _plain("Softmax", [(3, 5)]),
    _plain("Softmax", [(2, 3, 4)], "first", attrs={"axis": 0}),
    _plain("Softmax", [(2, 3, 4)], "negative", attrs={"axis": -2}),
    _plain("LogSoftmax", [(3, 5)]),
    _plain("LogSoftmax", [(2, 3, 4)], "middle", attrs={"axis": 1}),
    _plain("LogSoftmax", [(2, 3, 4)], "negative", attrs={"axis": -3}),
]


def _moved(op_type, note, shapes, make):
    return Case(op_type, make, shapes, note, step=0.5)


def _layer_norm(note, shapes, **attrs):
    return Case("LayerNormalization", lambda b, *x: b.LayerNormalization(*x, **attrs), shapes, note)


def _batch_norm(note, x, **attrs):
    def make(b, x, scale, offset, mean, spread):
        return b.BatchNormalization(
            x, scale, offset, mean, b.Add(b.Mul(spread, spread), 0.3), **attrs
        )

    return Case("BatchNormalization", make, [x, *[(x[1],)] * 4], note)


NORMALISATION = [
    _layer_norm("", [(3, 5), (5,), (5,)]),
    _layer_norm("no-offset", [(3, 5), (5,)], epsilon=0.1),
    _layer_norm("axis", [(2, 3, 4), (3, 4), (3, 4)], axis=1),
    _layer_norm("negative", [(2, 3, 4), (3, 4)], axis=-2),
    _batch_norm("", (3, 2, 4, 5)),
    _batch_norm("epsilon", (3, 2, 4), epsilon=0.1),
    _batch_norm("matrix", (4, 3)),
]


X = [(2, 3, 4)]
LOWEST = -(2**63)
SHAPE = [
    _moved("Reshape", "", X, lambda b, x: b.Reshape(x, [4, -1])),
    _moved("Reshape", "zero-keeps", X, lambda b, x: b.Reshape(x, [0, 12])),
    _moved("Flatten", "", X, lambda b, x: b.Flatten(x)),
    _moved("Flatten", "axis", X, lambda b, x: b.Flatten(x, axis=-1)),
    _moved("Squeeze", "", [(1, 3, 1)], lambda b, x: b.Squeeze(x)),
    _moved("Squeeze", "axis", [(1, 3, 1)], lambda b, x: b.Squeeze(x, [-1])),
    _moved("Unsqueeze", "", X, lambda b, x: b.Unsqueeze(x, [0, -1])),
    _moved("Transpose", "", X, lambda b, x: b.Transpose(x, perm=[2, 0, 1])),
    _moved("Transpose", "reversed", X, lambda b, x: b.Transpose(x)),
    _moved("Expand", "", [(3, 1)], lambda b, x: b.Expand(x, [2, 3, 4])),
    _moved("Expand", "smaller", [(3, 4)], lambda b, x: b.Expand(x, [1, 1])),
    _moved("Expand", "scalar", [()], lambda b, x: b.Expand(x, [2, 3])),
    _moved("Concat", "", [(2, 3), (1, 3), (4, 3)], lambda b, *x: b.Concat(*x, axis=0)),
    _moved("Concat", "negative", [(2, 3), (2, 1)], lambda b, *x: b.Concat(*x, axis=-1)),
    _moved("Concat", "one", [(2, 3)], lambda b, x: b.Concat(x, axis=1)),
    _moved("Concat", "twice", [(2, 3)], lambda b, x: b.Concat(x, x, axis=1)),
    _moved("Split", "", [(5, 3)], lambda b, x: b.several("Split", x, [2, 3], outputs=2)),
    _moved(
        "Split",
        "equal",
        [(2, 6)],
        lambda b, x: b.several("Split", x, axis=-1, num_outputs=3, outputs=3),
    ),
    _moved(
        "Split",
        "unused",
        [(2, 5)],
        lambda b, x: b.several("Split", x, axis=1, num_outputs=3, outputs=3)[2],
    ),
    _moved("Slice", "", X, lambda b, x: b.Slice(x, [1, 0], [2, 3], [1, 2])),
    _moved("Slice", "no-axes", X, lambda b, x: b.Slice(x, [0, 1], [2, 3])),
    _moved("Slice", "negative", X, lambda b, x: b.Slice(x, [-2, -3], [-1, 100], [1, -1])),
    _moved("Slice", "step", [(7, 5)], lambda b, x: b.Slice(x, [1, 0], [6, 5], [0, 1], [2, 3])),
    _moved("Slice", "back", [(7, 5)], lambda b, x: b.Slice(x, [-1], [LOWEST], [0], [-1])),
    _moved(
        "Slice", "back-step", [(7, 5)], lambda b, x: b.Slice(x, [5, 4], [0, -6], [0, 1], [-2, -3])
    ),
    _moved("Slice", "before-first", [(4,)], lambda b, x: b.Slice(x, [-9], [3], [0])),
    _moved("Slice", "back-before", [(4,)], lambda b, x: b.Slice(x, [-9], [LOWEST], [0], [-1])),
    _moved("Slice", "mixed", [(4, 6)], lambda b, x: b.Slice(x, [1, 5], [3, 0], [0, 1], [1, -2])),
    _moved("Pad", "", X, lambda b, x: b.Pad(x, [1, 0, 2, 0, 1, 0])),
    _moved("Pad", "value", [(2, 3)], lambda b, x: b.Pad(x, [0, 1, 1, 0], 3.0)),
    _moved("Pad", "axes", X, lambda b, x: b.Pad(x, [1, 2, 0, 1], None, [-1, 0])),
    _moved("Pad", "cropped", [(4, 5)], lambda b, x: b.Pad(x, [-1, 2, 0, -3])),
    _moved("Pad", "reflect", [(3, 4)], lambda b, x: b.Pad(x, [2, 0, 1, 3], mode="reflect")),
    _moved("Pad", "edge", [(3, 4)], lambda b, x: b.Pad(x, [0, 2, 1, 3], mode="edge")),
    _moved("Pad", "wrap", [(3, 4)], lambda b, x: b.Pad(x, [1, 2, 0, 3], mode="wrap")),
    _moved("Tile", "", [(2, 3)], lambda b, x: b.Tile(x, [2, 3])),
    _moved("Tile", "one", [(2, 3)], lambda b, x: b.Tile(x, [1, 2])),
]


def _indices(*content):
    return np.asarray(content, np.int64)


def _narrow(*content):
    return np.asarray(content, np.int32)


INDEXING = [
    _moved("Gather", "", X, lambda b, x: b.Gather(x, _indices(1, 0, 1))),
    _moved("Gather", "axis", X, lambda b, x: b.Gather(x, _narrow(2, 2), axis=1)),
    _moved("Gather", "matrix", X, lambda b, x: b.Gather(x, _indices([0, 3], [3, 1]), axis=2)),
    _moved("Gather", "middle", X, lambda b, x: b.Gather(x, _indices([0], [2]), axis=1)),
    _moved("Gather", "negative", X, lambda b, x: b.Gather(x, _indices(-1, 3, 0), axis=-1)),
    _moved("Gather", "scalar", X, lambda b, x: b.Gather(x, np.asarray(1), axis=1)),
    _moved("Gather", "vector", [(5,)], lambda b, x: b.Gather(x, _indices(4, 4, -5))),
    _moved("GatherND", "", X, lambda b, x: b.GatherND(x, _indices([0, 1], [1, 2], [0, 1]))),
    _moved("GatherND", "element", X, lambda b, x: b.GatherND(x, _indices([0, 1, 3], [1, -1, 0]))),
    _moved("GatherND", "rows", X, lambda b, x: b.GatherND(x, _indices([[1], [0]], [[1], [1]]))),
    _moved("GatherND", "batch", X, lambda b, x: b.GatherND(x, _indices([2], [0]), batch_dims=1)),
    _moved(
        "GatherND",
        "batch-many",
        X,
        lambda b, x: b.GatherND(x, _indices([[2], [2]], [[0], [1]]), batch_dims=1),
    ),
    _moved(
        "GatherND",
        "batch-two",
        X,
        lambda b, x: b.GatherND(x, np.arange(6).reshape(2, 3, 1) % 4, batch_dims=2),
    ),
    _moved("GatherElements", "", X, lambda b, x: b.GatherElements(x, np.zeros((1, 2, 4), int))),
    _moved(
        "GatherElements",
        "axis",
        [(3, 4)],
        lambda b, x: b.GatherElements(x, _indices([3, 3, -1], [0, 1, 0], [2, -4, 2]), axis=1),
    ),
    _moved(
        "GatherElements",
        "narrow",
        [(3, 4)],
        lambda b, x: b.GatherElements(x, _narrow([2], [1], [1]), axis=-1),
    ),
    _moved(
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
    _moved(
        "ScatterND",
        "",
        [(4, 3), (2, 3)],
        lambda b, x, u: b.ScatterND(x, _indices([3], [1]), u),
    ),
    _moved(
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


def _conv(note, x, w, branches, *, bias=False, **attrs):
    shapes = [x, w, (w[0],)] if bias else [x, w]
    return _plain(
        "Conv", shapes, note, attrs=attrs, step=0.25, lacks=NO_DOUBLE, branches=tuple(branches)
    )


CONVOLUTION = [
    _conv("one-axis", (2, 3, 9), (4, 3, 3), ["spread", "by_convolution"], strides=[2]),
    _conv(
        "one-axis-pads", (2, 3, 9), (4, 3, 3), ["spread", "by_convolution"], pads=[2, 1],
        dilations=[2], bias=True,
    ),
    _conv(
        "three-axes", (2, 2, 4, 5, 3), (3, 2, 2, 3, 1), ["spread", "by_convolution"],
        strides=[1, 2, 1], pads=[1, 0, 0, 0, 1, 1],
    ),
    _conv(
        "three-axes-pointwise", (2, 4, 2, 3, 2), (3, 4, 1, 1, 1), ["spread", "by_convolution"]
    ),
    _conv(
        "groups", (2, 4, 6, 5), (6, 2, 3, 2), ["spread", "by_convolution"], group=2,
        pads=[1, 0, 2, 1], strides=[2, 1], bias=True,
    ),
    _conv("depthwise", (2, 6, 5, 5), (6, 1, 3, 3), ["spread", "by_convolution"], group=6),
    _conv(
        "dilated", (2, 3, 8, 7), (4, 3, 3, 2), ["spread", "by_convolution"], dilations=[2, 3],
        pads=[1, 2, 0, 1],
    ),
    _conv("grouped-pointwise", (2, 4, 3, 3), (6, 2, 1, 1), ["spread", "by_convolution"], group=2),
    _conv(
        "strided-few-channels", (2, 3, 7, 8), (4, 3, 3, 3), ["spread", "by_convolution"],
        strides=[2, 3], pads=[1, 1, 1, 1],
    ),
    _conv("few-channels", (2, 3, 6, 5), (4, 3, 3, 2), ["spread", "by_image"], bias=True),
    _conv(
        "few-channels-pads", (2, 1, 6, 5), (4, 1, 3, 3), ["spread", "by_image"], pads=[1, 0, 2, 1]
    ),
    _conv("taps", (2, 6, 6, 5), (4, 6, 3, 2), ["spread", "by_taps"]),
    _conv(
        "taps-strided", (2, 6, 7, 8), (4, 6, 3, 3), ["spread", "by_taps"], strides=[2, 3],
        pads=[0, 1, 2, 1], bias=True,
    ),
    _conv("taps-left-over", (1, 5, 8, 6), (3, 5, 2, 2), ["spread", "by_taps"], strides=[3, 4]),
    _conv("product", (2, 5, 5, 4), (128, 5, 3, 3), ["by_product", "by_taps"], pads=[1, 1, 1, 1]),
    _conv(
        "product-even", (1, 3, 4, 5), (128, 3, 2, 3), ["by_product", "by_image"], pads=[1, 0, 0, 2]
    ),
    _conv("product-valid", (1, 5, 4, 4), (130, 5, 2, 2), ["by_product", "by_taps"], bias=True),
    _conv("pointwise", (3, 5, 4, 3), (6, 5, 1, 1), ["swapped", "rows"], bias=True),
    _conv("pointwise-large", (2, 3, 17, 16), (4, 3, 1, 1), ["swapped", "images"]),
    _conv("pointwise-strided", (2, 5, 5, 6), (4, 5, 1, 1), ["spread", "rows"], strides=[2, 3]),
    _conv(
        "pointwise-large-strided", (1, 3, 34, 33), (2, 3, 1, 1), ["spread", "images"],
        strides=[2, 2],
    ),
    _conv(
        "pointwise-padded", (2, 3, 4, 3), (4, 3, 1, 1), ["spread", "by_image"], pads=[1, 0, 0, 1]
    ),
]  # fmt: skip


def _transposed(note, x, w, bias=False, **attrs):
    shapes = [x, w, (w[1] * attrs.get("group", 1),)] if bias else [x, w]
    return _plain("ConvTranspose", shapes, note, attrs=attrs, step=0.25, lacks=NO_DOUBLE)


TRANSPOSED = [
    _transposed("", (2, 3, 4, 5), (3, 4, 3, 3)),
    _transposed("strides", (2, 3, 4, 5), (3, 2, 3, 2), strides=[2, 3], output_padding=[1, 2]),
    _transposed("pads", (1, 6, 4, 5), (6, 5, 3, 3), bias=True, strides=[2, 1], pads=[1, 0, 0, 2]),
    _transposed("dilations", (1, 2, 4, 5), (2, 3, 2, 3), dilations=[2, 1]),
    _transposed("groups", (2, 4, 3, 3), (4, 3, 2, 2), bias=True, group=2, strides=[2, 2]),
    _transposed("one-axis", (2, 3, 5), (3, 4, 3), strides=[2]),
]


def _resized(note, x, scales, **attrs):
    def make(b, x):
        return b.Resize(x, None, np.asarray(scales, np.float32), **attrs)

    return Case("Resize", make, [x], note, step=0.5, lacks=NO_DOUBLE)


IMAGE = (2, 2, 3, 4)
RESIZE = [
    _resized("", IMAGE, [1, 1, 2, 3]),
    *(
        _resized(f"{how}-{rounding}", IMAGE, [1, 1, 1.5, 2.5], nearest_mode=rounding,
                 coordinate_transformation_mode=how)
        for how in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
        for rounding in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
    ),
    *(
        _resized(f"linear-{how}", IMAGE, [1, 1, 2, 2.5], mode="linear",
                 coordinate_transformation_mode=how)
        for how in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    ),
    _resized("smaller", IMAGE, [1, 1, 0.7, 0.5], mode="linear"),
    Case("Resize", lambda b, x: b.Resize(x, None, None, [2, 2, 7, 5], mode="linear"), [IMAGE],
         "sizes", step=0.5, lacks=NO_DOUBLE),
]  # fmt: skip


def _pooled(op_type, note, x, lacks=(), **attrs):
    return _plain(op_type, [x], note, attrs=attrs, distinct=True, lacks=lacks, step=0.02)


def _pools(op_type, lacks=()):
    cases = [
        ("tiled", (2, 3, 6, 4), {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("left-over", (2, 2, 7, 5), {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("gaps", (2, 2, 7, 8), {"kernel_shape": [2, 1], "strides": [3, 2]}),
        ("overlap", (2, 2, 6, 5), {"kernel_shape": [3, 3], "strides": [1, 2]}),
        ("overlap-second", (1, 2, 7, 6), {"kernel_shape": [2, 3], "strides": [3, 1]}),
        ("no-strides", (2, 2, 5, 4), {"kernel_shape": [2, 2]}),
        ("padded", (2, 2, 5, 4), {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}),
        (
            "ceil",
            (2, 2, 6, 7),
            {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 0, 0], "ceil_mode": 1},
        ),
        ("dilated", (1, 2, 7, 8), {"kernel_shape": [2, 3], "strides": [2, 1], "dilations": [2, 2]}),
        ("one-axis", (2, 3, 7), {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}),
        ("three-axes", (1, 2, 4, 5, 4), {"kernel_shape": [2, 3, 2], "strides": [2, 1, 2]}),
    ]
    return [_pooled(op_type, note, x, lacks, **attrs) for note, x, attrs in cases]


POOLING = [
    *_pools("MaxPool"),
    *_pools("AveragePool", NO_DOUBLE),
    _pooled(
        "AveragePool", "counts-padding", (2, 2, 5, 4), NO_DOUBLE, kernel_shape=[3, 2],
        strides=[2, 2], pads=[1, 0, 1, 1], count_include_pad=1,
    ),
    _pooled(
        "AveragePool", "counts-padding-ceil", (2, 2, 6, 7), NO_DOUBLE, kernel_shape=[3, 2],
        strides=[2, 2], pads=[1, 0, 0, 0], count_include_pad=1, ceil_mode=1,
    ),
]  # fmt: skip

CASES = [
    *UNARY,
    *ARITHMETIC,
    *MATRIX,
    *REDUCTION,
    *SHAPE,
    *INDEXING,
    *CONVOLUTION,
    *POOLING,
    *ACTIVATION,
    *NORMALISATION,
    *TRANSPOSED,
    *RESIZE,
]
