"""Reductions, running sums, and softmax."""

import numpy as np

from tests.autodiff.cases.case import Case, plain


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
    plain("Softmax", [(3, 5)]),
    plain("Softmax", [(2, 3, 4)], "first", attrs={"axis": 0}),
    plain("Softmax", [(2, 3, 4)], "negative", attrs={"axis": -2}),
    plain("LogSoftmax", [(3, 5)]),
    plain("LogSoftmax", [(2, 3, 4)], "middle", attrs={"axis": 1}),
    plain("LogSoftmax", [(2, 3, 4)], "negative", attrs={"axis": -3}),
]
