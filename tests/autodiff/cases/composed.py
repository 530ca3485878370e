"""Products and reductions of many kinds, transforms, quantised values, sequences, control flow."""

import numpy as np
import onnx_ir as ir

from flow2onnx.dtypes import bool_, float32, int64
from flow2onnx.graph import Builder
from flow2onnx.graph.functions import inline_nodes
from flow2onnx.graph.types import dtype_of
from tests.autodiff.cases.case import ADDING, NO_DOUBLE, Case, S, moved, plain

X = [(2, 3, 4)]
DOUBLE = ("float64", "float32")


def _einsum(note, equation, *shapes, **options):
    return plain("Einsum", list(shapes), note, attrs={"equation": equation}, **options)


EINSUM = [
    _einsum("product", "ij,jk->ik", (2, 3), (3, 4)),
    _einsum("batch", "bij,bjk->bik", (2, 2, 3), (2, 3, 4)),
    _einsum("implied", "ij,jk", (2, 3), (3, 4)),
    _einsum("swapped", "ij->ji", (2, 3)),
    _einsum("total", "ij->", (2, 3)),
    _einsum("summed", "ij,k->i", (2, 3), (4,)),
    _einsum("inner", "i,i", (4,), (4,)),
    _einsum("trace", "ii->", (3, 3)),
    _einsum("diagonal", "ii->i", (3, 3)),
    _einsum("diagonal-product", "iij,ij->j", (3, 3, 2), (3, 2)),
    _einsum("three", "ij,jk,kl->il", (2, 3), (3, 2), (2, 4)),
    _einsum("dots", "...ij,...jk->...ik", (2, 2, 3), (2, 3, 4)),
    _einsum("dots-fewer", "...ij,jk->...ik", (2, 2, 3), (3, 4)),
    _einsum("dots-broadcast", "...i,...i->...", (2, 1, 3), (1, 4, 3)),
]


def _turned(note, lengths, **axes):
    return moved(
        "ReverseSequence", note, X, lambda b, x: b.ReverseSequence(x, np.asarray(lengths), **axes)
    )


def _top(note, k, **attrs):
    return Case(
        "TopK",
        lambda b, x: b.several("TopK", x, np.asarray([k]), outputs=2, **attrs)[0],
        X,
        note,
        distinct=True,
    )


def _product(note, **order):
    return Case(
        "CumProd",
        lambda b, x: b.CumProd(x, np.int64(1), **order),
        [(2, 4)],
        note,
        low=0.5,
        opset=26,
    )


def _reduced(op_type, note, axes, **options):
    attrs = options.pop("attrs", {})
    return Case(op_type, lambda b, x: b.emit(op_type, (x, axes), attrs)[0], X, note, **options)


def _scatter(op_type, how, indices, shapes, **attrs):
    return Case(
        op_type,
        lambda b, x, u: b.emit(op_type, (x, np.asarray(indices), u), {"reduction": how, **attrs})[
            0
        ],
        shapes,
        how,
        low=0.5,
        distinct=how in ("max", "min"),
        dtypes=ADDING,
    )


REDUCED = [
    *(
        _reduced(op, note, axes, low=0.4, attrs=attrs)
        for op in ("ReduceL1", "ReduceLogSum", "ReduceLogSumExp", "ReduceProd")
        for note, axes, attrs in (
            ("all", None, {"keepdims": 0}),
            ("axis", [1], {"keepdims": 0}),
            ("kept", [-1, 0], {}),
            ("noop", [], {"noop_with_empty_axes": 1}),
        )
        if not (note == "noop" and op in ("ReduceL1", "ReduceLogSum", "ReduceLogSumExp"))
    ),
    _product(""),
    _product("exclusive", exclusive=1),
    _product("reverse", reverse=1),
    _product("both", exclusive=1, reverse=1),
]

