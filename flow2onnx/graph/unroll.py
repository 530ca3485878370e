"""Unrolling of loops: the nodes of every iteration, where their count is known."""

import contextlib
from collections.abc import Callable, Iterator, Sequence

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
    is_counted = goes_on and (inputs[1] is None or _never_stops(node))
    if is_counted:
        _check_count(b, node, limit)
    state, stacks, done = list(inputs[2:]), list[list[ir.Value]](), 0
    while goes_on and done < limit:
        _count_copies(b, node, done)
        with _repetition(b, limit if is_counted and not done else 1):
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


def _never_stops(node: ir.Node) -> bool:
    """True if the condition that a Loop's body returns is the one it got, or a constant True."""
    body = node.attributes["body"].as_graph()
    value: ir.Value | None = body.outputs[0]
    while value is not None and (maker := value.producer()) is not None:
        if maker.op_type != "Identity" or maker.domain:
            break
        value = maker.inputs[0]
    known = None if value is None else constant_of(value)
    return value is body.inputs[1] or (known is not None and bool(known.all()))


def _check_count(b: Builder, node: ir.Node, iterations: int) -> None:
    """Raise for a loop of so many iterations before any is copied, if they are too many."""
    if iterations > MOST_ITERATIONS:
        raise _too_many_iterations(node, iterations)
    _check_copies(node, b.unrolled + b.unrolled_times * iterations * _count_nodes(node))


@contextlib.contextmanager
def _repetition(b: Builder, times: int) -> Iterator[None]:
    """Count the loops that are unrolled meanwhile as if that happened so many times."""
    around, b.unrolled_times = b.unrolled_times, b.unrolled_times * times
    try:
        yield
    finally:
        b.unrolled_times = around


def _count_nodes(node: ir.Node) -> int:
    """The number of nodes of a loop's body, with those inside of them."""
    return sum(1 for _ in node.attributes["body"].as_graph().all_nodes())


def _count_copies(b: Builder, node: ir.Node, done: int) -> None:
    """Count the nodes of one more iteration; raise where it is one too many."""
    b.unrolled += _count_nodes(node)
    if done == MOST_ITERATIONS:
        raise _too_many_iterations(node)
    _check_copies(node, b.unrolled)


def _check_copies(node: ir.Node, copies: int) -> None:
    if copies > _MOST_COPIES:
        raise UnsupportedError(
            f"{node.name}: {copies} nodes in the unrolled loops of the model; {_MOST_COPIES} are "
            "the most",
            hint="give the loop fewer iterations, or leave it out",
        )


def _too_many_iterations(node: ir.Node, count: int | None = None) -> UnsupportedError:
    found = f"{count} iterations to unroll; {MOST_ITERATIONS} are the most"
    unknown = f"more than {MOST_ITERATIONS} iterations to unroll"
    return UnsupportedError(
        f"{node.name}: {unknown if count is None else found}",
        hint="give the loop fewer iterations, or leave it out",
    )


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
    _check_count(b, node, length)
    stacks: list[Sequence[ir.Value]] = []
    for i in range(length):
        _count_copies(b, node, i)
        places = [length - 1 - i if back else i for back in backward]
        parts = [
            b.Gather(v, np.int64(p), axis=axis)
            for v, p, axis in zip(scanned, places, axes, strict=True)
        ]
        with _repetition(b, length if not i else 1):
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
