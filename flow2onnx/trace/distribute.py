"""Distribution hints: compared by value, and without effect on one device."""

from dataclasses import dataclass

from flow2onnx.errors import ArgumentError

__all__ = ["Distribute", "auto", "broadcast", "split"]


@dataclass(frozen=True)
class Distribute:
    """How a blob lies on several devices: split along an axis, copied, or as the compiler likes."""

    kind: str
    axis: int | None = None

    def __str__(self) -> str:
        return f"S({self.axis})" if self.kind == "split" else self.kind[0].upper()


def split(axis: int) -> Distribute:
    """Split along `axis`."""
    if not isinstance(axis, int) or axis < 0:
        raise ArgumentError(f"axis is 0 or more, got {axis!r}")
    return Distribute("split", axis)


def broadcast() -> Distribute:
    """A copy on each device."""
    return Distribute("broadcast")


def auto() -> Distribute:
    """As the compiler likes."""
    return Distribute("auto")
