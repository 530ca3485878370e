"""Explanations of jobs as they are shown: the outcome of flags, nodes, state, memory."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from flow2onnx_runtime import view
from flow2onnx_runtime.view.texts import size_text

from flow2onnx.analysis.in_place import InPlace
from flow2onnx.engine.memory import MemoryLine
from flow2onnx.engine.opening import Capture
from flow2onnx.passes.recompute import RecomputedSegment

__all__ = [
    "Capture",
    "Explanation",
    "Fallback",
    "FlagOutcome",
    "LoweringChoice",
    "MemoryLine",
    "ProviderNodes",
]


@dataclass(frozen=True)
class FlagOutcome:
    """A setting that the program made: whether it has an effect here, and which or why not."""

    name: str
    value: str
    has_effect: bool
    outcome: str
    source: str | None


@dataclass(frozen=True)
class ProviderNodes:
    """The nodes that one provider runs, as the runtime optimised them.

    Nodes that the runtime made itself may have no name.
    """

    provider: str
    count: int
    operators: dict[str, int]
    names: tuple[str, ...]


@dataclass(frozen=True)
class Fallback:
    """Nodes that do not run where the job was placed, and why."""

    provider: str
    why: str
    operators: dict[str, int]
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class LoweringChoice:
    """The form that a lowering with several took for a node, and why: by static rule, tuned, asked.

    `forms` are those that are valid there, `question` the shapes that decide.
    """

    node: str
    lowering: str
    form: str
    why: str
    forms: tuple[str, ...]
    question: str


@dataclass(frozen=True, kw_only=True, repr=False)
class Explanation:
    """The outcome of flags, nodes and state. `str()` is a table, `as_dict()` what JSON holds.

    `native` counts the operators of flow2onnx-native by name, which stand in `nodes` too;
    `why_not_native` says what they miss on a device that they are for. `nodes` is empty where the
    installed runtime does not tell which provider runs what. `captures` says of each model of a job
    on CUDA whether its runs are one launch. `state` says of each large tensor that the job updates
    whether it has one buffer or two.
    """

    job: str
    kind: str
    placed_on: str
    providers: tuple[str, ...]
    flags: tuple[FlagOutcome, ...]
    nodes: tuple[ProviderNodes, ...]
    fallbacks: tuple[Fallback, ...]
    state: tuple[InPlace, ...]
    recomputed: tuple[RecomputedSegment, ...]
    memory: tuple[MemoryLine, ...]
    lowerings: tuple[LoweringChoice, ...] = ()
    captures: tuple[Capture, ...] = ()
    products: str = ""
    native: Mapping[str, int] = field(default_factory=dict)
    why_not_native: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Everything, as dicts and lists of plain values."""
        return asdict(self)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def __repr__(self) -> str:
        """One line, however much there is to say."""
        return f"<explanation of {self.kind} job {self.job}, placed on {self.placed_on}>"

    def _repr_html_(self) -> str:
        """Flags, nodes and memory in tables, for a notebook."""
        flags = [(f.name, f.value, f.outcome, f.source) for f in self.flags]
        nodes = [(n.provider, n.count, _counts_text(n.operators)) for n in self.nodes]
        memory = [(m.kind, size_text(m.bytes), m.note) for m in self.memory]
        return view.html_block(
            f"{self.kind} job {self.job}, placed on {self.placed_on}",
            view.facts_table({"providers": ", ".join(self.providers)}),
            view.table(("flag", "value", "outcome", "set at"), flags) if flags else "",
            view.table(("provider", "nodes", "operators"), nodes, ("nodes",)),
            view.table(("memory", "size", ""), memory, ("size",)),
        )

    def _lines(self) -> Iterator[str]:
        yield f"{self.kind} job {self.job}, placed on {self.placed_on}"
        yield f"providers: {', '.join(self.providers)}"
        yield from _section("flags", (f"{f.name} = {f.value}: {f.outcome}" for f in self.flags))
        yield from _section("nodes", map(_nodes_line, self.nodes))
        yield from _section("elsewhere", map(_fallback_line, self.fallbacks))
        yield from _section("products of float32", [self.products] if self.products else [])
        yield from _section("CUDA graph", map(_capture_line, self.captures))
        yield from _section("updates", map(_state_line, self.state))
        yield from _section("recomputed", map(_recomputed_line, self.recomputed))
        yield from _section("memory", map(_memory_line, self.memory))
        yield from _section("lowerings", map(_lowering_line, self.lowerings))
        yield from _section("native operators", filter(None, self._native_lines()))

    def _native_lines(self) -> tuple[str, str]:
        return _counts_text(self.native), self.why_not_native and f"none: {self.why_not_native}"


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    found = list(lines)
    if found:
        yield f"{title}:"
        yield from (f"  {line}" for line in found)


def _nodes_line(nodes: ProviderNodes) -> str:
    return f"{nodes.provider}: {nodes.count}: {_counts_text(nodes.operators)}"


def _counts_text(operators: Mapping[str, int]) -> str:
    return ", ".join(name if n == 1 else f"{n} {name}" for name, n in operators.items())


def _fallback_line(fallback: Fallback) -> str:
    return f"{fallback.provider}: {_counts_text(fallback.operators)}: {fallback.why}"


def _lowering_line(choice: LoweringChoice) -> str:
    others = ", ".join(form for form in choice.forms if form != choice.form)
    return f"{choice.node}: {choice.lowering} by {choice.form} ({choice.why})" + (
        f", not {others}" if others else ""
    )


def _capture_line(found: Capture) -> str:
    return f"{'captured' if found.is_on else 'not captured'}: {found.reason}"


def _state_line(found: InPlace) -> str:
    return f"{found.name}: {'in place' if found.is_safe else 'in two buffers'}: {found.reason}"


def _recomputed_line(found: RecomputedSegment) -> str:
    saved = f"{found.nodes} nodes run twice, {found.bytes:,} bytes are not kept"
    return f"{found.first} to {found.last}: {saved}"


def _memory_line(line: MemoryLine) -> str:
    about = "about " if line.estimated else ""
    return f"{line.kind}: {about}{line.bytes:,} bytes ({line.note})"
