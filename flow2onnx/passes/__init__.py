"""Rewrites of a finished graph, one file each; `pipeline` is their order."""

from flow2onnx.passes.counted_draws import CountDraws
from flow2onnx.passes.pipeline import run_passes

__all__ = ["CountDraws", "run_passes"]
