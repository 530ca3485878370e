"""The kernels of the installed runtime: of the runtime itself, where it can be asked."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as _native

from flow2onnx_runtime.dtypes import find_element
from flow2onnx_runtime.kernel_definitions import (
    Definitions,
    Kernel,
    Key,
    installed_definitions,
    operator_key,
    stored_definitions,
)
from flow2onnx_runtime.plugins import is_by_device, is_listed
from flow2onnx_runtime.provider_checks import has_library, usable_providers
from flow2onnx_runtime.providers import CPU, provider_named

__all__ = ["KernelTable", "kernels"]


@dataclass(frozen=True)
class KernelTable:
    """The kernels of one provider, by operator.

    An operator may run without a kernel: the runtime inlines one that ONNX defines as a function
    (`knows` is true, `has` is not), casts float16 to float32 around operators whose CPU kernels
    lack it, and folds `Constant` away. Only opening a session settles it.

    Where the runtime cannot be asked, they are those recorded of the nearest version. Where none
    were recorded of the provider either, and for a plug-in, `is_known` is false, and whatever the
    runtime has a definition of counts as having kernels.
    """

    provider: str
    _kernels: Mapping[Key, tuple[Kernel, ...]] = field(repr=False)
    _versions: Mapping[Key, tuple[int, ...]] = field(repr=False)
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
            for kernel in self._kernels.get(operator_key(domain, op_type), ())
        )

    def has(self, op_type: str, domain: str = "") -> bool:
        """True if any version of the operator has a kernel for any type."""
        return operator_key(domain, op_type) in (self._kernels if self.is_known else self._versions)

    def knows(self, op_type: str, opset: int, domain: str = "") -> bool:
        """True if the runtime has the operator's definition at `opset`, kernel or not."""
        return self.since_version(op_type, opset, domain) is not None

    def since_version(self, op_type: str, opset: int, domain: str = "") -> int | None:
        """The version of the operator that `opset` means, or None if the runtime knows none."""
        versions = [v for v in self._versions.get(operator_key(domain, op_type), ()) if v <= opset]
        return max(versions, default=None)

    def types(
        self, op_type: str, opset: int, domain: str = ""
    ) -> tuple[Mapping[str, frozenset[str]], ...]:
        """Per kernel that serves the operator, the type strings each parameter may be."""
        since = self.since_version(op_type, opset, domain)
        found = self._kernels.get(operator_key(domain, op_type), ())
        return tuple(k.types for k in found if since is not None and k.serves(since))

    def refuses_half(self, op_type: str, reduction: str) -> bool:
        """True if a kernel that lists half precision fails there when it is to reduce so."""
        return reduction in provider_named(self.provider).refused_halves.get(op_type, ())

    def leaves(self, op_type: str, opset: int | None = None) -> bool:
        """True if the first provider has no kernel of an operator, and leaves it to the next.

        With `opset`, of the version that it means. False for a provider that has none at all, as
        it compiles whatever it takes, and for what is no operator of the runtime's.
        """
        own = _table((self.provider,))
        if not provider_named(self.provider).has_kernels or not own.is_known:
            return False
        if opset is None:
            return not own.has(op_type)
        since = own.since_version(op_type, opset)
        return since is not None and not own.types(op_type, opset)

    def pads_alike(self, op_type: str) -> bool:
        """True if the kernels of an operator take equal pads on both sides and no others."""
        return op_type in provider_named(self.provider).alike_pads

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
    known = _definitions()
    missing = set(providers) - set(known)
    if missing and (not _can_be_asked() or any(map(_is_plugin, missing))):
        return KernelTable(providers[0], {}, _all_versions(), is_known=False)
    found: dict[Key, tuple[Kernel, ...]] = {}
    for provider in providers:
        for key, own in known.get(provider, {}).items():
            found[key] = (*found.get(key, ()), *own)
    return KernelTable(providers[0], found, _all_versions())


def _is_plugin(name: str) -> bool:
    """True for a provider that is here as a plug-in, whose kernels nobody can ask for."""
    return is_listed(name) and is_by_device(name) and provider_named(name).has_kernels


@functools.cache
def _definitions() -> Definitions:
    return installed_definitions() if _can_be_asked() else stored_definitions()


@functools.cache
def _can_be_asked() -> bool:
    """True if every provider with a library of its own works, and survives the question.

    The libraries of TensorRT are often missing. Some providers never survive, as their rows say.
    """
    own = [name for name in ort.get_available_providers() if has_library(name)]
    if not all(provider_named(name).lists_kernels for name in own):
        return False
    usable = usable_providers()
    return all(name in usable for name in own)


@functools.cache
def _all_versions() -> dict[Key, tuple[int, ...]]:
    versions: dict[Key, tuple[int, ...]] = {}
    for schema in _native.get_all_operator_schema():
        key = operator_key(schema.domain, schema.name)
        versions[key] = (*versions.get(key, ()), schema.since_version)
    return versions


def _type_string(name: str) -> str:
    element = find_element(name)
    return element.onnx if element else name
