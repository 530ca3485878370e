"""One HTTP connection: uvicorn's, with patience that ends."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from flow2onnx.server.http import Application, Reply, refused
from flow2onnx.server.problem import RequestError
from flow2onnx.server.wire import dump

__all__ = ["connection_class"]

_HEAD_LIMIT = 64 * 1024  # bytes of a request's line and headers
_LINGER = 1.0  # seconds in which a client that still sends may read why it is refused


class _Whole:
    """A transport that keeps an answer's head until its body comes: one packet, one system call."""

    __slots__ = ("_head", "_transport")

    def __init__(self, transport: Any) -> None:
        self._transport, self._head = transport, b""

    def write(self, data: bytes) -> None:
        """Send all but a head, which goes with what follows it."""
        is_head = data.startswith(b"HTTP/1.1 ") and data.endswith(b"\r\n\r\n")
        if is_head and not self._head and not data.startswith(b"HTTP/1.1 1"):
            self._head = data
            return
        self._transport.write(self._head + data)
        self._head = b""

    def close(self) -> None:
        """Close, after what was kept."""
        if self._head:
            self._transport.write(self._head)
        self._transport.close()

    def is_closing(self) -> bool:
        """Whether it is closed, or soon will be."""
        return bool(self._transport.is_closing())


class _Post:
    """A POST that the connection answers itself, in the place of uvicorn's cycle.

    A task, a scope and five messages less: half of what a small request costs.
    """

    __slots__ = ("disconnected", "headers", "held", "is_asked", "keep_alive", "more_body", "parts",
                 "response_complete", "size", "url")  # fmt: skip

    def __init__(self, url: bytes, headers: list[tuple[bytes, bytes]], keep_alive: bool) -> None:
        self.url, self.headers, self.keep_alive = url, headers, keep_alive
        self.parts: list[bytes] = []
        self.size = self.held = 0
        self.more_body = True
        self.response_complete = self.disconnected = self.is_asked = False

    @property
    def message_event(self) -> "_Post":
        """What uvicorn tells that the client is gone."""
        return self

    def set(self) -> None:
        """Nobody waits for it."""


class _Connection(HttpToolsProtocol):
    """Ends a connection whose request's head takes too long or too much, or whose client does not
    read its answer; a request that is no HTTP gets the protocol's error.
    """

    patience: float  # seconds for a head or a body, and for any part of an answer to be read
    application: Application
    cycle: Any  # uvicorn's, or a _Post

    def connection_made(self, transport: Any) -> None:  # a transport of asyncio or uvloop
        super().connection_made(transport)
        self._head, self._unread, self._is_over = 0, 0, False
        self._is_in_head = True
        self._deadline: asyncio.TimerHandle | None = None
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrived()
        post = self.cycle
        if type(post) is _Post and not post.is_asked:
            self._let_go(post)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Called with what the client sent; after a refusal it no longer matters."""
        if self._is_over:
            return
        super().data_received(data)
        post = self.cycle
        if self._is_in_head or (type(post) is _Post and post.more_body):
            self._expect()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head, self._is_in_head = 0, True

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._grow(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._grow(len(name) + len(value))

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._arrived()
        before = self.cycle
        is_busy = before is not None and not before.response_complete
        parser = self.parser
        if (
            is_busy or self.expect_100_continue or parser.get_method() != b"POST"
            or b"/infer" not in self.url or parser.should_upgrade()
        ):  # fmt: skip
            super().on_headers_complete()
            self.cycle.transport = _Whole(self.transport)
            return
        keep_alive = parser.get_http_version() != "1.0" and parser.should_keep_alive()
        post = _Post(self.url, self.headers, keep_alive)
        self.cycle = post
        announced = next((v for n, v in self.headers if n == b"content-length"), b"")
        if announced.isdigit() and int(announced[:20]) > self.application.max_body:
            self._refuse_post(post, self._too_large())

    def on_body(self, body: bytes) -> None:
        post = self.cycle
        if type(post) is not _Post:
            super().on_body(body)
            return
        if post.response_complete:
            return
        post.size += len(body)
        try:
            if post.size > self.application.max_body:
                raise self._too_large()
            self.application.hold(len(body))
        except RequestError as error:
            self._refuse_post(post, error)
            return
        post.held += len(body)
        post.parts.append(body)

    def on_message_complete(self) -> None:
        post = self.cycle
        if type(post) is not _Post:
            super().on_message_complete()
            return
        post.more_body = False
        self._arrived()
        if post.response_complete or self._is_over:
            return
        post.is_asked = True
        task = self.loop.create_task(self._answer(post))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _answer(self, post: _Post) -> None:
        parts = post.parts
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        post.parts = []
        try:
            reply = await self.application.inferred(post.url, post.headers, body)
        finally:
            self._let_go(post)
        if reply is None:
            reply = refused(RequestError("Not Found", 404))
        self._reply(post, reply)

    def _reply(self, post: _Post, reply: Reply) -> None:
        if post.disconnected or self.transport.is_closing():
            return
        status, body, fields = reply
        parts = [STATUS_LINE[status]]
        for name, value in (*self.server_state.default_headers, *fields):
            parts += (name, b": ", value, b"\r\n")
            if name == b"connection":
                post.keep_alive = False
        if not post.keep_alive and b"connection" not in parts:
            parts.append(b"connection: close\r\n")
        parts += (b"content-length: %d\r\n\r\n" % len(body), body)
        self.transport.write(b"".join(parts))
        post.response_complete = True
        if not post.keep_alive and not post.more_body:
            self.transport.close()
        self.on_response_complete()

    def _refuse_post(self, post: _Post, error: RequestError) -> None:
        """Answer before the body has come, and end."""
        self._let_go(post)
        self._reply(post, refused(error, (b"connection", b"close")))

    def _let_go(self, post: _Post) -> None:
        post.parts = []
        self.application.hold(-post.held)
        post.held = 0

    def _too_large(self) -> RequestError:
        return RequestError(f"the body is larger than {self.application.max_body} bytes", 413)

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

    def _expect(self) -> None:
        """Wait for the rest of a head or a body, but not for ever."""
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.patience, self._too_slow)

    def _arrived(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        if self._is_in_head:
            self._refuse(b"408 Request Timeout", "the request's head did not arrive in time")
        elif type(post := self.cycle) is _Post and not post.response_complete:
            self._refuse_post(post, RequestError("the body did not arrive in time", 408))

    def _grow(self, size: int) -> None:
        self._head += size
        if self._head > _HEAD_LIMIT:
            text = "the request's head is too large"
            self._refuse(b"431 Request Header Fields Too Large", text)
            raise ValueError(text)  # ends the parser

    def _refuse(self, status: bytes, text: str) -> None:
        self._arrived()
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


def connection_class(seconds: float, application: Application) -> type[_Connection]:
    """The class of connections to an application whose clients have so much time."""
    return type("Connection", (_Connection,), {"patience": seconds, "application": application})
