"""`flow.typing`: what a job function takes and returns, and the checks of both.

>>> import flow2onnx.typing as tp
>>> tp.Numpy.Placeholder((100, 28, 28))
Numpy.Placeholder(shape=(100, 28, 28), dtype=oneflow.float32, batch_axis=0)
"""

from flow2onnx.typing.annotations import (
    AbsentReturn,
    ArrayReturn,
    Bundle,
    BundleReturn,
    Callback,
    CallbackReturn,
    DictReturn,
    ListListNumpy,
    ListNumpy,
    ListReturn,
    NoneReturn,
    Numpy,
    ParameterSpec,
    PlaceholderSpec,
    ReturnSpec,
    TupleReturn,
    parse_parameter,
    parse_return,
)
from flow2onnx.typing.arguments import check_arguments
from flow2onnx.typing.pytree import TreeDef, flatten, unflatten
from flow2onnx.typing.results import check_return, present, whole

__all__ = [
    "AbsentReturn",
    "ArrayReturn",
    "Bundle",
    "BundleReturn",
    "Callback",
    "CallbackReturn",
    "DictReturn",
    "ListListNumpy",
    "ListNumpy",
    "ListReturn",
    "NoneReturn",
    "Numpy",
    "ParameterSpec",
    "PlaceholderSpec",
    "ReturnSpec",
    "TreeDef",
    "TupleReturn",
    "check_arguments",
    "check_return",
    "flatten",
    "parse_parameter",
    "parse_return",
    "present",
    "unflatten",
    "whole",
]
