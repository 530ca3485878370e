"""Explanations found: what became of flags, which provider runs each node, the memory."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from flow2onnx_runtime import AssignedNode, Options, kernels, open_session, why_unusable
from flow2onnx_runtime.assignment import nodes_of, recording
from flow2onnx_runtime.model_check import OwnModel
from flow2onnx_runtime.providers import provider_named
from flow2onnx_runtime.session_options import runtime_names

from flow2onnx.analysis.in_place import InPlace
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
from flow2onnx.engine.explanation import (
    Explanation,
    Fallback,
    FlagOutcome,
    LoweringChoice,
    ProviderNodes,
)
from flow2onnx.engine.memory import memory_lines
from flow2onnx.engine.opening import Opening
from flow2onnx.engine.placement import provider_name
from flow2onnx.graph.model import model_bytes

__all__ = ["explain"]


def explain(opening: Opening, settings: Settings, placed_on: str) -> Explanation:
    """The explanation of a job, by its opening and by sessions that keep a record of nodes."""
    job, options = opening.job, opening.options
    sessions = [_open_recording(half) for half in opening.halves if half.opens_model]
    recorded = [nodes_of(session) for session in sessions]
    nodes = [] if None in recorded else [node for found in recorded for node in found or ()]
    answers = _SessionAnswers(options, sessions[0] if sessions else None)
    return Explanation(
        job=job.spec.name,
        kind=job.kind,
        placed_on=placed_on,
        providers=answers.providers,
        flags=tuple(_flags(job.spec.config, settings, answers)),
        nodes=tuple(_by_provider(nodes)),
        fallbacks=tuple(_fallbacks(nodes, placed_on, options)),
        state=_state(opening),
        recomputed=tuple(job.recomputed),
        memory=memory_lines(opening),
        lowerings=tuple(_lowerings(opening)),
        products=_products(options),
        captures=tuple(half.capture for half in opening.halves if half.capture is not None),
        native=dict(sum((Counter(half.native) for half in opening.halves), Counter())),
        why_not_native=opening.why_not_native,
    )


def _open_recording(opening: Opening) -> Any:
    """An `onnxruntime.InferenceSession` that remembers which provider took which node."""
    return open_session(
        OwnModel(model_bytes(opening.model)), recording(replace(opening.options, profile=None))
    )


def _state(opening: Opening) -> tuple[InPlace, ...]:
    """A verdict on each large tensor of state; both halves must agree to one buffer."""
    verdicts: dict[str, InPlace] = {}
    for verdict in (v for half in opening.halves for v in half.in_place):
        if verdict.name not in verdicts or not verdict.is_safe:
            verdicts[verdict.name] = verdict
    return tuple(verdicts.values())


# --- flags ---------------------------------------------------------------------------------------
class _SessionAnswers:
    """The options that a session was opened with, and its own answers."""

    def __init__(self, options: Options, session: Any) -> None:
        self.options = options
        self.providers = tuple(session.get_providers()) if session else options.provider_names
        self._session = session

    def setting(self, name: str) -> str | None:
        """A session option or entry as the session has it, by the runtime's name."""
        if self._session is None:
            return None
        if name in runtime_names("profile"):  # which the session that was asked goes without
            prefix = self.options.profile
            return str(prefix is not None) if name == "enable_profiling" else prefix
        session_options = self._session.get_session_options()
        if "." in name:
            return str(session_options.get_session_config_entry(name))
        return str(getattr(session_options, name))

    def option(self, provider: str, option: str) -> str | None:
        """An option of a provider as the session has it; as it was asked for, where it is mute."""
        asked = dict(p for p in self.options.providers if not isinstance(p, str))
        told = self._session.get_provider_options().get(provider, {}) if self._session else {}
        return told.get(option, asked.get(provider, {}).get(option))


