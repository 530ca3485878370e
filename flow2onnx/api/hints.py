"""Annotations as objects, also where the user's file keeps them as text."""

import inspect
import typing
from collections.abc import Callable
from typing import Any

from flow2onnx.errors import AnnotationError

__all__ = ["hints_of"]


def hints_of(function: Callable[..., Any], signature: inspect.Signature) -> dict[str, Any]:
    """The annotations by parameter, and by "return"; text is evaluated where the function is."""
    raw = {n: p.annotation for n, p in signature.parameters.items() if p.annotation is not p.empty}
    if signature.return_annotation is not signature.empty:
        raw["return"] = signature.return_annotation
    if not any(isinstance(a, str) for a in raw.values()):
        return raw
    try:
        return typing.get_type_hints(function)
    except (NameError, AttributeError) as error:
        raise AnnotationError(
            f"an annotation does not resolve: {error}",
            hint="name what the module of the function can see",
        ) from None
