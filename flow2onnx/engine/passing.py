"""Transfers between ranks and the segments of a step, each kind on the verbs of an engine.

The kinds, and what they make of what, stand in `flow2onnx.graph.transfers`.
"""

from collections.abc import Callable, Mapping

import numpy as np
from flow2onnx_runtime.axis_parts import own_slice, part_length, part_start
from flow2onnx_runtime.collectives import Collectives, Pending
from flow2onnx_runtime.dtypes import Array

from flow2onnx.compile.division import Passed

__all__ = ["pass_on", "pass_rows"]

_HALVES = ("float16", "bfloat16")


def pass_on(
    collectives: Collectives,
    passed: Passed,
    array: Array | None,
    tag: int,
    pending: list[Pending],
) -> Array | None:
    """The part of `array` that this rank has after a transfer, if any; sends join `pending`.

    Those that are under way at once have different tags.
    """
    if passed.transfer.kind == "send":
        return _sent(collectives, passed, array, tag, pending)
    return _KINDS[passed.transfer.kind](collectives, passed, array)


def _sent(
    collectives: Collectives,
    passed: Passed,
    array: Array | None,
    tag: int,
    pending: list[Pending],
) -> Array | None:
    transfer, rank = passed.transfer, collectives.world.rank
    if rank == transfer.source and array is not None:
        pending.append(collectives.begin_send(array, transfer.target, tag))
    if rank != transfer.target:
        return None
    room = np.empty(passed.shape, passed.dtype)
    collectives.receive(room, transfer.source, tag)
    return room


def _here(array: Array | None) -> Array:
    assert array is not None, "every rank has a part of what is passed"
    return array


def _all_gather(collectives: Collectives, passed: Passed, array: Array | None) -> Array:
    axis, ranks = passed.transfer.source, collectives.world.size
    size = passed.transfer.shape[axis]
    padded = _padded(_here(array), axis, part_length(size, ranks, 0))
    parts = collectives.all_gather(padded)
    own = [slice(0, part_length(size, ranks, rank)) for rank in range(ranks)]
    index = (slice(None),) * axis
    return np.concatenate([p[(*index, s)] for p, s in zip(parts, own, strict=True)], axis)


def _padded(array: Array, axis: int, length: int) -> Array:
    """The array with zeros at the end of an axis."""
    missing = length - array.shape[axis]
    if not missing:
        return np.ascontiguousarray(array)
    pads = [(0, missing if k == axis else 0) for k in range(array.ndim)]
    return np.pad(array, pads)


def _reduce_scatter(collectives: Collectives, passed: Passed, array: Array | None) -> Array:
    axis, ranks = passed.transfer.target, collectives.world.size
    size, whole = passed.transfer.shape[axis], _here(array)
    longest = part_length(size, ranks, 0)
    parts = [
        _padded(whole[own_slice(axis, size, ranks, rank)], axis, longest) for rank in range(ranks)
    ]
    wide, narrow = _widened(np.stack(parts), passed)
    part = collectives.reduce_scatter(wide.reshape(-1)).reshape(parts[0].shape)
    own = slice(0, passed.shape[axis])
    return np.ascontiguousarray(narrow(part)[(*[slice(None)] * axis, own)])


def _all_reduce(collectives: Collectives, passed: Passed, array: Array | None) -> Array:
    wide, narrow = _widened(np.array(_here(array)), passed)
    collectives.all_reduce(wide)
    return narrow(wide)


def _widened(array: Array, passed: Passed) -> tuple[Array, Callable[[Array], Array]]:
    """An array as it is summed up, halves in float32, and the way back."""
    if passed.dtype.name not in _HALVES:
        return array, lambda total: total
    bits = array.dtype
    return (
        array.view(passed.dtype).astype(np.float32),
        lambda total: total.astype(passed.dtype).view(bits),
    )


def _all_max(collectives: Collectives, passed: Passed, array: Array | None) -> Array:
    wide, narrow = _widened(np.array(_here(array)), passed)
    collectives.all_max(wide)
    return narrow(wide)


def _all_to_all(collectives: Collectives, passed: Passed, array: Array | None) -> Array:
    transfer, world = passed.transfer, collectives.world
    given, wanted = transfer.source, transfer.target
    own, ranks = _here(array), range(world.size)
    parts = [
        np.ascontiguousarray(own[own_slice(wanted, transfer.shape[wanted], world.size, rank)])
        for rank in ranks
    ]
    shapes = []
    for rank in ranks:
        shape = list(passed.shape)
        shape[given] = part_length(transfer.shape[given], world.size, rank)
        shapes.append(tuple(shape))
    return np.concatenate(collectives.all_to_all(parts, shapes), given)


