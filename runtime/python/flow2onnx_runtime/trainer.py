"""Train a bundle: steps, evaluation, prediction, and a state that can be saved and resumed.

Two things are waited for, in this order: the queue of steps, until those begun before are done, and
the state's lock, for as long as somebody uses the state. Whoever has the lock waits for no step,
because a step needs the lock: `_turn` takes both, and nothing inside it asks for the queue again.
"""

import fnmatch
import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flow2onnx_runtime import view
from flow2onnx_runtime.buffers import wrap_array
from flow2onnx_runtime.bundle import Bundle
from flow2onnx_runtime.deltas import add_delta, difference, float_variables
from flow2onnx_runtime.device_feeds import FeedBuffers
from flow2onnx_runtime.dtypes import all_finite, element_named
from flow2onnx_runtime.errors import BundleError, NonFiniteError, StateError
from flow2onnx_runtime.fitting import (
    Callbacks,
    FitSettings,
    Metrics,
    NonFinite,
    describe_settings,
    fit,
)
from flow2onnx_runtime.history import History
from flow2onnx_runtime.in_place_check import verify_in_place
from flow2onnx_runtime.interrupts import uninterrupted
from flow2onnx_runtime.learner import BundleLearner
from flow2onnx_runtime.manifest import RATE, PredictJob
from flow2onnx_runtime.options import DEFAULT_OPTIONS, Options
from flow2onnx_runtime.prefetch import prefetch_items
from flow2onnx_runtime.program import DeviceFeeds, Program
from flow2onnx_runtime.safetensors import load_signed, save_safetensors
from flow2onnx_runtime.state import State
from flow2onnx_runtime.step_queue import StepQueue

__all__ = ["STATE_FORMAT", "STATE_VERSION", "Trainer"]

STATE_FORMAT = "flow2onnx-state"
STATE_VERSION = "2"

# So much state is copied to see whether updating it in place changes a bit of it.
_VERIFIED_BYTES = 64 * 2**20
_IN_FLIGHT = 2  # of steps: enough to feed one while the other computes


