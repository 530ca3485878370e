"""Kernels by provider and operator: asked of the runtime, or as they were recorded of a version."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as _native

__all__ = [
    "Definitions",
    "Kernel",
    "Key",
    "as_text",
    "file_name",
    "installed_definitions",
    "operator_key",
    "stored_definitions",
]

_OPEN_END = 2**31 - 1  # how the runtime writes "no newer version of the operator yet"
_DEFAULT_DOMAINS = ("", "ai.onnx")

Key = tuple[str, str]  # domain, operator


@dataclass(frozen=True)
class Kernel:
    """One kernel: the versions of its operator, and the type strings each parameter may be."""

    first: int
    last: int
    types: Mapping[str, frozenset[str]]

    def serves(self, since: int) -> bool:
        """The runtime's own rule: an open range serves only the version it begins with."""
        return self.first == since or (self.last != _OPEN_END and self.first <= since <= self.last)

    def takes(self, types: Mapping[str, str]) -> bool:
        """True if no parameter has a type that the kernel does not list."""
        return all(t in self.types[name] for name, t in types.items() if name in self.types)


Definitions = Mapping[str, Mapping[Key, tuple[Kernel, ...]]]  # by the provider's name


def operator_key(domain: str, op_type: str) -> Key:
    """The key of an operator; the domain of ONNX itself has two names."""
    return ("" if domain in _DEFAULT_DOMAINS else domain, op_type)


def installed_definitions() -> Definitions:
    """All kernels of the installed runtime.

    Asked for them, onnxruntime 1.31.1 makes one of each provider that it was built with, and
    crashes the process at the first whose libraries are missing.
    """
    tables: dict[str, dict[Key, tuple[Kernel, ...]]] = {}
    for d in _native.get_all_opkernel_def():
        types = {name: frozenset(values) for name, values in d.type_constraints.items()}
        table = tables.setdefault(d.provider, {})
        key = operator_key(d.domain, d.op_name)
        first, last = d.version_range
        table[key] = (*table.get(key, ()), Kernel(first, last, types))
    return tables


def stored_definitions() -> Definitions:
    """The kernels of onnxruntime-gpu as recorded of the version nearest to the installed one.

    That is the newest version recorded that is not newer, else the oldest.
    """
    recorded = {
        _numbers(entry.name): entry
        for entry in files(__package__).iterdir()
        if re.fullmatch(re.escape(file_name("X")).replace("X", r"[0-9.]+"), entry.name)
    }
    older = [version for version in recorded if version <= _numbers(ort.__version__)]
    return _from_text(recorded[max(older) if older else min(recorded)].read_text("utf-8"))


def file_name(version: str) -> str:
    """The file of this package in which the kernels of a version are."""
    return f"kernels-{version}.json"


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", text)[:3])


def as_text(definitions: Definitions) -> str:
    """Definitions as JSON: a list of sets of types, and rows that name these by position."""
    sets: dict[tuple[str, ...], int] = {}
    lines = []
    for provider, table in sorted(definitions.items()):
        rows = []
        for (domain, op_type), kernels in sorted(table.items()):
            for k in kernels:
                types = {
                    n: sets.setdefault(tuple(sorted(t)), len(sets)) for n, t in k.types.items()
                }
                rows.append(json.dumps([domain, op_type, k.first, k.last, types]))
        lines.append(f"{json.dumps(provider)}:[\n" + ",\n".join(rows) + "\n]")
    combinations = ",\n".join(map(json.dumps, sets))
    return f'{{"types":[\n{combinations}\n],\n"kernels":{{\n' + ",\n".join(lines) + "\n}}\n"


def _from_text(text: str) -> Definitions:
    content = json.loads(text)
    sets = [frozenset(types) for types in content["types"]]
    tables: dict[str, dict[Key, tuple[Kernel, ...]]] = {}
    for provider, rows in content["kernels"].items():
        table = tables.setdefault(provider, {})
        for domain, op_type, first, last, types in rows:
            kernel = Kernel(first, last, {name: sets[i] for name, i in types.items()})
            table[domain, op_type] = (*table.get((domain, op_type), ()), kernel)
    return tables
