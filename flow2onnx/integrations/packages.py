"""Packages that are no requirement of ours."""

import importlib
from typing import Any

from flow2onnx_runtime import OptionsError

__all__ = ["package"]


def package(name: str, install: str | None = None) -> Any:  # whatever the package is
    """A module of a package; raises `OptionsError` with what to install where it is missing.

    `install` is the package's name in the index, if that is not the first part of the module's.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        wanted = install or name.partition(".")[0]
        raise OptionsError(
            f"{name} cannot be imported: {error}", hint=f"pip install {wanted}"
        ) from error
