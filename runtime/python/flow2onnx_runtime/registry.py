"""The kernels of the installed runtime, asked of the runtime itself."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as _native

from flow2onnx_runtime.dtypes import find_element
from flow2onnx_runtime.provider_checks import has_library, usable_providers
from flow2onnx_runtime.providers import CPU, provider_named

__all__ = ["KernelTable", "kernels"]

_OPEN_END = 2**31 - 1  # how the runtime writes "no newer version of the operator yet"
_DEFAULT_DOMAINS = ("", "ai.onnx")

_Key = tuple[str, str]  # domain, operator


@dataclass(frozen=True)
class _Kernel:
    first: int
    last: int
    types: Mapping[str, frozenset[str]]

    def serves(self, since: int) -> bool:
        """The runtime's own rule: an open range serves only the version it begins with."""
        return self.first == since or (self.last != _OPEN_END and self.first <= since <= self.last)

    def takes(self, types: Mapping[str, str]) -> bool:
        return all(t in self.types[name] for name, t in types.items() if name in self.types)


@dataclass(frozen=True)
class KernelTable:
    """The kernels of one provider, by operator.

    An operator may run without a kernel: the runtime inlines one that ONNX defines as a function
    (`knows` is true, `has` is not), casts float16 to float32 around operators whose CPU kernels
    lack it, and folds `Constant` away. Only opening a session settles it.

    Where `is_known` is false, the runtime could not be asked, and whatever it has a definition of
    counts as having kernels.
    """

    provider: str
    _kernels: Mapping[_Key, tuple[_Kernel, ...]] = field(repr=False)
    _versions: Mapping[_Key, tuple[int, ...]] = field(repr=False)
    is_known: bool = True

    def supports(
        self, op_type: str, opset: int, types: Mapping[str, str] | None = None, domain: str = ""
    ) -> bool:
        """True if a kernel takes this operator of `opset` with these element types.

        `types`: type parameter of the operator's schema, such as ``"T"``, to ``"float32"`` or to
        an ONNX type string such as ``"tensor(float)"``. Parameters not given may be anything.
        """
        since = self.since_version(op_type, opset, domain)
        if not self.is_known:
            return since is not None
        wanted = {name: _type_string(t) for name, t in (types or {}).items()}
        return since is not None and any(
            kernel.serves(since) and kernel.takes(wanted)
            for kernel in self._kernels.get(_key(domain, op_type), ())
        )

    def has(self, op_type: str, domain: str = "") -> bool:
        """True if any version of the operator has a kernel for any type."""
        return _key(domain, op_type) in (self._kernels if self.is_known else self._versions)

    def knows(self, op_type: str, opset: int, domain: str = "") -> bool:
        """True if the runtime has the operator's definition at `opset`, kernel or not."""
        return self.since_version(op_type, opset, domain) is not None

    def since_version(self, op_type: str, opset: int, domain: str = "") -> int | None:
        """The version of the operator that `opset` means, or None if the runtime knows none."""
        versions = [v for v in self._versions.get(_key(domain, op_type), ()) if v <= opset]
        return max(versions, default=None)

    def types(
        self, op_type: str, opset: int, domain: str = ""
    ) -> tuple[Mapping[str, frozenset[str]], ...]:
        """Per kernel that serves the operator, the type strings each parameter may be."""
        since = self.since_version(op_type, opset, domain)
        found = self._kernels.get(_key(domain, op_type), ())
        return tuple(k.types for k in found if since is not None and k.serves(since))

    def refuses_half(self, op_type: str, reduction: str) -> bool:
        """True if a kernel that lists half precision fails there when it is to reduce so."""
        return reduction in provider_named(self.provider).refused_halves.get(op_type, ())

    def without_kernel(self, domain: str = "") -> frozenset[str]:
        """Operators that the runtime has a definition of and no kernel for."""
        return frozenset(op for d, op in self._versions if d == domain and not self.has(op, d))


def kernels(provider: str = CPU.name, *others: str) -> KernelTable:
    """The kernels of `provider` in the onnxruntime installed here; empty if it has none of it.

    With `others`, theirs too, as a session has them that falls back from one to the next.
    """
    return _table((provider, *others))


@functools.cache
def _table(providers: tuple[str, ...]) -> KernelTable:
    if not _can_be_asked():
        return KernelTable(providers[0], {}, _all_versions(), is_known=False)
    found: dict[_Key, tuple[_Kernel, ...]] = {}
    for provider in providers:
        for key, own in _all_kernels().get(provider, {}).items():
            found[key] = (*found.get(key, ()), *own)
    return KernelTable(providers[0], found, _all_versions())


@functools.cache
def _can_be_asked() -> bool:
    """True if every provider with a library of its own works, and survives the question.

    Asked for its kernels, onnxruntime 1.31.1 makes one of each that it was built with, and crashes
    the process at the first whose libraries are missing, as TensorRT's often are. Some crash it
    always, as their rows say.
    """
    own = [name for name in ort.get_available_providers() if has_library(name)]
    if not all(provider_named(name).lists_kernels for name in own):
        return False
    usable = usable_providers()
    return all(name in usable for name in own)


@functools.cache
def _all_kernels() -> dict[str, dict[_Key, tuple[_Kernel, ...]]]:
    tables: dict[str, dict[_Key, tuple[_Kernel, ...]]] = {}
    for d in _native.get_all_opkernel_def():
        types = {name: frozenset(values) for name, values in d.type_constraints.items()}
        table = tables.setdefault(d.provider, {})
        key = _key(d.domain, d.op_name)
        first, last = d.version_range
        table[key] = (*table.get(key, ()), _Kernel(first, last, types))
    return tables


@functools.cache
def _all_versions() -> dict[_Key, tuple[int, ...]]:
    versions: dict[_Key, tuple[int, ...]] = {}
    for schema in _native.get_all_operator_schema():
        key = _key(schema.domain, schema.name)
        versions[key] = (*versions.get(key, ()), schema.since_version)
    return versions


def _key(domain: str, op_type: str) -> _Key:
    return ("" if domain in _DEFAULT_DOMAINS else domain, op_type)


def _type_string(name: str) -> str:
    element = find_element(name)
    return element.onnx if element else name
