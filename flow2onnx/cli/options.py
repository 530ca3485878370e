"""Options that several commands have."""

import re
from collections.abc import Callable
from typing import Any

import click
from flow2onnx_runtime import usable_providers
from flow2onnx_runtime.provider_checks import opens
from flow2onnx_runtime.providers import PROVIDERS, find_provider

from flow2onnx.errors import ProviderError

__all__ = ["check_usable", "json_option", "provider_option", "release_option"]

Command = Callable[..., Any]  # a function becoming a command


def json_option(command: Command) -> Command:
    """``--json``, as the parameter `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Write JSON.")(command)


def provider_option(
    text: str, default: str | None = None, *, trains: bool = False
) -> Callable[[Command], Command]:
    """``--provider``: one of those that run models here, or train them too; `text` is its help."""
    rows = [row for row in PROVIDERS.values() if not row.is_remote and (row.trains or not trains)]
    return click.option(
        "--provider", type=click.Choice([row.tag for row in rows]), default=default,
        show_default=default is not None, help=text,
    )  # fmt: skip


def release_option(command: Command) -> Command:
    """``--api``, as the parameter `release`."""
    return click.option(
        "--api", "release", metavar="RELEASE", callback=_checked_release,
        help="The OneFlow release the script was written for, where its text cannot tell.",
    )(command)  # fmt: skip


def _checked_release(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    if value is not None and not re.fullmatch(r"\d+\.\d+(\.\d+)*", value):
        raise click.BadParameter(f"{value} is not a release of OneFlow, such as 0.1.4")
    return value


def check_usable(provider: str | None) -> None:
    """Raise `ProviderError` if a provider was asked for that no session opens on."""
    if provider is None or opens(name := find_provider(provider).name):
        return
    raise ProviderError(
        f"{name} cannot be used here; usable are {', '.join(usable_providers())}",
        hint="`flow2onnx doctor` says why, and what to install",
    )
