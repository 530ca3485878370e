"""Models of standard operators, made faster in memory for the machine that is about to run them."""

import os

from flow2onnx_runtime import Options, OptionsError
from flow2onnx_runtime.extensions import Wish, accelerator
from flow2onnx_runtime.options import DEFAULT_OPTIONS
from flow2onnx_runtime.providers import CPU

from flow2onnx.compile.garbage_collection import collector_paused

__all__ = ["accelerate"]


@collector_paused()
def accelerate(
    model: str | os.PathLike[str] | bytes,
    options: Options | None = None,
    *,
    native: Wish = "auto",
) -> tuple[str | os.PathLike[str] | bytes, Options]:
    """The model to open in the place of another, and its options: ``Predictor(*accelerate(m))``.

    The operators of the package flow2onnx-native take the place of attention whose sizes are known
    (softmax(scale * Q K^T, masked) V, without the matrix of all scores), and of convolutions of 3x3
    and 5x5 whose weights are constant, computed by Winograd's algorithm to within 2e-5 of the
    largest value, with the sum and the ReLU that follow. Their transformed weights take four times
    the memory of the weights. In a step that trains, other operators take part too. The file stays
    as it is, of standard operators. ``Options(native=True)`` does the same without the compiler.

    `native` as in ``config.runtime.native``: "auto" returns the model itself where the package is
    not installed; True raises `UnsupportedError` there. It returns the model itself, too, where
    nothing gains: models of more than 2 GB, and sessions on other providers than the CPU, for
    which True is an `OptionsError`. What is no ONNX model is a `BundleError`.
    """
    options = DEFAULT_OPTIONS if options is None else options
    if options.provider_names != CPU.names:
        if native is True:
            raise OptionsError(
                f"native operators run on the CPU, and the providers are {options.provider_names}",
                hint="leave native at 'auto', or open the model on the CPU",
            )
        return model, options
    found = accelerator(native)
    return (model, options) if found is None else found.accelerate(model, options)
