"""Every public operator under its OneFlow name. Filled when the operator modules are imported."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flow2onnx.errors import UnsupportedError

__all__ = ["Entry", "entries", "operator", "register"]


@dataclass(frozen=True)
class Entry:
    """One public symbol: its dotted name below `flow`, and the function users call."""

    name: str
    function: Callable[..., Any]


_ENTRIES: dict[str, Entry] = {}


def register(name: str, function: Callable[..., Any]) -> None:
    """Publish `function` as ``flow.<name>``."""
    assert name not in _ENTRIES, f"flow.{name} is registered twice"
    _ENTRIES[name] = Entry(name, function)


def operator(name: str) -> Callable[..., Any]:
    """The public function ``flow.<name>``."""
    if name not in _ENTRIES:
        raise UnsupportedError(f"flow.{name} is not available")
    return _ENTRIES[name].function


def entries() -> dict[str, Entry]:
    """All public symbols by name."""
    return dict(_ENTRIES)
