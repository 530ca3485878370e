"""Gradient rules by family of operator."""

from flow2onnx.autodiff.rules import (  # noqa: F401  # imported for the rules they register
    arithmetic,
    convolution,
    indexing,
    matrix,
    normalise,
    pooling,
    reduction,
    resampling,
    shape,
    unary,
)
