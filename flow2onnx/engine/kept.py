"""Variables of which each rank keeps a part: their first values, their whole values, new ones."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from flow2onnx_runtime import State
from flow2onnx_runtime.axis_parts import part_of_axis
from flow2onnx_runtime.collectives import Collectives
from flow2onnx_runtime.dtypes import Array

from flow2onnx.compile import CompiledJob
from flow2onnx.engine.variables import whole_value
from flow2onnx.errors import VariableError
from flow2onnx.trace.job import Kept
from flow2onnx.trace.variables import Variable

__all__ = ["gather_rows", "kept_value", "merge_kept", "own_value", "refresh"]


def merge_kept(jobs: Iterable[CompiledJob]) -> dict[str, Kept]:
    """Parts of the variables of jobs that ranks keep, by name.

    Raises `VariableError` where two train jobs divide one otherwise.
    """
    found: dict[str, Kept | None] = {}
    owners: dict[str, str] = {}
    for job in jobs:
        if job.kind != "train":
            continue
        kept = job.division.kept if job.division is not None else {}
        for name in job.variables:
            own, owner = kept.get(name), owners.setdefault(name, job.spec.name)
            if found.setdefault(name, own) != own:
                raise VariableError(
                    f"variable {name!r} is divided in one way in job {owner}, and in another here",
                    job=job.spec.name, source=job.variables[name].source,
                    hint="give it the same distribute= and placement in both, or another name",
                )  # fmt: skip
    return {name: kept for name, kept in found.items() if kept is not None}


def own_value(value: Array, kept: Kept | None, ranks: int, rank: int) -> Array | None:
    """The part of a value that a rank keeps; None if it keeps nothing."""
    if kept is None:
        return value
    if kept.kind == "at":
        return value if rank == kept.number else None
    return part_of_axis(value, kept.number, ranks, rank)


def kept_value(collectives: Collectives, state: State, variable: Variable, kept: Kept) -> Array:
    """The value of a variable, which every rank asks for at once."""
    if kept.kind == "split":
        return gather_rows(collectives, state.read(variable.name), kept.number)
    if variable.name in state:
        found = state.read(variable.name)
    else:
        is_bits = variable.dtype.name == "bfloat16"
        found = np.empty(variable.shape, np.uint16 if is_bits else variable.dtype.numpy)
    collectives.broadcast(found, kept.number)
    return found


def gather_rows(collectives: Collectives, array: Array, axis: int) -> Array:
    """The parts of all ranks along an axis, in a row; they may differ in length."""
    sizes = [int(n[0]) for n in collectives.all_gather(np.array([array.shape[axis]], np.int64))]
    pads = [(0, max(sizes) - size if k == axis else 0) for k, size in enumerate(array.shape)]
    parts = collectives.all_gather(np.ascontiguousarray(np.pad(array, pads)))
    index = (slice(None),) * axis
    own = [part[(*index, slice(0, size))] for part, size in zip(parts, sizes, strict=True)]
    return np.concatenate(own, axis)


def refresh(
    collectives: Collectives,
    state: State,
    copy: State,
    variables: Sequence[Variable],
    kept: Mapping[str, Kept],
) -> None:
    """Give the whole variables in `copy` their present values."""
    for variable in variables:
        name = variable.name
        of = kept.get(name)
        value = (
            whole_value(state, variable)
            if of is None
            else kept_value(collectives, state, variable, of)
        )
        copy.write(name, value)
