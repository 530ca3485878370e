"""Which provider runs which node of an open session, and whether its runs can be captured."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import onnxruntime as ort

from flow2onnx_runtime.errors import BundleError, OptionsError
from flow2onnx_runtime.model_check import OwnModel
from flow2onnx_runtime.options import DEFAULT_OPTIONS, Model, Options, open_session
from flow2onnx_runtime.ort_settings import session_keys
from flow2onnx_runtime.provider_checks import ProviderSpec, split
from flow2onnx_runtime.providers import provider_named

__all__ = [
    "RANDOM_OPERATORS",
    "AssignedNode",
    "assigned_nodes",
    "capture_fault",
    "nodes_of",
    "open_capturing",
    "recording",
]

# Earlier ones record copies of pinned host memory, whose content is another at a replay.
_FIRST_TO_CAPTURE = (1, 31, 1)
_RECORD = "session.record_ep_graph_assignment_info"
# Their CUDA kernels take the random state by value, so a replayed graph repeats the same numbers.
RANDOM_OPERATORS = frozenset(
    {
        "Bernoulli",
        "Dropout",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)


@dataclass(frozen=True)
class AssignedNode:
    """A node as the runtime runs it, after functions were expanded; names may be empty."""

    provider: str
    op_type: str
    name: str
    domain: str


def recording(options: Options) -> Options:
    """The same options, for a session that remembers which provider took which node.

    Unchanged where the installed runtime has no such memory.
    """
    if _RECORD not in session_keys():
        return options
    return replace(options, session_entries={**options.session_entries, _RECORD: "1"})


def assigned_nodes(
    model: Model | OwnModel, options: Options = DEFAULT_OPTIONS
) -> tuple[AssignedNode, ...] | None:
    """Every node with its provider; None if the installed runtime does not tell."""
    return nodes_of(open_session(model, recording(options)))


def open_capturing(
    name: str,
    model: Model | OwnModel,
    options: Options,
    initializers: Mapping[str, Any] | None = None,
) -> Any:
    """`open_session` for runs captured as CUDA graphs.

    Raises `OptionsError`, naming the nodes, if they cannot be captured or a replay would not do
    what a run does.
    """
    fault = capture_fault()
    if fault is not None:
        raise OptionsError(
            f"{name} cannot be captured as a CUDA graph: {fault}",
            hint="install a newer onnxruntime-gpu, or leave enable_cuda_graph off",
        )
    try:
        session = open_session(model, recording(options), initializers)
    except BundleError as error:
        _blame_nodes(name, model, options, error)
        raise
    _check_replay(name, session)
    return session


def capture_fault() -> str | None:
    """Why the installed runtime captures nothing; None if it does, for models that allow it."""
    numbers = tuple(int(part) for part in ort.__version__.split(".")[:3] if part.isdigit())
    if numbers < _FIRST_TO_CAPTURE:
        first = ".".join(map(str, _FIRST_TO_CAPTURE))
        return (
            f"onnxruntime {ort.__version__} captures copies of host memory, which a replay would "
            f"read again: {first} does not"
        )
    if _RECORD not in session_keys():
        return "this onnxruntime does not tell which operators it runs"
    return None


def _blame_nodes(name: str, model: Model | OwnModel, options: Options, error: BundleError) -> None:
    """Say which nodes the CUDA provider leaves to another, if that is why nothing opened."""
    nodes = assigned_nodes(model, _without_capture(options)) or ()
    elsewhere = sorted({n.op_type for n in nodes if n.provider not in options.provider_names[:1]})
    if elsewhere:
        raise OptionsError(
            f"{name} cannot be captured as a CUDA graph: CUDA does not run {', '.join(elsewhere)}",
            hint="leave enable_cuda_graph off, or compute these outside the job",
        ) from error


def _without_capture(options: Options) -> Options:
    def plain(provider: ProviderSpec) -> ProviderSpec:
        name, settings = split(provider)
        if not settings:
            return name
        capture = provider_named(name).capture_option
        return name, {k: v for k, v in settings.items() if k != capture}

    return replace(options, providers=tuple(map(plain, options.providers)))


def _check_replay(name: str, session: Any) -> None:
    nodes = nodes_of(session)
    if nodes is None:
        raise OptionsError(
            f"{name} cannot be captured as a CUDA graph: this onnxruntime does not tell which "
            "operators it runs",
            hint="install a newer onnxruntime-gpu, or leave enable_cuda_graph off",
        )
    random = [node for node in nodes if node.op_type in RANDOM_OPERATORS]
    if random:
        shown = ", ".join(sorted({f"{n.op_type} {n.name}".strip() for n in random}))
        raise OptionsError(
            f"{name} cannot be captured as a CUDA graph: a replay would repeat the random numbers "
            f"of {shown}",
            hint="leave enable_cuda_graph off, or feed the random numbers as an input",
        )


def nodes_of(session: Any) -> tuple[AssignedNode, ...] | None:
    """The nodes of a session that was opened with `recording` options; None as above."""
    if not hasattr(session, "get_provider_graph_assignment_info"):
        return None
    if _RECORD not in session_keys():
        return None
    return tuple(
        AssignedNode(part.ep_name, node.op_type, node.name, node.domain)
        for part in session.get_provider_graph_assignment_info()
        for node in part.get_nodes()
    )
