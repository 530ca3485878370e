"""State that begins with the tensors of a model, as a bundle is written from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flow2onnx_runtime import Options, kernels, open_session

from flow2onnx.compile import Target, initial_state
from flow2onnx.compile.names import first_value
from flow2onnx.dtypes import DType, by_code
from flow2onnx.errors import JobError
from flow2onnx.graph import Builder, Model, Value
from flow2onnx.graph.model import model_bytes
from flow2onnx.onnx_io.foreign import ForeignModel
from flow2onnx.trace.initializers import Initializer
from flow2onnx.trace.variables import Variable

__all__ = ["ModelState", "Stored"]

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Stored(Initializer):
    """The content of a tensor of the model, which the init model reads from the weights file."""

    name: str

    def emit(self, b: Builder, shape: tuple[int, ...], dtype: DType, seed: float) -> Value:
        """A value that becomes an initializer when the file is written."""
        return b.Identity(b.input(first_value(self.name), shape, dtype))

    @staticmethod
    def shape_of(tensor: Any) -> tuple[int, ...]:
        """The shape of a tensor."""
        return tuple(int(d) for d in tensor.shape)

    @staticmethod
    def dtype_of(tensor: Any) -> DType:
        """The element type of a tensor."""
        return by_code(int(tensor.dtype))


@dataclass(frozen=True)
class ModelState:
    """The first values of the state: from the model, or computed for what is new."""

    foreign: ForeignModel
    opset: int
    seed: int = 0

    @property
    def target(self) -> Target:
        """What to compile for."""
        return Target(opset=self.opset, seed=self.seed, kernels=kernels())

    def initial(self, variables: dict[str, Variable]) -> Model:
        """The model that gives the first values of variables."""
        return initial_state(variables, self.target)

    def values(self, variables: Mapping[str, Variable]) -> dict[str, Array]:
        """The first values of variables."""
        new = {n: v for n, v in variables.items() if not isinstance(v.initializer, Stored)}
        made = self._computed(new) if new else {}
        return {n: made[n] if n in made else self._content(n) for n in variables}

    def _computed(self, variables: dict[str, Variable]) -> dict[str, Array]:
        names = list(variables)
        session = open_session(model_bytes(self.initial(variables)), Options())
        arrays = session.run(names, {})
        return dict(zip(names, arrays, strict=True))

    def _content(self, name: str) -> Array:
        if name not in self.foreign.tensors:
            raise JobError(f"the model has no tensor {name!r}")
        content: Array = self.foreign.tensors[name].numpy()
        return content