def pass_rows(collectives: Collectives, passed: Passed, array: Array, indices: Array) -> Array:
    """Rows of a table for the processes that read them, or gradients for those that keep them.

    `indices` are those of the whole batch, the same everywhere, of which each process reads its
    part along an axis. Where nobody keeps a row there are zeros.
    """
    transfer, world = passed.transfer, collectives.world
    is_there = transfer.kind == "to_readers"
    size, axis = transfer.source, transfer.target
    if not is_there:
        size, axis = axis, size
    owners = _owners(indices, size, world.size)
    parts = [own_slice(axis, owners.shape[axis], world.size, rank) for rank in range(world.size)]
    read, ranks = owners[parts[world.rank]], range(world.size)
    mine = [owners[part] == world.rank for part in parts]  # of what each process reads
    theirs = [read == rank for rank in ranks]  # of what this one does
    found = np.zeros(passed.shape, array.dtype)
    views = [found] * world.size if is_there else [found[part] for part in parts]
    given, taken = (mine, theirs) if is_there else (theirs, mine)
    sources = [array[part] for part in parts] if is_there else [array] * world.size
    sent = [np.ascontiguousarray(s[rows]) for s, rows in zip(sources, given, strict=True)]
    shapes = [(int(rows.sum()), *array.shape[owners.ndim :]) for rows in taken]
    came = collectives.all_to_all(sent, shapes)
    for view, rows, content in zip(views, taken, came, strict=True):
        view[rows] = content
    return found


def _owners(indices: Array, size: int, ranks: int) -> Array:
    """The process that keeps each row; one that is none for rows that are none."""
    from_front = np.where(indices < 0, indices + size, indices)
    starts = [part_start(size, ranks, rank) for rank in range(ranks)]
    owners = np.searchsorted(starts, from_front, side="right") - 1
    return np.where((from_front < 0) | (from_front >= size), ranks, owners)


def _own_part(collectives: Collectives, passed: Passed, array: Array | None) -> Array:
    axis, world = passed.transfer.target, collectives.world
    size = passed.transfer.shape[axis]
    own = own_slice(axis, size, world.size, world.rank)
    return np.ascontiguousarray(_here(array)[own])


def _place_part(collectives: Collectives, passed: Passed, array: Array | None) -> Array:
    axis, world, own = passed.transfer.source, collectives.world, _here(array)
    found = np.zeros(passed.shape, own.dtype)
    found[own_slice(axis, passed.shape[axis], world.size, world.rank)] = own
    return found


def _first_alone(collectives: Collectives, passed: Passed, array: Array | None) -> Array:
    own = _here(array)
    return own if collectives.world.rank == 0 else np.zeros_like(own)


def _gather(collectives: Collectives, passed: Passed, array: Array | None) -> Array | None:
    transfer, world = passed.transfer, collectives.world
    if world.rank != transfer.target:
        collectives.begin_send(_here(array), transfer.target, passed.number).wait()
        return None
    axis, own = transfer.source, _here(array)
    found = np.empty(passed.shape, own.dtype)
    for rank in range(world.size):
        rows = own_slice(axis, passed.shape[axis], world.size, rank)
        part = own
        if rank != world.rank:
            part = np.empty(found[rows].shape, own.dtype)
            collectives.receive(part, rank, passed.number)
        found[rows] = part
    return found


def _scatter(collectives: Collectives, passed: Passed, array: Array | None) -> Array:
    transfer, world, axis = passed.transfer, collectives.world, passed.transfer.target
    if world.rank != transfer.source:
        room = np.empty(passed.shape, passed.dtype)
        collectives.receive(room, transfer.source, passed.number)
        return room
    whole = _here(array)
    size = whole.shape[axis]
    parts = [
        np.ascontiguousarray(whole[own_slice(axis, size, world.size, rank)])
        for rank in range(world.size)
    ]
    sends = [
        collectives.begin_send(part, rank, passed.number)
        for rank, part in enumerate(parts) if rank != world.rank
    ]  # fmt: skip
    for send in sends:
        send.wait()
    return parts[world.rank]


def _broadcast(collectives: Collectives, passed: Passed, array: Array | None) -> Array:
    whole = np.empty(passed.shape, passed.dtype) if array is None else np.array(array)
    collectives.broadcast(whole, passed.transfer.source)
    return whole


def _reduce(collectives: Collectives, passed: Passed, array: Array | None) -> Array | None:
    total = _all_reduce(collectives, passed, array)
    return total if collectives.world.rank == passed.transfer.target else None


def _only(collectives: Collectives, passed: Passed, array: Array | None) -> Array | None:
    return array if collectives.world.rank == passed.transfer.target else None


def _fill(collectives: Collectives, passed: Passed, array: Array | None) -> Array:
    is_here = collectives.world.rank == passed.transfer.source
    return _here(array) if is_here else np.zeros(passed.shape, passed.dtype)


_KINDS: Mapping[str, Callable[[Collectives, Passed, Array | None], Array | None]] = {
    "all_gather": _all_gather,
    "all_max": _all_max,
    "all_reduce": _all_reduce,
    "all_to_all": _all_to_all,
    "broadcast": _broadcast,
    "fill": _fill,
    "first_alone": _first_alone,
    "gather": _gather,
    "only": _only,
    "own_part": _own_part,
    "place_part": _place_part,
    "reduce": _reduce,
    "reduce_scatter": _reduce_scatter,
    "scatter": _scatter,
}
