"""HTTP connections that have only so much time and room, around those of the HTTP server."""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from http import HTTPStatus
from time import monotonic
from typing import Any

from uvicorn import Config

from flow2onnx_serve.errors import RequestError
from flow2onnx_serve.http_encoding import dump

__all__ = ["CONNECTION", "Connection", "Door", "limit_connections", "limit_handshakes"]

# That of the request which is being answered; None where there is no connection of ours.
CONNECTION: ContextVar["Connection | None"] = ContextVar("flow2onnx.connection", default=None)

_HEAD_LIMIT = 64 * 1024  # bytes of a request's line and headers
_LINGER = 1.0  # seconds in which a client that still sends may read why it is refused
_TOO_LARGE = "the request's head is too large"
_SLICE = 8192  # bytes that are read for one client before others have their turn
_CLIENT = 2  # the part of all connections that one client may have


@dataclass
class Door:
    """Who may connect, and for how long: `most` connections, half of them from one address.

    A client has `patience` seconds for a head, and to take some of an answer. `count` is told the
    status of what is refused.
    """

    most: int
    patience: float
    count: Callable[[int], None]
    clients: Counter[str] = field(default_factory=Counter)

    def enter(self, client: str) -> RequestError | None:
        """Count a connection; returns why it must not stay."""
        self.clients[client] += 1
        if self.clients.total() > self.most:
            return RequestError("there are too many connections", 503, retry_after=1)
        if self.clients[client] > max(1, self.most // _CLIENT):
            return RequestError("there are too many connections of this client", 429, retry_after=1)
        return None

    def leave(self, client: str) -> None:
        """Count a connection that has ended."""
        self.clients[client] -= 1
        if not self.clients[client]:
            del self.clients[client]


class _Transport:
    """A transport that sends what is written in one turn of the loop as one piece.

    An answer's head and body are one system call so, and reach the client together. `read` is told
    whether the HTTP server wants to read on.
    """

    def __init__(self, transport: Any, read: Callable[[bool], None]) -> None:
        self._transport, self._read = transport, read  # asyncio's or uvloop's
        self._parts: list[bytes] = []
        self._is_mute = self._is_paused = False

    def __getattr__(self, name: str) -> Any:  # all else is the transport's own
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send data at the end of this turn."""
        if self._is_mute or not data:
            return
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

    def mute(self) -> None:
        """Send nothing more."""
        self._is_mute = True

    def pause_reading(self) -> None:
        """Read no more for a while."""
        self._read(False)
        self._is_paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on, first what is there already."""
        self._read(True)

    def read_on(self) -> None:
        """Let the client send more."""
        if self._is_paused and not self._transport.is_closing():
            self._is_paused = False
            self._transport.resume_reading()


class Connection(asyncio.Protocol):
    """Ends a connection whose request's head takes too long or too much, or whose client does not
    read its answer; `inner`, the HTTP server's protocol, does everything else.

    The application tells when a head has come (`begin`) and when it is answered (`end`): whatever
    arrives in between belongs to a body, whatever arrives at another time to the next head. Once
    the client has left, what answers it is cancelled.
    """

    def __init__(self, inner: Any, door: Door) -> None:
        self._inner, self._door = inner, door
        self._client = ""
        self._transport: Any = None  # has no type either
        self._since: float | None = None  # when the head that is awaited began
        self._head = self._unread = 0
        self._rest = b""  # that was received and not passed on
        self._reads = True
        self._tasks: set[asyncio.Task[Any]] = set()
        self.is_over = self.is_refused = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Wait for a head, but not for ever."""
        self._transport = _Transport(transport, self._read)
        self._client = (transport.get_extra_info("peername") or ("",))[0]
        if (problem := self._door.enter(self._client)) is not None:
            self._refuse(problem)
            self._transport.close()  # not later: there are too many
            return
        self._since = monotonic()
        self._inner.send_400_response = self._refuse_text
        self._watch()
        self._inner.connection_made(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Watch no longer, and let nobody work for a client that has left."""
        self._door.leave(self._client)
        self._transport.mute()
        self.is_over = True
        if self._timer is None:
            return
        self._timer.cancel()
        self._inner.connection_lost(exc)
        for task in self._tasks:
            task.cancel()

    def data_received(self, data: bytes) -> None:
        """Pass on what the client sent; after a refusal it no longer matters."""
        if not self.is_over:
            self._rest = self._rest + data if self._rest else data
            self._pass_on()

    def eof_received(self) -> bool | None:
        """Pass on that the client sends no more, which ends the connection."""
        self._transport.flush()
        if self._timer is None:
            return None
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
        task = asyncio.current_task()
        assert task is not None, "requests are answered by tasks"
        self._tasks.add(task)
        self._since, self._head = None, 0
        if size > _HEAD_LIMIT:
            raise RequestError(_TOO_LARGE, 431)

    def end(self) -> None:
        """Note that a request is answered."""
        if (task := asyncio.current_task()) is not None:
            self._tasks.discard(task)

    async def flush(self) -> None:
        """Send what was written as far as the client takes it: writing is paused if it does not."""
        self._transport.flush()
        await asyncio.sleep(0)  # uvloop sends at the end of the turn

    def _read(self, wants: bool) -> None:
        self._reads = wants
        if wants:
            # not now: whoever wants it is in the middle of something
            asyncio.get_running_loop().call_soon(self._pass_on)

    def _pass_on(self) -> None:
        """Give the HTTP server what it wants to read; it stops where a request must wait."""
        data, at = self._rest, 0
        self._rest = b""
        while at < len(data) and self._reads and not self.is_over:
            part = data[at : at + _SLICE]
            at += _SLICE
            self._give(part)
        if self.is_over:
            return
        self._rest = data[at:] + self._rest
        if self._reads:
            self._transport.read_on()

    def _give(self, data: bytes) -> None:
        if not self._tasks:
            self._since = self._since or monotonic()
            self._head += len(data)
        token = CONNECTION.set(self)  # the task that answers keeps it
        try:
            self._inner.data_received(data)
        finally:
            CONNECTION.reset(token)
        if self._head > _HEAD_LIMIT:  # unless a request begins now: then some was its body
            asyncio.get_running_loop().call_soon(self._check_head)

    def _check_head(self) -> None:
        if self._head > _HEAD_LIMIT:
            self._refuse(RequestError(_TOO_LARGE, 431))

    def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._door.patience / 2, self._look)

    def _look(self) -> None:
        """End what takes too long."""
        if self._since is not None and monotonic() - self._since > self._door.patience:
            self._refuse(RequestError("the request's head did not arrive in time", 408))
        before, self._unread = self._unread, self._transport.get_write_buffer_size()
        if before and self._unread == before:
            self._transport.abort()
        self._watch()

    def _refuse_text(self, text: str) -> None:
        """Answer what the HTTP server cannot read, in its words: the protocol begins behind it."""
        self._refuse(RequestError(text, 400), "text/plain; charset=utf-8", text.encode())

    def _refuse(
        self, error: RequestError, kind: str = "application/json", body: bytes = b""
    ) -> None:
        """Answer, and close soon: closing at once would take back what was just sent."""
        if self.is_over or self._transport.is_closing():
            return
        self.is_over = self.is_refused = True
        self._door.count(error.status)
        body = body or dump({"error": error.text})
        retry = "" if error.retry_after is None else f"retry-after: {error.retry_after}\r\n"
        head = (
            f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\n"
            f"content-type: {kind}\r\n{retry}"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self._transport.write(head.encode() + body)
        self._transport.flush()
        self._transport.mute()
        for task in self._tasks:
            task.cancel()
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._transport.read_on()
        asyncio.get_running_loop().call_later(_LINGER, self._transport.close)


def limit_connections(config: Config, door: Door) -> None:
    """Let a server's clients through this door."""
    config.load()
    inner: Any = config.http_protocol_class

    def connect(**options: Any) -> Connection:  # whatever the server gives its protocols
        return Connection(inner(**options), door)

    config.http_protocol_class = connect  # type: ignore[assignment]  # is only called


def limit_handshakes(
    make: Callable[[], asyncio.AbstractEventLoop], seconds: float
) -> Callable[[], asyncio.AbstractEventLoop]:
    """A maker of event loops on which clients have so much time to agree on TLS, and to end it."""

    def made() -> asyncio.AbstractEventLoop:
        loop = make()
        create: Any = loop.create_server

        async def create_server(*arguments: Any, ssl: Any = None, **options: Any) -> Any:
            if ssl is not None:
                options |= {"ssl_handshake_timeout": seconds, "ssl_shutdown_timeout": seconds}
            return await create(*arguments, ssl=ssl, **options)

        loop.create_server = create_server  # type: ignore[method-assign]  # uvicorn passes no time
        return loop

    return made
