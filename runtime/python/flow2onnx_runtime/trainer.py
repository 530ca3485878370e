"""Train a bundle: steps, evaluation, prediction, and a state that can be saved and resumed."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flow2onnx_runtime.buffers import borrowed
from flow2onnx_runtime.bundle import Bundle
from flow2onnx_runtime.dtypes import named
from flow2onnx_runtime.errors import BundleError, NonFiniteError
from flow2onnx_runtime.manifest import PredictJob
from flow2onnx_runtime.options import DEFAULT_OPTIONS, Options
from flow2onnx_runtime.program import Program
from flow2onnx_runtime.tensors import load_safetensors, read_header, save_safetensors

__all__ = ["STATE_FORMAT", "STATE_VERSION", "Trainer"]

STATE_FORMAT = "flow2onnx-state"
STATE_VERSION = "1"


class Trainer:
    """The training job of a bundle, with its state in the runtime's memory.

    The state begins with the bundle's weights, or else with what its init model computes. Arrays
    are given by position, in the order of `feeds`, or by name; results come by name. With
    `finite_losses`, a step whose loss is not finite raises `NonFiniteError` and changes nothing.
    Calls from several threads take turns.

    Raises `BundleError` for a bundle that is incomplete, changed or of an unknown version.
    """

    def __init__(
        self,
        bundle: str | os.PathLike[str],
        options: Options = DEFAULT_OPTIONS,
        *,
        finite_losses: bool = False,
    ) -> None:
        self._bundle = Bundle(bundle)
        self._options = options
        self.manifest = self._bundle.manifest
        self.state = self._bundle.first_state(options)
        self._program = self._bundle.step(self.state, options)
        self.feeds, self.results = self._program.feeds, self._program.results
        self._guard = self._check_losses if finite_losses else None
        self._steps = 0  # of use only where the state has no counter
        self._changes = 0  # how often the state changed: tells whether baked weights are stale
        self._predicts: dict[str, tuple[int, Program]] = {}

    @property
    def steps(self) -> int:
        """The number of steps done, those before a resumed save included."""
        counter = self.manifest.counter
        return self._steps if counter is None else int(self.state.read(counter).item())

    def step(self, *arrays: Any, **named_arrays: Any) -> dict[str, NDArray[Any]]:
        """One training step: the results by name; the state has its next values."""
        given = self._program.arrange(arrays, named_arrays)
        with self.state.lock:
            results = self._program.run(given, guard=self._guard)
            self._steps += 1
            self._changes += 1
        return self._program.by_name(results)

    def evaluate(self, *arrays: Any, **named_arrays: Any) -> dict[str, NDArray[Any]]:
        """The results that `step` would return, without changing the state.

        This runs the step model itself, so a model with dropout drops here too: for the network as
        it is used, see `predict`.
        """
        given = self._program.arrange(arrays, named_arrays)
        return self._program.by_name(self._program.run(given, commit=False))

    def predict(
        self, *arrays: Any, job: str | None = None, **named_arrays: Any
    ) -> dict[str, NDArray[Any]]:
        """The results of a predict job (the bundle's first if `job` is None) on the present state.

        A predict model that takes the weights as inputs shares the state. One with weights inside
        is opened anew, with the present ones, when the state has changed since its last use.
        """
        entry = self._bundle.predict_job(job)
        with self.state.lock:
            program = self._predict_program(entry)
        return program.by_name(program.run(program.arrange(arrays, named_arrays)))

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Copies of all state tensors by name: weights, optimizer slots, counter."""
        return self.state.to_dict()

    def load_state_dict(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Replace the whole state; raises `StateError` and changes nothing if anything is off."""
        with self.state.lock:
            self.state.from_dict(values)
            self._changes += 1

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a .safetensors file, which appears whole or not at all."""
        with self.state.lock:
            values, steps = self.state.to_dict(), self.steps
        elements = {name: self.state.element(name) for name in values}
        metadata = {
            "format": STATE_FORMAT,
            "version": STATE_VERSION,
            "job": self.manifest.job,
            "state_id": self.manifest.state_id,
            "steps": str(steps),
        }
        save_safetensors(path, values, metadata, elements)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Replace the state by a saved one; from here training goes on bit for bit as from there.

        Raises `BundleError` and changes nothing if the file is damaged or of another job.
        """
        metadata = read_header(path).metadata
        steps = self._checked_metadata(str(path), metadata)
        values, _ = load_safetensors(path)
        self._bundle.check_state(values, str(path))
        with self.state.lock:
            self.load_state_dict(values)
            self._steps = steps

    def _checked_metadata(self, path: str, metadata: Mapping[str, str]) -> int:
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
                    hint="load a file that Trainer.save wrote for the same job",
                )
        steps = metadata.get("steps", "")
        if not (steps.isascii() and steps.isdigit() and len(steps) < 20):
            raise BundleError(f"{path}: steps is {steps!r}, not a number")
        return int(steps)

    def _predict_program(self, entry: PredictJob) -> Program:
        opened_at, program = self._predicts.get(entry.job, (-1, None))
        if program is None or (entry.holds and opened_at != self._changes):
            inside = {name: self._initializer(name) for name in entry.holds}
            program = self._bundle.predict(entry, self.state, self._options, inside)
            self._predicts[entry.job] = (self._changes, program)
        return program

    def _initializer(self, name: str) -> Any:
        element = named(self.state.element(name))
        assert element is not None, "a state tensor has one of our element types"
        return borrowed(self.state.read(name), element)

    def _check_losses(self, results: list[NDArray[Any]]) -> None:
        by_name = self._program.by_name(results)
        for loss in self.manifest.losses:
            if not np.isfinite(by_name[loss]).all():
                raise NonFiniteError(
                    f"the loss {loss} is not finite at step {self.steps}: the state is kept",
                    hint="lower the learning rate, or look at this batch",
                    job=self.manifest.job,
                )
