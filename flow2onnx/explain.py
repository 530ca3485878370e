"""What became of a job: its flags, the provider of each of its nodes, its memory."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from flow2onnx_runtime import AssignedNode, Options, kernels, open_session, why_unusable
from flow2onnx_runtime.assignment import nodes_of, recording

from flow2onnx.compile import CompiledJob
from flow2onnx.config import CONFIG, FLAGS, FunctionConfig, Settings
from flow2onnx.config.effects import (
    ALIAS,
    CALL,
    IGNORED,
    LATER,
    PROVIDER,
    RECORDED,
    SESSION,
    TRACE,
    UNSUPPORTED,
    Effect,
    translated,
)  # fmt: skip
from flow2onnx.execute import provider_name
from flow2onnx.graph import model_bytes
from flow2onnx.graph.memory import byte_size, constant_bytes, most_alive

__all__ = ["Explanation", "Fallback", "FlagOutcome", "MemoryLine", "ProviderNodes", "explain"]


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


@dataclass(frozen=True)
class MemoryLine:
    """Memory of one kind, in bytes; `estimated` from shapes rather than counted."""

    kind: str
    bytes: int
    estimated: bool
    note: str


@dataclass(frozen=True)
class Explanation:
    """What became of a job. `str()` is a table, `as_dict()` what JSON holds.

    `nodes` is empty where the installed runtime does not tell which provider runs what.
    """

    job: str
    kind: str
    placed_on: str
    providers: tuple[str, ...]
    flags: tuple[FlagOutcome, ...]
    nodes: tuple[ProviderNodes, ...]
    fallbacks: tuple[Fallback, ...]
    memory: tuple[MemoryLine, ...]

    def as_dict(self) -> dict[str, Any]:
        """Everything, as dicts and lists of plain values."""
        return asdict(self)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{self.kind} job {self.job}, placed on {self.placed_on}"
        yield f"providers: {', '.join(self.providers)}"
        yield from _section("flags", (f"{f.name} = {f.value}: {f.outcome}" for f in self.flags))
        yield from _section("nodes", map(_nodes_line, self.nodes))
        yield from _section("elsewhere", map(_fallback_line, self.fallbacks))
        yield from _section("memory", map(_memory_line, self.memory))


def explain(
    compiled: CompiledJob, options: Options, settings: Settings, placed_on: str
) -> Explanation:
    """Open the job once more, in a session that keeps a record, and read what became of it."""
    session, nodes = None, None
    if compiled.model.graph.outputs:  # the runtime opens no model without
        recorded = recording(replace(options, profile=None))
        session = open_session(model_bytes(compiled.model), recorded)
        nodes = nodes_of(session)
    found = _Found(options, session)
    return Explanation(
        compiled.spec.name,
        compiled.kind,
        placed_on,
        tuple(session.get_providers()) if session else options.provider_names,
        tuple(_flags(compiled.spec.config, settings, found)),
        tuple(_by_provider(nodes or ())),
        tuple(_fallbacks(nodes or (), placed_on, options)),
        tuple(_memory(compiled)),
    )


# --- flags ---------------------------------------------------------------------------------------
class _Found:
    """What a session was opened with, and what it says of itself."""

    def __init__(self, options: Options, session: Any) -> None:
        self.options = options
        self.providers = tuple(session.get_providers()) if session else options.provider_names
        self._session = session

    def setting(self, name: str) -> str | None:
        """A session option or entry as the session has it."""
        if self._session is None:
            return None
        held = self._session.get_session_options()
        if "." in name:
            return str(held.get_session_config_entry(name))
        return str(getattr(held, name))

    def option(self, provider: str, option: str) -> str | None:
        """An option of a provider as the session has it; as it was asked for, where it is mute."""
        asked = dict(p for p in self.options.providers if not isinstance(p, str))
        told = self._session.get_provider_options().get(provider, {}) if self._session else {}
        return told.get(option, asked.get(provider, {}).get(option))


def _flags(config: FunctionConfig, settings: Settings, found: _Found) -> Iterator[FlagOutcome]:
    for table, record in ((FLAGS, config), (CONFIG, settings)):
        prefix = "" if table is FLAGS else f"{table.title}."
        for name, value in record.values().items():
            row = table.rows.get(name)  # flow.env is in the same record
            if row is not None and not _holds_no_value(row.effect):
                works, outcome = _outcome(row.effect, value, found)
                yield FlagOutcome(prefix + name, _text(value), works, outcome, record.source(name))


def _text(value: object) -> str:
    tag = getattr(value, "device_tag", None)
    if tag is not None:
        return f"{tag} {', '.join(getattr(value, 'device_ids', ()))}".strip()
    return str(getattr(value, "view", value))


def _outcome(effect: Effect, value: object, found: _Found) -> tuple[bool, str]:
    match effect:
        case TRACE() if hasattr(value, "device_tag"):
            return _placement_outcome(provider_name(value.device_tag), found)
        case TRACE(what, only, caveat):
            return True, f"{what}; in part: {caveat}" if only and value not in only else what
        case SESSION(settings):
            if translated(effect, value) is None:
                return True, "as the runtime does by itself"
            held = ", ".join(f"{name} = {found.setting(name)}" for name in settings)
            return True, f"session option {held}"
        case PROVIDER(provider, option):
            return _provider_outcome(effect, value, found, provider_name(provider), option)
        case IGNORED(reason, unless):
            return False, "holds anyway" if value in unless else f"no effect: {reason}"
        case LATER(reason):
            return False, f"recorded, not built yet: {reason}"
        case RECORDED(reason):
            return False, f"recorded: {reason}"
    raise AssertionError(f"{effect} holds no value")


def _holds_no_value(effect: Effect) -> bool:
    return isinstance(effect, ALIAS | UNSUPPORTED | CALL)


def _placement_outcome(asked: str, found: _Found) -> tuple[bool, str]:
    if asked in found.providers:
        return True, f"runs on {asked}"
    return False, f"no effect: {asked} cannot be used here: {why_unusable(asked)}"


def _provider_outcome(
    effect: PROVIDER, value: object, found: _Found, provider: str, option: str | None
) -> tuple[bool, str]:
    if translated(effect, value) is None:
        return True, f"as {provider} does by itself"
    if provider not in found.providers:
        return False, f"no effect: the job does not run on {provider}"
    if option is None:
        return True, f"runs on {provider} first"
    return True, f"{provider} option {option} = {found.option(provider, option)}"


# --- nodes ---------------------------------------------------------------------------------------
def _by_provider(nodes: Iterable[AssignedNode]) -> Iterator[ProviderNodes]:
    groups: dict[str, list[AssignedNode]] = {}
    for node in nodes:
        groups.setdefault(node.provider, []).append(node)
    for provider, members in groups.items():
        yield ProviderNodes(provider, len(members), _counts(members), _names(members))


def _counts(nodes: Iterable[AssignedNode]) -> dict[str, int]:
    return dict(Counter(node.op_type for node in nodes).most_common())


def _names(nodes: Iterable[AssignedNode]) -> tuple[str, ...]:
    return tuple(node.name for node in nodes if node.name)


def _fallbacks(
    nodes: Iterable[AssignedNode], placed_on: str, options: Options
) -> Iterator[Fallback]:
    first, asked = options.provider_names[0], provider_name(placed_on)
    wanted = {first, asked} if first == provider_name("tensorrt") else {asked}
    elsewhere: dict[tuple[str, str], list[AssignedNode]] = {}
    for node in nodes:
        if node.provider not in wanted:
            why = _why_not(asked, node.op_type, options)
            elsewhere.setdefault((node.provider, why), []).append(node)
    for (provider, why), members in elsewhere.items():
        yield Fallback(provider, why, _counts(members), _names(members))


def _why_not(asked: str, operator: str, options: Options) -> str:
    if asked not in options.provider_names:
        return f"{asked} cannot be used here: {why_unusable(asked)}"
    if not kernels(asked).has(operator):
        return f"{asked} has no kernel for it"
    return f"{asked} has no kernel for its types, or it only computes shapes"


# --- memory --------------------------------------------------------------------------------------
def _memory(compiled: CompiledJob) -> Iterator[MemoryLine]:
    graph = compiled.model.graph
    state = {name: _bytes_of(v) for name, v in compiled.variables.items()}
    weights = [n for n, v in compiled.variables.items() if v.role == "variable"]
    slots = [n for n in state if n not in weights]
    twice = "each in two buffers, read and written in turn"
    yield MemoryLine("weights", 2 * sum(state[n] for n in weights), False, twice)
    yield MemoryLine("optimizer state", 2 * sum(state[n] for n in slots), False, twice)
    yield MemoryLine("constants", constant_bytes(graph), False, "in the model itself")
    fed = [v for v in graph.inputs if v.name in compiled.feeds]
    yield MemoryLine("inputs", sum(map(byte_size, fed)), False, "of one call")
    shown = [v for v in graph.outputs if not str(v.name).startswith("next/")]
    yield MemoryLine("results", sum(map(byte_size, shown)), False, "of one call")
    yield MemoryLine(
        "activations", most_alive(graph), True,
        "most alive at once by shapes and order of the nodes; the runtime's scratch memory is not "
        "counted",
    )  # fmt: skip


def _bytes_of(variable: Any) -> int:
    size = variable.dtype.numpy.itemsize
    for extent in variable.shape:
        size *= extent
    return int(size)


# --- as text -------------------------------------------------------------------------------------
def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    found = list(lines)
    if found:
        yield f"{title}:"
        yield from (f"  {line}" for line in found)


def _nodes_line(nodes: ProviderNodes) -> str:
    return f"{nodes.provider}: {nodes.count}: {_counted(nodes.operators)}"


def _counted(operators: Mapping[str, int]) -> str:
    return ", ".join(name if n == 1 else f"{n} {name}" for name, n in operators.items())


def _fallback_line(fallback: Fallback) -> str:
    return f"{fallback.provider}: {_counted(fallback.operators)}: {fallback.why}"


def _memory_line(line: MemoryLine) -> str:
    about = "about " if line.estimated else ""
    return f"{line.kind}: {about}{line.bytes:,} bytes ({line.note})"
