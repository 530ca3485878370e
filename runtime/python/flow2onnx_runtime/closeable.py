"""A base of classes with a `close`, for `with` statements."""

from types import TracebackType
from typing import Self

__all__ = ["Closeable"]


class Closeable:
    """Has a `close`, which the end of a `with` calls, also after an error."""

    def close(self) -> None:
        """Let go of what is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
