"""Annotations as objects, also where the user's file keeps them as text."""

import inspect
import typing
from collections.abc import Callable
from typing import Any

from flow2onnx.errors import AnnotationError
from flow2onnx.trace.blob import Blob
from flow2onnx.typing import PlaceholderSpec

__all__ = ["hints_of"]


def hints_of(function: Callable[..., Any], signature: inspect.Signature) -> dict[str, Any]:
    """The annotations by parameter, and by "return"; text is evaluated where the function is.

    One that names blobs alone, as in ``-> flow.Blob``, is for type checkers: it counts as none.
    """
    raw = {n: p.annotation for n, p in signature.parameters.items() if p.annotation is not p.empty}
    if signature.return_annotation is not signature.empty:
        raw["return"] = signature.return_annotation
    if any(isinstance(a, str) for a in raw.values()):
        raw = _resolved(function)
    meant = {name: _meant(annotation) for name, annotation in raw.items()}
    return {name: a for name, a in meant.items() if not _names_blobs(a)}


def _meant(annotation: Any) -> Any:
    """The placeholder in ``Annotated[flow.Blob, tp.Numpy.Placeholder(shape)]``."""
    if typing.get_origin(annotation) is not typing.Annotated:
        return annotation
    found = [m for m in annotation.__metadata__ if isinstance(m, PlaceholderSpec)]
    if len(found) != 1:
        raise AnnotationError(
            f"{annotation} names {len(found)} placeholders",
            hint="write Annotated[flow.Blob, tp.Numpy.Placeholder(shape)]",
        )
    return found[0]


def _names_blobs(annotation: Any) -> bool:
    """True for `Blob` itself, and for tuples, lists and dicts of nothing else."""
    if annotation is Blob:
        return True
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    leaves = [a for a in (inner[1:] if origin is dict else inner) if a is not ...]
    return origin in (tuple, list, dict) and bool(leaves) and all(map(_names_blobs, leaves))


def _resolved(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, AttributeError) as error:
        raise AnnotationError(
            f"an annotation does not resolve: {error}",
            hint="name what the module of the function can see",
        ) from None
