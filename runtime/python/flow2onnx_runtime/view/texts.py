"""Shapes and sizes in words, the same in tables, pictures and commands."""

import re
from collections.abc import Iterable

__all__ = ["clean", "shape_text", "size_text"]

# Control characters, what turns the direction of a line, and halves of characters.
_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def clean(text: str) -> str:
    """A text without characters that nobody sees, each of which becomes a dot."""
    return _UNSEEN.sub("·", text)


def shape_text(shape: Iterable[object] | None) -> str:
    """``100 × 10``, or ``scalar``; a free size is its name; ``?`` where even the rank is free."""
    return "?" if shape is None else " × ".join(map(str, shape)) or "scalar"


def size_text(size: int) -> str:
    """``1.5 MiB``."""
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    step = min(max(size.bit_length() - 1, 0) // 10, len(units) - 1)
    return f"{size} B" if step == 0 else f"{size / 1024**step:.1f} {units[step]}"
