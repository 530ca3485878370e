"""Errors with the user's line and log messages, as the commands show them."""

import errno
import linecache
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import click
from rich.text import Text

from flow2onnx.cli.show import output
from flow2onnx.errors import BundleError, FlowError
from flow2onnx.source import TRACEBACK, place

__all__ = [
    "INTERRUPTED",
    "report_errors",
    "show_errors_alone",
    "show_logs",
    "traceback_option",
    "writing",
]

_PACKAGE = str(Path(__file__).parents[1]) + os.sep
INTERRUPTED = 130  # what a shell reports for a program that Ctrl-C ended


def traceback_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--traceback`` for a command."""
    return click.option(
        "--traceback", is_flag=True, expose_value=False, callback=_keep,
        help="Show the whole Python traceback of an error.",
    )(command)  # fmt: skip


def _keep(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    context.meta["flow2onnx.traceback"] = value
    if value:  # until the command ends, for whoever called it in a process of his own
        context.find_root().call_on_close(partial(_restore, os.environ.get(TRACEBACK)))
        os.environ[TRACEBACK] = "full"


def _restore(before: str | None) -> None:
    if before is None:
        os.environ.pop(TRACEBACK, None)
    else:
        os.environ[TRACEBACK] = before


@contextmanager
def report_errors(script: Path | None = None) -> Iterator[None]:
    """End the command with exit code 1 on an error, and show it.

    An error of flow2onnx is shown as its message and the user's line; one of the script itself
    as Python would.
    """
    try:
        yield
    except (click.ClickException, click.exceptions.Exit, SystemExit):
        raise
    except FlowError as error:
        _show(error, script)
        raise SystemExit(1) from None
    except BaseException as error:
        if script is None:
            raise
        _show_as_python(error, script)
        raise SystemExit(INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1) from None


@contextmanager
def writing(place: Path | str, hint: str = "make room, or write elsewhere") -> Iterator[None]:
    """Raise `BundleError` for what the system refuses in writing `place`, such as a full disk."""
    try:
        yield
    except OSError as error:
        if isinstance(error, FlowError):
            raise
        name = error.filename if isinstance(error.filename, str) else place
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        raise BundleError(
            f"{name}: cannot be written: {error.strerror or error}",
            hint=hint if is_full else "give a place where files can be written",
        ) from error


def _show_as_python(error: BaseException, script: Path) -> None:
    error.__traceback__ = _from_script(error.__traceback__, script)
    sys.stdout.flush()
    sys.excepthook(type(error), error, error.__traceback__)


def _show(error: FlowError, script: Path | None) -> None:
    sys.stdout.flush()
    if click.get_current_context().meta.get("flow2onnx.traceback"):
        frames = _from_script(error.__traceback__, script) or error.__traceback__
        traceback.print_exception(type(error), error, frames)
        return
    head, *rest = str(error).split("\n")
    kind = Text(f"{type(error).__name__}: ", "bold red")
    console = output(stderr=True)
    console.print(kind + Text(head, "bold"), soft_wrap=True)
    for line in [*map(Text, rest), *_excerpt(error, script)]:
        console.print(line, soft_wrap=True)


def _excerpt(error: FlowError, script: Path | None) -> list[Text]:
    """The user's line with its neighbours."""
    found = _user_line(error, script)
    if found is None:
        return []
    filename, number = found
    lines = linecache.getlines(filename)
    shown = range(max(1, number - 2), min(len(lines), number + 1) + 1)
    width = len(str(shown.stop - 1))
    return [Text(), *(_source_line(n, lines[n - 1].rstrip(), width, n == number) for n in shown)]


def _source_line(number: int, line: str, width: int, is_meant: bool) -> Text:
    mark = "> " if is_meant else "  "
    return Text.assemble(
        (f"  {mark}{number:{width}} | ", "red" if is_meant else "dim"),
        (line, "bold" if is_meant else "dim"),
    )


def _user_line(error: FlowError, script: Path | None) -> tuple[str, int] | None:
    """File and line that the error points at, or where the script last called flow2onnx."""
    frames = _user_frames(error, script)
    name, _, number = (error.source or "").rpartition(":")
    if not number.isdigit():
        return frames[-1] if frames else None
    folder = Path() if script is None else script.parent
    candidates = [*(file for file, _ in reversed(frames)), str(folder / name), name]
    for file in candidates:
        if place(file, int(number)) == error.source and Path(file).is_file():
            return file, int(number)
    return None


def _user_frames(error: BaseException, script: Path | None) -> list[tuple[str, int]]:
    frames = traceback.walk_tb(_from_script(error.__traceback__, script))
    named = ((frame.f_code.co_filename, line) for frame, line in frames)
    return [(f, n) for f, n in named if not f.startswith(("<", _PACKAGE))]


def _from_script(frames: TracebackType | None, script: Path | None) -> TracebackType | None:
    """The traceback from the script's first line on."""
    filename = None if script is None else str(script.absolute())
    while frames is not None and frames.tb_frame.f_code.co_filename != filename:
        frames = frames.tb_next
    return frames


class _OneLine(logging.Handler):
    """Writes messages to stderr, one line each, unless the program set logging up itself."""

    def emit(self, record: logging.LogRecord) -> None:
        if logging.getLogger().handlers:
            return
        text = " ".join(record.getMessage().split())
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            text += f": {type(error).__name__}: {error}{_where(error)}"
        click.echo(f"flow2onnx: {record.levelname.lower()}: {text}", err=True)


def _where(error: BaseException) -> str:
    frames = [(f.f_code.co_filename, n) for f, n in traceback.walk_tb(error.__traceback__)]
    own = [place(f, n) for f, n in frames if not f.startswith(("<", _PACKAGE))]
    return f" ({own[-1]})" if own else ""


@contextmanager
def show_logs() -> Iterator[None]:
    """Inside, warnings and errors that flow2onnx logs appear on stderr."""
    handler = _OneLine(logging.WARNING)
    log = logging.getLogger("flow2onnx")
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


@contextmanager
def show_errors_alone() -> Iterator[None]:
    """Inside, warnings appear on stderr only where the program takes care of them itself.

    Filters hold as they are: a warning that is to be an error still is one.
    """
    own = [h for h in logging.getLogger("flow2onnx").handlers if isinstance(h, _OneLine)]
    for handler in own:
        handler.setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.showwarning = _show_nothing
        try:
            yield
        finally:
            for handler in own:
                handler.setLevel(logging.WARNING)


def _show_nothing(*args: object, **kwargs: object) -> None:
    """In place of `warnings.showwarning`."""
