"""The variables that the jobs of a session share: by name, each with one first value."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from flow2onnx_runtime import Options, State, require_providers
from flow2onnx_runtime.axis_parts import part_length
from flow2onnx_runtime.collectives import Collectives, join_world
from flow2onnx_runtime.divided import join_parts, own_part
from flow2onnx_runtime.dtypes import Array, as_bits, element_named
from flow2onnx_runtime.init_model import bind_init_model
from flow2onnx_runtime.model_check import OwnModel

from flow2onnx.compile import CompiledJob, Target, initial_state
from flow2onnx.errors import JobError
from flow2onnx.graph.model import model_bytes
from flow2onnx.trace.initializers import Constant
from flow2onnx.trace.job import Kept
from flow2onnx.trace.variables import Variable, check_same

__all__ = ["check_variables", "merge_variables", "new_state", "whole_value", "write_value"]


def merge_variables(jobs: Iterable[CompiledJob]) -> dict[str, Variable]:
    """The variables of jobs by name; raises `VariableError` where two mean different ones by it."""
    variables: dict[str, Variable] = {}
    owners: dict[str, str] = {}
    for job in jobs:
        for variable in job.variables.values():
            first = variables.setdefault(variable.name, variable)
            owner = owners.setdefault(variable.name, job.spec.name)
            check_same(first, variable, job.spec.name, owner)
    return variables


def check_variables(
    job: CompiledJob, variables: Mapping[str, Variable], shapes: Sequence[tuple[int, ...]]
) -> None:
    """Raise unless a job, compiled for inputs of other shapes, has the variables that it had."""
    unknown = [name for name in job.variables if name not in variables]
    if unknown:
        raise JobError(
            f"inputs of shapes {shapes} need other variables: {', '.join(unknown)}",
            job=job.spec.name,
            hint="names and shapes of variables may not depend on the shape of an input",
        )
    for variable in job.variables.values():
        check_same(variables[variable.name], variable, job.spec.name)


def new_state(
    variables: dict[str, Variable],
    options: Options,
    target: Target,
    kept: Mapping[str, Kept] = {},
) -> tuple[State, Callable[[], None]]:
    """The state where a session with these options has it, and what fills it.

    Of variables in `kept` it has what the process of the target keeps.
    """
    require_providers(options)
    state, ranks, rank = State(*options.device), target.ranks, target.rank
    own = {
        name: v for name, v in variables.items()
        if name not in kept or kept[name].kind == "split" or kept[name].number == rank
    }  # fmt: skip
    shapes = {name: kept_shape(v, kept.get(name), ranks, rank) for name, v in own.items()}
    filled = {n: v for n, v in own.items() if isinstance(v.initializer, Constant)}
    drawn = {n: v for n, v in own.items() if n not in filled}
    for name, v in own.items():
        state.reserve(name, shapes[name], v.dtype.name)
    draw = _drawing(state, drawn, shapes, target, kept)

    def compute() -> None:
        for name, v in filled.items():
            state.write(name, _constant_value(v, shapes[name]))
        draw()

    return state, compute


def _drawing(
    state: State,
    variables: dict[str, Variable],
    shapes: Mapping[str, tuple[int, ...]],
    target: Target,
    kept: Mapping[str, Kept],
) -> Callable[[], None]:
    """Bind variables of a state whose first values the runtime draws; returns what draws them."""
    if not variables:
        return lambda: None
    tensors = [(name, shapes[name], v.dtype.name) for name, v in variables.items()]
    plain = Options(optimization="disable")  # else it would hold every large constant
    model = OwnModel(model_bytes(initial_state(variables, target, kept)))
    return bind_init_model(state, model, tensors, plain)


def _constant_value(variable: Variable, shape: tuple[int, ...]) -> Array:
    """The first value of a variable of which every element is the same, in the memory of one."""
    assert isinstance(variable.initializer, Constant), "others are drawn"
    fill = np.asarray(variable.initializer.value, variable.dtype.numpy)
    return np.broadcast_to(as_bits(fill, element_named(variable.dtype.name)), shape)


def kept_shape(variable: Variable, kept: Kept | None, ranks: int, rank: int) -> tuple[int, ...]:
    """The shape of what a rank keeps of a variable."""
    shape = list(variable.kept_shape)
    if kept is not None and kept.kind == "split":
        shape[kept.number] = part_length(shape[kept.number], ranks, rank)
    return tuple(shape)


def whole_value(state: State, variable: Variable) -> Array:
    """The present value of a variable, of one in parts with those of all ranks."""
    value = state.read(variable.name)
    others = join_world() if variable.parts > 1 else None
    if others is None:
        return value
    return join_parts(others.all_gather(value), variable.shape)


def write_value(state: State, variable: Variable, value: Array, others: Collectives | None) -> None:
    """Replace the value of a variable by that which the first rank gives, or this rank's part."""
    bits = as_bits(value, element_named(variable.dtype.name))
    if others is not None:
        bits = np.array(bits, order="C")  # which is written to
        if bits.size:
            others.broadcast(bits)
        if variable.parts > 1:
            bits = own_part(bits, others.world.rank, variable.parts)
    state.write(variable.name, bits)
