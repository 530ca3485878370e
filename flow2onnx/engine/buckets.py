"""The memory of buckets in host memory: gradients are written, summed up and read in one place."""

from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from flow2onnx_runtime.buffers import wrap_array
from flow2onnx_runtime.dtypes import Array, element_named
from flow2onnx_runtime.program import Program

from flow2onnx.compile import CompiledJob
from flow2onnx.compile.names import BUCKET, SHARD
from flow2onnx.engine.opening import Opening
from flow2onnx.graph import Value
from flow2onnx.graph.types import dims, dtype_of, is_static
from flow2onnx.passes.slices import vector_of

__all__ = ["BucketMemory"]

_MOST = 4096  # elements of a result that travels in a bucket: larger ones would keep it waiting


class BucketMemory:
    """Vectors for the buckets of a job whose gradients are made in host memory.

    `sent` are the runtime's values that the gradients half writes, `received` those that the update
    half reads: slices of the vectors, by name. Of a shard the update half gets its part otherwise.

    Behind the gradients of the last bucket there is room for small results that are added up, too:
    a meeting of the ranks for each would cost a round trip.
    """

    def __init__(self, opening: Opening) -> None:
        self._vectors: dict[str, Array] = {}
        self._results: dict[str, Array] = {}
        self.sent: dict[str, Any] = {}
        self.received: dict[str, Any] = {}
        if opening.update is None or opening.options.device[0] != "cpu":
            return
        outputs = _by_vector(opening, are_inputs=False)
        sizes = {name: sum(prod(dims(v)) for v in slices) for name, slices in outputs.items()}
        last, results = _last_bucket(outputs), _small_results(opening.job)
        for name, slices in outputs.items():
            more = sum(prod(dims(v)) for v in results) if name == last else 0
            self._vectors[name] = np.zeros(sizes[name] + more, dtype_of(slices[0]).numpy)
            self.sent |= self._slices(name, slices)
        for name, slices in _by_vector(opening.update, are_inputs=True).items():
            if name in self._vectors:
                self.received |= self._slices(name, slices)
        if last is not None:
            self._results = _end_to_end(self._vectors[last][sizes[last] :], results)

    @property
    def results(self) -> Collection[str]:
        """The names of the results that travel in a bucket."""
        return self._results.keys()

    def put_results(self, results: Mapping[str, Array]) -> None:
        """Put what a run has made of these results into their bucket."""
        for name in self._results.keys() & results.keys():
            self._results[name][...] = results[name]

    def sums(self) -> dict[str, Array]:
        """Copies of the results that have travelled, as they are in their bucket."""
        return {name: array.copy() for name, array in self._results.items()}

    def written_by(self, program: Program) -> Mapping[str, Array]:
        """The vectors that a run of a program fills, by name."""
        names = (vector_of(o.name) for o in program.outputs if o.name in self.sent)
        return {name: self._vectors[name] for name in names}

    def _slices(self, name: str, slices: Sequence[Value]) -> Mapping[str, Any]:
        """The runtime's values over the slices of a vector, end to end."""
        arrays = _end_to_end(self._vectors[name], slices)
        element = element_named(dtype_of(slices[0]).name)
        return {own: wrap_array(array, element) for own, array in arrays.items()}


def _end_to_end(vector: Array, values: Sequence[Value]) -> dict[str, Array]:
    """Views of a vector from its start on, of the shapes of the values, by their names."""
    ends = np.cumsum([prod(dims(v)) for v in values]).tolist()
    starts = [0, *ends][:-1]
    return {
        str(v.name): vector[start:end].reshape(dims(v))
        for v, start, end in zip(values, starts, ends, strict=True)
    }


def _last_bucket(outputs: Mapping[str, Sequence[Value]]) -> str | None:
    """The bucket of float32 that is sent last; None if there is none."""
    names = [n for n, slices in outputs.items()
             if n.startswith(BUCKET) and dtype_of(slices[0]).numpy == np.float32]  # fmt: skip
    return names[-1] if names else None


def _small_results(job: CompiledJob) -> list[Value]:
    """The results and watched values of a call that are sums or means over the ranks, and small.

    Calls of several rounds have these of each round.
    """
    if job.rounds > 1:
        return []
    watched = (name for w in job.watches for name in w.outputs)
    shown = {name for name in (*job.results, *watched) if name in job.shares}
    return [
        v
        for v in job.model.graph.outputs
        if v.name in shown
        and job.shares[v.name].kind in ("sum", "mean")
        and dtype_of(v).numpy == np.float32
        and is_static(v)
        and prod(dims(v)) <= _MOST
    ]


def _by_vector(opening: Opening, *, are_inputs: bool) -> dict[str, list[Value]]:
    """The slices of each bucket, in their order; a shard is one of its own."""
    found: dict[str, dict[str, Value]] = {}
    for part in opening.parts or (opening,):
        graph = part.model.graph
        for value in graph.inputs if are_inputs else graph.outputs:
            name = str(value.name)
            if vector_of(name) != name or (name.startswith(SHARD) and not are_inputs):
                found.setdefault(vector_of(name), {})[name] = value
    return {vector: list(slices.values()) for vector, slices in found.items()}
