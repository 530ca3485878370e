"""The modules of OneFlow's API: namespaces below `flow`, and files of OneFlow's source."""

import difflib
import sys
from types import ModuleType
from typing import Any

from flow2onnx import typing
from flow2onnx.api.session import current_session
from flow2onnx.api.surface import LATE_NAMES, MIRRORS, NAMES, import_named
from flow2onnx.errors import UnsupportedError
from flow2onnx.source import user_frame
from flow2onnx.trace.spec import GENERATIONS

__all__ = [
    "SOURCE_FOLDERS",
    "OneFlowModule",
    "UnknownModuleError",
    "UnknownSymbolError",
    "is_namespace",
    "publish_source",
]

_TYPES = {f"typing.{name}": getattr(typing, name) for name in typing.__all__}
_SYMBOLS = {name: value for name, value in NAMES.items() if name != "typing"} | _TYPES
_KNOWN = _SYMBOLS | MIRRORS
_NAMESPACES = {"", *(n[:i] for n in _KNOWN for i, c in enumerate(n) if c == ".")}
# Folders of OneFlow's own source, which some programs import from.
SOURCE_FOLDERS = ("python", "framework", "ops")


class UnknownSymbolError(UnsupportedError, AttributeError):
    """A name of OneFlow's that is not here; also an AttributeError, so `hasattr` works."""

    def __init__(self, symbol: str) -> None:
        super().__init__(_missing(symbol), hint=_nearest(symbol), source=user_frame())
        self.obj = None  # keeps Python's own "Did you mean" from being printed after ours


class UnknownModuleError(UnsupportedError, ModuleNotFoundError):
    """A module of OneFlow's that is not here; also what a failed import raises."""

    def __init__(self, symbol: str) -> None:
        super().__init__(_missing(symbol), hint=_nearest(symbol), source=user_frame())


class OneFlowModule(ModuleType):
    """`oneflow` or a module below it, whose names are those of `flow` below `namespace`.

    A file of OneFlow's source has no namespace: it finds a name wherever `flow` has it.
    """

    def __init__(self, name: str, namespace: str | None) -> None:
        super().__init__(name, "A module of OneFlow's API, on flow2onnx.")
        self._namespace = namespace
        self.__all__ = self.__dir__()

    def __getattr__(self, name: str) -> Any:  # whatever the name stands for
        if name == "__version__":
            return _release()
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        symbol = self._symbol(name)
        if symbol in _KNOWN:
            return _KNOWN[symbol]
        if symbol in _NAMESPACES:
            return _below(self, name, symbol)
        if symbol in LATE_NAMES:
            return import_named(symbol)
        raise UnknownSymbolError(symbol)

    def __dir__(self) -> list[str]:
        if self._namespace is None:
            return []
        prefix = _prefix(self._namespace)
        below = (n.removeprefix(prefix) for n in _KNOWN if n.startswith(prefix))
        late = () if self._namespace else LATE_NAMES
        return sorted({n.partition(".")[0] for n in below}.union(late))

    def _symbol(self, name: str) -> str:
        if self._namespace is not None:
            return _prefix(self._namespace) + name
        return min(_ending_in(name), key=lambda symbol: symbol.count("."), default=name)


def _prefix(namespace: str) -> str:
    return f"{namespace}." if namespace else ""


def _ending_in(name: str) -> list[str]:
    return sorted(n for n in _SYMBOLS if n.rpartition(".")[2] == name)


def _release() -> str:
    return current_session().release or GENERATIONS["c"]


def _missing(symbol: str) -> str:
    if symbol in _SYMBOLS:
        return f"flow.{symbol} is no module"
    return f"flow.{symbol} of OneFlow {_release()} is not available"


def _nearest(symbol: str) -> str | None:
    """The same name elsewhere, else names spelt alike."""
    namespace, _, last = symbol.rpartition(".")
    if symbol in _SYMBOLS:
        return f"write: from {'.'.join(filter(None, ('oneflow', namespace)))} import {last}"
    near = _ending_in(last) or difflib.get_close_matches(symbol, _SYMBOLS, n=2, cutoff=0.7)
    near = near or [n for n in _SYMBOLS if last and last in n.rpartition(".")[2]][:2]
    return f"the nearest is {' or '.join(f'flow.{n}' for n in near[:2])}" if near else None


def is_namespace(name: str) -> bool:
    """True if `flow` has names below this one."""
    return name in _NAMESPACES


def publish_source(package: ModuleType) -> None:
    """Put the folder that programs import files of OneFlow's source from below `package`."""
    vars(package)["framework"] = _below(package, "framework", None)


def _below(parent: ModuleType, name: str, namespace: str | None) -> ModuleType:
    full = f"{parent.__name__}.{name}"
    if full not in sys.modules:
        sys.modules[full] = OneFlowModule(full, namespace)
    return sys.modules[full]
