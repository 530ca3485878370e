"""Where heads lie in the tensors of attention on CPUs, so that none is transposed for it."""

import onnx_ir as ir

from flow2onnx_native.abi import DOMAIN, MOST_MATRIX_TASKS, AttentionLayout
from flow2onnx_native.graph import is_transpose, replace_value

__all__ = ["HEAD_AXES", "lay_out_attention"]

_RESULT = 4  # the operand of the gradient that is the attention's result
HEAD_AXES = [0, 2, 1, 3]  # from heads side by side within rows to one behind the other, and back


def lay_out_attention(graph: ir.Graph, threads: int) -> None:
    """Let attention read and write heads within rows, where transpositions brought them there.

    Every node of attention gets its attribute `layout`. The transpositions stay, unread.
    """
    tasks = min(max(threads, 1), MOST_MATRIX_TASKS)
    in_rows = set[ir.Value]()  # results that other nodes of attention read
    for node in [n for n in graph if n.domain == DOMAIN]:
        if node.op_type == "Attention":
            queries, keys, values = (_reads_rows(node, at) for at in range(3))
            result, slope, gradients = _writes_rows(node, 0), False, [False] * 3
            in_rows |= {node.outputs[0]} if result else set()
        elif node.op_type == "AttentionGradient":
            slope, queries, keys, values = (_reads_rows(node, at) for at in range(4))
            result = node.inputs[_RESULT] in in_rows
            gradients = [_writes_rows(node, at) for at in range(3)]
        else:
            continue
        of_queries, of_keys, of_values = gradients
        layout = AttentionLayout(queries, keys, values, result, slope, of_queries, of_keys,
                                 of_values, tasks)  # fmt: skip
        node.attributes.add(ir.AttrInt64s("layout", [int(n) for n in layout]))


def _reads_rows(node: ir.Node, at: int) -> bool:
    """True if a node now reads what an operand was transposed of."""
    value = node.inputs[at]
    made = None if value is None else value.producer()
    if made is None or not is_transpose(made, HEAD_AXES):
        return False
    node.replace_input_with(at, made.inputs[0])
    return True


def _writes_rows(node: ir.Node, at: int) -> bool:
    """True if a node now writes what one of its results was transposed to."""
    value = node.outputs[at]
    others = [use.node for use in value.uses() if not _is_result(use.node, use.idx)]
    if len(others) != 1 or not is_transpose(others[0], HEAD_AXES) or value.is_graph_output():
        return False
    replace_value(others[0].outputs[0], value)
    return True


def _is_result(node: ir.Node, at: int) -> bool:
    """True if an operand is the result of the attention that a node is the gradient of."""
    return (node.domain, node.op_type, at) == (DOMAIN, "AttentionGradient", _RESULT)
