"""Unrolling of loops: the nodes of every iteration, where their count is known."""

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from flow2onnx.errors import UnsupportedError
from flow2onnx.graph.builder import Builder
from flow2onnx.graph.nodes import attribute
from flow2onnx.graph.types import constant_of, dims, rank_of

__all__ = ["MOST_ITERATIONS", "Iteration", "unroll_loop", "unroll_scan"]

MOST_ITERATIONS = 4096
_MOST_COPIES = 32_768  # of nodes, for all loops of a graph

# iterate(inputs of the body) -> its outputs
Iteration = Callable[[Sequence[ir.Value | None]], Sequence[ir.Value]]


def unroll_loop(
    b: Builder, node: ir.Node, inputs: Sequence[ir.Value | None], iterate: Iteration
) -> list[ir.Value]:
    """The results of a Loop: its last state, then the outputs of its iterations, stacked."""
    count, condition = (constant_of(v) for v in inputs[:2])
    if inputs[0] is not None and count is None:
        raise _unknown_count(node)
    goes_on = inputs[1] is None or condition is None or bool(condition.all())
    if inputs[1] is not None and condition is None:
        raise _unknown_count(node)
    limit = int(count.item()) if count is not None else MOST_ITERATIONS + 1
    state, stacks, done = list(inputs[2:]), list[list[ir.Value]](), 0
    while goes_on and done < limit:
        _count_copies(b, node, done)
        after, *made = iterate([b.const(np.int64(done)), b.const(np.bool_(True)), *state])
        stacks.append(made[len(state) :])
        state, done = list(made[: len(state)]), done + 1
        known = constant_of(after)
        if known is None:
            raise _unknown_count(node)
        goes_on = bool(known.all())
    if not done and len(node.outputs) > len(state):
        raise UnsupportedError(f"{node.name}: a loop without iterations stacks nothing")
    stacked = [
        b.Concat(*(b.Unsqueeze(v, [0]) for v in s), axis=0) for s in zip(*stacks, strict=True)
    ]
    return [*(v for v in state if v is not None), *stacked]


def _count_copies(b: Builder, node: ir.Node, done: int) -> None:
    """Count the nodes of one more iteration; raise where it is one too many."""
    b.unrolled += sum(1 for _ in node.attributes["body"].as_graph().all_nodes())
    if done == MOST_ITERATIONS:
        raise _too_many_iterations(node)
    if b.unrolled > _MOST_COPIES:
        raise UnsupportedError(
            f"{node.name}: more than {_MOST_COPIES} nodes in the unrolled loops of the model",
            hint="give the loop fewer iterations, or leave it out",
        )


def _too_many_iterations(node: ir.Node) -> UnsupportedError:
    return UnsupportedError(f"{node.name}: more than {MOST_ITERATIONS} iterations to unroll")


def _unknown_count(node: ir.Node) -> UnsupportedError:
    return UnsupportedError(
        f"{node.name or node.op_type}: how often the loop runs is known only at run time",
        op=node.name,
        source=node.meta.get("source"),
        hint="give the count as a constant, and let the condition not depend on data",
    )


def unroll_scan(
    b: Builder, node: ir.Node, inputs: Sequence[ir.Value | None], iterate: Iteration
) -> list[ir.Value]:
    """The results of a Scan: its last state, then the outputs of its iterations, stacked."""
    count = attribute(node, "num_scan_inputs")
    state, scanned = list(inputs[:-count]), [v for v in inputs[-count:] if v is not None]
    made = len(node.outputs) - len(state)
    axes = attribute(node, "scan_input_axes", [0] * count)
    backward = attribute(node, "scan_input_directions", [0] * count)
    length = dims(scanned[0])[axes[0]]
    if length > MOST_ITERATIONS:
        raise _too_many_iterations(node)
    stacks: list[Sequence[ir.Value]] = []
    for i in range(length):
        _count_copies(b, node, i)
        places = [length - 1 - i if back else i for back in backward]
        parts = [
            b.Gather(v, np.int64(p), axis=axis)
            for v, p, axis in zip(scanned, places, axes, strict=True)
        ]
        results = iterate([*state, *parts])
        state = list(results[: len(state)])
        stacks.append(results[len(state) :])
    axes = attribute(node, "scan_output_axes", [0] * made)
    backward = attribute(node, "scan_output_directions", [0] * made)
    stacked = [
        _stack(b, parts[::-1] if back else parts, axis)
        for parts, axis, back in zip(zip(*stacks, strict=True), axes, backward, strict=True)
    ]
    return [*(v for v in state if v is not None), *stacked]


def _stack(b: Builder, parts: Sequence[ir.Value], axis: int) -> ir.Value:
    axis %= rank_of(parts[0]) + 1
    return b.Concat(*(b.Unsqueeze(v, [axis]) for v in parts), axis=axis)
