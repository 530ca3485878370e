"""Fake quantization, and the observers that find its scales."""

from flow2onnx.dtypes import float32
from flow2onnx.errors import ArgumentError, UnsupportedError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dims, rank_of
from flow2onnx.lowering.quantize import min_max
from flow2onnx.trace.context import current_job
from flow2onnx.trace.op import op
from flow2onnx.trace.quantization import Observer

_LEAST = 1e-30  # the scale of a value that is 0 everywhere
_Pair = tuple[Value, Value]


def _steps(bits: int, scheme: str, formula: str) -> tuple[int, int]:
    """The least and the greatest quantized number."""
    if type(bits) is not int or not 2 <= bits <= 16:
        raise ArgumentError(f"quantization_bit is from 2 to 16, got {bits!r}")
    if scheme not in ("symmetric", "affine"):
        raise ArgumentError(
            f"quantization_scheme is {scheme!r}", hint="write 'symmetric' or 'affine'"
        )
    if formula != "google":
        raise UnsupportedError(
            f"quantization_formula {formula!r} is not available", hint="use 'google'"
        )
    half = 2 ** (bits - 1)
    return (-half, half - 1) if scheme == "symmetric" else (0, 2 * half - 1)


def _scale_and_zero(b: Builder, low: Value, high: Value, steps: tuple[int, int]) -> _Pair:
    """Scale and zero point of the range; both are real numbers, as in OneFlow."""
    first, last = steps
    if first < 0:
        scale = b.Max(b.Div(b.Max(b.Abs(low), b.Abs(high)), float(last)), _LEAST)
        return scale, b.Sub(scale, scale)
    low = b.Min(low, 0.0)
    scale = b.Max(b.Div(b.Sub(b.Max(high, 0.0), low), float(last)), _LEAST)
    return scale, b.Round(b.Div(b.Neg(low), scale))


def _moving(b: Builder, x: Value, momentum: float, steps: tuple[int, int]) -> _Pair:
    observer = Observer(current_job("moving_average_min_max_observer"), b.prefix, momentum=momentum)
    low, high = (b.Reshape(v, [1]) for v in observer.range(x))
    return _scale_and_zero(b, low, high, steps)


@op("quantization.min_max_observer")
def min_max_observer(
    b: Builder,
    input: Value,
    quantization_bit: int = 8,
    quantization_scheme: str = "symmetric",
    quantization_formula: str = "google",
    per_layer_quantization: bool = True,
    name: str | None = None,
) -> _Pair:
    """The scale and the zero point of a blob's range, or of the range at each index of axis 0."""
    steps = _steps(quantization_bit, quantization_scheme, quantization_formula)
    axis = None if per_layer_quantization else 0
    low, high = (b.Reshape(v, [-1]) for v in min_max(b, input, axis))
    return _scale_and_zero(b, low, high, steps)


@op("quantization.moving_average_min_max_observer")
def moving_average_min_max_observer(
    b: Builder,
    input: Value,
    quantization_bit: int = 8,
    quantization_scheme: str = "symmetric",
    quantization_formula: str = "google",
    momentum: float = 0.95,
    name: str | None = None,
) -> _Pair:
    """The scale and the zero point of the moving range, which train jobs move at every call."""
    steps = _steps(quantization_bit, quantization_scheme, quantization_formula)
    return _moving(b, input, momentum, steps)


@op("quantization.moving_average_min_maxObserver", catalogued=True)
def moving_average_min_max_observer_before_0_4(
    b: Builder, input: Value, bit: int, scheme: str, momentum: float, name: str | None
) -> _Pair:
    """The spelling of 0.3 of moving_average_min_max_observer."""
    return _moving(b, input, momentum, _steps(bit, scheme, "google"))


@op("quantization.fake_quantization", vjp=lambda b, x, y, g: (g, None, None))
def fake_quantization(
    b: Builder,
    input: Value,
    scale: Value,
    zero_point: Value,
    quantization_bit: int = 8,
    quantization_scheme: str = "symmetric",
    quantization_formula: str = "google",
    name: str | None = None,
) -> Value:
    """A blob rounded to what so many bits hold; the gradient passes straight through."""
    first, last = _steps(quantization_bit, quantization_scheme, quantization_formula)
    if dims(scale) != (1,):  # one for each index of axis 0
        spread = [-1] + [1] * (rank_of(input) - 1)
        scale, zero_point = b.Reshape(scale, spread), b.Reshape(zero_point, spread)
    bounds = b.const(float(first), float32), b.const(float(last), float32)
    steps = b.Clip(b.Add(b.Round(b.Div(input, scale)), zero_point), *bounds)
    return b.Mul(b.Sub(steps, zero_point), scale)
