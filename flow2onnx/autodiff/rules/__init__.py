"""Gradient rules by family of operator."""

from flow2onnx.autodiff.rules import (  # noqa: F401  # imported for the rules they register
    arithmetic,
    attention,
    control_flow,
    convolution,
    grid_sampling,
    indexing,
    matrix,
    normalization,
    pooling,
    quantization,
    recurrent,
    reduction,
    resize,
    roi,
    scan,
    shape,
    spectral,
    unary,
)
