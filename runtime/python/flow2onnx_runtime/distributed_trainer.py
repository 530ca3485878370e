"""Train a bundle in several processes, with numpy, onnxruntime and an engine between them."""

import os
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flow2onnx_runtime.collectives import (
    Collectives,
    check_alike,
    follow_first,
    join_world,
    on_first_rank,
)
from flow2onnx_runtime.errors import BundleError, FlowError, NonFiniteError
from flow2onnx_runtime.options import DEFAULT_OPTIONS, Options
from flow2onnx_runtime.program import DeviceFeeds, Program
from flow2onnx_runtime.state import State
from flow2onnx_runtime.trainer import Trainer
from flow2onnx_runtime.world import World

__all__ = ["DistributedTrainer"]


class DistributedTrainer(Trainer):
    """A `Trainer` whose steps are those of all processes of its world together.

    Each rank gives batches of its own, and gets the results of these; the variables of all move by
    the mean of the gradients of all batches, and are equal to the bit. One process that
    accumulates the batches of all ranks before an update does the same within rounding, and draws
    the same where something is random. Statistics that a batch normalisation moves are the first
    rank's, and so is the state to begin with.

    Every rank calls the same methods in the same order. `save` writes on the first one, and
    `load` may be of a file that any number of ranks saved. The bundle must hold the step in two
    halves: ``job.export(distributed=True)``, or ``accumulate=True`` of `make_trainable`.

    Raises `RankError` where ranks have different bundles, or one fails or hangs.
    """

    def __init__(
        self,
        bundle: str | os.PathLike[str],
        options: Options = DEFAULT_OPTIONS,
        *,
        finite_losses: bool = False,
        in_place: bool = True,
    ) -> None:
        super().__init__(bundle, options, finite_losses=finite_losses, in_place=in_place)
        if self.manifest.accumulate is None:
            raise BundleError(
                f"bundle {bundle} holds the step in one model, and ranks meet in the middle of it",
                hint="export it with distributed=True, or make_trainable(…, accumulate=True)",
            )
        gradients, update = self._accumulation()
        names = [feed.name for feed in self.feeds]
        self._order = [names.index(feed.name) for feed in gradients.feeds]
        self._sums = tuple(n for n in gradients.writes if n in set(update.writes))
        self._own = tuple(n for n in gradients.writes if n not in self._sums)
        self._vectors = _vectors_of(self._state, self._sums)
        self._others = join_world()
        if self._others is not None:
            files = repr(sorted(self.manifest.files.items())).encode()
            check_alike(self._others, {"the bundle": files})
            follow_first(self._others, self._state, self._state.names())

    @property
    def world(self) -> World:
        """This rank among all."""
        return World() if self._others is None else self._others.world

    def _step(self, given: Sequence[NDArray[Any]] | DeviceFeeds) -> dict[str, NDArray[Any]]:
        """The gradients of a batch, and the update by those of all ranks."""
        with self._state.lock:
            gradients, _ = self._accumulation()
            self._batches += 1
            results = self._run(gradients, self._arranged(given))
            self._update()
        return gradients.by_name(results)

    def _arranged(
        self, given: Sequence[NDArray[Any]] | DeviceFeeds
    ) -> Sequence[NDArray[Any]] | DeviceFeeds:
        """The step's feeds, as its half takes them."""
        if isinstance(given, DeviceFeeds):
            return DeviceFeeds([given.values[i] for i in self._order])
        return [given[i] for i in self._order]

    def _run(
        self, program: Program, arrays: Sequence[NDArray[Any]] | DeviceFeeds
    ) -> list[NDArray[Any]]:
        """Run and commit; of a batch that is accumulated, with its number among those of all.

        Draws depend on that number: it is as if one process took the batches of the ranks in turn.
        """
        parts = self.manifest.accumulate
        is_counted = self._halves is not None and program is self._halves[0]
        if self._others is None or parts is None or not is_counted:
            return super()._run(program, arrays)
        world, own = self._others.world, self._state.read(parts.count)
        self._state.write(parts.count, own * world.size + world.rank)
        try:
            results = super()._run(program, arrays)
        except BaseException:
            self._state.write(parts.count, own)
            raise
        self._state.write(parts.count, own + 1)
        return results

    def _update(self) -> None:
        if self._others is not None:
            self._add_up(self._others)
        super()._update()
        if self._others is not None:
            follow_first(self._others, self._state, self._own)

    def _add_up(self, others: Collectives) -> None:
        """Let the sums of gradients, and the count of their batches, be those of all ranks."""
        pending = []
        for vector, slices in self._vectors:
            for name, part in slices.items():
                self._state.read_into(name, part)
            pending.append(others.begin_all_reduce(vector))
        for work, (_, slices) in zip(pending, self._vectors, strict=True):
            work.wait()
            for name, part in slices.items():
                self._state.write(name, part)

    def _check_losses(self, results: list[NDArray[Any]]) -> None:
        """Raise on every rank if the loss of one is not finite."""
        if self._others is None:
            super()._check_losses(results)
            return
        failure: FlowError | None = None
        try:
            super()._check_losses(results)
        except NonFiniteError as error:
            failure = error
        wrong = np.array([0.0 if failure is None else 1.0], np.float32)
        self._others.all_reduce(wrong)
        if failure is not None:
            raise failure
        if wrong[0]:
            raise NonFiniteError(
                f"the loss of another rank is not finite in batch {self._batches}",
                hint="the state of all is as before this batch",
            )

    def load_state_dict(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Replace the whole state on every rank by what the first one gives."""
        super().load_state_dict(values)
        if self._others is not None:
            with self._turn():
                follow_first(self._others, self._state, self._state.names())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state, on the first rank; all go on once it is there."""
        on_first_rank(lambda: super(DistributedTrainer, self).save(path))


def _vectors_of(
    state: State, names: Sequence[str]
) -> list[tuple[NDArray[Any], dict[str, NDArray[Any]]]]:
    """A vector for each element type of these tensors, and its slices in their shapes, by name.

    They are made once: fresh memory in each step would cost more than the copies.
    """
    found = []
    for kind in dict.fromkeys(map(state.dtype, names)):
        own = [name for name in names if state.dtype(name) == kind]
        ends = np.cumsum([prod(state.shape(name)) for name in own])
        vector = np.zeros(int(ends[-1]), kind)
        parts = zip(own, np.split(vector, ends[:-1]), strict=True)
        found.append((vector, {name: part.reshape(state.shape(name)) for name, part in parts}))
    return found
