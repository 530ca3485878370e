"""The passes in their order for steps that run on CUDA."""

from collections import Counter
from collections.abc import Collection

import onnx_ir as ir
from flow2onnx_runtime.extensions import GraphAnalysis

from flow2onnx_native.abi import DOMAIN
from flow2onnx_native.attention import replace_attention
from flow2onnx_native.attention_nodes import CUDA_LIMITS
from flow2onnx_native.channel_fusion import fuse_channels
from flow2onnx_native.cross_entropy import replace_cross_entropies
from flow2onnx_native.draws import replace_draws
from flow2onnx_native.elementwise import fusible_on_cuda
from flow2onnx_native.fused_plan import parse_parts
from flow2onnx_native.fused_program import Nodes, fuse_all
from flow2onnx_native.fusion_groups import fusion_groups
from flow2onnx_native.gather_scatter import replace_rows
from flow2onnx_native.graph import (
    ON_CUDA,
    dead_code_removed,
    fed_values_unknown,
    remove_dead_code,
    sort,
)
from flow2onnx_native.matmul_as_sum import replace_vector_products
from flow2onnx_native.parts import merge_programs
from flow2onnx_native.schedule import wait_for_readers

__all__ = ["rewrite_for_cuda"]

# A launch costs the host more than most of these programs the device: pairs are worth one.
FEWEST = 2
_ONE_TASK = 1  # the device shares out the work by itself
_NOTHING_KEPT = 0  # memory takes longer than a few operations
_OF_ANY_SIZE = 1
_MOST_OPERANDS = 1000  # a launch takes some 4,000 addresses and sizes


def rewrite_for_cuda(
    model: ir.Model,
    operators: Collection[str],
    analysis: GraphAnalysis,
    *,
    is_precise: bool = False,
) -> tuple[ir.Model, dict[str, int]]:
    """A copy that uses the CUDA library's `operators` where it can, and how many of each it has.

    `is_precise`: products that the operators compute have single precision, not TF32's.
    """
    copy = model.clone()
    graph = copy.graph
    with fed_values_unknown(graph):
        _rewrite(copy, operators, analysis, is_precise=is_precise)
    for node in graph:
        _add_partial_sums(node)
    used = Counter(n.op_type for n in graph if n.domain == DOMAIN)
    if used:
        graph.opset_imports[DOMAIN] = 1
    return copy, dict(used)


def _rewrite(
    copy: ir.Model, operators: Collection[str], analysis: GraphAnalysis, *, is_precise: bool
) -> None:
    graph = copy.graph
    replace_attention(graph, operators, CUDA_LIMITS, is_precise=is_precise)
    remove_dead_code(copy)
    with dead_code_removed(copy):
        replace_draws(graph, operators)
    sort(graph)
    with dead_code_removed(copy):
        replace_cross_entropies(graph, operators, _ONE_TASK, analysis.index_origin)
    with dead_code_removed(copy):
        replace_vector_products(graph, _OF_ANY_SIZE)
        replace_rows(graph, operators, _ONE_TASK, analysis.index_origin)
    sort(graph)  # groups are looked for in the order of the nodes
    if "FusedChannels" in operators:
        with dead_code_removed(copy):
            fuse_channels(graph, _NOTHING_KEPT, ON_CUDA)
    fuse_all(graph, fusion_groups(graph, 1, 1, 0, fusible_on_cuda), _is_worth_it)
    sort(graph)
    if "FusedParts" in operators:
        merge_programs(graph)
        sort(graph)
    wait_for_readers(graph, analysis.late_readers(graph))
    sort(graph)


def _is_worth_it(nodes: Nodes) -> bool:
    """True if a program of these nodes pays, and has no more operands than may be."""
    return _pays(nodes) and _operand_count(nodes) <= _MOST_OPERANDS


def _pays(nodes: Nodes) -> bool:
    """True if a program saves a launch.

    It does with several nodes, or as one that others may join: an update, a norm of a weight, or a
    cast of one.
    """
    computing = [(node, part) for node, part in nodes if part.kind != "alias"]
    node, part = computing[0]
    is_norm = part.kind == "sum" and part.broadcast is not None and part.broadcast.middle == 1
    is_update = all(v.is_graph_output() for v in node.outputs)
    is_cast = node.op_type == "Cast" and any(
        v is not None and v.is_graph_input() for v in node.inputs
    )
    return len(computing) >= FEWEST or is_norm or is_update or is_cast


def _operand_count(nodes: Nodes) -> int:
    """The number of values that go in and out of a program, at most."""
    values = {v for node, _ in nodes for v in (*node.inputs, *node.outputs)}
    return len(values)


def _add_partial_sums(node: ir.Node) -> None:
    """Give a node with sums the output that holds partial ones, which nobody reads."""
    if node.domain != DOMAIN or node.op_type not in ("Fused", "FusedParts", "FusedChannels"):
        return
    if node.op_type == "FusedChannels" or any(plan.has_sums for plan in parse_parts(node)):
        node.resize_outputs(len(node.outputs) + 1)
        partial = node.outputs[-1]
        partial.name = f"{node.name}/partial_sums"
        partial.type = ir.TensorType(ir.DataType.FLOAT)
