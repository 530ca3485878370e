"""Initial values of a state, computed by an init model straight into its buffers."""

from collections.abc import Callable, Sequence
from typing import Any

from flow2onnx_runtime.buffers import Buffer, new_buffer
from flow2onnx_runtime.dtypes import element_named
from flow2onnx_runtime.errors import BundleError, StateError
from flow2onnx_runtime.model_check import OwnModel
from flow2onnx_runtime.options import DEFAULT_OPTIONS, Model, Options, open_session
from flow2onnx_runtime.run_errors import run_error
from flow2onnx_runtime.state import State

__all__ = ["bind_init_model"]


def bind_init_model(
    state: State,
    model: Model | OwnModel,
    tensors: Sequence[tuple[str, tuple[int, ...], str]],
    options: Options = DEFAULT_OPTIONS,
    *,
    name: str = "init",
) -> Callable[[], None]:
    """Add `tensors`, each (name, shape, element), and return what computes their values.

    Those that the state has already, of that shape and element type, are given values alone.
    The values are what a model without inputs makes of them, once the returned function has been
    called, from any thread; until then models may be bound to the tensors, and not run. On the
    host they exist once: the model writes to where they stay. Raises `BundleError` for a model
    with inputs, or other outputs than the tensors, `StateError` for a tensor that the state has
    otherwise.
    """
    session = open_session(model, options)
    _check(session, tensors, name)
    binding, copies = session.io_binding(), dict[str, Buffer]()
    on_host = state.device == "cpu"
    for tensor, shape, element in tensors:
        target = _target(state, tensor, tuple(shape), element)
        if not on_host:
            kind = element_named(element)
            copies[tensor] = new_buffer(("cpu", 0), shape, kind)
            target = copies[tensor].value
        binding.bind_ortvalue_output(tensor, target)

    def compute() -> None:
        try:
            session.run_with_iobinding(binding)
        except Exception as error:  # the runtime's exceptions have no common base
            raise run_error(name, error, options.device, "the state has no values") from error
        for tensor in list(copies):
            state.write(tensor, copies.pop(tensor).read())

    return compute


def _target(state: State, tensor: str, shape: tuple[int, ...], element: str) -> Any:
    """The OrtValue of a tensor of the state, which is added where there is none."""
    if tensor not in state:
        return state.reserve(tensor, shape, element)
    present = state.element(tensor), state.shape(tensor)
    if present != (element, shape):
        raise StateError(
            f"{tensor} is to be {element} {shape}, and the state's is {present[0]} {present[1]}",
            hint="the init model and the state come from different jobs",
        )
    return state.current(tensor)


def _check(session: object, tensors: Sequence[tuple[str, tuple[int, ...], str]], name: str) -> None:
    inputs, outputs = session.get_inputs(), session.get_outputs()  # type: ignore[attr-defined]
    if inputs:
        raise BundleError(f"{name} has inputs", hint="an init model takes none")
    made = {arg.name for arg in outputs}
    asked = {tensor for tensor, _, _ in tensors}
    if made != asked:
        raise BundleError(
            f"{name} makes {', '.join(sorted(made - asked)) or 'nothing'} beyond the state and "
            f"lacks {', '.join(sorted(asked - made)) or 'nothing'}",
            hint="it was written for another job, or another version of this one",
        )
