"""A job that is open: one program for each of its models, bound to the state of the session."""

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from flow2onnx_runtime import Options, Program, State
from flow2onnx_runtime.device_feeds import FeedBuffers
from flow2onnx_runtime.dtypes import Array, all_finite, element_named
from flow2onnx_runtime.errors import (
    DeviceError,
    FeedError,
    NonFiniteError,
    OptionsError,
    OutOfMemoryError,
    RunError,
)
from flow2onnx_runtime.model_check import OwnModel
from flow2onnx_runtime.program import DeviceFeeds, TensorInfo

from flow2onnx.compile import CompiledJob
from flow2onnx.compile.garbage_collection import collector_paused
from flow2onnx.data.pipeline import Pipeline
from flow2onnx.engine.feeds_ahead import FeedsAhead
from flow2onnx.engine.labels import fed_labels
from flow2onnx.engine.opening import Capture, Opening, open_model
from flow2onnx.engine.refused_forms import with_other_forms
from flow2onnx.errors import FlowError
from flow2onnx.graph.deferred_model import outputs_of
from flow2onnx.graph.types import dtype_of

__all__ = ["Executable", "OpenedModel"]

_log = logging.getLogger("flow2onnx.execute")
_RECORDED = 2  # runs that record a graph: one for each set of buffers of the state


class OpenedModel:
    """The program of one model of a job, and the opening as the runtime confirmed it.

    A capture that nobody asked for, and that the runtime refuses when it opens the model or records
    the first runs, is done without.
    """

    def __init__(
        self,
        opening: Opening,
        state: State,
        suffix: str = "",
        links: Mapping[str, Any] | None = None,
    ) -> None:
        self._state, self._suffix, self._links = state, suffix, links
        self._unproven = _RECORDED
        try:
            self.program, self.opening = self._open(opening)
        except OptionsError as error:
            if opening.otherwise is None:
                raise
            self.program, self.opening = self._open(_uncaptured(opening, error))

    @collector_paused()
    def _open(self, opening: Opening) -> tuple[Program, Opening]:
        def create(content: OwnModel, options: Options) -> Program:
            name = f"{opening.job.spec.name}{self._suffix}"
            return Program(content, self._state, options, name=name, links=self._links)

        program, opening = open_model(opening, create)
        program.update_in_place(opening.names_in_place)
        return program, opening

    @property
    def feeds(self) -> tuple[TensorInfo, ...]:
        """The inputs that a run is given."""
        return self.program.feeds

    @property
    def results(self) -> tuple[TensorInfo, ...]:
        """The outputs that a run returns."""
        return self.program.results

    @property
    def writes(self) -> tuple[str, ...]:
        """The state that a run gives next values."""
        return self.program.writes

    def run(
        self,
        feeds: Sequence[Array] | DeviceFeeds,
        guard: Callable[[list[Array]], None] | None = None,
    ) -> list[Array]:
        """One run, as `Program.run` makes it."""
        if self.opening.otherwise is None:
            return self.program.run(feeds, guard=guard)
        try:
            results = self.program.run(feeds, guard=guard)
        except (OutOfMemoryError, DeviceError):
            raise
        except RunError as error:  # it changed nothing, as captured runs have two buffers
            plain = _uncaptured(self.opening, error)
        else:
            self._unproven -= 1
            if self._unproven == 0:
                self.opening = replace(self.opening, otherwise=None)
            return results
        # The session goes before the next comes: what it began to record is recorded no more.
        self.program.release()
        del self.program
        self.program, self.opening = self._open(plain)
        return self.program.run(feeds, guard=guard)


def _uncaptured(opening: Opening, error: FlowError) -> Opening:
    """The opening in place of a captured one that failed."""
    assert opening.otherwise is not None, "only a capture that nobody asked for may fail"
    _log.info("job %s is not captured as a CUDA graph: %s", opening.job.spec.name, error.message)
    return replace(opening.otherwise, capture=Capture(False, error.message))