class Trainer:
    """The training job of a bundle, with its state in the runtime's memory.

    The state begins with the bundle's weights, or else with what its init model computes. Arrays
    are given by position, in the order of `feeds`, or by name; results come by name. With
    `finite_losses`, which may be set between steps too, a step whose loss is not finite raises
    `NonFiniteError` with the number of its batch and changes nothing.

    Calls from several threads take turns. An interrupt leaves the state as before a step or as
    after it. A trainer that has begun steps in the background belongs to its process: in a forked
    one it raises `StateError`.

    State that the manifest lists as `in_place` is updated in its own buffer, which saves the
    second one and, of a large table of which a step changes few rows, the copy. Up to 64 MB of it
    are tried first: what a step on other numbers makes otherwise in place than in two buffers is
    not updated so. If a step fails in the runtime, tensors updated in place are lost: `load` or
    `load_state_dict` gives new ones. With `in_place=False`, or `finite_losses`, a step that fails
    leaves all as it was.

    `accumulates` is for trainings that add up the gradients of several batches: only the two halves
    of a step are opened, which saves the memory and the time of the whole one. `step` is then
    `accumulate` and `update`, by the means with what was accumulated before, or neither: an update
    that fails leaves no trace of the batch.

    `free_dimensions` of the options are those of steps; predict jobs keep their axes free. Raises
    `BundleError` for a bundle that is incomplete, changed or of an unknown version, and with
    `accumulates` for one that was exported without accumulation of gradients.
    """

    def __init__(
        self,
        bundle: str | os.PathLike[str],
        options: Options = DEFAULT_OPTIONS,
        *,
        finite_losses: bool = False,
        in_place: bool = True,
        accumulates: bool = False,
    ) -> None:
        self._accumulates = accumulates
        self._bundle = Bundle(bundle)
        self._options = options
        self._predict_options = replace(options, free_dimensions={})  # those are of steps
        self.manifest = self._bundle.manifest
        self._state = self._first_state()
        self._queue = StepQueue(
            "a trainer that has begun steps in the background", _IN_FLIGHT, self._state.lock
        )
        self._feed_buffers: FeedBuffers | None = None
        self._asks_in_place, self._finite_losses = in_place, finite_losses
        self._held: frozenset[str] = frozenset()  # what is frozen, slots included
        self._in_place_names: dict[str, frozenset[str]] = {}
        self._halves: tuple[Program, Program] | None = None
        self._program = self._step_program()
        self.feeds, self.results = self._program.feeds, self._program.results
        self._batches = 0  # given since it was opened
        self._steps = 0  # of use only where the state has no counter
        self._runs = 0  # those that changed the state: tells whether baked weights are stale
        self._predicts: dict[str, tuple[tuple[int, int], Program]] = {}
        self._frozen: tuple[str, ...] = ()
        self._frozen_mask = 0  # the bits of what is held

    def _first_state(self) -> State:
        """The state that training begins with."""
        return self._bundle.first_state(self._options)

    def _step_program(self) -> Program:
        """The program that has the feeds and results of a step."""
        if self._accumulates:
            return self._accumulation()[0]
        return self._in_place(self._bundle.step(self._state, self._options))

    def _open_halves(self) -> tuple[Program, Program]:
        """The two halves of a step."""
        return self._bundle.halves(self._state, self._options)

    def __repr__(self) -> str:
        feeds = ", ".join(map(str, self.feeds))
        return f"<Trainer {self.manifest.job}: step {self.steps}; feeds {feeds}>"

    def _repr_html_(self) -> str:
        """The bundle for a notebook: its signature, state and layers."""
        folder, facts = self._bundle.folder, {"step": self.steps}
        return view.bundle_block(f"Trainer {self.manifest.job}", folder, self.manifest, facts)

    @property
    def state(self) -> State:
        """The state, once every step that was asked for is done."""
        self._queue.settle()
        return self._state

    @property
    def steps(self) -> int:
        """The number of steps done, those before a resumed save included."""
        self._queue.settle()
        return self._present_steps()

    @property
    def finite_losses(self) -> bool:
        """True if a step whose loss is not finite is refused; set it from a step to the next."""
        return self._finite_losses

    @finite_losses.setter
    def finite_losses(self, is_asked: bool) -> None:
        with self._turn():
            self._finite_losses = is_asked
            self._plan_in_place()

    @property
    def batches(self) -> int:
        """The number of batches that were trained on since it was opened, refused ones included."""
        self._queue.settle()
        return self._batches

    def _present_steps(self) -> int:
        counter = self.manifest.counter
        return self._steps if counter is None else int(self._state.read(counter).item())

    def _turn(self) -> AbstractContextManager[object]:
        """The state's lock, once every step that was asked for is done."""
        self._queue.settle()
        return self._state.lock

    def step(self, *arrays: Any, **named_arrays: Any) -> dict[str, NDArray[Any]]:
        """One training step: the results by name; the state has its next values."""
        given = self._program.arrange(arrays, named_arrays)
        self._queue.settle()
        return self._step(given)

    def step_async(self, *arrays: Any, **named_arrays: Any) -> Future[dict[str, NDArray[Any]]]:
        """Begin a training step; the future has what `step` returns.

        The next batch can be made meanwhile: the runtime computes without Python's lock. Steps run
        in the order of the calls; whoever is two ahead waits here. On the host the step reads the
        arrays where they are, so leave them as they are until it is done; to a device they are
        copied at once. Every other method waits for the steps before it. When a step fails, those
        begun behind it fail alike and change nothing.
        """
        given = self._program.arrange(arrays, named_arrays)

        def prepare() -> Callable[[], dict[str, NDArray[Any]]]:
            if self._feed_buffers is None:
                self._feed_buffers = FeedBuffers(self._program, _IN_FLIGHT + 1)
            feeds = self._feed_buffers.put(given)
            return lambda: self._step(feeds)

        return self._queue.submit(prepare)

    @describe_settings
    def fit(
        self,
        batches: Any,
        epochs: int = 1,
        validation: Any = None,
        callbacks: Callbacks = (),
        *,
        batch_size: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool | None = None,
        steps: int | None = None,
        columns: Mapping[str, str] | None = None,
        metrics: Metrics = (),
        predict: str | None = None,
        output: str | None = None,
        labels: str | None = None,
        accumulate: int = 1,
        prefetch: int = 2,
        non_finite: NonFinite = "raise",
        checkpoint: str | os.PathLike[str] | None = None,
        every: int | None = None,
        resume: bool = False,
        progress: bool | None = None,
        plot: str | os.PathLike[str] | None = None,
    ) -> History:
        """Train for some epochs; the history, a row of numbers for each.

        batches, validation
            Rows: an array, a tuple of arrays in the order of `feeds`, a dict of arrays by name, or
            a data set of Hugging Face. Or batches, each of them as `step` takes it: a list, a
            loader of torch, a function that returns a new generator for each epoch, or a generator,
            which goes once. After each epoch the validation's losses, and `metrics` of its
            predictions, are measured by the bundle's predict job.
        predict
            Another predict job of the bundle, such as ``"ema"``, of averaged weights.
        callbacks
            Objects such as `EarlyStopping`, `BestCheckpoint`, `ReduceOnPlateau`, `CSVLog`,
            `TensorBoardLog`, or functions of the loop, which are called after each epoch.

        Ctrl-C ends it between two steps. Errors say which batch they are of.
        """
        learner = BundleLearner(self, self._uploader(prefetch, is_whole=accumulate == 1), predict)
        settings = FitSettings(
            batch_size=batch_size, shuffle=shuffle, seed=seed, drop_last=drop_last, steps=steps,
            columns=columns, metrics=metrics, output=output, labels=labels, accumulate=accumulate,
            prefetch=prefetch, non_finite=non_finite, checkpoint=checkpoint, every=every,
            resume=resume, progress=progress, plot=plot,
        )  # fmt: skip
        return fit(learner, batches, epochs, validation, callbacks, settings)

    def _uploader(self, ahead: int, *, is_whole: bool) -> Callable[[Sequence[NDArray[Any]]], Any]:
        """The function that checks a batch and, for whole steps on a device, copies it there."""
        buffers = FeedBuffers(self._program, ahead + 2)  # one being filled, one being read
        return buffers.put if is_whole else self._program.check_feeds

    def step_prepared(self, batch: Sequence[NDArray[Any]] | DeviceFeeds) -> dict[str, NDArray[Any]]:
        """`step` of a batch that is checked, and where the step runs."""
        self._queue.settle()
        return self._step(batch)

    def stream(
        self, batches: Iterable[Any], prefetch: int = 2
    ) -> Iterator[dict[str, NDArray[Any]]]:
        """A step for each batch as it is asked for; yields what `step` returns.

        A batch is an array, a list or tuple of arrays in the order of `feeds`, or a dict. They are
        taken from `batches`, checked, and on a device copied there, on a thread of their own, up
        to `prefetch` ahead of the step that is running.
        """
        buffers = FeedBuffers(self._program, prefetch + 2)  # one being filled, one being read

        def upload(batch: Any) -> Sequence[NDArray[Any]] | DeviceFeeds:
            given, named_arrays = _parts(batch)
            return buffers.put(self._program.arrange(given, named_arrays))

        for given in prefetch_items(batches, prefetch, upload):
            self._queue.settle()
            yield self._step(given)

    def _step(self, given: Sequence[NDArray[Any]] | DeviceFeeds) -> dict[str, NDArray[Any]]:
        with self._state.lock:
            self._batches += 1
            if self._accumulates:
                results = self._step_in_halves(given)
            else:
                results = self._run(self._program, given)
                self._steps += 1
        return self._program.by_name(results)

    def _step_in_halves(self, given: Sequence[NDArray[Any]] | DeviceFeeds) -> list[NDArray[Any]]:
        """Both halves of a step, or neither: what the first one wrote is undone."""
        gradients, update = self._accumulation()
        with self._one_piece():
            before = self._present(gradients.writes, emptied=update.writes)
            results, steps = self._run(gradients, given), self._steps
            try:
                self._update()
            except BaseException:
                if self._steps == steps:  # else the batch is in the variables
                    self._state.write_all(before)
                raise
        return results

    def _one_piece(self) -> AbstractContextManager[object]:
        """Where an interrupt waits for the second half of a step."""
        return uninterrupted()

    def _present(self, names: Collection[str], emptied: Collection[str]) -> dict[str, NDArray[Any]]:
        """Copies of state; of sums that an update has `emptied` zeros that take no memory."""
        empty = set(emptied) if not self._present_sums() else set()
        state = self._state
        return {
            name: np.broadcast_to(np.zeros((), state.dtype(name)), state.shape(name))
            if name in empty
            else state.read(name)
            for name in names
        }

    def accumulate(self, *arrays: Any, **named_arrays: Any) -> dict[str, NDArray[Any]]:
        """The results of a batch whose gradients are added up for the next `update`.

        Raises `BundleError` for a bundle that was exported without accumulation of gradients.
        """
        with self._turn():
            gradients, _ = self._accumulation()
            self._batches += 1
            return gradients.by_name(self._run(gradients, gradients.arrange(arrays, named_arrays)))

    def update(self) -> None:
        """One training step by the mean gradients of the batches accumulated since the last."""
        with self._turn():
            if not self._present_sums():
                raise StateError("no gradients to update by", hint="call accumulate() before")
            self._update()

    def _update(self) -> None:
        _, update = self._accumulation()
        self._run(update, [])
        self._steps += 1

    @property
    def accumulated(self) -> int:
        """The number of batches accumulated since the last update."""
        self._queue.settle()
        return self._present_sums()

    def _present_sums(self) -> int:
        parts = self.manifest.accumulate
        return int(self._state.read(parts.count).item()) if parts else 0

    @property
    def learning_rate(self) -> float | None:
        """The rate that overrides the schedule, or None while the schedule holds.

        Set it to a rate of at least 0 or to None. It is part of the state: saved and loaded.
        """
        name = self.manifest.learning_rate
        rate = -1.0 if name is None else float(self.state.read(name).item())
        return rate if rate >= 0 else None

    @learning_rate.setter
    def learning_rate(self, rate: float | None) -> None:
        name = self.manifest.learning_rate
        if name is None:
            raise StateError(
                "the rate of this bundle cannot be set",
                hint="export the job with on_device=True; what make_trainable makes can always",
            )
        if rate is not None and not (math.isfinite(rate) and 0 <= rate < 3.4e38):
            raise StateError(f"learning_rate {rate!r}", hint="give a number of at least 0, or None")
        self.state.write(name, np.array([-1.0 if rate is None else rate], np.float32))

    def check_plan(self, plan: Mapping[str, object]) -> None:
        """Nothing: one process does what steps it wants."""

    @property
    def present_rate(self) -> float | None:
        """The rate of the next step where it is known: set, or constant since the bundle was made.

        None while a schedule holds.
        """
        rate = self.learning_rate
        constant = self.manifest.metadata.get(RATE)
        return rate if rate is not None or constant is None else float(constant)

    @property
    def in_place(self) -> tuple[str, ...]:
        """The state that a step updates in its own buffer."""
        programs = (self._program,) if not self._accumulates else self._accumulation()
        return tuple(sorted({name for program in programs for name in program.in_place}))

    @property
    def frozen(self) -> tuple[str, ...]:
        """The variables that training leaves as they are."""
        return self._frozen

    def freeze(self, *patterns: str) -> tuple[str, ...]:
        """Freeze the variables that shell patterns match, and no others; returns their names.

        Their optimizer slots stay as they are too. Without patterns, all are trained again.
        Raises `StateError` for a pattern that matches none, or between `accumulate` and `update`.
        """
        names = [s.name for s in self.manifest.state if s.role == "variable"]
        chosen: set[str] = set()
        for pattern in patterns:
            matching = fnmatch.filter(names, pattern)
            if not matching:
                raise StateError(f"no variable matches {pattern!r}", hint=f"there are {names}")
            chosen.update(matching)
        with self._turn():
            if self._present_sums():
                raise StateError("gradients are being accumulated", hint="call update() before")
            held = [
                s.name
                for s in self.manifest.state
                if (s.name in chosen or s.of in chosen) and s.name in self._state
            ]
            self._frozen = tuple(name for name in names if name in chosen)
            self._held = frozenset(held)
            self._frozen_mask = sum(self._state.bit(name) for name in held)
            self._plan_in_place()
        return self._frozen

    def evaluate(self, *arrays: Any, **named_arrays: Any) -> dict[str, NDArray[Any]]:
        """The results that `step` would return, without changing the state.

        This runs the step model itself, so a model with dropout drops here too: for the network as
        it is used, see `predict`.
        """
        given = self._program.arrange(arrays, named_arrays)
        self._queue.settle()
        return self._program.by_name(self._program.run(given, commit=False))

    def predict(
        self, *arrays: Any, job: str | None = None, **named_arrays: Any
    ) -> dict[str, NDArray[Any]]:
        """The results of a predict job (the bundle's first if `job` is None) on the present state.

        A predict model that takes the weights as inputs shares the state. One with weights inside
        is opened anew, with the present ones, when the state has changed since its last use.
        """
        entry = self._bundle.predict_job(job)
        with self._turn():
            program = self._predict_program(entry)
        return program.by_name(program.run(program.arrange(arrays, named_arrays)))

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Copies of all state tensors by name: weights, optimizer slots, counter."""
        return self.state.to_dict()

    def load_state_dict(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Replace the whole state; raises `StateError` and changes nothing if anything is off."""
        with self._turn():
            self._replace_state(values)

    def delta(self, since: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The changes by training since an earlier `state_dict()`: new minus old of each variable.

        Variables of a float type only, neither slots nor counter; half precision as float32.
        """
        return difference(self.state_dict(), since, float_variables(self.manifest))

    def apply_delta(self, delta: Mapping[str, NDArray[Any]], scale: float = 1.0) -> None:
        """Add `scale` times a delta, or a mean of deltas, to the variables; slots stay."""
        with self._turn():
            values = self._state.to_dict()
            values.update(add_delta(values, delta, scale, float_variables(self.manifest)))
            self._state.from_dict(values)

    def export_predict(self, folder: str | os.PathLike[str], job: str | None = None) -> Path:
        """Write a predict job (the bundle's first if None) with the present weights to a folder.

        `Predictor(path)`, or any ONNX Runtime, opens the model file whose path is returned. The
        model is the bundle's own; its weights lie beside it in a new .safetensors file. The folder
        may be missing or empty, or hold an earlier export; it is complete or as it was.
        """
        return self._bundle.export_predict(folder, self._bundle.predict_job(job), self.state_dict())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a .safetensors file, which appears whole or not at all."""
        with self._turn():
            values, steps = self._state.to_dict(), self._present_steps()
        self._write_state(path, values, steps)

    def _write_state(
        self, path: str | os.PathLike[str], values: Mapping[str, NDArray[Any]], steps: int
    ) -> None:
        elements = {spec.name: spec.dtype for spec in self.manifest.state}
        metadata = {
            "format": STATE_FORMAT,
            "version": STATE_VERSION,
            "job": self.manifest.job,
            "state_id": self.manifest.state_id,
            "steps": str(steps),
        }
        save_safetensors(path, values, metadata, elements, signs=True)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Replace the state by a saved one; from here training goes on bit for bit as from there.

        Raises `BundleError` and changes nothing if the file is damaged or of another job.
        """
        values, steps = load_signed(path, lambda given: self._checked_steps(str(path), given))
        self._bundle.check_state(values, str(path))
        counter = self.manifest.counter
        if counter is not None and int(values[counter].item()) != steps:
            raise BundleError(f"{path}: steps is {steps}, {counter} {values[counter].item()}")
        with self._turn(), uninterrupted():
            self._replace_state(values)
            self._steps = steps

    def _replace_state(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Give all of the state other values, or none of it."""
        self._state.from_dict(values)

    def _checked_steps(self, path: str, metadata: Mapping[str, str]) -> int:
        wanted = {
            "format": STATE_FORMAT,
            "version": STATE_VERSION,
            "job": self.manifest.job,
            "state_id": self.manifest.state_id,
        }
        for key, value in wanted.items():
            if metadata.get(key) != value:
                raise BundleError(
                    f"{path}: {key} is {metadata.get(key)!r}, this trainer needs {value!r}",
                    hint="its tensors have other names, shapes or types: is it of another model?"
                    if key == "state_id"
                    else "load a file that Trainer.save wrote for the same job",
                )
        steps = metadata.get("steps", "")
        if not (steps.isascii() and steps.isdigit() and len(steps) < 20):
            raise BundleError(f"{path}: steps is {steps!r}, not a number")
        return int(steps)

    def _run(
        self, program: Program, arrays: Sequence[NDArray[Any]] | DeviceFeeds
    ) -> list[NDArray[Any]]:
        """Run and commit, but for what is frozen."""
        guard = self._check_losses if self._finite_losses and program.results else None
        self._runs += 1  # first: an interrupt may come behind what the run has changed
        return program.run(arrays, guard=guard, keep=self._frozen_mask)

    def _accumulation(self) -> tuple[Program, Program]:
        if self._halves is None:
            gradients, update = self._open_halves()
            self._halves = self._in_place(gradients), self._in_place(update)
        return self._halves

    def _in_place(self, program: Program) -> Program:
        """The program, that updates in place what may be and is not frozen."""
        may_tear = self._asks_in_place and not self._finite_losses
        if may_tear and program.name not in self._in_place_names:
            known = self.manifest.in_place.get(program.name, ())
            asked = [name for name in known if name in program.writes]
            self._in_place_names[program.name] = verify_in_place(program, asked, _VERIFIED_BYTES)
        names = self._in_place_names.get(program.name, frozenset()) if may_tear else frozenset()
        program.update_in_place(names - self._held)
        return program

    def _plan_in_place(self) -> None:
        for program in (self._program, *(self._halves or ())):
            self._in_place(program)

    def _predict_program(self, entry: PredictJob) -> Program:
        present = (self._runs, self._state.written)
        opened_at, program = self._predicts.get(entry.job, (present, None))
        if program is None or (entry.holds and opened_at != present):
            inside = {name: self._initializer(name) for name in entry.holds}
            program = self._bundle.predict(entry, self._state, self._predict_options, inside)
            self._predicts[entry.job] = (present, program)
        return program

    def _initializer(self, name: str) -> Any:
        return wrap_array(self._state.read(name), element_named(self._state.element(name)))

    def _check_losses(self, results: list[NDArray[Any]]) -> None:
        by_name = self._program.by_name(results)
        elements = {info.name: element_named(info.element) for info in self.results}
        for loss in self.manifest.losses:
            if not all_finite(by_name[loss], elements[loss]):
                raise NonFiniteError(
                    f"the loss {loss} of batch {self._batches} is not finite at step "
                    f"{self._present_steps()}: the state is kept",
                    hint="lower the learning rate, or look at this batch",
                    job=self.manifest.job,
                )


def _parts(batch: Any) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """The arrays of a batch by position, and those by name."""
    if isinstance(batch, Mapping):
        return (), batch
    return (batch if isinstance(batch, list | tuple) else (batch,)), {}
