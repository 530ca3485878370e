"""The pipeline: computes the host part of a job ahead of its calls, on threads of its own.

One thread reads the sources in order; a pool decodes the samples; finished batches wait in a short
queue. What a batch holds depends on its number and the seeds, never on which thread was faster.
"""

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from queue import Full, Queue, SimpleQueue
from typing import Any

import numpy as np
from flow2onnx_runtime.dtypes import Array

from flow2onnx.data.ofrecord import Record
from flow2onnx.errors import DataError, FlowError
from flow2onnx.trace.host import HostNode, HostPlan, HostValue

__all__ = ["Pipeline"]

_IN_FLIGHT = 2  # batches whose samples are being computed
_READY = 2  # finished batches that wait for their call
_POLL_SECONDS = 0.1  # how soon a waiting thread notices that the pipeline was closed
_MOST_WORKERS = 16


class Pipeline:
    """Batches for the feeds of a plan, one after another; its threads start at the first.

    After an error every further batch is that error. Threads end with `close`, or when nobody
    refers to the pipeline any more. `part` is (i, n) where this process is fed with the i-th of n
    parts of each batch: it decodes these samples, and what needs all of a batch all.
    """

    def __init__(
        self, plan: HostPlan, workers: int | None = None, part: tuple[int, int] = (0, 1)
    ) -> None:
        self.plan, self._part = plan, part
        self._workers = workers or min(os.cpu_count() or 1, _MOST_WORKERS)
        self._lock = threading.Lock()
        self._run: _Run | None = None
        self._failure: BaseException | None = None

    def next(self) -> list[Array]:
        """The arrays of one call, in the order of the plan's feeds."""
        with self._lock:
            if self._failure is None:
                batch = self._start().take()
                if not isinstance(batch, BaseException):
                    return batch
                self._failure = batch
            raise self._failure

    def close(self) -> None:
        """End the threads and close the files; waits for both."""
        with self._lock:
            if self._failure is None:
                self._failure = DataError("the pipeline was closed", hint="make a new session")
            if self._run is not None:
                self._run.stop()
                self._run.join()

    def _start(self) -> "_Run":
        if self._run is None:
            self._run = _Run(_Schedule(self.plan, self._part), self._workers)
            finalizer = weakref.finalize(self, self._run.stop)
            # at exit the threads are daemons, and calls that wait may still need them
            finalizer.atexit = False
        return self._run


