"""The memory of jobs: how much they need, by kind, and whether there is so much."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flow2onnx.analysis.live_range import call_sizes, session_bytes
from flow2onnx.engine.opening import Opening
from flow2onnx.errors import NotEnoughMemoryError

__all__ = [
    "MemoryLine",
    "check_memory",
    "kept_bytes",
    "memory_lines",
    "most_bytes",
    "needed_bytes",
]

_log = logging.getLogger("flow2onnx.memory")
_NEAR = 0.8  # of what there is


@dataclass(frozen=True)
class MemoryLine:
    """Memory of one kind, in bytes; `estimated` from shapes rather than counted."""

    kind: str
    bytes: int
    estimated: bool
    note: str


def memory_lines(opening: Opening) -> tuple[MemoryLine, ...]:
    """The memory that a job takes while it runs, by kind.

    Its halves share their state and run in turn: of the rest, the lines are those of the half
    that needs more.
    """
    own = max(map(_lines_of_calls, opening.halves), key=_total)
    return (*_lines_of_state(opening), *own)


def _lines_of_state(opening: Opening) -> tuple[MemoryLine, ...]:
    twice = frozenset[str]().union(*(half.names_in_two_buffers for half in opening.halves))
    lines = []
    for kind, is_weight in (("weights", True), ("optimizer state", False)):
        variables = opening.job.variables.values()
        held = [v for v in variables if (v.role == "variable") is is_weight]
        doubled = [v for v in held if v.name in twice]
        note = f"{len(held)} tensors, of which {len(doubled)} in two buffers, as they are updated"
        lines.append(MemoryLine(kind, sum(v.nbytes for v in (*held, *doubled)), False, note))
    return tuple(lines)


def _lines_of_calls(opening: Opening) -> tuple[MemoryLine, ...]:
    """The memory of one model besides state."""
    note = (
        "most alive at once by shapes and order of the nodes; the runtime's scratch memory is not "
        "counted"
    )
    sizes = opening.sizes or call_sizes(opening.model.graph, opening.job.feeds)
    return (
        MemoryLine("constants", sizes.constants, False, "in the model itself"),
        MemoryLine("inputs", sizes.inputs, False, "of one call"),
        MemoryLine("results", sizes.results, False, "of one call"),
        MemoryLine("activations", sizes.activations, True, note),
    )


def _total(lines: Iterable[MemoryLine]) -> int:
    return sum(line.bytes for line in lines)


def needed_bytes(openings: Sequence[Opening]) -> int:
    """The estimated bytes of the jobs of a session: they share state and run one at a time."""
    halves = [half for opening in openings for half in opening.halves]
    state = dict[str, int]()
    for half in halves:
        twice = half.names_in_two_buffers
        for name, variable in half.job.variables.items():
            state[name] = max(state.get(name, 0), variable.nbytes * (2 if name in twice else 1))
    return sum(state.values()) + max(_total(_lines_of_calls(half)) for half in halves)


def kept_bytes(openings: Sequence[Opening]) -> int:
    """The estimated bytes that the runtime keeps of open models beside their tensors."""
    return sum(session_bytes(half.model.graph) for o in openings for half in o.halves)


def most_bytes(openings: Sequence[Opening], free: int | None) -> int | None:
    """The bytes that jobs may need: the least `runtime.memory_limit`, or what is free."""
    limits = (o.job.spec.config.value("runtime.memory_limit") for o in openings)
    return min((limit for limit in limits if limit is not None), default=free)


def check_memory(openings: Sequence[Opening], free: int | None) -> None:
    """Raise `NotEnoughMemoryError` if jobs need more than there is; log it if it is close.

    `free` bytes are left on the device, unless `runtime.memory_limit` of a job says how many;
    None is not known, and checks nothing.
    """
    specs = [opening.job.spec for opening in openings]
    most = most_bytes(openings, free)
    if most is None:
        return
    needed = needed_bytes(openings)
    if needed > most:
        raise NotEnoughMemoryError(
            f"the jobs need about {_mebibytes(needed)}, and there are {_mebibytes(most)}: "
            f"{_largest(openings)}",
            job=specs[0].name,
            source=specs[0].source,
            hint="make the batch smaller, set config.runtime.recompute(True), or free memory; "
            "config.runtime.memory_limit(bytes) sets what there is",
        )
    if needed > _NEAR * most:
        _log.warning(
            "the jobs need about %s of the %s there are", _mebibytes(needed), _mebibytes(most)
        )


def _largest(openings: Sequence[Opening]) -> str:
    lines = [line for opening in openings for line in memory_lines(opening)]
    top = sorted(lines, key=lambda line: line.bytes, reverse=True)[:2]
    return ", ".join(f"{_mebibytes(line.bytes)} of {line.kind}" for line in top)


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"
