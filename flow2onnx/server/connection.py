"""One HTTP connection: uvicorn's, with patience that ends."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from flow2onnx.server.wire import dump

__all__ = ["connection_class"]

_HEAD_LIMIT = 64 * 1024  # bytes of a request's line and headers
_LINGER = 1.0  # seconds in which a client that still sends may read why it is refused


class _Connection(HttpToolsProtocol):
    """Ends a connection whose request's head takes too long or too much, or whose client does not
    read its answer; a request that is no HTTP gets the protocol's error.
    """

    patience: float  # seconds for a head, and for any part of an answer to be read

    def connection_made(self, transport: Any) -> None:  # a transport of asyncio or uvloop
        super().connection_made(transport)
        self._head, self._unread, self._is_over = 0, 0, False
        self._deadline: asyncio.TimerHandle | None = None
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_ends()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Called with what the client sent; after a refusal it no longer matters."""
        if not self._is_over:
            super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect_head()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._grow(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._grow(len(name) + len(value))

    def on_headers_complete(self) -> None:
        self._head_ends()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Called after an answer: who has not sent all of a refused request is done."""
        if self.cycle.response_complete and self.cycle.more_body:
            self._end()
        super().on_response_complete()

    def timeout_keep_alive_handler(self) -> None:
        """Called some time after an answer: it may not have been read yet."""
        unread = self.transport.get_write_buffer_size()
        if unread and unread == self._unread:
            self.transport.abort()
        elif unread:
            self._unread = unread
            self.timeout_keep_alive_task = self.loop.call_later(
                self.patience, self.timeout_keep_alive_handler
            )
        else:
            super().timeout_keep_alive_handler()

    def send_400_response(self, msg: str) -> None:
        self._refuse(b"400 Bad Request", msg)

    def _expect_head(self) -> None:
        self._head = 0
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.patience, self._too_slow)

    def _head_ends(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        self._refuse(b"408 Request Timeout", "the request's head did not arrive in time")

    def _grow(self, size: int) -> None:
        self._head += size
        if self._head > _HEAD_LIMIT:
            text = "the request's head is too large"
            self._refuse(b"431 Request Header Fields Too Large", text)
            raise ValueError(text)  # ends the parser

    def _refuse(self, status: bytes, text: str) -> None:
        self._head_ends()
        if self._is_over or self.transport.is_closing():
            return
        body = dump({"error": text})
        self.transport.write(
            b"HTTP/1.1 " + status + b"\r\ncontent-type: application/json\r\ncontent-length: "
            + str(len(body)).encode() + b"\r\nconnection: close\r\n\r\n" + body
        )  # fmt: skip
        self._end()

    def _end(self) -> None:
        """Send no more, and close soon: closing at once would take back what was just sent."""
        self._is_over = True
        if self.transport.can_write_eof() and not self.transport.is_closing():
            self.transport.write_eof()
        self.flow.resume_reading()
        self.loop.call_later(_LINGER, self.transport.close)


def connection_class(seconds: float) -> type[_Connection]:
    """The class of connections whose clients have so much time."""
    return type("Connection", (_Connection,), {"patience": seconds})
