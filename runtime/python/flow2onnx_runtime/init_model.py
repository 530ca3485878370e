"""Initial values of a state, computed by an init model straight into its buffers."""

from collections.abc import Callable, Sequence

from flow2onnx_runtime.buffers import Buffer, new_buffer
from flow2onnx_runtime.dtypes import element_named
from flow2onnx_runtime.errors import BundleError
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
    with inputs, or other outputs than the tensors.
    """
    session = open_session(model, options)
    _check(session, tensors, name)
    binding, copies = session.io_binding(), dict[str, Buffer]()
    on_host = state.device == "cpu"
    for tensor, shape, element in tensors:
        is_there = tensor in state
        target = state.current(tensor) if is_there else state.reserve(tensor, shape, element)
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
