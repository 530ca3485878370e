"""The order of the passes, each with the reason it stands where it does."""

import onnx_ir as ir

from flow2onnx.passes.base import Pass
from flow2onnx.passes.common_subexpressions import MergeEqualNodes
from flow2onnx.passes.dead_code import DropDeadCode
from flow2onnx.passes.doubles import ComposeDoubles
from flow2onnx.passes.fold_update import FoldUpdateIntoGemm
from flow2onnx.passes.fuse_bias import FuseBias
from flow2onnx.passes.idle_casts import DropIdleCasts

__all__ = ["PIPELINE", "run_passes"]

PIPELINE: tuple[type[Pass], ...] = (
    DropDeadCode,  # first: gradients nobody asked for cost every later pass
    ComposeDoubles,  # before merging: forms of one value share parts
    DropIdleCasts,  # before merging, which then sees through them
    MergeEqualNodes,  # before fusing, which asks for single readers
    FuseBias,
    FoldUpdateIntoGemm,
    DropDeadCode,  # last: what the rewrites left behind
)


def run_passes(graph: ir.Graph) -> None:
    """Run the pipeline on a graph, in place."""
    for kind in PIPELINE:
        kind().run(graph)
