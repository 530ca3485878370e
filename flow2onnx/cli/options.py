"""Options that several commands have."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click
import numpy as np
from click.core import ParameterSource

from flow2onnx.errors import ArgumentError

__all__ = [
    "Command",
    "check_together",
    "details_option",
    "input_option",
    "json_option",
    "key_values",
    "load_arrays",
    "parse_inputs",
    "release_option",
]

Command = Callable[..., Any]  # a function becoming a command
_LAST_RELEASE = (0, 9)


def json_option(command: Command) -> Command:
    """``--json``, as the parameter `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Write JSON.")(command)


def details_option(command: Command) -> Command:
    """``--details``, as the parameter `details`: a report's tables, not its verdict alone."""
    return click.option("--details", is_flag=True, help="Show every check and every output.")(
        command
    )


def input_option(command: Command) -> Command:
    """``--inputs``, as the parameter `inputs`, which `parse_inputs` reads."""
    return click.option(
        "--inputs", "--input", "inputs", multiple=True, metavar="NAME=SHAPE",
        help="The shape of an input, as x=8,3,32,32, or the size of a free dimension; may be "
        "repeated.",
    )(command)  # fmt: skip


def parse_inputs(texts: tuple[str, ...]) -> dict[str, Any]:
    """``x=8,3,32,32`` as a shape, ``sequence=128`` as a size, ``x=batch,3`` with a free one."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, sizes = text.rpartition("=")
        parts = [p.strip() for p in sizes.split(",") if p.strip()]
        if not equals or not name or not parts:
            raise click.BadParameter(f"--inputs {text}: write NAME=8,3,32,32")
        dims = [int(p) if p.isascii() and p.isdigit() else p for p in parts]
        is_size = "," not in sizes and isinstance(dims[0], int)
        found[name] = dims[0] if is_size else tuple(dims)
    return found


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
    if value is not None and tuple(map(int, value.split(".")[:2])) > _LAST_RELEASE:
        raise click.BadParameter(
            f"{value} is not a release of OneFlow with job functions, which are 0.0 to 0.9"
        )
    return value


def key_values(texts: tuple[str, ...]) -> dict[str, str]:
    """The values of ``--metadata KEY=VALUE`` by key."""
    for text in texts:
        if "=" not in text:
            raise click.BadParameter(f"--metadata {text}: write KEY=VALUE")
    return {key: value for key, _, value in (text.partition("=") for text in texts)}


def load_arrays(option: str, path: Path) -> Any:
    """The array of a .npy file, or those of a .npz file by name."""
    try:
        with path.open("rb") as file, np.errstate(all="ignore"):
            loaded = np.load(file, allow_pickle=False)
            return loaded if isinstance(loaded, np.ndarray) else dict(loaded)
    except Exception as error:  # zipfile, zlib and numpy have no common base
        raise ArgumentError(
            f"--{option.replace('_', '-')} {path} cannot be read: {error}",
            hint="numpy.save writes .npy, numpy.savez(path, input=array) .npz",
        ) from error


def check_together(
    needs: Mapping[str, Sequence[str]] = MappingProxyType({}),
    excludes: Iterable[tuple[str, str]] = (),
) -> None:
    """Raise UsageError for options of the running command that say nothing beside one another.

    An option of `needs` belongs to one of those listed; of a pair in `excludes` one may be given.
    They are named like the command's parameters; one that a default gives counts as not given.
    """
    for name, others in needs.items():
        if _is_given(name) and not any(map(_is_given, others)):
            listed = " or ".join(map(_flag, others))
            raise click.UsageError(f"{_flag(name)} is for {listed}: give that too, or leave it out")
    for first, second in excludes:
        if _is_given(first) and _is_given(second):
            raise click.UsageError(f"{_flag(first)} excludes {_flag(second)}: give one of them")


def _is_given(name: str) -> bool:
    source = click.get_current_context().get_parameter_source(name)
    return source not in (None, ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)


def _flag(name: str) -> str:
    """The option of a parameter as users write it, the long form."""
    options = {p.name: p.opts for p in click.get_current_context().command.params}
    return max(options[name], key=len)
