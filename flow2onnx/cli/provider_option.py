"""The option that names a provider, and whether that can be used here."""

from collections.abc import Callable

import click
from flow2onnx_runtime import usable_providers, why_unusable
from flow2onnx_runtime.provider_checks import opens
from flow2onnx_runtime.providers import PROVIDERS, find_provider

from flow2onnx.cli.options import Command
from flow2onnx.errors import ProviderError

__all__ = ["check_usable", "provider_option"]


def provider_option(
    text: str, default: str | None = None, *, trains: bool = False
) -> Callable[[Command], Command]:
    """``--provider``: one of those that run models here, or train them too; `text` is its help."""
    rows = [row for row in PROVIDERS.values() if not row.is_remote and (row.trains or not trains)]
    return click.option(
        "--provider", type=click.Choice([row.tag for row in rows]), default=default,
        show_default=default is not None, help=text,
    )  # fmt: skip


def check_usable(provider: str | None) -> None:
    """Raise `ProviderError` if a provider was asked for that no session opens on."""
    if provider is None or opens(name := find_provider(provider).name):
        return
    raise ProviderError(
        f"{name} cannot be used here; usable are {', '.join(usable_providers())}",
        hint=why_unusable(name),
    )
