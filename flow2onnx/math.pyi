"""`flow.math`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import builtins as _builtins
import collections.abc as _collections_abc
import flow2onnx.dtypes as _flow2onnx_dtypes
import flow2onnx.trace.blob as _flow2onnx_trace_blob
import numpy.typing as _numpy_typing
import typing as _typing

def abs(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The absolute value."""
def acos(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The inverse cosine."""
def acosh(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The inverse hyperbolic cosine."""
def add(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | _builtins.float, y: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | _builtins.float, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """x + y, broadcast."""
def add_n(inputs: _builtins.list[_flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any]], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The sum of values of one shape."""
def argmax(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], axis: _builtins.int = -1, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The position of the largest element along `axis`, int32."""
def asin(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The inverse sine."""
def asinh(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The inverse hyperbolic sine."""
def atan(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The inverse tangent."""
def atan2(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], y: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The angle whose tangent is x / y, in the quadrant of the point (y, x)."""
def atanh(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The inverse hyperbolic tangent."""
def broadcast_to_compatible_with(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], compatible: _builtins.list[_flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any]], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """`x` repeated to the shape that arithmetic of it with all of `compatible` would have."""
def ceil(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The next whole number above."""
def clip_by_value(values: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], min_value: _builtins.float | None = None, max_value: _builtins.float | None = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Limit every element to [min_value, max_value]; either end may be open."""
def cos(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The cosine of radians."""
def cosh(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The hyperbolic cosine."""
def divide(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | _builtins.float, y: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | _builtins.float, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """x / y, broadcast. As in OneFlow, number/x is 0 where x is 0, and x/0 by a number is x * 0."""
def equal(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | _builtins.float, y: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | _builtins.float, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """1 where x == y."""
def erf(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The error function."""
def erfc(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """1 - erf(x)."""
def exp(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """e to the power x."""
def expm1(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """e^x - 1, exact near 0 by 2 e^(x/2) sinh(x/2)."""
def floor(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The next whole number below."""
def floordiv(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], y: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The next whole number below x / y."""
def fused_scale_tril(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], diagonal: _builtins.int = 0, fill_value: _builtins.float = 0, scale: _builtins.float = 1, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """`scale` times the lower triangle of each matrix; `fill_value`, not scaled, elsewhere."""
def fused_scale_tril_softmax_dropout(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], diagonal: _builtins.int = 0, fill_value: _builtins.float = 0, scale: _builtins.float = 1, rate: _builtins.float = 0.0, noise_shape: _typing.Any = None, seed: _builtins.int | None = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The softmax of `fused_scale_tril` along the last axis, then `dropout`."""
def gelu(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """x Φ(x) with the exact normal distribution function Φ."""
def gelu_grad(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], dy: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The gradient of `gelu` at `x` for one of `dy` behind it."""
def greater(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | _builtins.float, y: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | _builtins.float, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """1 where x > y."""
def greater_equal(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | _builtins.float, y: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | _builtins.float, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """1 where x >= y."""
def in_top_k(targets: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], predictions: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], k: _builtins.int, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """1 for each sample whose target has fewer than `k` classes above it, ties not counted.

    0 where a prediction is not finite or the target is no class.
    """
def l2_normalize(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], axis: _builtins.int | None = None, epsilon: _builtins.float = 1e-12, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """`input` over its length along `axis`, which counts as the root of `epsilon` at least."""
def less(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | _builtins.float, y: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | _builtins.float, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """1 where x < y."""
def less_equal(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | _builtins.float, y: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | _builtins.float, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """1 where x <= y."""
def lgamma(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """ln |Γ(x)|, infinite at 0 and at negative whole numbers."""
def log(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The natural logarithm."""
def log1p(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """ln(1 + x), exact near 0: the logarithm of the rounded sum, scaled by what was rounded off."""
def log_sigmoid(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """-ln(1 + e^-x), which overflows for large negative x as OneFlow's does."""
def logical_and(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], y: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """1 where both are not 0."""
def maximum(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], y: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The larger of each pair."""
def minimum(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], y: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The smaller of each pair."""
def mish(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """x tanh(ln(1 + e^x))."""
def mod(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | _builtins.float, y: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | _builtins.float, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The remainder with the sign of the divisor; of real numbers exact, by way of C's fmod."""
def multiply(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | _builtins.float, y: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | _builtins.float, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """x * y, broadcast."""
def naive_logical_and(lhs: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], rhs: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """1 where both are not 0: an early name of `logical_and`."""
def negative(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """-x."""
def not_equal(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | _builtins.float, y: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | _builtins.float, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """1 where x != y."""
def polyval(coeffs: _collections_abc.Sequence[_flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | _builtins.float], x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The polynomial in `x` with these coefficients, numbers or blobs, highest power first."""
def pow(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], y: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | _builtins.float, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """x to the power y; y may be a number."""
def reciprocal(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """1/x."""
def reciprocal_no_nan(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """1/x, 0 where x is 0."""
def reduce_all(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], axis: _builtins.int | _collections_abc.Sequence[_builtins.int] | None = None, keepdims: _builtins.bool = False, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """1 where nothing over `axis` is 0, int8."""
def reduce_any(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], axis: _builtins.int | _collections_abc.Sequence[_builtins.int] | None = None, keepdims: _builtins.bool = False, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """1 where something over `axis` is not 0, int8."""
def reduce_euclidean_norm(input_tensor: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], axis: _builtins.int | _collections_abc.Sequence[_builtins.int] | None = None, keepdims: _builtins.bool = False, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The root of the sum of squares over `axis`."""
def reduce_logsumexp(input_tensor: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], axis: _builtins.int | _collections_abc.Sequence[_builtins.int] | None = None, keepdims: _builtins.bool = False, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The logarithm of the sum of e^x over `axis`, which overflows as OneFlow's does."""
def reduce_max(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], axis: _builtins.int | _collections_abc.Sequence[_builtins.int] | None = None, keepdims: _builtins.bool = False, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The largest over `axis`; ties share the gradient."""
def reduce_mean(input_blob: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], axis: _builtins.int | _collections_abc.Sequence[_builtins.int] | None = None, keepdims: _builtins.bool = False, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The mean over `axis`."""
def reduce_min(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], axis: _builtins.int | _collections_abc.Sequence[_builtins.int] | None = None, keepdims: _builtins.bool = False, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The smallest over `axis`; ties share the gradient."""
def reduce_prod(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], axis: _builtins.int | _collections_abc.Sequence[_builtins.int] | None = None, keepdims: _builtins.bool = False, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The product over `axis`."""
def reduce_std(input_tensor: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], axis: _builtins.int | _collections_abc.Sequence[_builtins.int] | None = None, keepdims: _builtins.bool = False, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The root of `reduce_variance`."""
def reduce_sum(input_tensor: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], axis: _builtins.int | _collections_abc.Sequence[_builtins.int] | None = None, keepdims: _builtins.bool = False, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The sum over `axis`."""
def reduce_variance(input_tensor: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], axis: _builtins.int | _collections_abc.Sequence[_builtins.int] | None = None, keepdims: _builtins.bool = False, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The biased variance over `axis`, as mean(x²) - mean(x)²."""
def reduced_shape_elem_cnt(input_blob: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], axis: _builtins.int | _collections_abc.Sequence[_builtins.int] | None = None, dtype: _flow2onnx_dtypes.DType | None = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The number of elements that a reduction over `axis` sees, shape (1,), int32 unless said."""
def relu(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """max(x, 0)."""
def rint(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The nearest whole number, halves to even."""
def round(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The nearest whole number, halves to even."""
def rsqrt(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """1 over the square root."""
def sigmoid(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """1/(1+e^-x)."""
def sigmoid_grad(y: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], dy: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The gradient of `sigmoid` where it gave `y` for one of `dy` behind it."""
def sigmoid_v2(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """1/(1+e^-x)."""
def sign(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """-1, 0 or 1."""
def sin(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The sine of radians."""
def sinh(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The hyperbolic sine."""
def softplus(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """ln(1 + e^x)."""
def sqrt(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The square root."""
def square(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """x times x."""
def squared_difference(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | _builtins.float, y: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | _builtins.float, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """(x - y) squared, broadcast."""
def subtract(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | _builtins.float, y: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | _builtins.float, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """x - y, broadcast."""
def tan(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The tangent of radians."""
def tanh(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The hyperbolic tangent."""
def tanh_grad(y: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], dy: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The gradient of `tanh` where it gave `y` for one of `dy` behind it."""
def tanh_v2(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The hyperbolic tangent."""
def top_k(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], axis: _builtins.int = -1, k: _builtins.int = 1, sorted: _builtins.bool = True, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Where the `k` largest along `axis` stand, the largest first; all of them for a greater k."""
def tril(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], diagonal: _builtins.int = 0, fill_value: _builtins.float = 0, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The lower triangle of each matrix, its diagonal shifted up; `fill_value` elsewhere."""
def two_stage_reduce_max(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], axis: _builtins.int | _collections_abc.Sequence[_builtins.int] | None = None, keepdims: _builtins.bool = False, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """`reduce_max`, which devices once made in two stages."""
def two_stage_reduce_min(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], axis: _builtins.int | _collections_abc.Sequence[_builtins.int] | None = None, keepdims: _builtins.bool = False, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """`reduce_min`, which devices once made in two stages."""
def unsorted_batch_segment_sum(data: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], segment_ids: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], num_segments: _builtins.int, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """`unsorted_segment_sum` over the last axis of `segment_ids`, for each of those before it."""
def unsorted_segment_sum(data: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], segment_ids: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], num_segments: _builtins.int, axis: _builtins.int = 0, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The sums of the slices of `data` along `axis` that have the same number."""
def unsorted_segment_sum_like(data: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], segment_ids: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], like: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], axis: _builtins.int = 0, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """`unsorted_segment_sum` with as many segments as `like` has along `axis`."""
def xdivy(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], y: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """x / y, and 0 wherever x is 0."""
def xlogy(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], y: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """x ln y, and 0 wherever x is 0."""
