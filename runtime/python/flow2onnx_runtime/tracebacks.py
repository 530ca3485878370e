"""Tracebacks of a program's own frames, and their short form in notebooks.

IPython shows an error by its `_render_traceback_`, if it has one.
"""

import linecache
import os
import sys
import traceback

__all__ = ["TRACEBACK", "cell_name", "is_traceback_full", "short_traceback"]

TRACEBACK = "FLOW2ONNX_TRACEBACK"  # "full" shows the compiler's frames too
_OWN = "flow2onnx"  # what the names of all our packages begin with
_MOST_FRAMES = 2


def is_traceback_full() -> bool:
    """True if tracebacks are to have the compiler's own frames."""
    return os.environ.get(TRACEBACK) == "full"


def cell_name(filename: str) -> str | None:
    """``Cell In[3]`` for the file name that IPython gave a cell, None for any other."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None:
        return None
    found = shell.compile.format_code_name(filename)
    return " ".join(found) if found else None


def short_traceback(error: BaseException) -> list[str]:
    """The lines that a notebook shows: where the program called, where in it that was, and why."""
    frames = [
        (frame.f_code, number)
        for frame, number in traceback.walk_tb(error.__traceback__)
        if not str(frame.f_globals.get("__name__", "")).startswith(_OWN)
        and cell_name(frame.f_code.co_filename) is not None
    ]
    lines: list[str] = []
    for code, number in [*frames[:1], *frames[1:][-(_MOST_FRAMES - 1) :]]:
        inside = "" if code.co_name == "<module>" else f", in {code.co_name}"
        text = linecache.getline(code.co_filename, number).strip()
        lines += [f"{cell_name(code.co_filename)}, line {number}{inside}", f"----> {number} {text}"]
    return [*lines, "", *f"{type(error).__name__}: {error}".split("\n")]
