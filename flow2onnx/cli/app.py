"""The commands under one name."""

import importlib
from importlib.metadata import entry_points
from typing import Any

import click

from flow2onnx import __version__
from flow2onnx.cli.failures import report_errors, show_logs
from flow2onnx.errors import ConfigError

__all__ = ["COMMANDS", "app"]

COMMANDS = (
    "run", "launch", "export", "make-trainable", "train", "lora", "grad", "info", "summary",
    "show", "diff", "plot", "verify", "explain", "tune", "cache", "data", "flags", "symbols",
    "doctor",
)  # fmt: skip
_GROUP = "flow2onnx.commands"  # entry points of distributions that add commands
_DISTRIBUTIONS = {"serve": "flow2onnx-serve"}  # what to install for those that are known


class _Commands(click.Group):
    """Commands whose errors are shown as flow2onnx's, and whose log messages appear.

    Each is imported when it is asked for: the doctor must not need what it looks for, and the list
    of commands must not either.
    """

    def invoke(self, ctx: click.Context) -> Any:  # what the command returns
        with show_logs(), report_errors():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        # in the order of the table above, not of the alphabet
        return [*COMMANDS, *sorted(entry_points(group=_GROUP).names)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        try:
            return _load(cmd_name)
        except Exception:  # a broken onnxruntime fails in any way
            why = _runtime_error()
            if why is None:
                raise
            return _without_runtime(cmd_name, why)


def _load(name: str) -> click.Command | None:
    command: click.Command
    if name in COMMANDS:
        function = name.replace("-", "_")
        command = getattr(importlib.import_module(f"flow2onnx.cli.commands.{function}"), function)
        return command
    for point in entry_points(group=_GROUP, name=name):
        command = point.load()
        return command
    if name in _DISTRIBUTIONS:
        distribution = _DISTRIBUTIONS[name]
        raise ConfigError(
            f"`flow2onnx {name}` comes with {distribution}, which is not installed",
            hint=f"pip install {distribution}",
        )
    return None


def _runtime_error() -> str | None:
    """Why onnxruntime cannot be imported, or None if it can."""
    try:
        importlib.import_module("onnxruntime")
    except Exception as error:
        return f"onnxruntime cannot be imported: {type(error).__name__}: {error}"
    return None


def _without_runtime(name: str, why: str) -> click.Command:
    """A command in the place of one that cannot be loaded, which says so when it is called."""

    @click.command(
        name, short_help="Not here: onnxruntime cannot be imported (see doctor).", help=why,
        context_settings={"ignore_unknown_options": True},
    )  # fmt: skip
    @click.argument("args", nargs=-1, type=click.UNPROCESSED)
    def refuse(args: tuple[str, ...]) -> None:
        raise ConfigError(why, hint="`flow2onnx doctor` tells what is wrong, and what to do")

    return refuse


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  flow2onnx run train.py --epochs 3
  flow2onnx export train.py:train_job --predict predict_job -o mlp/
  flow2onnx info mlp/
  flow2onnx verify mlp/ --full
  flow2onnx doctor""",
)
@click.version_option(__version__, message="flow2onnx %(version)s")
def app() -> None:
    """OneFlow job functions on the stock ONNX Runtime."""
