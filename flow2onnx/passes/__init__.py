"""Rewrites of a finished graph, one file each; `pipeline` is their order."""

from flow2onnx.passes.counter_based_random import CountDraws
from flow2onnx.passes.fold_batch_norm import FoldBatchNorm
from flow2onnx.passes.half_precision import Halve, RoundGaps, widened
from flow2onnx.passes.pipeline import run_passes

__all__ = ["CountDraws", "FoldBatchNorm", "Halve", "RoundGaps", "run_passes", "widened"]
