"""Requests that are refused: the reason and its status in HTTP's numbers."""

from functools import partial
from typing import Any

from flow2onnx_runtime import FlowError

__all__ = ["LEFT", "RequestError"]

LEFT = 499  # no client waits any more; nginx counts them so


class RequestError(FlowError):
    """A request that gets an error for an answer; `status` is HTTP's, whatever the protocol.

    `retry_after` says in how many seconds the same request may succeed.
    """

    def __init__(
        self,
        message: str,
        status: int = 400,
        *,
        hint: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.status, self.retry_after = status, retry_after

    def __reduce__(self) -> tuple[Any, ...]:  # an exception is copied by its message alone
        make = partial(RequestError, hint=self.hint, retry_after=self.retry_after)
        return make, (self.message, self.status)

    @property
    def text(self) -> str:
        """The message and the hint in one line."""
        return f"{self.message} ({self.hint})" if self.hint else self.message
