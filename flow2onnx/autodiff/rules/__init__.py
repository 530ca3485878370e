"""Gradient rules by family of operator."""

from flow2onnx.autodiff.rules import (  # noqa: F401  # imported for the rules they register
    arithmetic,
    attention,
    control,
    convolution,
    indexing,
    matrix,
    normalise,
    pooling,
    quantization,
    recurrent,
    reduction,
    regions,
    resampling,
    sampling,
    sequences,
    shape,
    spectral,
    unary,
)
