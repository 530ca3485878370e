"""`import oneflow` inside a program that is run: an import hook that answers with our names."""

import difflib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from flow2onnx import typing
from flow2onnx.api.surface import MIRRORS, NAMES
from flow2onnx.errors import UnsupportedError
from flow2onnx.session import current_session
from flow2onnx.trace.source import user_frame
from flow2onnx.trace.spec import GENERATIONS

__all__ = ["UnknownModuleError", "UnknownSymbolError", "oneflow_names"]

_TYPES = {f"typing.{name}": getattr(typing, name) for name in typing.__all__}
_SYMBOLS = {name: value for name, value in NAMES.items() if name != "typing"} | _TYPES
_KNOWN = _SYMBOLS | MIRRORS
_NAMESPACES = {"", *(n[:i] for n in _KNOWN for i, c in enumerate(n) if c == ".")}
# Folders of OneFlow's own source, which some programs import from.
_FOLDERS = ("python", "framework", "ops")
# The element types of OneFlow's messages.
_PROTO_TYPES = {
    f"k{name}": NAMES[name.lower()]
    for name in ("Char", "Double", "Float", "Float16", "Int8", "Int32", "Int64", "UInt8")
}


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
            __import__(f"{self.__name__}.{name}")
            return sys.modules[f"{self.__name__}.{name}"]
        raise UnknownSymbolError(symbol)

    def __dir__(self) -> list[str]:
        if self._namespace is None:
            return []
        prefix = _prefix(self._namespace)
        below = (n.removeprefix(prefix) for n in _KNOWN if n.startswith(prefix))
        return sorted({n.partition(".")[0] for n in below})

    def _symbol(self, name: str) -> str:
        if self._namespace is not None:
            return _prefix(self._namespace) + name
        return min(_ending_in(name), key=lambda symbol: symbol.count("."), default=name)


class ProtoModule(ModuleType):
    """`oneflow.core.*`: generated modules, of which programs use constants and type names."""

    def __getattr__(self, name: str) -> Any:  # an element type or a constant
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = _PROTO_TYPES.get(name) or ProtoConstant(f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value


class ProtoConstant:
    """A constant or message type, equal to itself alone."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Refuse to make a message."""
        raise UnsupportedError(
            f"{self._name} is a message of OneFlow's engine, which is not here",
            hint="use the function of flow that makes it, such as flow.constant_initializer",
            source=user_frame(),
        )

    def __repr__(self) -> str:
        return self._name


class _Finder(MetaPathFinder, Loader):
    """Finds `oneflow` and everything below it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != "oneflow":
            return None
        if _namespace(fullname) is None and not _is_source(fullname):
            raise UnknownModuleError(".".join(_below(fullname)))
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        if spec.name.startswith("oneflow.core"):
            return ProtoModule(spec.name)
        return OneFlowModule(spec.name, _namespace(spec.name))

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: the names are looked up when they are used."""


@contextmanager
def oneflow_names() -> Iterator[None]:
    """Inside, `oneflow` is flow2onnx, in all its spellings; an installed OneFlow is set aside."""
    installed = _taken_modules()
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        _taken_modules()
        sys.modules.update(installed)


def _taken_modules() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name.partition(".")[0] == "oneflow"]
    return {name: sys.modules.pop(name) for name in names}


def _below(module: str) -> list[str]:
    """``["nn"]`` for ``oneflow.compatible.single_client.nn``."""
    parts = module.split(".")[1:]
    for package in ("compatible", "single_client"):
        if parts[:1] == [package]:
            parts = parts[1:]
    return parts


def _namespace(module: str) -> str | None:
    """What `module` is called below `flow`; None where it is no namespace."""
    parts = _below(module)
    while parts and parts[0] in _FOLDERS:
        parts = parts[1:]
    dotted = ".".join(parts)
    return dotted if dotted in _NAMESPACES else None


def _is_source(module: str) -> bool:
    """Whether it is a file of OneFlow's source, not a part of its API."""
    return _below(module)[:1] in ([folder] for folder in (*_FOLDERS, "core"))


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
