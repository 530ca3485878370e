"""`import oneflow` inside a program that is run: an import hook that answers with our names."""

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from flow2onnx.api.modules import (
    SOURCE_FOLDERS,
    OneFlowModule,
    UnknownModuleError,
    is_namespace,
)
from flow2onnx.api.surface import NAMES
from flow2onnx.errors import UnsupportedError
from flow2onnx.source import user_frame

__all__ = ["oneflow_names"]

# The element types of OneFlow's messages.
_PROTO_TYPES = {
    f"k{name}": NAMES[name.lower()]
    for name in ("Char", "Double", "Float", "Float16", "Int8", "Int32", "Int64", "UInt8")
}


# Where the messages are that programs make themselves, by the module below `core`.
_MESSAGES = {
    "record.record_pb2": "record",
    "serving.saved_model_pb2": "saved_model",
    "job.job_conf_pb2": "saved_model",
    "summary.event_pb2": "summary",
    "summary.plugin_data_pb2": "summary",
    "summary.projector_pb2": "summary",
    "summary.summary_pb2": "summary",
}


class ProtoModule(ModuleType):
    """`oneflow.core.*`: generated modules, of which programs use messages and constants."""

    def __getattr__(self, name: str) -> Any:  # a message, an element type or a constant
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if name.endswith("_pb2"):
            return importlib.import_module(f"{self.__name__}.{name}")
        value = self._message(name) or _PROTO_TYPES.get(name)
        if value is None:
            value = ProtoConstant(f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value

    def _message(self, name: str) -> Any:  # a class that protobuf makes has no static type
        ours = _MESSAGES.get(".".join(_below(self.__name__)[1:]))
        if ours is None:
            return None
        return getattr(importlib.import_module(f"flow2onnx.proto.{ours}"), name, None)


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
        if _below(spec.name)[:1] == ["core"]:
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
    """The name of `module` below `flow`; None where it is no namespace."""
    parts = _below(module)
    while parts and parts[0] in SOURCE_FOLDERS:
        parts = parts[1:]
    dotted = ".".join(parts)
    return dotted if is_namespace(dotted) else None


def _is_source(module: str) -> bool:
    """True for a file of OneFlow's source, which is no part of its API."""
    return _below(module)[:1] in ([folder] for folder in (*SOURCE_FOLDERS, "core"))
