"""OneFlow's releases: the one that stands for each generation, and their order."""

__all__ = ["GENERATIONS", "is_older"]

# The OneFlow release that stands for each generation: where signatures or meanings differ between
# releases, a job follows the release its spec names.
GENERATIONS = {"a": "0.0.1", "b": "0.1.4", "c": "0.4.0"}


def is_older(release: str, other: str) -> bool:
    """True if a release came before another."""
    return _version(release) < _version(other)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))