PLACED = [
    _top("largest", 2),
    _top("axis", 2, axis=1),
    _top("smallest", 1, largest=0),
    moved("Trilu", "upper", X, lambda b, x: b.Trilu(x)),
    moved("Trilu", "lower", X, lambda b, x: b.Trilu(x, np.int64(-1), upper=0)),
    _turned("batch", [2, 3], batch_axis=0, time_axis=1),
    _turned("time", [1, 2, 1], batch_axis=1, time_axis=0),
    _scatter("ScatterElements", "mul", [[0, 0], [1, 0]], [(3, 4), (2, 2)], axis=0),
    _scatter("ScatterElements", "max", [[0, 0], [1, 0]], [(3, 4), (2, 2)], axis=0),
    _scatter("ScatterElements", "min", [[0, 3], [1, 1]], [(3, 4), (2, 2)], axis=1),
    _scatter("ScatterND", "mul", [[3], [3], [0]], [(4, 3), (3, 3)]),
    _scatter("ScatterND", "max", [[3], [3], [0]], [(4, 3), (3, 3)]),
    _scatter("ScatterND", "min", [[3], [3], [0]], [(4, 3), (3, 3)]),
    *(
        Case(
            "TensorScatter",
            lambda b, x, u, mode=mode, w=w: b.TensorScatter(x, u, w, mode=mode),
            [(2, 5, 3), (2, 2, 3)],
            mode,
            step=0.5,
            opset=24,
        )
        for mode, w in (("linear", np.asarray([1, 3])), ("circular", np.asarray([4, 2])))
    ),
]


def _compressed(b, x):
    taken = np.asarray([True, False, True])
    return imported(b, "Compress", (x, taken), 1, [ir.AttrInt64("axis", 1)])[0]


PLACED.append(moved("Compress", "", X, _compressed))

PRODUCTS = [
    *EINSUM,
    plain("MatMul", [(4,), (4,)], "vectors", step=0.25),
    plain("MatMul", [(4,), (4, 2)], "vector-left", step=0.25),
    plain("MatMul", [(3, 4), (4,)], "vector-right", step=0.25),
    plain("MatMul", [(4,), (2, 4, 3)], "vector-stack", step=0.25),
    plain("MatMul", [(2, 3, 4), (4,)], "stack-vector", step=0.25),
    plain("Det", [(3, 3)], dtypes=DOUBLE, lacks=NO_DOUBLE),
    plain("Det", [(2, 1, 1)], "one", dtypes=DOUBLE, lacks=NO_DOUBLE),
    plain("Det", [(2, 2, 2)], "batch", dtypes=DOUBLE, lacks=NO_DOUBLE),
]


def _dft(note, shape, *, length=None, axis=1, opset=21, **attrs):
    def make(b, x):
        size = None if length is None else np.int64(length)
        if b.opset < 20:
            return b.DFT(x, size, axis=axis, **attrs)
        return b.DFT(x, size, np.int64(axis), **attrs)

    return Case("DFT", make, [shape], note, step=0.5, dtypes=DOUBLE, opset=opset)


TRANSFORMS = [
    _dft("real", (2, 6, 1)),
    _dft("complex", (2, 5, 2)),
    _dft("inverse", (2, 5, 2), inverse=1),
    _dft("onesided", (2, 6, 1), onesided=1),
    _dft("onesided-odd", (2, 5, 1), onesided=1),
    _dft("cut", (2, 6, 2), length=4),
    _dft("filled", (2, 4, 1), length=7, onesided=1),
    _dft("filled-inverse", (2, 4, 2), length=7, inverse=1),
    _dft("axis", (3, 2, 4, 2), axis=-2),
    _dft("before-20", (2, 6, 1), opset=19, onesided=1),
    Case(
        "STFT",
        lambda b, x, w: b.STFT(x, np.int64(2), w, onesided=1),
        [(2, 8, 1), (4,)],
        "window",
        step=0.25,
        dtypes=DOUBLE,
    ),
    Case(
        "STFT",
        lambda b, x: b.STFT(x, np.int64(3), None, np.int64(4), onesided=1),
        [(1, 10, 1)],
        "length",
        step=0.5,
        dtypes=DOUBLE,
    ),
]


