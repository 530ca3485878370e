"""Watching values and gradients at every call."""

import inspect
from collections.abc import Callable
from typing import Any

from flow2onnx.api.hints import hints_of
from flow2onnx.api.results import LocalBlob
from flow2onnx.errors import ArgumentError, FlowError
from flow2onnx.source import user_frame
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.context import current_job
from flow2onnx.trace.job import Watch
from flow2onnx.typing import ArrayReturn, parse_return, present, whole
from flow2onnx.typing.pytree import TreeDef

__all__ = ["watch", "watch_diff"]

Handler = Callable[[Any], Any] | str | None


def watch(blob_watched: Blob, handler_or_prompt: Handler = None) -> None:
    """Show the value of a blob at each call, before the job's result is delivered.

    A handler has one parameter, annotated ``tp.Numpy`` or ``tp.ListNumpy``; without an annotation
    it gets a local blob. A text is printed before the value.
    """
    _add(blob_watched, handler_or_prompt, is_gradient=False)


def watch_diff(blob_watched: Blob, handler_or_prompt: Handler = None) -> None:
    """Show the gradient of a blob at each call of a train job.

    It is the gradient of the sum of all loss elements, not yet divided by their number.
    """
    _add(blob_watched, handler_or_prompt, is_gradient=True)


def _add(blob: Blob, handler: Handler, *, is_gradient: bool) -> None:
    what = "watch_diff" if is_gradient else "watch"
    job = current_job(what)
    if not isinstance(blob, Blob):
        raise ArgumentError(
            f"{what} takes a blob, got {blob!r}",
            job=job.spec.name,
            source=user_frame(),
            hint="pass what an operator or flow.get_variable gave",
        )
    if is_gradient and not job.is_trainable:
        raise job.error("watch_diff in a predict job", hint="gradients exist in train jobs only")
    job.check_own(blob.value, "blob")
    try:
        shown = _handler(handler)
    except FlowError as error:
        raise error.located(job.spec.name, what, user_frame()) from None
    is_text = handler is None or isinstance(handler, str)
    job.watches.append(Watch((blob.value,), shown, is_gradient, is_once=is_text))


def _handler(given: Handler) -> Callable[[Any], Any]:
    if given is None or isinstance(given, str):
        prompt = given or ""
        said = (prompt,) if prompt else ()
        return lambda pieces: print(*said, whole(pieces))
    if not callable(given):
        raise ArgumentError(
            f"a watch handler is a function or a text, got {given!r}",
            hint="pass a function of one parameter, without calling it",
        )
    form = _form(given)
    if form is None:
        return lambda pieces: given(LocalBlob(whole(pieces), pieces=pieces))
    return lambda pieces: given(present(form, TreeDef("leaf"), pieces, len(pieces)))


def _form(handler: Callable[[Any], Any]) -> ArrayReturn | None:
    """The annotation of the one parameter; None without annotation."""
    try:
        signature = inspect.signature(handler)
    except ValueError:  # some builtins have none
        return None
    if len(signature.parameters) != 1:
        raise ArgumentError(
            f"a watch handler has one parameter, {handler!r} has {len(signature.parameters)}",
            hint="wrap it: lambda x: ...",
        )
    (name,) = signature.parameters
    hints = hints_of(handler, signature)
    if name not in hints:
        return None
    form = parse_return(hints[name])
    if not isinstance(form, ArrayReturn):
        raise ArgumentError(
            f"a watch handler takes one array, not {hints[name]}",
            hint="annotate its parameter with tp.Numpy or tp.ListNumpy",
        )
    return form
