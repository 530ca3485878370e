"""Requests that are refused: the reason and its status in HTTP's numbers."""

from flow2onnx_runtime import FlowError

__all__ = ["RequestError"]


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

    @property
    def text(self) -> str:
        """The message and the hint in one line."""
        return f"{self.message} ({self.hint})" if self.hint else self.message
