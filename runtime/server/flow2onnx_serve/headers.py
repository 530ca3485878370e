"""The headers of a request over HTTP, as ASGI has them: names in small letters."""

from collections.abc import Iterable

__all__ = ["Headers", "values_of"]

Headers = Iterable[tuple[bytes, bytes]]


def values_of(name: bytes, headers: Headers) -> list[bytes]:
    """The values of all headers of that name, in their order."""
    return [value for key, value in headers if key == name]