class Executable:
    """A job bound to the session's state.

    `source` gives the batches that the job reads on the host.
    """

    def __init__(self, opening: Opening, state: State, source: Pipeline | None = None) -> None:
        job = opening.job
        self._state, self._source = state, source
        self._planned, self._job = replace(opening, graph=b""), job  # which the session has now
        self._model = self._opened(opening, state) if opening.opens_model else None
        update = opening.update
        self._update = None if update is None else self._opened(update, state, "/update")
        results = self._model.results if self._model else ()
        feeds = self._model.feeds if self._model else ()
        outputs = [info.name for info in results]
        self._order = [job.feeds.index(f.name) for f in feeds]
        fed = len(job.feeds) - (len(job.host.feeds) if job.host is not None else 0)
        self._labels = [labels for labels in fed_labels(job) if labels.position < fed]
        self._results = [outputs.index(name) for name in job.results]
        self._losses = [
            (i, element_named(info.element))
            for i, info in enumerate(results)
            if info.name in job.losses
        ]
        self._watches = [
            ([[outputs.index(o) for o in pieces] for pieces in w.arguments], w.handler, w.is_once)
            for w in job.watches
        ]
        self._bits = _results_as_bits(job, outputs)
        self._guard = self._check_finite if opening.keeps_old_values and self._losses else None
        reads_all = source is not None and not fed and self._model is not None
        # ranks are fed from the host
        is_apart = reads_all and not job.digest and opening.options.device[0] != "cpu"
        self._reading = FeedsAhead(source, self._order) if source is not None and is_apart else None
        self._free_feeds: deque[FeedBuffers] = deque()  # of one set each, no run waits for them

    def _opened(self, opening: Opening, state: State, suffix: str = "") -> OpenedModel:
        return OpenedModel(opening, state, suffix)

    @property
    def program(self) -> Program:
        """The program of its model; of a job without outputs there is none."""
        assert self._model is not None, "a model without outputs is not opened"
        return self._model.program

    @property
    def opening(self) -> Opening:
        """The opening as it became: what the runtime confirmed, and what it refused."""
        opening = self._planned if self._model is None else self._model.opening
        return opening if self._update is None else replace(opening, update=self._update.opening)

    def ahead(self, arrays: Sequence[Array]) -> Callable[[], list[Array]]:
        """A call to be made later, on copies: to a device they are on their way at once.

        What does not fit is an error of the call.
        """
        copies = [np.array(a) for a in arrays]
        model = self._model
        if model is None or self._source is not None or self._update is not None:
            return lambda: self.run(copies)
        if model.program.options.device[0] == "cpu":
            return lambda: self.run(copies)
        buffers = self._free_feeds.pop() if self._free_feeds else FeedBuffers(model.program, 1)
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
        outputs = self._compute(arrays, feeds)
        for arguments, handler, _ in self._watches:
            handler(*([outputs[i] for i in pieces] for pieces in arguments))
        return [outputs[i] for i in self._results]

    def _compute(
        self, arrays: Sequence[Array], feeds: Sequence[Array] | DeviceFeeds | None = None
    ) -> list[Array]:
        """The outputs of the model for the arrays of a call, after a look at their labels."""
        try:
            for labels in self._labels:
                labels.check(arrays)
            outputs = self._outputs(self._model, arrays, feeds) if self._model else []
        except RunError as error:
            told = with_other_forms(error, self._job.choices)
            told.located(self._job.spec.name, None, None)
            if told is error:
                raise
            raise told from error
        except FlowError as error:
            error.located(self._job.spec.name, None, None)
            raise
        for position, dtype in self._bits:
            outputs[position] = outputs[position].view(dtype)
        return outputs

    def _outputs(
        self,
        model: OpenedModel,
        arrays: Sequence[Array],
        feeds: Sequence[Array] | DeviceFeeds | None,
    ) -> list[Array]:
        if feeds is not None:
            return model.run(feeds, self._guard)
        if self._update is None or self._job.sent:  # the other ranks come before that update
            return self._round(model, arrays)
        try:
            rounds = [self._round(model, arrays) for _ in range(self._job.rounds)]
        except BaseException:
            self._clear_sums(model.program, self._update.program)
            raise
        self._update.run([])
        return [
            np.concatenate([np.atleast_1d(o) for o in of_rounds])
            for of_rounds in zip(*rounds, strict=True)
        ]

    def _round(self, model: OpenedModel, arrays: Sequence[Array]) -> list[Array]:
        if self._source is None:
            return model.run([arrays[i] for i in self._order], self._guard)
        if self._reading is not None:
            return model.run(self._reading.take(model.program), self._guard)
        fed = [*arrays, *self._source.next()]  # with what is read on the host
        return model.run([fed[i] for i in self._order], self._guard)

    def _clear_sums(self, gradients: Program, update: Program) -> None:
        """Forget the gradients of a call that failed between its rounds."""
        with self._state.lock:
            for name in set(update.writes) & set(gradients.writes):
                zeros = np.zeros(self._state.shape(name), self._state.dtype(name))
                self._state.write(name, zeros)

    def _check_finite(self, outputs: list[Array]) -> None:
        if all(all_finite(outputs[i], element) for i, element in self._losses):
            return
        raise self._non_finite()

    def _non_finite(self) -> NonFiniteError:
        name = self._job.spec.name
        step = int(self._state.read(self._job.spec.step_counter)[0])
        return NonFiniteError(
            f"the loss of step {step} is not finite",
            job=name,
            hint="the variables are as before this step; lower the learning rate, or look at the "
            "inputs of this call",
        )


def _results_as_bits(job: CompiledJob, outputs: Sequence[str]) -> list[tuple[int, "np.dtype[Any]"]]:
    """The positions of results that the runtime hands out as unsigned bits, and what they are."""
    values = {v.name: v for v in outputs_of(job.model)}
    dtypes = [dtype_of(values[name]) for name in outputs]
    return [(i, d.numpy) for i, d in enumerate(dtypes) if d.name == "bfloat16"]
