"""The opsets that a model can be made for: limits of our lowerings and of the installed runtime."""

from functools import cache

from flow2onnx_runtime import BundleError, open_session

from flow2onnx.dtypes import float32
from flow2onnx.errors import ArgumentError
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_bytes, model_of
from flow2onnx.onnx_io.serialize import NEWEST_OPSET

__all__ = ["OLDEST_OPSET", "USUAL_OPSET", "check_opset", "newest_opset"]

OLDEST_OPSET = 18  # before it, reductions take their axes in another form
USUAL_OPSET = 21


def check_opset(opset: object) -> None:
    """Raise unless our operators and the installed runtime can be had at `opset`."""
    newest = newest_opset()
    if type(opset) is not int or not OLDEST_OPSET <= opset <= newest:
        raise ArgumentError(
            f"opset {opset!r} is not supported",
            hint=f"the installed runtime and flow2onnx take {OLDEST_OPSET} to {newest}; "
            f"{USUAL_OPSET} is a good choice",
        )


@cache
def newest_opset() -> int:
    """The newest opset that the runtime opens: a fact it tells in no other way."""
    return next(n for n in range(NEWEST_OPSET, 0, -1) if _opens(n))


def _opens(opset: int) -> bool:
    b = Builder(opset)
    b.output(b.Identity(b.input("x", (1,), float32)), "y")
    try:
        return open_session(model_bytes(model_of(b.graph))) is not None
    except BundleError:
        return False
