"""Optimizer state in parts: each rank keeps the slots of some variables, and moves these alone.

This is ZeRO's first stage by whole variables, as torch's ZeroRedundancyOptimizer has it: what moves
a variable sees whole tensors, so that any update model can be divided.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod

from flow2onnx_runtime.bundle import Bundle
from flow2onnx_runtime.dtypes import element_named
from flow2onnx_runtime.errors import BundleError
from flow2onnx_runtime.manifest import NEXT, StateSpec
from flow2onnx_runtime.pruned_model import Signature, signature_of

__all__ = ["SlotOwners", "divide_slots"]


@dataclass(frozen=True)
class SlotOwners:
    """Which rank keeps which slots, and which it moves of what all have, such as variables.

    What has no owner all keep, and all move. `outputs` are those of the update model.
    """

    slots: Mapping[str, int] = field(default_factory=dict)
    moved: Mapping[str, int] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()

    def elsewhere(self, rank: int) -> frozenset[str]:
        """The slots that a rank has none of."""
        return frozenset(name for name, owner in self.slots.items() if owner != rank)

    def outputs_of(self, rank: int) -> list[str]:
        """The outputs of the update model that a rank computes."""
        owners = {**self.slots, **self.moved}
        return [o for o in self.outputs if owners.get(o.removeprefix(NEXT), rank) == rank]


def divide_slots(bundle: Bundle, ranks: int) -> SlotOwners:
    """The slots of a bundle's variables among ranks, so that each has about as many bytes.

    Divided are those that the update alone reads and writes; of these, what predict jobs read, such
    as averages, all ranks have. Raises `BundleError` where nothing can be divided.
    """
    parts = bundle.manifest.accumulate
    assert parts is not None, "a trainer of several ranks checks that before"
    update = signature_of((bundle.folder / parts.update).read_bytes())
    gradients = signature_of((bundle.folder / parts.gradients).read_bytes())
    own = {
        spec.name: spec
        for spec in bundle.manifest.state
        if spec.role == "slot" and spec.of is not None and _is_private(spec.name, update, gradients)
    }
    seen = {name for job in bundle.manifest.predict for name in (*job.reads, *job.holds)}
    slots = [spec for name, spec in own.items() if name not in seen]
    if not slots:
        raise BundleError(
            f"bundle {bundle.folder} has no optimizer state that could be kept in parts",
            hint="leave optimizer_in_parts out: plain SGD has none",
        )
    owners = _balanced(slots, ranks)
    averages = {n: owners[str(s.of)] for n, s in own.items() if n in seen and s.of in owners}
    return SlotOwners(
        {s.name: owners[str(s.of)] for s in slots}, {**owners, **averages}, update.outputs
    )


def _is_private(name: str, update: Signature, gradients: Signature) -> bool:
    """True for state that the update model reads and writes, and the other half does not touch."""
    is_moved = name in update.inputs and NEXT + name in update.outputs
    return is_moved and name not in gradients.inputs and NEXT + name not in gradients.outputs


def _balanced(slots: Iterable[StateSpec], ranks: int) -> dict[str, int]:
    """The rank of each variable that has slots: the largest first, each where the least is."""
    sizes = Counter[str]()
    for spec in slots:
        sizes[str(spec.of)] += prod(spec.shape) * element_named(spec.dtype).size
    loads, found = [0] * ranks, dict[str, int]()
    for name, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        found[name] = loads.index(min(loads))
        loads[found[name]] += size
    return found
