"""Hints and placements in a job that several processes train: what each of them computes and keeps.

In a world of one process they change nothing; an export may tell of them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flow2onnx_runtime.world import launched_world

from flow2onnx.errors import ArgumentError, ConfigError, UnsupportedError
from flow2onnx.graph import Value
from flow2onnx.graph.types import dims
from flow2onnx.source import user_frame
from flow2onnx.trace.context import current_job, traced_job
from flow2onnx.trace.job import Job, Kept

__all__ = [
    "Distribute",
    "as_hinted",
    "auto",
    "broadcast",
    "hint_of",
    "keep",
    "partial",
    "rank_of_devices",
    "redistribute",
    "split",
]

_SPLIT = re.compile(r"S\((\d+)\)")


@dataclass(frozen=True)
class Distribute:
    """A place on several devices: split along an axis, copied, summed up, or as is best.

    Hints are compared by value.
    """

    kind: str
    axis: int | None = None

    def __str__(self) -> str:
        return f"S({self.axis})" if self.kind == "split" else self.kind[0].upper()


def split(axis: int) -> Distribute:
    """Split along `axis`."""
    if not isinstance(axis, int) or axis < 0:
        raise ArgumentError(f"axis is 0 or more, got {axis!r}")
    return Distribute("split", axis)


def broadcast() -> Distribute:
    """A copy on each device."""
    return Distribute("broadcast")


def partial() -> Distribute:
    """A part of a sum on each device."""
    return Distribute("partial")


def auto() -> Distribute:
    """As the compiler likes."""
    return Distribute("auto")


def hint_of(given: Any) -> Distribute | None:
    """The hint that an argument says: one of flow.distribute, "S(0)", "B", "P", or a list of one.

    Raises `UnsupportedError` for a list of several, which are for devices in several dimensions.
    """
    if isinstance(given, list | tuple):
        if len(given) > 1:
            raise UnsupportedError(
                f"{given!r} is for devices in {len(given)} dimensions",
                hint="give one hint: processes stand in one row",
            )
        given = given[0] if given else None
    if isinstance(given, Distribute):
        return given
    if isinstance(given, str):
        found = _SPLIT.fullmatch(given)
        if found:
            return split(int(found[1]))
        if given in ("B", "P"):
            return broadcast() if given == "B" else partial()
    if given is None:
        return None
    raise ArgumentError(
        f"distribute is a distribution hint, got {given!r}",
        hint="use flow.distribute.split(axis), .broadcast() or .auto()",
    )


def check_hint(job: Job, hint: Distribute | None, shape: Sequence[int], what: str) -> bool:
    """True if a hint asks processes for something; raises for one that they cannot follow."""
    if job.spread == 1 or hint is None or hint == auto():
        return False
    if job.views[-1] == "mirrored":
        raise UnsupportedError(
            f"{what} is {hint}, in a mirrored view, whose blobs are one device's own",
            source=user_frame(),
            hint="leave the hint out, or take the consistent view",
        )
    if hint.axis is None:
        return True
    if hint.axis >= len(shape):
        raise ArgumentError(
            f"{what} is {hint}, and there are {len(shape)} dimensions", source=user_frame(),
            hint=f"axes are 0 to {len(shape) - 1}" if shape else "a number cannot be split",
        )  # fmt: skip
    if shape[hint.axis] < job.spread:
        raise UnsupportedError(
            f"{what} is {hint}: {shape[hint.axis]} elements on that axis are not enough for "
            f"{job.spread} processes",
            source=user_frame(),
            hint=f"split an axis of {job.spread} elements or more, or leave the hint out",
        )
    return True


def keep(job: Job, name: str, shape: Sequence[int], hint: Distribute | None) -> None:
    """Note what each process keeps of a variable made here: a part of it, or one of them all."""
    place, noted = job.b.place, job.kept if job.ranks > 1 else job.told
    if check_hint(job, hint, shape, f"distribute of variable {name}") and hint is not None:
        if hint.kind == "partial":
            raise UnsupportedError(
                f"variable {name} is to be the sum of what processes have",
                source=user_frame(),
                hint="split it, or leave the hint out",
            )
        if hint.axis is not None and place is None:
            noted[name], job.is_divided = Kept("split", hint.axis), job.ranks > 1
    if place is not None:
        noted[name] = Kept("at", place)


def redistribute(value: Value, given: Any, gradient: Any) -> tuple[Value, Distribute | None]:
    """The value for consumers that see it as a hint says, and the hint."""
    job, hint = traced_job(), hint_of(given)
    if job is None or job.spread == 1 or value.graph is not job.b.graph:
        return value, hint
    with job.b.under(job.name_op(None, "with_distribute"), user_frame()):
        return as_hinted(job.b.Identity(value), hint, gradient, "distribute"), hint


def as_hinted(copy: Value, given: Any, gradient: Any, what: str) -> Value:
    """A value made as a copy just now, which processes hold as a hint says.

    The gradient of what is split is split alike, and that of a copy is a part of a sum: a hint for
    it says no more than when it is added up, and changes nothing.
    """
    job, hint = current_job(what), hint_of(given)
    check_hint(job, hint_of(gradient), dims(copy), f"gradient_{what}")
    if check_hint(job, hint, dims(copy), what):
        node = copy.producer()
        assert node is not None, "a node has made it"
        node.meta["distribute"] = hint
        job.is_divided = job.ranks > 1
    return copy


def rank_of_devices(job: Job, device_ids: Sequence[str]) -> int | None:
    """The process that plays the one device named; None where they are all.

    Raises `ConfigError` for a device that no process plays, `UnsupportedError` for several that are
    not all.
    """
    if job.spread == 1:
        return None
    world = launched_world()
    local = world.local_size if world.size == job.spread else job.spread
    ranks = sorted({r for text in device_ids for r in _ranks(text, local)})
    text = ", ".join(device_ids)
    if ranks[-1] >= job.spread:
        raise ConfigError(
            f"placement {text}: {job.spread} processes were started, {local} on each machine, and "
            "none is for it",
            source=user_frame(),
            hint=f"name devices from 0:0 to {(job.spread - 1) // local}:{local - 1}, or start more "
            "processes",
        )
    if len(ranks) == job.spread:
        return None
    if len(ranks) > 1 or job.views[-1] == "mirrored":
        where = "in a mirrored view" if job.views[-1] == "mirrored" else "some of several"
        raise UnsupportedError(
            f"placement {text}: {len(ranks)} of {job.spread} devices, {where}",
            source=user_frame(),
            hint="name one device, or all of them, in the consistent view",
        )
    job.is_divided = job.ranks > 1
    return ranks[0]


def _ranks(text: str, local: int) -> range:
    """The processes of ``machine:first-last``."""
    machine, _, devices = text.removeprefix("@").partition(":")
    first, _, last = devices.partition("-")
    start = int(machine) * local
    return range(start + int(first), start + int(last or first) + 1)
