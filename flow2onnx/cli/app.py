"""The commands under one name."""

from collections.abc import Callable
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
    serve,
    symbols,
    tune,
    verify,
)
from flow2onnx.cli.failures import report_errors, show_logs

__all__ = ["app"]


class _Commands(click.Group):
    """Commands whose errors are shown as flow2onnx's, and whose log messages appear."""

    def invoke(self, ctx: click.Context) -> Any:  # what the command returns
        with show_logs(), report_errors():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # in the order of the table below, not of the alphabet


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
    serve,
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
