"""Rewrites for the operators of the native library: on a graph that is about to be run, only."""

from collections import Counter
from collections.abc import Collection

import onnx_ir as ir

from flow2onnx.passes.dead_code import DeadCodeElimination
from flow2onnx.passes.native.channels import fuse_channels
from flow2onnx.passes.native.convolutions import use_kept_convolutions, use_native_convolutions
from flow2onnx.passes.native.groups import groups_of
from flow2onnx.passes.native.losses import use_native_losses
from flow2onnx.passes.native.order import wait_for_readers
from flow2onnx.passes.native.pools import use_native_pools
from flow2onnx.passes.native.products import use_native_products
from flow2onnx.passes.native.programs import DOMAIN, fuse
from flow2onnx.passes.native.rows import use_native_rows
from flow2onnx.passes.native.sums import sum_in_programs

__all__ = ["DOMAIN", "FEWEST", "FEWEST_IF_LARGE", "LARGE", "rewrite", "rewrite_kept"]

# Measured at one thread: the runtime's own passes over small tensors stay in the cache, and with
# fewer nodes they are as fast. Pairs over 2^16 elements and more gain 6 % on an encoder and 2 to
# 11 % on wide, from run to run; over 2^14 and 2^12 elements too, the gain on both is gone.
FEWEST = 10
FEWEST_IF_LARGE = 2
LARGE = 1 << 16


def rewrite(
    model: ir.Model, operators: Collection[str], threads: int = 1, *, winograd: bool = True
) -> tuple[ir.Model, dict[str, int]]:
    """A copy that uses `operators` of the library where it can, and how many of each it has.

    `threads`: how many the session has for one operator. `winograd`: whether convolutions may be
    computed so, where it is faster.
    """
    copy = model.clone()
    graph = copy.graph
    copies = _copies(model.graph, graph)
    use_native_convolutions(graph, copies, operators, threads, winograd=winograd)
    use_native_losses(graph, operators, threads)
    DeadCodeElimination().run(graph)
    use_native_pools(graph, operators, threads)
    DeadCodeElimination().run(graph)
    if "Fused" in operators:
        sum_in_programs(graph, LARGE)
    use_native_products(graph, operators, threads)
    use_native_rows(graph, operators, threads)
    DeadCodeElimination().run(graph)
    if "FusedChannels" in operators:
        fuse_channels(graph)
        DeadCodeElimination().run(graph)
    if "Fused" in operators:
        for i, nodes in enumerate(groups_of(graph, FEWEST, FEWEST_IF_LARGE, LARGE)):
            fuse(graph, nodes, f"native/{i}")
    graph.sort()
    wait_for_readers(graph)
    graph.sort()
    return copy, _used(graph)


def rewrite_kept(model: ir.Model, operators: Collection[str], threads: int = 1) -> dict[str, int]:
    """Let a model whose weights never change use `operators`; how many of each it then has.

    `threads`: how many the session has for one operator.
    """
    graph = model.graph
    if "Conv" in operators:
        use_kept_convolutions(graph, threads)
        DeadCodeElimination().run(graph)
        graph.sort()
    return _used(graph)


def _used(graph: ir.Graph) -> dict[str, int]:
    used = Counter(n.op_type for n in graph if n.domain == DOMAIN)
    if used:
        graph.opset_imports[DOMAIN] = 1
    return dict(used)


def _copies(graph: ir.Graph, copy: ir.Graph) -> dict[ir.Value, ir.Value]:
    """For each value of a graph the one in its copy."""
    found = dict(zip(graph.inputs, copy.inputs, strict=True))
    found |= {v: copy.initializers[name] for name, v in graph.initializers.items()}
    for node, twin in zip(graph, copy, strict=True):
        found |= dict(zip(node.outputs, twin.outputs, strict=True))
    return found