def _dequantized(note, shape, scale, *, point=True, **attrs):
    steps = np.random.default_rng(3).integers(0, 200, shape).astype(np.uint8)

    def make(b, s):
        zero = b.const(np.full(scale, 7, np.uint8)) if point else None
        return b.DequantizeLinear(steps, b.Cast(s, to=float32), zero, **attrs)

    return Case("DequantizeLinear", make, [scale], note, low=0.1, step=0.05, dtypes=("float32",))


QUANTIZED = [
    _dequantized("tensor", (3, 4), ()),
    _dequantized("no-point", (3, 4), (), point=False),
    _dequantized("axis", (3, 4, 2), (4,), axis=1),
    _dequantized("blocks", (3, 6), (3, 2), axis=1, block_size=3),
]


def _constant_like(b, x):
    return b.CastLike(x, b.const(np.float32(0), float32))


# --- sequences ----------------------------------------------------------------------------------


def _sequence(b, op_type, *operands, **attrs):
    return imported(b, op_type, operands, 1, [ir.AttrInt64(k, v) for k, v in attrs.items()])[0]


def imported(b, op_type, operands, outputs, attributes):
    """A node as it comes from a model: one that inference knows little of is made of others."""
    inputs = [v if isinstance(v, ir.Value) else b.const(v) for v in operands]
    node = ir.Node("", op_type, inputs, attributes, num_outputs=outputs)
    return inline_nodes(b, [node], [], [], node.outputs)


def _built(b, x, y):
    parts = _sequence(b, "SequenceConstruct", x, b.Mul(y, 2.0))
    more = _sequence(b, "SequenceInsert", parts, b.Mul(x, y), np.int64(1))
    return _sequence(b, "SequenceErase", more, np.int64(0))


def _at(b, x, y):
    return _sequence(b, "SequenceAt", _built(b, x, y), np.int64(-2))


def _concat(new_axis):
    return lambda b, x, y: _sequence(
        b, "ConcatFromSequence", _built(b, x, y), axis=1, new_axis=new_axis
    )


def _split_and_concat(split, **attrs):
    def make(b, x):
        operands = (x,) if split is None else (x, np.asarray(split))
        parts = _sequence(b, "SplitToSequence", *operands, **attrs)
        first = _sequence(b, "SequenceAt", parts, np.int64(1))
        return b.Mul(first, 3.0)

    return make


SEQUENCES = [
    Case("SequenceAt", _at, [S, S]),
    Case("SequenceAt", _split_and_concat(2, axis=1), [(2, 6)], "split"),
    Case("SequenceAt", _split_and_concat([3, 3], axis=1), [(2, 6)], "split-sizes"),
    Case("SequenceAt", _split_and_concat(None, keepdims=0), [(2, 5)], "split-ones"),
    Case("ConcatFromSequence", _concat(0), [S, S]),
    Case("ConcatFromSequence", _concat(1), [S, S], "stacked"),
]


# --- control flow -------------------------------------------------------------------------------


def branch(b, name, make):
    """A graph inside a node: `make(inner)` returns its results, and may read what is around it."""
    inner = Builder.inside(b, name)
    for y in make(inner):
        inner.graph.outputs.append(y)
    return inner.graph


def body(b, name, inputs, make):
    """A graph with inputs of these shapes and types; `make(inner, *inputs)` returns its results."""
    inner = Builder.inside(b, name)
    values = [_input(inner, *kind) for kind in inputs]
    for y in make(inner, *values):
        inner.graph.outputs.append(y)
    return inner.graph


def _input(inner, shape, dtype):
    name = inner.unique("turn")
    inner._names[name] = 0  # `input` asks for the name again
    return inner.input(name, shape, dtype)


def _choice(taken):
    def make(b, x, y):
        return b.If(
            b.Equal(b.const(np.int64(taken)), b.Add(b.Shape(x, end=1), -2)),
            then_branch=branch(b, "then", lambda i: [i.Mul(x, y)]),
            else_branch=branch(b, "else", lambda i: [i.Exp(x)]),
        )

    return make


