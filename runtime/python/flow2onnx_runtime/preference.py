"""Execution providers in order of preference, of which those that work here are taken."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from flow2onnx_runtime.errors import ProviderError
from flow2onnx_runtime.options import Options, require_providers
from flow2onnx_runtime.plugins import is_listed, known_providers, register_libraries
from flow2onnx_runtime.provider_checks import ProviderSpec, split, usable_providers, why_unusable
from flow2onnx_runtime.providers import find_provider

__all__ = ["Preference", "preferred"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Preference:
    """Options with the providers that work here, and why each other that was asked for does not."""

    options: Options
    passed_over: Mapping[str, str]


def preferred(options: Options, providers: Sequence[ProviderSpec]) -> Preference:
    """The options with those of `providers` that work here, in the order given.

    Names are the runtime's, or tags, such as "cuda". Each one that is passed over is logged. Raises
    `ProviderError` if none works.
    """
    register_libraries(options.provider_libraries)
    asked = replace(options, providers=tuple(_full(provider) for provider in providers))
    pairs = list(zip(asked.providers, asked.provider_names, strict=True))
    working = tuple(p for p, name in pairs if _works(replace(options, providers=(p,)), name))
    passed_over = {name: why_unusable(name) for provider, name in pairs if provider not in working}
    if not working:
        usable = ", ".join(usable_providers())
        raise ProviderError(
            f"{', '.join(passed_over)} cannot be used; usable here: {usable}",
            hint="; ".join((*passed_over.values(), 'or add "cpu" to the providers')),
        )
    for name, reason in passed_over.items():
        _log.warning("%s is passed over: %s", name, reason)
    return Preference(replace(asked, providers=working), MappingProxyType(passed_over))


def _works(options: Options, name: str) -> bool:
    if not is_listed(name):
        return False  # to try it would only bring a warning
    try:
        require_providers(options)
    except ProviderError:
        return False
    return True


def _full(provider: ProviderSpec) -> ProviderSpec:
    """The provider by the runtime's name for it."""
    word, settings = split(provider)
    name = find_provider(word, known_providers()).name
    return name if isinstance(provider, str) else (name, settings)
