"""Where in the user's program something happens."""

import contextlib
import os
import sys
from types import TracebackType
from typing import TypeVar

from flow2onnx_runtime.errors import FlowError
from flow2onnx_runtime.tracebacks import (
    TRACEBACK,
    cell_name,
    is_traceback_full,
    short_traceback,
)

__all__ = [
    "TRACEBACK",
    "is_called_by_user",
    "is_traceback_full",
    "place",
    "raised_at",
    "raised_inside",
    "shorten_traceback",
    "user_frame",
]

E = TypeVar("E", bound=BaseException)

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_BETWEEN = ("<frozen ", contextlib.__file__)  # frames that only pass a call on


def user_frame() -> str | None:
    """``file.py:41`` of the innermost caller outside flow2onnx, or None.

    The file is named relative to the working directory when it lies below it, else by its
    base name.
    """
    frame = sys._getframe(1)
    while True:
        name = frame.f_code.co_filename
        if not name.startswith((_PACKAGE, *_BETWEEN)):
            return place(name, frame.f_lineno)
        if frame.f_back is None:
            return None
        frame = frame.f_back


def is_called_by_user(passing: str) -> bool:
    """True if the innermost frame outside the file `passing` and this one is the user's."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename == passing:
        frame = frame.f_back
    return not frame.f_code.co_filename.startswith(_PACKAGE)


def raised_at(error: BaseException) -> str | None:
    """``file.py:41`` of the innermost frame outside flow2onnx that `error` came through."""
    found, trace = None, error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not name.startswith((_PACKAGE, *_BETWEEN)):
            found = place(name, trace.tb_lineno)
        trace = trace.tb_next
    return found


def raised_inside(error: BaseException) -> bool:
    """True if no function of the user's lies between where it is caught and where it was raised."""
    trace = error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not name.startswith((_PACKAGE, *_BETWEEN)) and "site-packages" not in name:
            return False
        trace = trace.tb_next
    return True


def shorten_traceback(error: E) -> E:
    """The error without the compiler's frames, unless they are asked for; returns itself.

    A notebook shows it in its short form, as it does ours.
    """
    if is_traceback_full():
        return error
    if not isinstance(error, FlowError):
        setattr(error, "_render_traceback_", lambda: short_traceback(error))  # noqa: B010
    own: list[TracebackType] = []
    trace = error.__traceback__
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith((_PACKAGE, *_BETWEEN)):
            own.append(trace)
        trace = trace.tb_next
    short: TracebackType | None = None
    for trace in reversed(own):
        short = TracebackType(short, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)
    return error.with_traceback(short)


def place(filename: str, line: int) -> str:
    """``file.py:41``, the file shown as in `user_frame`."""
    return f"{_shown(filename)}:{line}"


def _shown(filename: str) -> str:
    if filename.startswith("<"):  # "<stdin>", "<string>"
        return filename
    cell = cell_name(filename)
    if cell is not None:
        return cell
    path, here = os.path.abspath(filename), os.path.join(os.getcwd(), "")
    return path[len(here) :] if path.startswith(here) else os.path.basename(path)
