"""The order of the passes, each with the reason it stands where it does."""

import onnx_ir as ir

from flow2onnx.dtypes import DType
from flow2onnx.graph.verify import Kernels
from flow2onnx.passes.base import Pass
from flow2onnx.passes.common_subexpressions import CommonSubexpressionElimination
from flow2onnx.passes.dead_code import DeadCodeElimination
from flow2onnx.passes.expand_unique import ExpandUnique
from flow2onnx.passes.float64_functions import ExpandFloat64Functions
from flow2onnx.passes.fold_update import FoldUpdateIntoGemm
from flow2onnx.passes.fuse_bias import FuseBias
from flow2onnx.passes.redundant_casts import RemoveRedundantCasts
from flow2onnx.passes.scatter_into_state import ScatterIntoState
from flow2onnx.passes.symmetric_pads import SymmetricPads
from flow2onnx.passes.upcast_missing_kernels import UpcastMissingKernels

__all__ = ["PIPELINE", "run_passes"]

PIPELINE: tuple[type[Pass], ...] = (
    DeadCodeElimination,  # first: gradients nobody asked for cost every later pass
    ExpandFloat64Functions,  # before merging: forms of one value share parts
    RemoveRedundantCasts,  # before merging, which then sees through them
    CommonSubexpressionElimination,  # before fusing, which asks for single readers
    FuseBias,
    FoldUpdateIntoGemm,
    ScatterIntoState,
    DeadCodeElimination,  # last: what the rewrites left behind
)


def run_passes(graph: ir.Graph, half: DType | None = None, kernels: Kernels | None = None) -> None:
    """Run the pipeline on a graph, in place; what no kernel takes is computed otherwise before.

    What has no kernel in `half` is computed in float32.
    """
    if kernels is not None:
        SymmetricPads(kernels).run(graph)  # first: crops it makes may be equal
        ExpandUnique(kernels).run(graph)
    if half is not None and kernels is not None:
        DeadCodeElimination().run(graph)
        UpcastMissingKernels(half, kernels).run(graph)  # first: casts it makes may be idle
    for kind in PIPELINE:
        kind().run(graph)
