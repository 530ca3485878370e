"""Calls written as text, such as ``top_k(k=3)``: a name and settings."""

import ast
from typing import Any

__all__ = ["parse_call"]


def parse_call(text: str) -> tuple[str, dict[str, Any]] | None:
    """The name and the keyword arguments in a text, whose values are Python literals.

    None for a text that is no such call.

    >>> parse_call("top_k(k=3)")
    ('top_k', {'k': 3})
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        if isinstance(tree, ast.Name):
            return tree.id, {}
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and not tree.args:
            settings = {str(k.arg): ast.literal_eval(k.value) for k in tree.keywords if k.arg}
            if len(settings) == len(tree.keywords):
                return tree.func.id, settings
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        pass  # said by the caller
    return None
