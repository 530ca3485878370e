"""State that begins with the tensors of a model, as a bundle is written from it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from flow2onnx_runtime import Options, kernels, open_session
from flow2onnx_runtime.dtypes import Array

from flow2onnx.compile import Target, initial_state
from flow2onnx.compile.names import first_value
from flow2onnx.dtypes import DType, by_code
from flow2onnx.errors import JobError
from flow2onnx.graph import Builder, Model, Value
from flow2onnx.graph.model import model_bytes
from flow2onnx.onnx_io.foreign import ForeignModel, tensor_content
from flow2onnx.optim.averages import average_name
from flow2onnx.trace.initializers import Initializer
from flow2onnx.trace.variables import Role, Variable

__all__ = ["ModelState", "TensorInitializer", "average_variable", "state_variable", "tensor_type"]


@dataclass(frozen=True)
class TensorInitializer(Initializer):
    """The content of a tensor of the model, which the init model reads from the weights file.

    `name` is that of the variable there, `tensor` that of the model.
    """

    name: str
    tensor: str

    def emit(self, b: Builder, shape: tuple[int, ...], dtype: DType, seed: float) -> Value:
        """A value that becomes an initializer when the file is written."""
        return b.Identity(b.input(first_value(self.name), shape, dtype))


def tensor_type(foreign: ForeignModel, name: str) -> tuple[tuple[int, ...], DType]:
    """The shape and the element type of a tensor of the model."""
    tensor = foreign.tensors[name]
    return tuple(int(d) for d in tensor.shape), by_code(int(tensor.dtype))


def state_variable(
    foreign: ForeignModel, name: str, role: Role = "variable", *, is_trainable: bool = True
) -> Variable:
    """The variable that begins with a tensor of the model."""
    shape, dtype = tensor_type(foreign, name)
    return Variable(
        name=name,
        shape=shape,
        dtype=dtype,
        initializer=TensorInitializer(name, name),
        role=role,
        is_trainable=is_trainable,
    )


def average_variable(foreign: ForeignModel, weight: str) -> Variable:
    """The moving average of a weight, which begins with what the weight does."""
    name, own = average_name(weight), state_variable(foreign, weight, "slot", is_trainable=False)
    return replace(own, name=name, initializer=TensorInitializer(name, weight), owner=weight)


@dataclass(frozen=True)
class ModelState:
    """The first values of the state: from the model, or computed for what is new."""

    foreign: ForeignModel
    opset: int
    seed: int = 0

    @property
    def target(self) -> Target:
        """The target to compile for."""
        return Target(opset=self.opset, seed=self.seed, kernels=kernels())

    def initial(self, variables: dict[str, Variable]) -> Model:
        """The model that gives the first values of variables."""
        return initial_state(variables, self.target)

    def values(self, variables: Mapping[str, Variable]) -> dict[str, Array]:
        """The first values of variables."""
        tensors = {
            n: v.initializer.tensor
            for n, v in variables.items()
            if isinstance(v.initializer, TensorInitializer)
        }
        computed = self._compute({n: v for n, v in variables.items() if n not in tensors})
        return {n: self._content(tensors[n]) if n in tensors else computed[n] for n in variables}

    def lend(
        self, variables: Mapping[str, Variable], use: Callable[[dict[str, Array]], None]
    ) -> None:
        """Let `use` read the first values of variables."""
        use(self.values(variables))

    def _compute(self, variables: dict[str, Variable]) -> dict[str, Array]:
        if not variables:
            return {}
        session = open_session(model_bytes(self.initial(variables)), Options())
        return dict(zip(variables, session.run(list(variables), {}), strict=True))

    def _content(self, name: str) -> Array:
        if name not in self.foreign.tensors:
            raise JobError(f"the model has no tensor {name!r}")
        return tensor_content(self.foreign.tensors[name])
