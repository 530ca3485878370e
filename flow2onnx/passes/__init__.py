"""Rewrites of a finished graph, one file each; `pipeline` is their order."""

from flow2onnx.passes.counter_based_random import CounterBasedRandom
from flow2onnx.passes.fold_batch_norm import FoldBatchNorm
from flow2onnx.passes.half_precision import (
    ConvertToHalf,
    RoundMissingKernels,
    count_missing_kernels,
)
from flow2onnx.passes.pipeline import run_passes

__all__ = [
    "ConvertToHalf",
    "CounterBasedRandom",
    "FoldBatchNorm",
    "RoundMissingKernels",
    "count_missing_kernels",
    "run_passes",
]
