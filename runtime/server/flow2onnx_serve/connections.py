"""HTTP connections whose clients have only so much time, around those of the HTTP server."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from http import HTTPStatus
from time import monotonic
from typing import Any

from uvicorn import Config

from flow2onnx_serve.errors import RequestError
from flow2onnx_serve.http_encoding import dump

__all__ = ["CONNECTION", "Connection", "limit_connections"]

# That of the request which is being answered; None where there is no connection of ours.
CONNECTION: ContextVar["Connection | None"] = ContextVar("flow2onnx.connection", default=None)

_HEAD_LIMIT = 64 * 1024  # bytes of a request's line and headers
_LINGER = 1.0  # seconds in which a client that still sends may read why it is refused
_TOO_LARGE = "the request's head is too large"


class _Transport:
    """A transport that sends what is written in one turn of the loop as one piece.

    An answer's head and body are one system call so, and reach the client together.
    """

    def __init__(self, transport: Any) -> None:  # asyncio's or uvloop's
        self._transport = transport
        self._parts: list[bytes] = []

    def __getattr__(self, name: str) -> Any:  # all else is the transport's own
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send data at the end of this turn."""
        if not self._parts:
            asyncio.get_running_loop().call_soon(self.flush)
        self._parts.append(data)

    def close(self) -> None:
        """Close behind what was written."""
        self.flush()
        self._transport.close()

    def flush(self) -> None:
        """Send now what was written."""
        if self._parts:
            self._transport.writelines(self._parts)
            self._parts = []


class Connection(asyncio.Protocol):
    """Ends a connection whose request's head takes too long or too much, or whose client does not
    read its answer; `inner`, the HTTP server's protocol, does everything else. `count` is told the
    status of what is refused here.

    The application tells when a head has come (`begin`) and when it is answered (`end`): whatever
    arrives in between belongs to a body, whatever arrives at another time to the next head.
    """

    def __init__(self, inner: Any, patience: float, count: Callable[[int], None]) -> None:
        self._inner, self._patience, self._count = inner, patience, count
        self._transport: Any = None  # has no type either
        self._since: float | None = None  # when the head that is awaited began
        self._head = self._unread = self._requests = 0
        self._is_over = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Wait for a head, but not for ever."""
        self._transport, self._since = _Transport(transport), monotonic()
        self._watch()
        self._inner.connection_made(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Watch no longer."""
        if self._timer is not None:
            self._timer.cancel()
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass on what the client sent; after a as_request_error it no longer matters."""
        if self._is_over:
            return
        if not self._requests:
            self._since = self._since or monotonic()
            self._head += len(data)
        token = CONNECTION.set(self)  # the task that answers keeps it
        try:
            self._inner.data_received(data)
        finally:
            CONNECTION.reset(token)
        if self._head > _HEAD_LIMIT:  # unless a request begins now: then some was its body
            asyncio.get_running_loop().call_soon(self._check_head)

    def eof_received(self) -> bool | None:
        """Pass on that the client sends no more, which ends the connection."""
        self._transport.flush()
        keeps_open: bool | None = self._inner.eof_received()
        return keeps_open

    def pause_writing(self) -> None:
        """Pass on that the client does not read."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that it does again."""
        self._inner.resume_writing()

    def begin(self, size: int) -> None:
        """Note that a head of so many bytes has come; raises `RequestError` if it is too large."""
        self._requests += 1
        self._since, self._head = None, 0
        if size > _HEAD_LIMIT:
            raise RequestError(_TOO_LARGE, 431)

    def end(self) -> None:
        """Note that a request is answered."""
        self._requests -= 1

    def _check_head(self) -> None:
        if self._head > _HEAD_LIMIT:
            self._refuse(431, _TOO_LARGE)

    def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._patience / 2, self._look)

    def _look(self) -> None:
        """End what takes too long."""
        if self._since is not None and monotonic() - self._since > self._patience:
            self._refuse(408, "the request's head did not arrive in time")
        before, self._unread = self._unread, self._transport.get_write_buffer_size()
        if before and self._unread == before:
            self._transport.abort()
        self._watch()

    def _refuse(self, status: int, text: str) -> None:
        """Answer, and close soon: closing at once would take back what was just sent."""
        if self._is_over or self._transport.is_closing():
            return
        self._is_over = True
        self._count(status)
        body = dump({"error": text})
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self._transport.write(head.encode() + body)
        self._transport.flush()
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._transport.resume_reading()
        asyncio.get_running_loop().call_later(_LINGER, self._transport.close)


def limit_connections(config: Config, seconds: float, count: Callable[[int], None]) -> None:
    """Let a server's clients have so much time: for a head, and between reads of an answer.

    `count` is told the status of each refusal.
    """
    config.load()
    inner: Any = config.http_protocol_class

    def connect(**options: Any) -> Connection:  # whatever the server gives its protocols
        return Connection(inner(**options), seconds, count)

    config.http_protocol_class = connect  # type: ignore[assignment]  # is only called
