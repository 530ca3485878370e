"""The memory of buckets in host memory: gradients are written, summed up and read in one place."""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from flow2onnx_runtime.buffers import wrap_array
from flow2onnx_runtime.dtypes import Array, element_named
from flow2onnx_runtime.program import Program

from flow2onnx.compile.names import SHARD
from flow2onnx.engine.opening import Opening
from flow2onnx.graph import Value
from flow2onnx.graph.types import dims, dtype_of
from flow2onnx.passes.slices import vector_of

__all__ = ["BucketMemory"]


class BucketMemory:
    """Vectors for the buckets of a job whose gradients are made in host memory.

    `sent` are the runtime's values that the gradients half writes, `received` those that the update
    half reads: slices of the vectors, by name. Of a shard the update half gets its part otherwise.
    """

    def __init__(self, opening: Opening) -> None:
        self._vectors: dict[str, Array] = {}
        self.sent: dict[str, Any] = {}
        self.received: dict[str, Any] = {}
        if opening.update is None or opening.options.device[0] != "cpu":
            return
        outputs = _by_vector(opening, are_inputs=False)
        for name, slices in outputs.items():
            elements = sum(prod(dims(v)) for v in slices)
            self._vectors[name] = np.zeros(elements, dtype_of(slices[0]).numpy)
            self.sent |= self._slices(name, slices)
        for name, slices in _by_vector(opening.update, are_inputs=True).items():
            if name in self._vectors:
                self.received |= self._slices(name, slices)

    def written_by(self, program: Program) -> Mapping[str, Array]:
        """The vectors that a run of a program fills, by name."""
        names = (vector_of(o.name) for o in program.outputs if o.name in self.sent)
        return {name: self._vectors[name] for name in names}

    def _slices(self, name: str, slices: list[Value]) -> Mapping[str, Any]:
        """The runtime's values over the slices of a vector, end to end."""
        vector, start, found = self._vectors[name], 0, dict[str, Any]()
        for value in slices:
            shape, element = dims(value), element_named(dtype_of(value).name)
            end = start + prod(shape)
            found[str(value.name)] = wrap_array(vector[start:end].reshape(shape), element)
            start = end
        assert start == len(vector), f"{name} has {len(vector)} elements, its slices have {start}"
        return found


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