def _nested(b, x, y):
    def outer(i):
        return [
            i.If(
                i.Less(y_sum, 1000.0),
                then_branch=branch(i, "inner-then", lambda j: [j.Mul(j.Mul(x, y), z)]),
                else_branch=branch(i, "inner-else", lambda j: [j.Identity(x)]),
            )
        ]

    z, y_sum = b.Exp(x), b.ReduceSum(y, keepdims=0)
    return b.If(
        b.Less(y_sum, 2000.0),
        then_branch=branch(b, "outer-then", outer),
        else_branch=branch(b, "outer-else", lambda i: [i.Neg(y)]),
    )


def _several(b, x, y):
    first, second = b.several(
        "If",
        b.Less(b.ReduceSum(x, keepdims=0), 1000.0),
        outputs=2,
        then_branch=branch(b, "then", lambda i: [i.Mul(x, y), i.Identity(y)]),
        else_branch=branch(b, "else", lambda i: [i.Identity(x), i.Neg(y)]),
    )
    return b.Add(b.Mul(first, second), first)


def _loop(b, x, y):
    kind = dtype_of(x)
    graph = body(
        b, "turn", [((), int64), ((), bool_), (S, kind)],
        lambda i, _, on, v: [i.Identity(on), i.Mul(v, y), i.Identity(v)],
    )  # fmt: skip
    last, every = imported(
        b, "Loop", (np.int64(3), np.bool_(True), x), 2, [ir.AttrGraph("body", graph)]
    )
    return b.Add(last, b.Squeeze(b.Slice(every, [1], [2], [0]), [0]))


def _scan(b, x, y):
    kind = dtype_of(x)
    graph = body(
        b, "turn", [((4,), kind), ((4,), kind)],
        lambda i, state, row: [i.Mul(state, row), i.Add(state, row)],
    )  # fmt: skip
    start = b.Squeeze(b.Slice(y, [0], [1], [0]), [0])
    last, every = b.several("Scan", start, x, outputs=2, num_scan_inputs=1, body=graph)
    return b.Add(every, last)


CONTROL = [
    Case("If", _choice(1), [S, S], "then"),
    Case("If", _choice(5), [S, S], "else", low=-1, high=1),
    Case("If", _nested, [S, S], "nested", low=-1, high=1),
    Case("If", _several, [S, S], "several"),
    Case("Loop", _loop, [S, S]),
    Case("Scan", _scan, [S, S], low=0.5),
    Case(
        "OptionalGetElement",
        lambda b, x: b.Mul(b.OptionalGetElement(x), x),
        [S],
        dtypes=("float32",),
    ),
]

COMPOSED = [
    *REDUCED,
    *PLACED,
    *PRODUCTS,
    *TRANSFORMS,
    *QUANTIZED,
    *SEQUENCES,
    *CONTROL,
    Case("CastLike", _constant_like, [S], step=0.5),
    plain("Selu", [S], avoid=(0,), lacks=NO_DOUBLE),
    plain("Selu", [S], "given", attrs={"alpha": 1.2, "gamma": 0.8}, avoid=(0,), lacks=NO_DOUBLE),
    plain("HardSigmoid", [S], attrs={"alpha": 0.4}, avoid=(-1.25, 1.25), lacks=NO_DOUBLE),
    Case(
        "HardSwish",
        lambda b, x: b.HardSwish(b.Cast(x, to=float32)),
        [S],
        low=-5,
        high=5,
        avoid=(-3, 3),
        dtypes=("float32",),
    ),
    plain("Hardmax", [(3, 4)], distinct=True, lacks=NO_DOUBLE),
    Case("Clip", lambda b, x, y: b.Clip(x, b.Add(y, -9.0)), [S, ()], "low-end-varies"),
    Case("Clip", lambda b, x, y: b.Clip(x, b.Add(y, -9.0), b.Sub(y, 8.0)), [S, ()], "ends-cross"),
]
