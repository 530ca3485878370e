"""Options that several commands have."""

import re
from collections.abc import Callable
from typing import Any

import click

__all__ = ["json_option", "key_values", "release_option"]

Command = Callable[..., Any]  # a function becoming a command


def json_option(command: Command) -> Command:
    """``--json``, as the parameter `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Write JSON.")(command)


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


def key_values(texts: tuple[str, ...]) -> dict[str, str]:
    """The values of ``--metadata KEY=VALUE`` by key."""
    for text in texts:
        if "=" not in text:
            raise click.BadParameter(f"--metadata {text}: write KEY=VALUE")
    return {key: value for key, _, value in (text.partition("=") for text in texts)}
