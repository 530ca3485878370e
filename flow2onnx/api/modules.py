"""The modules of OneFlow's API: namespaces below `flow`, and files of OneFlow's source."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from flow2onnx_runtime.spelling import did_you_mean

from flow2onnx import typing
from flow2onnx.api.other_names import ELSEWHERE, nearest_names
from flow2onnx.api.session import current_session
from flow2onnx.api.surface import LATE_NAMES, MIRRORS, NAMES, import_named
from flow2onnx.errors import NoAttributeError, UnsupportedError
from flow2onnx.source import user_frame
from flow2onnx.trace.releases import GENERATIONS

__all__ = [
    "SOURCE_FOLDERS",
    "OneFlowModule",
    "UnknownModuleError",
    "UnknownNameError",
    "UnknownSymbolError",
    "is_namespace",
    "publish_source",
    "refuse_unknown",
]

_TYPES = {f"typing.{name}": getattr(typing, name) for name in typing.__all__}
_SYMBOLS = {name: value for name, value in NAMES.items() if name != "typing"} | _TYPES
_KNOWN = _SYMBOLS | MIRRORS
_LAST = frozenset(name.rpartition(".")[2] for name in _SYMBOLS)
_NAMESPACES = {"", *(n[:i] for n in _KNOWN for i, c in enumerate(n) if c == ".")}
# Folders of OneFlow's own source, which some programs import from.
SOURCE_FOLDERS = ("python", "framework", "ops")


class UnknownSymbolError(UnsupportedError, AttributeError):
    """A name of OneFlow's that is not here; also an AttributeError, so `hasattr` works."""

    def __init__(self, symbol: str) -> None:
        super().__init__(_missing(symbol), hint=_nearest(symbol), source=user_frame())
        self.obj = None  # keeps Python's own "Did you mean" from being printed after ours


class UnknownNameError(NoAttributeError):
    """A name that is not below `flow`, of OneFlow's or anybody's."""

    def __init__(self, namespace: str, name: str) -> None:
        where = f"flow.{namespace}" if namespace else "flow"
        hint = _nearest(_prefix(namespace) + name) or f"dir({where}) lists the names there are"
        super().__init__(f"{where} has no {name!r}", hint=hint, source=user_frame())
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
    if last.lower() in ELSEWHERE and last not in _LAST:
        return f"in its place there is {ELSEWHERE[last.lower()]}"
    near = nearest_names(symbol, _SYMBOLS)
    return did_you_mean([f"flow.{name}" for name in near], None)


def is_namespace(name: str) -> bool:
    """True if `flow` has names below this one."""
    return name in _NAMESPACES


def refuse_unknown(package: ModuleType) -> None:
    """Let `package` and the namespaces below it say what the nearest to an unknown name is."""
    for namespace in _NAMESPACES:
        module = sys.modules[".".join(filter(None, (package.__name__, namespace)))]
        if module is package or "__getattr__" not in vars(module):
            vars(module)["__getattr__"] = _refuser(namespace, module.__name__)


def _refuser(namespace: str, module: str) -> Callable[[str], Any]:
    """The `__getattr__` of a namespace."""

    def refuse(name: str) -> Any:  # what is imported at the first use may be anything
        symbol = _prefix(namespace) + name
        if symbol in LATE_NAMES:
            return import_named(symbol)
        if name.startswith("_"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        raise UnknownNameError(namespace, name)

    return refuse


def publish_source(package: ModuleType) -> None:
    """Put the folder that programs import files of OneFlow's source from below `package`."""
    vars(package)["framework"] = _below(package, "framework", None)


def _below(parent: ModuleType, name: str, namespace: str | None) -> ModuleType:
    full = f"{parent.__name__}.{name}"
    if full not in sys.modules:
        sys.modules[full] = OneFlowModule(full, namespace)
    return sys.modules[full]
