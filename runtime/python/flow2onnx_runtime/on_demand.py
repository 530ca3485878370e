"""Packages whose names are imported when they are first asked for: the one door to what is slow.

What stands behind needs numpy and ONNX Runtime; an installation without them, or with a broken one,
still has what stands before: errors, settings, a command that tells what is wrong.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["import_on_demand"]


def import_on_demand(package: str, homes: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """The `__getattr__` of a package: `homes` has the public names of each of its modules.

    No module may be named like a public name: importing it would replace the name by the module.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def import_named(name: str) -> Any:  # whatever the name stands for
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            home = importlib.import_module(f"{package}.{home_of[name]}")
        except ModuleNotFoundError as error:
            if error.name != "onnxruntime":
                raise
            raise ModuleNotFoundError(
                "onnxruntime is not installed: pip install 'flow2onnx-runtime[cpu]' or, with an "
                "NVIDIA GPU, 'flow2onnx-runtime[gpu]'",
                name="onnxruntime",
            ) from error
        return getattr(home, name)

    return import_named
