"""Predict with a model file, or with a predict job of a bundle."""

import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flow2onnx_runtime import view
from flow2onnx_runtime.assignment import nodes_of, recording
from flow2onnx_runtime.batching import Batched
from flow2onnx_runtime.bundle import Bundle
from flow2onnx_runtime.closeable import Closeable
from flow2onnx_runtime.errors import DeadlineError, FeedError, OptionsError, RunError
from flow2onnx_runtime.forks import check_process
from flow2onnx_runtime.options import DEFAULT_OPTIONS, Model, Options
from flow2onnx_runtime.preference import preferred
from flow2onnx_runtime.program import Program, TensorInfo
from flow2onnx_runtime.provider_checks import ProviderSpec
from flow2onnx_runtime.rebatching import Rebatcher
from flow2onnx_runtime.run_future import Results, RunFuture
from flow2onnx_runtime.worker_pool import WorkerPool
from flow2onnx_runtime.zero_copy import NO_OUTPUTS, Given, ZeroCopyProgram, from_dlpack, run_options

__all__ = ["Predictor"]

# The arrays of one call: by name, by position, or the one array of a model with one input.
Feeds = Mapping[str, Any] | Sequence[Any] | NDArray[Any]


class Predictor(Closeable):
    """A model that takes arrays, by position or by name, and gives a dict of results.

    `model` is an .onnx or .ort file or its bytes, or the folder of a bundle, of which `job` names
    the predict job; it predicts with the weights that the bundle holds. Any number of threads may
    call one predictor at once.

    Contiguous inputs are read where they are, tensors of other libraries by DLPack, so nobody may
    write them during the call. A result is an array of its own, which may hold memory of the
    runtime: that is valid for as long as the array is there, the predictor gone or not.

    `providers`, in order of preference, replace those of the options: the first that works here
    runs the model, nodes that it lacks go to the next ones, and to the CPU last, as the runtime
    has it. One that does not work is passed over, is logged and is in `passed_over`; if none does,
    there is a `ProviderError`. ``("cuda",)`` is thus CUDA or nothing, ``("cuda", "cpu")`` falls
    back. Providers of the options are all needed. `workers` threads run what `submit` is given,
    as many as there are cores unless told.
    """

    def __init__(
        self,
        model: Model,
        options: Options = DEFAULT_OPTIONS,
        *,
        job: str | None = None,
        providers: Sequence[ProviderSpec] | None = None,
        workers: int | None = None,
    ) -> None:
        self.passed_over: Mapping[str, str] = {}
        if providers is not None:
            options, self.passed_over = _chosen(options, providers)
        self._program, self._file = _open(model, recording(options), job)
        self.feeds, self.results = self._program.feeds, self._program.results
        self._pool = WorkerPool(workers or os.cpu_count() or 1)
        self._is_open, self._process = True, os.getpid()
        self._zero_copy, self._is_captured = ZeroCopyProgram(self._program), options.captures

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """The inputs of the model: names, shapes and element types; the same as `feeds`."""
        return self.feeds

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """The outputs of the model; the same as `results`."""
        return self.results

    @property
    def providers(self) -> tuple[str, ...]:
        """The providers that the runtime really uses for this model."""
        return tuple(self._program.session.get_providers())

    @property
    def nodes(self) -> Mapping[str, int] | None:
        """How many nodes each provider runs; None if the installed runtime does not tell."""
        nodes = nodes_of(self._program.session)
        return None if nodes is None else dict(Counter(node.provider for node in nodes))

    def __repr__(self) -> str:
        feeds, results = (", ".join(map(str, side)) for side in (self.feeds, self.results))
        on = ", ".join(self.providers)
        return f"<Predictor {self._program.name}: {feeds} -> {results}; on {on}>"

    def _repr_html_(self) -> str:
        """The model for a notebook: its signature, where it runs, its layers."""
        rows = [("input", f) for f in self.feeds] + [("output", r) for r in self.results]
        title = f"Predictor {os.path.basename(self._program.name)}"
        return view.file_block(title, self._file, rows, providers=", ".join(self.providers))

    def __call__(self, *arrays: Any, **named_arrays: Any) -> Results:
        """The results by name; raises `FeedError` for arrays that do not fit."""
        return self._by_name(self._compute(self._given(arrays, named_arrays)))

    def run(
        self,
        feeds: Feeds,
        *,
        out: Mapping[str, NDArray[Any]] | None = None,
        timeout: float | None = None,
    ) -> Results:
        """The results by name, with a say in where they are and how long it may take.

        Results that `out` names are written into its arrays, contiguous ones of the right element
        type and shape, which are returned. After `timeout` seconds the run ends at its next node
        with a `DeadlineError`; arrays of `out` then hold anything.
        """
        arrays = self._order_feeds(feeds)
        if out is None and timeout is None:
            return self._by_name(self._compute(arrays))
        self._check_out({} if out is None else out)
        return self._by_name(self._run_with_deadline(arrays, out or NO_OUTPUTS, timeout))

    def submit(self, *arrays: Any, **named_arrays: Any) -> RunFuture:
        """A future of the results, computed by one of the `workers`.

        Arrays that do not fit raise at once. The arrays are read where they are, so leave them as
        they are until it is done. `cancel` ends also a run under way.
        """
        check_process(self._process, "a predictor's pool of workers")
        chosen = self._zero_copy.fit_feeds(self._given(arrays, named_arrays))
        options = run_options(self._program)
        pending = RunFuture(
            lambda: self._by_name(self._compute(chosen, options)), lambda: _stop(options)
        )
        if not self._is_open:
            raise RunError(f"{self._program.name} is closed", hint="submit before close()")
        self._pool.submit(pending)
        return pending

    async def asynchronous(self, *arrays: Any, **named_arrays: Any) -> Results:
        """`submit`, awaited: cancelling the task ends the run, so `asyncio.timeout` does too."""
        import asyncio  # an event loop is running, so it is loaded

        return await asyncio.wrap_future(self.submit(*arrays, **named_arrays))

    def many(self, *arrays: Any, batch: int | None = None, **named_arrays: Any) -> Results:
        """The results for any number of rows, computed in batches of the model's size.

        Rows are along the first axis of every input and result. A last batch that is too small
        for the model is filled up with its last row, whose results are left out. `batch` chooses
        the size where the model leaves it open, 256 unless given; rows must not influence each
        other.
        """
        return next(self.stream([named_arrays or arrays], batch=batch))

    def stream(self, chunks: Iterable[Feeds], *, batch: int | None = None) -> Iterator[Results]:
        """The results of each chunk of rows, in order: `many` for what does not fit in memory.

        Large chunks are cut and small ones joined to batches, so a result may come only after
        later chunks were taken. A chunk is a mapping by name, a tuple by position, or an array.
        """
        rows = Rebatcher(self._program, self._compute, batch)
        chosen = (list(map(np.asarray, self._order_feeds(chunk))) for chunk in chunks)
        return map(self._by_name, rows.stream(chosen))

    def batched(self, max_batch: int = 32, max_delay: float = 0.0) -> Batched:
        """The same model for many callers with few rows each, whose rows are computed together.

        Of up to `max_batch` rows at a time, for which the first waits at most `max_delay` seconds.
        """
        return Batched(self._program, self._compute, max_batch, max_delay)

    def warm_up(self, sizes: Mapping[str, int] | None = None) -> None:
        """Run once on zeros, so that the first call finds memory and kernels in place.

        `sizes` gives the sizes of symbolic dimensions by name, 1 where it does not.
        """
        known = sizes or {}
        self._compute([np.zeros([s if isinstance(s, int) else known.get(s, 1) for s in feed.shape],
                                feed.dtype) for feed in self.feeds])  # fmt: skip

    def close(self) -> None:
        """Wait for what was submitted; take no more of it."""
        self._is_open = False
        self._pool.close()

    def _compute(self, arrays: Sequence[Given], options: Any = None) -> list[NDArray[Any]]:
        """The results; `options` are RunOptions by which the run can be stopped."""
        if self._is_captured:
            return self._program.run(arrays)  # whose buffers the graph was captured with
        return self._zero_copy.run(arrays, options=options)

    def _run_with_deadline(
        self, arrays: Sequence[Given], out: Mapping[str, NDArray[Any]], timeout: float | None
    ) -> list[NDArray[Any]]:
        if timeout is None:
            return self._zero_copy.run(arrays, out)
        options = run_options(self._program)
        timer = threading.Timer(timeout, _stop, [options])
        timer.start()
        try:
            return self._zero_copy.run(arrays, out, options)
        except RunError as error:
            if not options.terminate:
                raise
            raise DeadlineError(
                f"{self._program.name} did not finish within {timeout} s",
                hint="give it longer, or less to do",
            ) from error
        finally:
            timer.cancel()

    def _given(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> list[Given]:
        arranged = self._program.arrange(arrays, named)
        if all(type(array) is np.ndarray for array in arranged):
            return arranged
        return [from_dlpack(info, value) for info, value in zip(self.feeds, arranged, strict=True)]

    def _order_feeds(self, feeds: Feeds) -> list[Given]:
        if isinstance(feeds, Mapping):
            return self._given((), feeds)
        return self._given(feeds if isinstance(feeds, tuple | list) else (feeds,), {})

    def _by_name(self, results: Sequence[NDArray[Any]]) -> Results:
        return self._program.by_name(results)

    def _check_out(self, out: Mapping[str, Any]) -> None:
        if self._is_captured:
            raise OptionsError(
                f"{self._program.name} runs as a captured CUDA graph, which has neither out nor "
                "timeout",
                hint="leave them out, or leave enable_cuda_graph off",
            )
        names = [info.name for info in self.results]
        for name in out:
            if name not in names:
                raise FeedError(
                    f"{self._program.name} has no result {name}", hint=f"results: {names}"
                )


def _stop(options: Any) -> None:
    options.terminate = True


def _chosen(
    options: Options, providers: Sequence[ProviderSpec]
) -> tuple[Options, Mapping[str, str]]:
    found = preferred(options, providers)
    return found.options, found.passed_over


def _open(model: Model, options: Options, job: str | None) -> tuple[Program, Path | None]:
    """The program of a model, and the file that it was read from."""
    if isinstance(model, bytes) or not os.path.isdir(model):
        path = None if isinstance(model, bytes) else Path(model)
        return Program(model, None, options), path
    bundle = Bundle(Path(model))
    entry = bundle.predict_job(job)
    state = bundle.first_state(options) if entry.reads else None
    return bundle.predict(entry, state, options), bundle.folder / entry.file