@dataclass(frozen=True)
class _Schedule:
    """The nodes that a batch needs, in the order in which they run.

    A level is batch nodes, which need all samples, then sample nodes, which need only their own:
    those of a level are one task for each sample.
    """

    plan: HostPlan
    part: tuple[int, int] = (0, 1)

    def own(self, size: int) -> range:
        """The samples of a batch that this process is fed with."""
        i, parts = self.part
        return range(size * i // parts, size * (i + 1) // parts)

    def needed(self, size: int) -> range:
        """The samples that are computed: all, where something is computed of all together."""
        return range(size) if any(n.kind == "batch" for n in self.plan.nodes) else self.own(size)

    @cached_property
    def sources(self) -> list[HostNode]:
        return [node for node in self.plan.nodes if node.kind == "source"]

    @cached_property
    def levels(self) -> list[tuple[list[HostNode], list[HostNode]]]:
        level: dict[HostNode, int] = {}
        for node in self.plan.nodes:
            below = max((level[v.node] for v in node.inputs), default=0)
            level[node] = below + (node.kind == "batch")
        steps = range(max(level.values(), default=0) + 1)
        return [
            ([n for n in level if level[n] == i and n.kind == "batch"],
             [n for n in level if level[n] == i and n.kind == "sample"])
            for i in steps
        ]  # fmt: skip

    def origins(self, node: HostNode) -> Iterator[HostNode]:
        """The sources that a node depends on."""
        if node.kind == "source":
            yield node
        for value in node.inputs:
            yield from self.origins(value.node)


@dataclass(frozen=True)
class _Columns:
    """The results of a sample node, one for each sample."""

    rows: list[Any]


@dataclass
class _Batch:
    """One call's values: for each node its outputs, each with one item for every sample."""

    number: int
    values: dict[HostNode, Any] = field(default_factory=dict)
    tasks: list["_Task"] = field(default_factory=list)

    def items(self, value: HostValue) -> Any:
        made = self.values[value.node]
        if isinstance(made, _Columns):
            return [row[value.index] for row in made.rows]
        return made[value.index]

    def item(self, value: HostValue, slot: int) -> Any:
        made = self.values[value.node]
        if isinstance(made, _Columns):
            return made.rows[slot][value.index]
        return made[value.index][slot]

    def size(self, value: HostValue) -> int:
        made = self.values[value.node]
        return len(made.rows) if isinstance(made, _Columns) else len(made[value.index])


class _Task:
    """A call on the pool; `result` waits for it."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work, self._done = work, threading.Event()
        self._error: BaseException | None = None

    def do(self) -> None:
        try:
            self._work()
        except BaseException as error:  # whatever it is, it belongs to the batch
            self._error = error
        self._done.set()

    def result(self, stopped: threading.Event) -> None:
        while not self._done.wait(_POLL_SECONDS):
            if stopped.is_set():
                raise _Stopped
        if self._error is not None:
            raise self._error


class _Stopped(BaseException):
    """The pipeline was closed while something waited."""


class _Run:
    """The threads of a pipeline. They refer to this and not to the pipeline, which may go away."""

    def __init__(self, schedule: _Schedule, workers: int) -> None:
        self._schedule, self._stopped = schedule, threading.Event()
        self._ready: Queue[list[Array] | BaseException] = Queue(_READY)
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        # Daemons, because calls that are waited for at exit may still need them.
        self._threads = [
            threading.Thread(target=self._work, name=f"flow2onnx-data-{i}", daemon=True)
            for i in range(workers if any(s for _, s in schedule.levels) else 0)
        ]
        self._threads.append(
            threading.Thread(target=self._produce, name="flow2onnx-data", daemon=True)
        )
        for thread in self._threads:
            thread.start()

    def take(self) -> list[Array] | BaseException:
        """The next batch, or what it failed with."""
        return self._ready.get()

    def stop(self) -> None:
        """Ask the threads to end."""
        self._stopped.set()
        for _ in self._threads:
            self._tasks.put(None)

    def join(self) -> None:
        """Wait until they have."""
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None and not self._stopped.is_set():
            task.do()
            del task  # its arrays need not outlive it while the thread waits

    def _produce(self) -> None:
        """Keep batches in flight until closed; an error takes its batch's place and ends this."""
        streams: dict[HostNode, Iterator[Any]] = {}
        try:
            for batch in self._batches(streams):
                self._put(batch)
        except _Stopped:
            pass
        except BaseException as error:  # raised in the call that would have had the batch
            self._put(error)
        finally:
            self.stop()
            for stream in streams.values():
                close = getattr(stream, "close", None)
                if close is not None:
                    close()

    def _put(self, batch: list[Array] | BaseException) -> None:
        while not self._stopped.is_set():
            try:
                return self._ready.put(batch, timeout=_POLL_SECONDS)
            except Full:
                continue

    def _batches(self, streams: dict[HostNode, Iterator[Any]]) -> Iterator[list[Array]]:
        in_flight: deque[_Batch] = deque()
        failure: BaseException | None = None
        number = 0
        while failure is None or in_flight:
            while failure is None and len(in_flight) < _IN_FLIGHT:
                try:
                    in_flight.append(self._begin(number, streams))
                except Exception as error:  # of this batch: those before it are still delivered
                    failure = error
                number += 1
            if in_flight:
                yield self._finish(in_flight.popleft())
        raise failure

    def _begin(self, number: int, streams: dict[HostNode, Iterator[Any]]) -> _Batch:
        """Read a batch, and begin with what its samples need."""
        if self._stopped.is_set():
            raise _Stopped
        batch = _Batch(number)
        for node in self._schedule.sources:
            with _locate_errors(node):
                if node not in streams:
                    streams[node] = node.run()
                batch.values[node] = next(streams[node])
        self._submit(batch, self._schedule.levels[0][1])
        return batch

    def _submit(self, batch: _Batch, nodes: list[HostNode]) -> None:
        """Make what `nodes` do for one sample a task; nodes of one batch size go together."""
        groups: dict[int, list[HostNode]] = {}
        for node in nodes:
            size = batch.size(node.inputs[0])
            groups.setdefault(size, []).append(node)
            batch.values[node] = _Columns([None] * size)
        for size, group in groups.items():
            for slot in self._schedule.needed(size):
                task = _Task(partial(self._sample, batch, group, slot))
                batch.tasks.append(task)
                self._tasks.put(task)

    def _sample(self, batch: _Batch, nodes: list[HostNode], slot: int) -> None:
        for node in nodes:
            with _locate_errors(node, partial(self._place, batch, node, slot)):
                given = [batch.item(v, slot) for v in node.inputs]
                batch.values[node].rows[slot] = node.run((batch.number, slot), *given)

    def _place(self, batch: _Batch, node: HostNode, slot: int) -> str:
        """Where the sample came from, as far as its source tells."""
        for source in self._schedule.origins(node):
            item = batch.values[source][0][slot]
            if isinstance(item, Record):
                return item.where
        return f"sample {slot} of the batch"

    def _finish(self, batch: _Batch) -> list[Array]:
        levels = self._schedule.levels
        self._wait(batch)
        for batch_nodes, sample_nodes in levels[1:]:
            for node in batch_nodes:
                with _locate_errors(node):
                    given = [batch.items(v) for v in node.inputs]
                    batch.values[node] = node.run(batch.number, *given)
            self._submit(batch, sample_nodes)
            self._wait(batch)
        return [_dense(batch, value, self._schedule) for value in self._schedule.plan.feeds]

    def _wait(self, batch: _Batch) -> None:
        for task in batch.tasks:
            task.result(self._stopped)
        batch.tasks.clear()


@contextmanager
def _locate_errors(node: HostNode, place: Callable[[], str] | None = None) -> Iterator[None]:
    """Say in an error of the body which operator failed, and for which sample."""
    try:
        yield
    except FlowError as error:
        error.located(None, node.name, node.source)
        if place is not None and isinstance(error, DataError):
            error.at(place())
        raise
    except Exception as error:
        found = DataError(f"{type(error).__name__}: {error}", place=place() if place else None)
        raise found.located(None, node.name, node.source) from error


def _dense(batch: _Batch, value: HostValue, schedule: _Schedule) -> Array:
    """The samples of this process as one array."""
    kind, own = value.type, schedule.own(batch.size(value))
    wanted = (len(schedule.own(kind.shape[0])), *kind.shape[1:])
    made = batch.values[value.node]
    items = None if isinstance(made, _Columns) else made[value.index]
    if isinstance(items, np.ndarray):
        array = np.ascontiguousarray(items[own.start : own.stop], kind.dtype.numpy)
    else:
        array = np.empty((len(own), *kind.shape[1:]), kind.dtype.numpy)
        for place, slot in enumerate(own):
            item = batch.item(value, slot)
            _check_shape(value, np.shape(item), kind.shape[1:])
            array[place] = item
    _check_shape(value, array.shape, wanted)
    return array


def _check_shape(value: HostValue, shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    if shape != wanted:
        node = value.node
        error = DataError(f"gave {shape} where {wanted} is due")
        raise error.located(None, node.name, node.source)
