"""A job that is open: one program for each of its models, bound to the state of the session."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from flow2onnx_runtime import Options, Program, State
from flow2onnx_runtime.device_feeds import FeedBuffers
from flow2onnx_runtime.dtypes import Array, all_finite, element_named
from flow2onnx_runtime.errors import FeedError, NonFiniteError
from flow2onnx_runtime.model_check import OwnModel
from flow2onnx_runtime.program import DeviceFeeds

from flow2onnx.compile import CompiledJob
from flow2onnx.compile.garbage_collection import collector_paused
from flow2onnx.data.pipeline import Pipeline
from flow2onnx.engine.labels import fed_labels
from flow2onnx.engine.opening import Opening, open_model
from flow2onnx.errors import FlowError
from flow2onnx.graph.types import dtype_of

__all__ = ["Executable"]


@collector_paused()
def _open_program(opening: Opening, state: State, suffix: str = "") -> tuple[Program, Opening]:
    """The program of a model, and the opening as the runtime confirmed it."""

    def create(content: OwnModel, options: Options) -> Program:
        return Program(content, state, options, name=f"{opening.job.spec.name}{suffix}")

    program, opening = open_model(opening, create)
    program.update_in_place(opening.names_in_place)
    return program, opening


class Executable:
    """A job bound to the session's state. `opening` says what became of it.

    `source` gives the batches that the job reads on the host.
    """

    def __init__(self, opening: Opening, state: State, source: Pipeline | None = None) -> None:
        job = opening.job
        self._state, self._source = state, source
        self._program: Program | None = None
        outputs: list[str] = []
        self._order: list[int] = []
        if opening.opens_model:
            self._program, opening = _open_program(opening, state)
            outputs = [info.name for info in self._program.results]
            self._order = [job.feeds.index(f.name) for f in self._program.feeds]
        if opening.update is not None:
            self._update, update = _open_program(opening.update, state, "/update")
            opening = replace(opening, update=update)
        self.opening, self._job = opening, job
        fed = len(job.feeds) - (len(job.host.feeds) if job.host is not None else 0)
        self._labels = [labels for labels in fed_labels(job) if labels.position < fed]
        self._results = [outputs.index(name) for name in job.results]
        self._losses = [
            (i, element_named(info.element))
            for i, info in enumerate(self._program.results if self._program else ())
            if info.name in job.losses
        ]
        self._watches = [
            ([[outputs.index(o) for o in pieces] for pieces in w.arguments], w.handler)
            for w in job.watches
        ]
        self._bits = _results_as_bits(job, outputs)
        self._guard = self._check_finite if opening.keeps_old_values and self._losses else None
        self._free_feeds: deque[FeedBuffers] = deque()  # of one set each, no run waits for them

    def ahead(self, arrays: Sequence[Array]) -> Callable[[], list[Array]]:
        """A call to be made later, on copies: to a device they are on their way at once.

        What does not fit is an error of the call.
        """
        copies = [np.array(a) for a in arrays]
        program = self._program
        is_elsewhere = program is not None and program.options.device[0] != "cpu"
        if not is_elsewhere or self._source is not None or self._job.update is not None:
            return lambda: self.run(copies)
        assert program is not None, "just asked"
        buffers = self._free_feeds.pop() if self._free_feeds else FeedBuffers(program, 1)
        try:
            feeds = buffers.put([copies[i] for i in self._order])
        except FeedError:
            return lambda: self.run(copies)

        def call() -> list[Array]:
            try:
                return self.run(copies, feeds)
            finally:
                self._free_feeds.append(buffers)

        return call

    def run(
        self, arrays: Sequence[Array], feeds: Sequence[Array] | DeviceFeeds | None = None
    ) -> list[Array]:
        """One call: new arrays in the order of the job's results. Watch handlers run first.

        `feeds` are the arrays as the program takes them, where they are laid ready.
        """
        try:
            for labels in self._labels:
                labels.check(arrays)
            outputs = self._outputs(self._program, arrays, feeds) if self._program else []
        except FlowError as error:
            error.located(self._job.spec.name, None, None)
            raise
        for position, dtype in self._bits:
            outputs[position] = outputs[position].view(dtype)
        for arguments, handler in self._watches:
            handler(*([outputs[i] for i in pieces] for pieces in arguments))
        return [outputs[i] for i in self._results]

    def _outputs(
        self,
        program: Program,
        arrays: Sequence[Array],
        feeds: Sequence[Array] | DeviceFeeds | None,
    ) -> list[Array]:
        if feeds is not None:
            return program.run(feeds, guard=self._guard)
        if self._job.update is None:
            return self._round(program, arrays)
        try:
            rounds = [self._round(program, arrays) for _ in range(self._job.rounds)]
        except BaseException:
            self._clear_sums()
            raise
        self._update.run([])
        return [
            np.concatenate([np.atleast_1d(o) for o in of_rounds])
            for of_rounds in zip(*rounds, strict=True)
        ]

    def _round(self, program: Program, arrays: Sequence[Array]) -> list[Array]:
        fed = [*arrays, *self._source.next()] if self._source is not None else arrays
        return program.run([fed[i] for i in self._order], guard=self._guard)

    def _clear_sums(self) -> None:
        """Forget the gradients of a call that failed between its rounds."""
        with self._state.lock:
            for name in set(self._update.writes) & set(
                self._program.writes if self._program else ()
            ):
                zeros = np.zeros(self._state.shape(name), self._state.dtype(name))
                self._state.write(name, zeros)

    def _check_finite(self, outputs: list[Array]) -> None:
        if all(all_finite(outputs[i], element) for i, element in self._losses):
            return
        name = self._job.spec.name
        step = int(self._state.read(self._job.spec.step_counter)[0])
        raise NonFiniteError(
            f"the loss of step {step} is not finite",
            job=name,
            hint="the variables are as before this step; lower the learning rate, or look at the "
            "inputs of this call",
        )


def _results_as_bits(job: CompiledJob, outputs: Sequence[str]) -> list[tuple[int, "np.dtype[Any]"]]:
    """The positions of results that the runtime hands out as unsigned bits, and what they are."""
    values = {v.name: v for v in job.model.graph.outputs}
    dtypes = [dtype_of(values[name]) for name in outputs]
    return [(i, d.numpy) for i, d in enumerate(dtypes) if d.name == "bfloat16"]
