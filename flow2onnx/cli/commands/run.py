"""`flow2onnx run`: a OneFlow script, unedited."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import click
from flow2onnx_runtime.collectives import report_failures
from flow2onnx_runtime.world import launched_world

from flow2onnx.cli.commands.launch import QUIET, end_with_launcher
from flow2onnx.cli.failures import INTERRUPTED, report_errors, show_errors_alone, traceback_option
from flow2onnx.cli.mpi_launcher import note_process
from flow2onnx.cli.options import release_option
from flow2onnx.cli.provider_option import check_usable, provider_option
from flow2onnx.cli.script import run_script
from flow2onnx.engine import Preset, clear_default_session, current_session

__all__ = ["run"]


@click.command(
    context_settings={"allow_interspersed_args": False},
    epilog="""\b
Examples:
  flow2onnx run train.py
  flow2onnx run --api 0.1.4 train.py --epochs 3
  flow2onnx run --provider cuda --stop-on-non-finite train.py""",
)
@click.argument("script", type=click.Path(path_type=Path))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@release_option
@provider_option("Run every job there, whatever the script's placements say.", trains=True)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Seed of initial values, unless the script sets one.",
)
@click.option(
    "--stop-on-non-finite", is_flag=True, help="Stop at the first loss that is NaN or infinite."
)
@traceback_option
def run(
    script: Path,
    args: tuple[str, ...],
    release: str | None,
    provider: str | None,
    seed: int,
    stop_on_non_finite: bool,
) -> None:
    """Run a OneFlow script as it is, with its own arguments.

    Inside the script, `import oneflow`, `oneflow.typing`, `oneflow.compatible.single_client` and
    `oneflow.python` mean flow2onnx. Options of this command come before the script's name.
    """
    end_with_launcher()
    note_process()
    check_usable(provider)
    current_session().preset = Preset(release, provider, seed, stop_on_non_finite)
    clear_default_session()
    with (
        report_failures(),
        _output_of_one(),
        _warnings_of_one(),
        report_errors(script),
        _interrupt_of_launcher(),
    ):
        run_script(script, args)


@contextmanager
def _output_of_one() -> Iterator[None]:
    """Inside, only the first of several ranks prints, where the launcher asks for that."""
    if not os.environ.get(QUIET) or not launched_world().rank:
        yield
        return
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        yield


@contextmanager
def _interrupt_of_launcher() -> Iterator[None]:
    """Inside, a rank ends at Ctrl-C without a traceback of its own where its launcher tells of it.

    `--all-output` shows them all.
    """
    try:
        yield
    except KeyboardInterrupt:
        if not os.environ.get(QUIET):
            raise
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the launcher's own follows the terminal's
        raise SystemExit(INTERRUPTED) from None


@contextmanager
def _warnings_of_one() -> Iterator[None]:
    """Inside, of the ranks of a machine only the first warns, unless all output is asked for."""
    if os.environ.get(QUIET) == "" or not launched_world().local_rank:
        yield
        return
    with show_errors_alone():
        yield
