"""Native operators for jobs that flow2onnx runs itself: where the shared library is.

flow2onnx finds this package when it is installed, and works without it. Exported models never use
these operators.
"""

import ctypes.util
import os
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

__all__ = ["library_path", "onednn_path"]

_LIBRARY = "libflow2onnx_native.so"
_ONEDNN_PACKAGE, _ONEDNN = "onednn-cpu-gomp", "libdnnl.so.3"


def library_path() -> str:
    """The path of the shared library; whether it is there, opening it tells."""
    return str(Path(__file__).with_name(_LIBRARY))


def onednn_path() -> str | None:
    """The path or name of oneDNN's shared library; None if there is none.

    The environment variable `FLOW2ONNX_ONEDNN` goes before the package onednn-cpu-gomp, and that
    before what the system's loader finds; empty, it means none.
    """
    asked = os.environ.get("FLOW2ONNX_ONEDNN")
    if asked is not None:
        return asked or None
    return _packaged() or ctypes.util.find_library("dnnl")


def _packaged() -> str | None:
    try:
        found = [f for f in files(_ONEDNN_PACKAGE) or () if f.name == _ONEDNN]
    except PackageNotFoundError:
        return None
    places = [Path(str(f.locate())).resolve() for f in found]
    return next((str(p) for p in places if p.is_file()), None)
