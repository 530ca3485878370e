"""Train a bundle in several processes, with numpy, onnxruntime and an engine between them."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flow2onnx_runtime.collectives import check_alike, follow_first, join_world, on_first_rank
from flow2onnx_runtime.dtypes import element_named
from flow2onnx_runtime.errors import BundleError, FlowError, NonFiniteError, StateError
from flow2onnx_runtime.manifest import NEXT
from flow2onnx_runtime.options import DEFAULT_OPTIONS, Options
from flow2onnx_runtime.program import DeviceFeeds, Program
from flow2onnx_runtime.slot_owners import SlotOwners, divide_slots
from flow2onnx_runtime.state import State
from flow2onnx_runtime.sum_vectors import SumVectors
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

    With `optimizer_in_parts` each rank keeps the slots of some variables (ZeRO's first stage), and
    moves these alone, which all then get; what is computed is the same to the bit. `state` has no
    slots of the others then; `state_dict` and `save` gather them.

    Raises `RankError` where ranks have different bundles, or one fails or hangs.
    """

    def __init__(
        self,
        bundle: str | os.PathLike[str],
        options: Options = DEFAULT_OPTIONS,
        *,
        finite_losses: bool = False,
        in_place: bool = True,
        optimizer_in_parts: bool = False,
    ) -> None:
        self._others = join_world()
        self._asks_parts, self._owners = optimizer_in_parts, SlotOwners()
        super().__init__(
            bundle, options, finite_losses=finite_losses, in_place=in_place, accumulates=True
        )
        gradients, update = self._accumulation()
        specs = self.manifest.state
        update_writes = {name.removeprefix(NEXT) for name in self._owners.outputs or update.writes}
        self._sums = tuple(n for n in gradients.writes if n in update_writes)
        self._own = tuple(n for n in gradients.writes if n not in self._sums)
        sums = {s.of: s.name for s in specs if s.of is not None and s.name in self._sums}
        self._vectors = SumVectors(self._state, self._sums, self._owners.moved, sums)
        if self._others is not None:
            files = repr(sorted(self.manifest.files.items())).encode()
            how = repr(self._asks_parts).encode()
            check_alike(self._others, {"the bundle": files, "optimizer_in_parts": how})
            follow_first(self._others, self._state, self._shared())

    def _first_state(self) -> State:
        """The state that training begins with, without the slots that other ranks keep."""
        if self.manifest.accumulate is None:
            raise BundleError(
                f"bundle {self._bundle.folder} holds the step in one model, and ranks meet in the "
                "middle of it",
                hint="export it with distributed=True, or make_trainable(…, accumulate=True)",
            )
        if self._others is None or not self._asks_parts:
            return super()._first_state()
        world = self._others.world
        self._owners = divide_slots(self._bundle, world.size)
        return self._bundle.first_state(self._options, self._owners.elsewhere(world.rank))

    def _open_halves(self) -> tuple[Program, Program]:
        """The halves of a step; of state in parts what this rank moves."""
        if not self._owners.slots:
            return super()._open_halves()
        moved = self._owners.outputs_of(self.world.rank)
        return self._bundle.halves(self._state, self._options, moved)

    def _shared(self) -> list[str]:
        """The state that all ranks have."""
        return [name for name in self._state.names() if name not in self._owners.slots]

    @property
    def world(self) -> World:
        """This rank among all."""
        return World() if self._others is None else self._others.world

    def _one_piece(self) -> AbstractContextManager[object]:
        """Nothing that waits: ranks wait for each other inside, which an interrupt ends."""
        return nullcontext()

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
            self._vectors.add_up(self._others)
        super()._update()
        if self._others is not None:
            self._vectors.spread(self._others)
            follow_first(self._others, self._state, self._own)

    def check_plan(self, plan: Mapping[str, object]) -> None:
        """Raise `RankError` on every rank where one is to do other steps than the others."""
        if self._others is not None:
            check_alike(self._others, {n: repr(part).encode() for n, part in plan.items()})

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

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Copies of all state tensors by name; where slots are in parts every rank has to ask."""
        with self._turn():
            return self._whole_state()

    def _whole_state(self) -> dict[str, NDArray[Any]]:
        """The state by name, in the manifest's order, with the slots that other ranks keep."""
        values = self._state.to_dict()
        for name, array in self._each_slot():
            values[name] = array
        return {spec.name: values[spec.name] for spec in self.manifest.state}

    def _each_slot(
        self, given: Mapping[str, NDArray[Any]] | None = None
    ) -> Iterator[tuple[str, NDArray[Any]]]:
        """The slots in parts one after another, of their owners; those the first is `given`."""
        others = self._others
        for spec in self.manifest.state if others is not None else ():
            owner = self._owners.slots.get(spec.name)
            if owner is None:
                continue
            assert others is not None, "one process keeps all"
            source = owner if given is None else 0
            array = np.empty(spec.shape, element_named(spec.dtype).numpy)
            if others.world.rank == source:
                array[...] = self._state.read(spec.name) if given is None else given[spec.name]
            others.broadcast(array, source)
            yield spec.name, array

    def _replace_state(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Give all of the state other values: those of slots that others keep are checked here."""
        for spec in self.manifest.state:
            if spec.name in self._owners.slots and spec.name not in self._state:
                found = values.get(spec.name)
                if found is None or found.shape != spec.shape:
                    has = "is missing" if found is None else f"has shape {found.shape}"
                    raise StateError(
                        f"the values are not of this state: {spec.name}, of shape {spec.shape}, "
                        f"{has}",
                        hint="give what state_dict() returns",
                    )
        elsewhere = self._owners.elsewhere(self.world.rank)
        super()._replace_state({n: v for n, v in values.items() if n not in elsewhere})

    def load_state_dict(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Replace the whole state on every rank by what the first one gives."""
        super().load_state_dict(values)
        if self._others is not None:
            with self._turn():
                follow_first(self._others, self._state, self._shared())
                for name, array in self._each_slot(values):
                    if name in self._state:
                        self._state.write(name, array)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state, on the first rank; all go on once it is there."""
        with self._turn():
            values, steps = self._whole_state(), self._present_steps()
        on_first_rank(lambda: self._write_state(path, values, steps))
