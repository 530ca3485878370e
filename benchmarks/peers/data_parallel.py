"""flow2onnx on several ranks: every rank calls the job with the whole batch, as a user does."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from flow2onnx_runtime.collectives import Collectives, join_world

from benchmarks.peers import Data, Options, RankedStep, Values, flow2onnx
from benchmarks.workloads import Workload
from flow2onnx.engine import current_session

VERSIONS = ("onnxruntime", "numpy", "torch")
_VERBS = [name for name in vars(Collectives) if name[0] != "_" and name != "fail"]


class _Finished:
    """A collective that there was no need for, with what it gives."""

    def __init__(self, part: Any = None) -> None:
        self._part = part

    def wait(self) -> Any:
        return self._part


class _Connection:
    """The calls of a rank's connection: recorded, or without any sending, by attributes put over
    its methods.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._real = {verb: getattr(connection, verb) for verb in _VERBS}
        self.calls: list[tuple[str, tuple[int, ...], Any]] = []
        self._depth = 0

    @contextmanager
    def using(self, make: Callable[[str], Any]) -> Iterator[None]:
        """Inside, verbs are what `make` gives for their names."""
        for verb in _VERBS:
            setattr(self._connection, verb, make(verb))
        try:
            yield
        finally:
            for verb in _VERBS:
                delattr(self._connection, verb)

    def recorder(self, verb: str) -> Any:
        """The verb, which also records its arguments, unless another verb calls it."""

        def call(*arguments: Any) -> Any:
            if not self._depth and arguments:
                self.calls.append((verb, arguments[0].shape, arguments[0].dtype))
            self._depth += 1
            try:
                return self._real[verb](*arguments)
            finally:
                self._depth -= 1

        return call

    def stub(self, verb: str) -> Any:
        """A verb that sends nothing: other ranks seem to have what this one has."""
        world = self._connection.world

        def call(*arguments: Any) -> Any:
            if verb == "begin_all_reduce":
                return _Finished()
            if verb.endswith("reduce_scatter"):
                part = np.split(arguments[0], world.size)[world.rank]
                return _Finished(part.copy()) if verb.startswith("begin") else part
            return [arguments[0]] * world.size if verb == "all_gather" else None

        return call

    def repeat(self) -> None:
        """Make all calls that were recorded once more, with zeros."""
        pending = []
        for verb, shape, dtype in self.calls:
            found = self._real[verb](np.zeros(shape, dtype))
            if verb.startswith("begin"):
                pending.append(found)
        for work in pending:
            work.wait()


def ranked_step(work: Workload, values: Values, data: Data, options: Options) -> RankedStep:
    """Steps of the job; their loss is that of the whole batch."""
    step = flow2onnx.training(work, values, data, options)
    joined = join_world()
    connection = None if joined is None else _Connection(joined)

    def compute(i: int) -> float:
        if connection is None:
            return step(i)
        with connection.using(connection.stub):
            return step(i)

    def communicate(i: int) -> None:
        sizes()
        if connection is not None:
            connection.repeat()

    def sizes() -> list[int]:
        if connection is None:
            return []
        if not connection.calls:
            with connection.using(connection.recorder):
                step(0)
        return [int(np.prod(shape)) * dtype.itemsize for _, shape, dtype in connection.calls]

    return RankedStep(step, compute, communicate, sizes, _slot_bytes)


def _slot_bytes() -> int:
    """The bytes of the optimizer's slots that this rank holds: they are named after a variable."""
    state = current_session().state
    names = state.names()
    slots = [n for n in names if any(n.startswith(f"{other}-") for other in names if other != n)]
    return sum(state.read(name).nbytes for name in slots)
