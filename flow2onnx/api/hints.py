"""Annotations as objects, also where the user's file keeps them as text."""

import inspect
import typing
from collections.abc import Callable
from typing import Any

from flow2onnx.errors import AnnotationError
from flow2onnx.typing import PlaceholderSpec

__all__ = ["hints_of"]


def hints_of(function: Callable[..., Any], signature: inspect.Signature) -> dict[str, Any]:
    """The annotations by parameter, and by "return"; text is evaluated where the function is."""
    raw = {n: p.annotation for n, p in signature.parameters.items() if p.annotation is not p.empty}
    if signature.return_annotation is not signature.empty:
        raw["return"] = signature.return_annotation
    if any(isinstance(a, str) for a in raw.values()):
        raw = _resolved(function)
    return {name: _meant(annotation) for name, annotation in raw.items()}


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


def _resolved(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, AttributeError) as error:
        raise AnnotationError(
            f"an annotation does not resolve: {error}",
            hint="name what the module of the function can see",
        ) from None