def _flags(
    config: FunctionConfig, settings: Settings, answers: _SessionAnswers
) -> Iterator[FlagOutcome]:
    for table, record in ((FLAGS, config), (CONFIG, settings)):
        prefix = "" if table is FLAGS else f"{table.title}."
        for name, value in record.values().items():
            row = table.rows.get(name)  # flow.env is in the same record
            if row is not None and not _holds_no_value(row.effect):
                works, outcome = _outcome(row.effect, value, answers)
                yield FlagOutcome(prefix + name, _text(value), works, outcome, record.source(name))


def _text(value: object) -> str:
    tag = getattr(value, "device_tag", None)
    if tag is not None:
        return f"{tag} {', '.join(getattr(value, 'device_ids', ()))}".strip()
    return str(getattr(value, "view", value))


def _outcome(effect: Effect, value: object, answers: _SessionAnswers) -> tuple[bool, str]:
    match effect:
        case TRACE() if hasattr(value, "device_tag"):
            return _placement_outcome(provider_name(value.device_tag), answers)
        case TRACE(what):
            return True, what
        case SESSION(settings):
            if translated(effect, value) is None:
                return True, "as the runtime does by itself"
            names = [name for setting in settings for name in runtime_names(setting)]
            shown = ", ".join(f"{name} = {answers.setting(name)}" for name in names)
            return True, f"session option {shown}"
        case PROVIDER(provider, option):
            return _provider_outcome(effect, value, answers, provider_name(provider), option)
        case IGNORED(reason, unless):
            return False, "holds anyway" if value in unless else f"no effect: {reason}"
        case LATER(reason):
            return False, f"recorded, not built yet: {reason}"
        case RECORDED(reason):
            return False, f"recorded: {reason}"
    raise AssertionError(f"{effect} holds no value")


def _holds_no_value(effect: Effect) -> bool:
    return isinstance(effect, ALIAS | UNSUPPORTED | CALL)


def _placement_outcome(asked: str, answers: _SessionAnswers) -> tuple[bool, str]:
    if asked in answers.providers:
        return True, f"runs on {asked}"
    return False, f"no effect: {asked} cannot be used here: {why_unusable(asked)}"


def _provider_outcome(
    effect: PROVIDER, value: object, answers: _SessionAnswers, provider: str, option: str | None
) -> tuple[bool, str]:
    if translated(effect, value) is None:
        return True, f"as {provider} does by itself"
    if provider not in answers.providers:
        return False, f"no effect: the job does not run on {provider}"
    if option is None:
        return True, f"runs on {provider} first"
    return True, f"{provider} option {option} = {answers.option(provider, option)}"


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
    wanted = {first, asked} if asked in provider_named(first).names else {asked}
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
    if not provider_named(asked).has_kernels:
        return f"{asked} does not compile it"
    if not kernels(asked).has(operator):
        return f"{asked} has no kernel for it"
    return f"{asked} has no kernel for its types, or it only computes shapes"


def _products(options: Options) -> str:
    """How products of float32 round on CUDA; nothing elsewhere."""
    given = dict(p for p in options.providers if not isinstance(p, str))
    name = provider_name("cuda")
    if name not in options.provider_names:
        return ""
    if given.get(name, {}).get("use_tf32", "1") in ("0", "False", "false"):
        return "in float32, as runtime.use_tf32 is off"
    return (
        "operands rounded to TF32, of 11 bits: within 1e-3 of the largest value; "
        "runtime.use_tf32(False) keeps float32, at a fraction of the speed"
    )


# --- lowerings -----------------------------------------------------------------------------------
def _lowerings(opening: Opening) -> Iterator[LoweringChoice]:
    for c in (choice for half in opening.halves for choice in half.job.choices):
        asked = c.question
        key = asked.key if asked.is_static else ""
        yield LoweringChoice(
            node=c.node,
            lowering=asked.lowering,
            form=c.form,
            why=c.why,
            forms=asked.forms,
            question=key,
        )
