"""The commands under one name."""

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import click

from flow2onnx import __version__
from flow2onnx.cli.commands import (
    data,
    doctor,
    explain,
    export,
    flags,
    info,
    make_trainable,
    run,
    symbols,
    tune,
    verify,
)
from flow2onnx.cli.failures import report_errors, show_logs
from flow2onnx.errors import ConfigError

__all__ = ["app"]

_GROUP = "flow2onnx.commands"  # entry points of distributions that add commands
_DISTRIBUTIONS = {"serve": "flow2onnx-serve"}  # what to install for those that are known


class _Commands(click.Group):
    """Commands whose errors are shown as flow2onnx's, and whose log messages appear."""

    def invoke(self, ctx: click.Context) -> Any:  # what the command returns
        with show_logs(), report_errors():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        # in the order of the table below, not of the alphabet
        return [*self.commands, *sorted(entry_points(group=_GROUP).names)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        offered = () if command is not None else entry_points(group=_GROUP, name=cmd_name)
        for point in offered:
            found: click.Command = point.load()
            return found
        if command is None and cmd_name in _DISTRIBUTIONS:
            distribution = _DISTRIBUTIONS[cmd_name]
            raise ConfigError(
                f"`flow2onnx {cmd_name}` comes with {distribution}, which is not installed",
                hint=f"pip install {distribution}",
            )
        return command


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


_COMMANDS: tuple[Callable[..., Any], ...] = (
    run,
    export,
    make_trainable,
    info,
    verify,
    explain,
    tune,
    data,
    flags,
    symbols,
    doctor,
)
for _command in _COMMANDS:
    assert isinstance(_command, click.Command), "each is made by @click.command"
    app.add_command(_command)
