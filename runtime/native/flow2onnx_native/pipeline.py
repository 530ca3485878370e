"""The passes in their order: on a copy of a training step, and on a model for prediction."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

import onnx_ir as ir
from flow2onnx_runtime.extensions import (
    GRADIENT_OF,
    GRADIENT_OF_EXPANDED,
    REPLACED_BY,
    GradientOf,
    GraphAnalysis,
)

from flow2onnx_native.abi import DOMAIN
from flow2onnx_native.attention import replace_attention
from flow2onnx_native.attention_layout import lay_out_attention
from flow2onnx_native.attention_nodes import CPU_LIMITS
from flow2onnx_native.batch_norm import fold_batch_norms
from flow2onnx_native.channel_fusion import fuse_channels
from flow2onnx_native.constant_products import pack_constant_products
from flow2onnx_native.convolutions import replace_constant_convolutions, replace_convolutions
from flow2onnx_native.cross_entropy import replace_cross_entropies
from flow2onnx_native.fused_program import fuse_all
from flow2onnx_native.fusion_groups import fusion_groups
from flow2onnx_native.gather_scatter import add_where_looked_up, merge_tables, replace_rows
from flow2onnx_native.graph import (
    dead_code_removed,
    fed_values_unknown,
    remove_dead_code,
    sort,
)
from flow2onnx_native.grouped_attention import replace_grouped_attention
from flow2onnx_native.matmul import replace_constant_products, replace_products
from flow2onnx_native.matmul_as_sum import replace_vector_products
from flow2onnx_native.packed_products import replace_repeated_products
from flow2onnx_native.pooling import replace_pools
from flow2onnx_native.recurrence import replace_recurrences
from flow2onnx_native.schedule import wait_for_readers
from flow2onnx_native.transposes import replace_transposes

__all__ = ["FEWEST", "FEWEST_IF_LARGE", "LARGE", "rewrite_prediction", "rewrite_training"]

# Measured at one thread: the runtime's own passes over small tensors stay in the cache, and with
# fewer nodes they are as fast. Pairs over 2^16 elements and more gain 6 % on an encoder and 2 to
# 11 % on wide, from run to run; over 2^14 and 2^12 elements too, the gain on both is gone.
FEWEST = 10
FEWEST_IF_LARGE = 2
LARGE = 1 << 16


def rewrite_training(
    model: ir.Model,
    operators: Collection[str],
    threads: int,
    analysis: GraphAnalysis,
    *,
    winograd: bool,
    avx512: bool,
) -> tuple[ir.Model, dict[str, int]]:
    """A copy that uses `operators` of the library where it can, and how many of each it has.

    `threads`: how many the session has for one operator. `winograd`: whether convolutions may be
    computed so, where it is faster. `avx512`: whether the library's loops use that instruction set.
    """
    copy = model.clone()
    # first, as gradients are noted of the original's nodes, which others replace
    copies = _copies(model.graph, copy.graph)
    with fed_values_unknown(copy.graph):
        _rewrite_training(
            copy, copies, operators, threads, analysis, winograd=winograd, avx512=avx512
        )
    return copy, _count(copy.graph)


def _rewrite_training(
    copy: ir.Model,
    copies: Mapping[ir.Value, ir.Value],
    operators: Collection[str],
    threads: int,
    analysis: GraphAnalysis,
    *,
    winograd: bool,
    avx512: bool,
) -> None:
    graph = copy.graph
    with dead_code_removed(copy):  # thousands of nodes for a few, before anybody looks at them
        replaced = replace_recurrences(graph, copies, operators, threads)
    copies = {noted: replaced.get(value, value) for noted, value in copies.items()}
    with dead_code_removed(copy):
        replace_convolutions(graph, copies, operators, threads, winograd=winograd, avx512=avx512)
    _replace_attention(copy, operators, threads, trains=True)
    with dead_code_removed(copy):
        replace_cross_entropies(graph, operators, threads, analysis.index_origin)
    with dead_code_removed(copy):  # what read a product that is no longer wanted is gone then
        replace_pools(graph, operators, threads)
    with dead_code_removed(copy):
        if "Fused" in operators:
            replace_vector_products(graph, LARGE)
        replace_repeated_products(graph, operators, threads)
    with dead_code_removed(copy):
        replace_products(graph, operators, threads)
        replace_rows(graph, operators, threads, analysis.index_origin)
    with dead_code_removed(copy):  # those that were replaced read rows no more
        add_where_looked_up(graph, operators)
    sort(graph)  # groups are looked for in the order of the nodes
    # last, of what no other operator has taken
    if "FusedChannels" in operators:
        with dead_code_removed(copy):
            fuse_channels(graph)
    if "Fused" in operators:
        fuse_all(graph, fusion_groups(graph, FEWEST, FEWEST_IF_LARGE, LARGE))
        sort(graph)
    with dead_code_removed(copy):
        replace_transposes(graph, operators, threads)
    merge_tables(graph)
    wait_for_readers(graph, analysis.late_readers(graph))
    sort(graph)


def rewrite_prediction(
    model: ir.Model, operators: Collection[str], threads: int, *, avx512: bool
) -> dict[str, int]:
    """Let a model whose weights never change use `operators`; how many of each it then has."""
    with fed_values_unknown(model.graph):
        with dead_code_removed(model):
            fold_batch_norms(model.graph)
        _replace_attention(model, operators, threads)
        with dead_code_removed(model):
            if avx512:  # with other sets they were not measured beside the runtime
                pack_constant_products(model.graph, operators, threads)
        with dead_code_removed(model):
            replace_constant_products(model.graph, operators, threads)
        with dead_code_removed(model):
            replace_constant_convolutions(model.graph, operators, threads, avx512=avx512)
        sort(model.graph)
    return _count(model.graph)


def _replace_attention(
    model: ir.Model, operators: Collection[str], threads: int, *, trains: bool = False
) -> None:
    before = len(model.graph)
    if trains and replace_grouped_attention(model.graph, operators):
        sort(model.graph)
        remove_dead_code(model)
        before = -1  # there are nodes to lay out
    replace_attention(model.graph, operators, CPU_LIMITS)
    if len(model.graph) == before:
        return
    sort(model.graph)
    remove_dead_code(model)  # transpositions that nobody reads would keep others
    lay_out_attention(model.graph, threads)
    remove_dead_code(model)


def _count(graph: ir.Graph) -> dict[str, int]:
    used = Counter(n.op_type for n in graph if n.domain == DOMAIN)
    if used:
        graph.opset_imports[DOMAIN] = 1
    return dict(used)


def _copies(graph: ir.Graph, copy: ir.Graph) -> dict[ir.Value, ir.Value]:
    """For each value of a graph, or that notes name instead of one, that in its copy."""
    copies = dict(zip(graph.inputs, copy.inputs, strict=True))
    copies |= {v: copy.initializers[name] for name, v in graph.initializers.items()}
    for node, twin in zip(graph, copy, strict=True):
        copies |= dict(zip(node.outputs, twin.outputs, strict=True))
    for value in _values_in_notes(graph):
        last = value
        while last not in copies and REPLACED_BY in last.meta:
            last = last.meta[REPLACED_BY]
        if last in copies:
            copies[value] = copies[last]
    return copies


def _values_in_notes(graph: ir.Graph) -> Iterator[ir.Value]:
    """The values that notes on gradients name."""
    for node in graph:
        for kind in (GRADIENT_OF, GRADIENT_OF_EXPANDED):
            note: GradientOf | None = node.meta.get(kind)
            if note is not None:
                named = (*note.inputs, *note.outputs, *note.gradients)
                yield from (value for value in named if value is not None)
