"""Composed functions of double precision: as exact as their libraries."""

import math

import numpy as np
import pytest
from flow2onnx_runtime import kernels

import flow2onnx as flow
from flow2onnx.passes.float64_functions import FLOAT64_FORMS
from tests.ops.jobs import predict

_RNG = np.random.default_rng(7)
_TINY = _RNG.normal(size=100) * 10.0 ** -_RNG.uniform(0, 12, 100)
REAL = np.concatenate(
    [_RNG.uniform(-7, 7, 400), _TINY, [0, 0.46875, 4, 6, 30, -30, 1e30, -1e200, np.inf, np.nan]]
)
UNIT = np.concatenate([_RNG.uniform(-1, 1, 400), _TINY / 9, [1, -1, 0, np.nan, 1.5]])
ABOVE_1 = 1 + np.concatenate([np.abs(_TINY), _RNG.uniform(0, 50, 100), [0, 1e9, 1e200, -1.5]])

# operator of `flow.math` or `flow.nn`: reference, points
FUNCTIONS = {
    "Acos": ("math.acos", np.arccos, UNIT),
    "Acosh": ("math.acosh", np.arccosh, ABOVE_1),
    "Asin": ("math.asin", np.arcsin, UNIT),
    "Asinh": ("math.asinh", np.arcsinh, REAL),
    "Atan": ("math.atan", np.arctan, REAL),
    "Atanh": ("math.atanh", np.arctanh, UNIT),
    "Cosh": ("math.cosh", np.cosh, REAL),
    "Erf": ("math.erf", np.vectorize(math.erf), REAL),
    "LeakyRelu": ("nn.leaky_relu", lambda x: np.where(x < 0, 0.2 * x, x), REAL),
    "Sinh": ("math.sinh", np.sinh, REAL),
    "Softplus": ("math.softplus", lambda x: np.logaddexp(0, x), REAL),
    "Tan": ("math.tan", np.tan, _RNG.uniform(-1.5, 1.5, 400)),
}


@pytest.mark.parametrize("op_type", FUNCTIONS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_as_exact_as_the_library(op_type):
    name, reference, points = FUNCTIONS[op_type]
    family, last = name.split(".")
    (found,) = predict(getattr(getattr(flow, family), last), points)
    np.testing.assert_allclose(found, reference(points), rtol=5e-14, atol=0)


@pytest.mark.parametrize("op_type", FLOAT64_FORMS)
def test_only_where_a_kernel_lacks(op_type):
    assert not kernels().supports(op_type, 21, {"T": "float64"})
    assert kernels().supports(op_type, 21, {"T": "float32"})
