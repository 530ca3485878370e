"""`flow.keras`: spellings of the releases before 0.1.3 that do more than rename."""

from flow2onnx.errors import ArgumentError
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.op import composite
from flow2onnx.trace.registry import operator

__all__: list[str] = []


@composite("keras.activations.relu", catalogued=True)
def relu(
    x: Blob, alpha: float, max_value: float | None, threshold: float, name: str | None
) -> Blob:
    """math.relu; the other arguments exist, and have to stay as they are."""
    if (alpha, max_value, threshold) != (0.0, None, 0.0):
        raise ArgumentError(
            f"alpha, max_value and threshold stay at their defaults, got {alpha!r}, {max_value!r} "
            f"and {threshold!r}",
            hint="use flow.nn.leaky_relu or flow.clip_by_value",
        )
    result: Blob = operator("math.relu")(x, name=name)
    return result
