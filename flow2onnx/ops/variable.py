"""Variables and what writes to them."""

from collections.abc import Sequence
from typing import Any

from flow2onnx.dtypes import DType, element_type, float32
from flow2onnx.errors import ArgumentError, VariableError
from flow2onnx.ops.named_settings import initializer_of, regularizer_of
from flow2onnx.source import user_frame
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.context import current_job
from flow2onnx.trace.distribution import hint_of, keep
from flow2onnx.trace.initializers import Initializer
from flow2onnx.trace.op import composite
from flow2onnx.trace.variables import Regularizer, Variable


@composite("get_variable")
def get_variable(
    name: str,
    shape: Sequence[int] | None = None,
    dtype: DType | None = float32,
    initializer: Initializer | str | None = None,
    regularizer: Regularizer | str | None = None,
    trainable: bool | None = None,
    model_name: str | None = None,
    random_seed: int | None = None,
    parallel_distribution: Any = None,
    distribute: Any = None,
    reuse: bool = True,
) -> Blob:
    """The variable called `name` below the current namespaces, shared by all jobs that name it."""
    job = current_job("get_variable")
    if not isinstance(name, str):
        raise ArgumentError(f"name is a str, got {name!r}")
    full = job.full_name(name)
    if full in job.user_variables:
        if not reuse:
            raise VariableError(
                f"variable '{full}' already exists, getting the same variable is not allowed when "
                f"param reuse is False; it was made at {job.variables[full].source}",
                hint="give each layer its own name=",
            )
        known: Blob = job.user_variables[full]
        return known
    variable = Variable(
        name=full,
        shape=_shape(shape, full),
        dtype=element_type(dtype)
        if dtype is not None
        else job.spec.config.value("default_data_type"),
        initializer=initializer_of(initializer) or job.default_initializer(full),
        is_trainable=trainable is not False,
        regularizer=regularizer_of(regularizer),
        model_name=model_name or "weight",
        seed=random_seed,
        source=user_frame(),
    )
    hint = hint_of(parallel_distribution if distribute is None else distribute)
    keep(job, full, variable.shape, hint)
    blob = Blob(job.state(variable), distribute=hint)
    job.user_variables[full] = blob
    return blob


def _shape(shape: Sequence[int] | None, name: str) -> tuple[int, ...]:
    if not isinstance(shape, list | tuple):
        raise VariableError(
            f"param shape should be a list or tuple of dimension: {name} has {shape!r}",
            hint="a vector of n elements has shape (n,)",
        )
    if not all(isinstance(d, int) and d > 0 for d in shape):
        raise VariableError(
            f"variable {name!r}: dimensions are positive ints, got {shape!r}",
            hint="write int(...) around a computed size",
        )
    return tuple(shape)


@composite("assign")
def assign(ref: Blob, value: Blob, dtype: DType | None = None, name: str | None = None) -> None:
    """After this call variable `ref` holds `value`; reads in the same call see the old value."""
    job = current_job("assign")
    owner = next((n for n, v in job.values.items() if v is ref.value), None)
    if owner is None:
        raise ArgumentError(f"{ref!r} is not a variable")
    if (ref.shape, ref.dtype) != (value.shape, value.dtype):
        raise VariableError(f"variable {owner!r} is {ref!r}, the value is {value!r}")
    job.assign(owner, value.value)


@composite("system.assign", catalogued=True)
def system_assign(
    ref: Blob, value: Blob, validate_shape: bool | None, use_locking: bool | None, name: str | None
) -> Blob:
    """flow.assign, which always validates the shape; returns `ref`."""
    assign.lower(ref, value, name=name)
    return ref
