"""gRPC over HTTP/2 on the event loop itself: connections, and the calls on them."""

import asyncio
import contextlib
import logging
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

from flow2onnx.server.frames import (
    Fault,
    Flag,
    HeaderReader,
    Kind,
    Reason,
    Setting,
    block,
    frame,
    parse_settings,
    settings_frame,
    unpadded,
)

__all__ = ["CODES", "CallError", "Connection", "Host", "Method", "seconds"]

_log = logging.getLogger("flow2onnx.server")

Headers = Mapping[str, str]
CODES = {"OK": 0, "UNKNOWN": 2, "INVALID_ARGUMENT": 3, "DEADLINE_EXCEEDED": 4, "NOT_FOUND": 5,
         "RESOURCE_EXHAUSTED": 8, "UNIMPLEMENTED": 12, "INTERNAL": 13, "UNAVAILABLE": 14,
         "UNAUTHENTICATED": 16}  # fmt: skip

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_FRAME = 1 << 18  # bytes of a frame that we take
_WINDOW = 1 << 22  # bytes of a call that may be on the way to us
_WIDE = 1 << 24  # the same for a whole connection
_HEAD_LIMIT = 64 * 1024
_CALLS = 1024  # of a connection at once
_PATIENCE = 20_000  # frames without a call between them
_LARGEST = 2**31 - 1
_UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}

_TYPE = ("content-type", "application/grpc")
_BEGIN = block([_TYPE], 200)
_GOOD = block([("grpc-status", "0")])


class CallError(Exception):
    """A call that ends with another status than OK."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


@dataclass(frozen=True)
class Method:
    """What answers calls: one message for one, or a stream of them for a stream."""

    unary: Callable[[bytes, Headers], Awaitable[bytes]] | None = None
    stream: Callable[[AsyncIterator[bytes], Headers], AsyncIterator[bytes]] | None = None


@dataclass(frozen=True)
class Host:
    """What all connections of a server share: `hold` counts bytes that unfinished calls hold."""

    methods: Mapping[str, Method]
    hold: Callable[[int], None]
    largest: int  # bytes of a message
    patience: float  # seconds for a client to send a message, or to take an answer
    connections: "set[Connection]"


class _Call:
    """One stream: what came of its request, and what of its answer has not gone out."""

    __slots__ = ("body", "drained", "headers", "held", "id", "is_whole", "messages", "method",
                 "moved", "pending", "taken", "task", "trailers", "unread", "window")  # fmt: skip

    def __init__(self, stream: int, headers: Headers, method: Method, window: int) -> None:
        self.id, self.headers, self.method, self.window = stream, headers, method, window
        self.body, self.pending = bytearray(), bytearray()
        self.messages: asyncio.Queue[bytes | None] | None = None
        self.task: asyncio.Task[None] | None = None
        self.drained: asyncio.Future[None] | None = None
        self.trailers: bytes | None = None
        self.is_whole = False  # whether the client has sent everything
        self.moved = monotonic()  # when the last message began, or part of the answer went
        self.held = self.unread = 0


class Connection(asyncio.Protocol):
    """A client's connection."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._calls: dict[int, _Call] = {}
        self._reader = HeaderReader(_HEAD_LIMIT)
        self._rest = b""
        self._since = monotonic()  # when the oldest unfinished frame began
        self._open: tuple[int, int, bytearray] | None = None  # headers that go on: stream, flags
        self._is_greeted = self._is_leaving = self._is_full = False
        self._last = self._unread = self._idle_frames = 0
        self._window = self._first_window = 65535
        self._frame = 16384
        self._watch: asyncio.TimerHandle | None = None

    # -- the transport's calls

    def connection_made(self, transport: Any) -> None:  # asyncio's or uvloop's
        """Greet the client."""
        self._transport, self._loop = transport, asyncio.get_running_loop()
        self._host.connections.add(self)
        wide = (_WIDE - 65535).to_bytes(4, "big")
        told = {Setting.STREAMS: _CALLS, Setting.WINDOW: _WINDOW, Setting.FRAME_SIZE: _FRAME,
                Setting.LIST_SIZE: _HEAD_LIMIT}  # fmt: skip
        transport.write(settings_frame(told) + frame(Kind.WINDOW, 0, 0, wide))
        self._keep_watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget what was asked."""
        self._host.connections.discard(self)
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        for call in list(self._calls.values()):
            self._drop(call)

    def pause_writing(self) -> None:
        """The client does not read."""
        self._is_full, self._since_full = True, monotonic()
        self._transport.pause_reading()
        self._keep_watch()

    def resume_writing(self) -> None:
        """It does again."""
        self._is_full = False
        self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Take all frames that are whole."""
        if self._transport.is_closing():
            return
        if self._rest:
            data = self._rest + data
        else:
            self._since = monotonic()
        try:
            self._rest = data[self._frames(data) :]
        except Fault as fault:
            self._leave(fault.reason)
            self._transport.close()
            return
        if self._rest:
            self._keep_watch()

    # -- frames

    def _frames(self, data: bytes) -> int:
        """Read frames; returns how many bytes they took."""
        at = 0
        if not self._is_greeted:
            if data[:24] != _PREFACE[: len(data)]:
                raise Fault(Reason.PROTOCOL, "no HTTP/2")
            if len(data) < 24:
                return 0
            self._is_greeted, at = True, 24
        size = len(data)
        while size - at >= 9:
            length = int.from_bytes(data[at : at + 3], "big")
            if length > _FRAME:
                raise Fault(Reason.FRAME_SIZE, "a frame is too long")
            end = at + 9 + length
            if end > size:
                break
            stream = int.from_bytes(data[at + 5 : at + 9], "big") & _LARGEST
            self._take(data[at + 3], data[at + 4], stream, data[at + 9 : end])
            at = end
            self._since = monotonic()
        return at

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if self._open is not None and (kind != Kind.CONTINUATION or stream != self._open[0]):
            raise Fault(Reason.PROTOCOL, "a frame within headers")
        self._idle_frames += 1
        if self._idle_frames > _PATIENCE:
            raise Fault(Reason.CALM, "too many frames")
        if kind == Kind.DATA:
            self._take_data(flags, stream, payload)
        elif kind == Kind.HEADERS:
            self._take_headers(flags, stream, payload)
        elif kind == Kind.WINDOW:
            self._widen(stream, payload)
        elif kind == Kind.SETTINGS:
            self._take_settings(flags, stream, payload)
        elif kind == Kind.PING:
            self._take_ping(flags, stream, payload)
        elif kind == Kind.RESET:
            self._take_reset(stream, payload)
        elif kind == Kind.CONTINUATION:
            self._continue(flags, payload)
        elif kind == Kind.PUSH:
            raise Fault(Reason.PROTOCOL, "a client pushes")

    def _take_settings(self, flags: int, stream: int, payload: bytes) -> None:
        if stream or (flags & Flag.ACK and payload):
            raise Fault(Reason.PROTOCOL, "settings of a stream")
        if flags & Flag.ACK:
            return
        told = parse_settings(payload)
        window = told.get(Setting.WINDOW, self._first_window)
        if window > _LARGEST:
            raise Fault(Reason.FLOW_CONTROL, "a window too wide")
        for call in self._calls.values():
            call.window += window - self._first_window
        self._first_window = window
        self._frame = min(max(told.get(Setting.FRAME_SIZE, self._frame), 16384), 1 << 20)
        self._transport.write(frame(Kind.SETTINGS, Flag.ACK, 0))
        self._send_all()

    def _take_ping(self, flags: int, stream: int, payload: bytes) -> None:
        if stream or len(payload) != 8:
            raise Fault(Reason.PROTOCOL, "no ping")
        if not flags & Flag.ACK:
            self._transport.write(frame(Kind.PING, Flag.ACK, 0, payload))

    def _take_reset(self, stream: int, payload: bytes) -> None:
        if not stream or stream > self._last or len(payload) != 4:
            raise Fault(Reason.PROTOCOL, "a reset of nothing")
        if stream in self._calls:
            self._drop(self._calls[stream])

    def _widen(self, stream: int, payload: bytes) -> None:
        more = int.from_bytes(payload, "big") & _LARGEST
        if len(payload) != 4 or not more:
            raise Fault(Reason.PROTOCOL, "a window that does not widen")
        if not stream:
            self._window += more
            if self._window > _LARGEST:
                raise Fault(Reason.FLOW_CONTROL, "a window too wide")
            self._send_all()
        elif (call := self._calls.get(stream)) is not None:
            call.window += more
            self._send(call)

    def _take_headers(self, flags: int, stream: int, payload: bytes) -> None:
        payload = unpadded(payload, flags)
        if flags & Flag.PRIORITY:
            payload = payload[5:]
        if flags & Flag.END_HEADERS:
            self._begin(stream, flags, payload)
        else:
            self._open = (stream, flags, bytearray(payload))

    def _continue(self, flags: int, payload: bytes) -> None:
        if self._open is None:
            raise Fault(Reason.PROTOCOL, "headers that nothing began")
        stream, first, data = self._open
        data += payload
        if len(data) > _HEAD_LIMIT:
            raise Fault(Reason.CALM, "headers are too large")
        if flags & Flag.END_HEADERS:
            self._open = None
            self._begin(stream, first, bytes(data))

    def _begin(self, stream: int, flags: int, data: bytes) -> None:
        headers = self._reader.read(data)
        if stream in self._calls and flags & Flag.END_STREAM:  # a request's trailers
            self._whole(self._calls[stream])
            return
        if stream <= self._last or not stream % 2:
            raise Fault(Reason.PROTOCOL, "a stream that cannot begin")
        self._last = stream
        if self._is_leaving or len(self._calls) >= _CALLS:
            self._reset(stream, Reason.REFUSED)
            return
        method = self._host.methods.get(headers.get(":path", ""))
        call = _Call(stream, headers, method or Method(), self._first_window)
        self._calls[stream] = call
        if not headers.get("content-type", "").startswith("application/grpc"):
            self._write_trailers(call, block([("content-length", "0")], 415))
        elif method is None:
            self._refuse(call, "UNIMPLEMENTED", f"unknown method {headers.get(':path')!r}")
        elif method.stream is not None:
            call.messages = asyncio.Queue()
            call.task = self._loop.create_task(self._streamed(call, method.stream))
        if flags & Flag.END_STREAM and stream in self._calls:
            self._whole(call)
        elif self._watch is None:
            self._keep_watch()

    def _take_data(self, flags: int, stream: int, payload: bytes) -> None:
        size = len(payload)
        self._unread += size
        if self._unread > _WIDE // 2:
            self._credit(0, self._unread)
            self._unread = 0
        call = self._calls.get(stream)
        if call is None or call.is_whole:
            if not stream or stream > self._last:
                raise Fault(Reason.PROTOCOL, "data of no stream")
            return  # of a call that has its answer already
        call.body += unpadded(payload, flags)
        is_end = bool(flags & Flag.END_STREAM)
        try:
            self._host.hold(size)
            call.held += size
            if len(call.body) >= 5:
                self._check_size(call)
            if call.messages is not None:
                while (message := self._message(call)) is not None:
                    call.messages.put_nowait(message)
                    call.moved = monotonic()
        except CallError as error:
            self._refuse(call, error.code, error.text)
            return
        call.unread += size
        if not is_end and call.unread > _WINDOW // 2:
            self._credit(stream, call.unread)
            call.unread = 0
        if is_end:
            self._whole(call)

    def _check_size(self, call: _Call) -> None:
        length = int.from_bytes(call.body[1:5], "big")
        if length > self._host.largest:
            raise CallError("RESOURCE_EXHAUSTED",
                            f"the message is larger than {self._host.largest} bytes")  # fmt: skip
        if call.messages is None and len(call.body) > length + 5:
            raise CallError("INTERNAL", "more than one message")

    def _message(self, call: _Call) -> bytes | None:
        """The first whole message of a call, unpacked; None if there is none yet."""
        body = call.body
        if len(body) < 5:
            return None
        end = 5 + int.from_bytes(body[1:5], "big")
        if len(body) < end:
            return None
        is_packed, message = body[0], bytes(memoryview(body)[5:end])
        if len(body) == end:
            call.body = bytearray()
        else:
            del body[:end]
        if not is_packed:
            return message
        return _unpacked(message, call.headers.get("grpc-encoding", ""), self._host.largest)

    def _whole(self, call: _Call) -> None:
        """The client has sent all of a request."""
        call.is_whole = True
        if call.messages is not None:
            call.messages.put_nowait(None)
        elif call.method.unary is not None and call.task is None:
            call.task = self._loop.create_task(self._answered(call, call.method.unary))

    # -- answers

    async def _answered(self, call: _Call, answer: Callable[..., Awaitable[bytes]]) -> None:
        try:
            message = self._message(call)
            if message is None:
                raise CallError("INTERNAL", "the message is cut off")
            self._reply(call, await answer(message, call.headers))
        except CallError as error:
            self._refuse(call, error.code, error.text)
        except Exception as error:  # a fault of ours: an answer all the same
            self._failed(call, error)

    async def _streamed(self, call: _Call, answer: Callable[..., AsyncIterator[bytes]]) -> None:
        try:
            async for message in answer(_received(call), call.headers):
                self._put(call, message)
                if call.pending:
                    call.drained = self._loop.create_future()
                    await call.drained
            self._finish(call, _GOOD)
        except CallError as error:
            self._refuse(call, error.code, error.text)
        except Exception as error:
            self._failed(call, error)

    def _failed(self, call: _Call, error: Exception) -> None:
        _log.error("a request failed", exc_info=error, extra={"method": call.headers.get(":path")})
        self._refuse(call, "INTERNAL", f"internal error: {type(error).__name__}")

    def _reply(self, call: _Call, message: bytes) -> None:
        """Send the one message of an answer, in one piece where the client lets us."""
        size = len(message) + 5
        if self._calls.get(call.id) is not call:
            return
        if size > min(call.window, self._window, self._frame):
            self._put(call, message)
            self._finish(call, _GOOD)
            return
        self._window -= size
        stream = call.id.to_bytes(4, "big")
        self._transport.write(b"".join((
            len(_BEGIN).to_bytes(3, "big"), b"\x01\x04", stream, _BEGIN,
            size.to_bytes(3, "big"), b"\0\0", stream,
            b"\0", len(message).to_bytes(4, "big"), message,
            len(_GOOD).to_bytes(3, "big"), b"\x01\x05", stream, _GOOD,
        )))  # fmt: skip
        self._close(call)

    def _put(self, call: _Call, message: bytes) -> None:
        """Send a message as far as the client lets us; the rest goes when it does."""
        if self._calls.get(call.id) is not call:
            return
        if call.trailers is None:
            self._transport.write(frame(Kind.HEADERS, Flag.END_HEADERS, call.id, _BEGIN))
            call.trailers = b""
        call.pending += b"\0" + len(message).to_bytes(4, "big") + message
        call.moved = monotonic()
        self._send(call)
        self._keep_watch()

    def _finish(self, call: _Call, trailers: bytes) -> None:
        """End an answer, once all of it has gone."""
        if self._calls.get(call.id) is not call:
            return
        if call.trailers is None:  # nothing was sent: headers and trailers in one
            trailers = _BEGIN + trailers
        if call.pending:
            call.trailers = trailers
        else:
            self._write_trailers(call, trailers)

    def _refuse(self, call: _Call, code: str, text: str) -> None:
        escaped = "".join(
            chr(c) if 32 <= c < 127 and c != 37 else f"%{c:02X}"
            for c in text.encode("utf-8", "replace")[:4096]
        )
        self._finish(call, block([("grpc-status", str(CODES[code])), ("grpc-message", escaped)]))

    def _write_trailers(self, call: _Call, trailers: bytes) -> None:
        flags = Flag.END_HEADERS | Flag.END_STREAM
        self._transport.write(frame(Kind.HEADERS, flags, call.id, trailers))
        if not call.is_whole:  # the client need not send the rest
            self._reset(call.id, Reason.NONE)
        self._close(call)

    def _send(self, call: _Call) -> None:
        while call.pending:
            size = min(len(call.pending), call.window, self._window, self._frame)
            if size <= 0:
                return
            self._transport.write(frame(Kind.DATA, 0, call.id, bytes(call.pending[:size])))
            del call.pending[:size]
            call.window -= size
            self._window -= size
            call.moved = monotonic()
        if call.drained is not None and not call.drained.done():
            call.drained.set_result(None)
        if call.trailers:
            self._write_trailers(call, call.trailers)

    def _send_all(self) -> None:
        for call in list(self._calls.values()):
            if call.pending:
                self._send(call)

    def _credit(self, stream: int, size: int) -> None:
        self._transport.write(frame(Kind.WINDOW, 0, stream, size.to_bytes(4, "big")))

    def _reset(self, stream: int, reason: int) -> None:
        self._transport.write(frame(Kind.RESET, 0, stream, reason.to_bytes(4, "big")))

    # -- ends

    def _close(self, call: _Call) -> None:
        if self._calls.pop(call.id, None) is None:
            return
        self._idle_frames = 0
        if call.held:
            self._host.hold(-call.held)
            call.held = 0
        if self._is_leaving and not self._calls:
            self._transport.close()

    def _drop(self, call: _Call) -> None:
        """End a call that nobody waits for."""
        idle = self._idle_frames
        self._close(call)
        self._idle_frames = idle + 10  # whoever resets without end shall not
        if call.task is not None:
            call.task.cancel()

    def leave(self) -> None:
        """Take no more calls, and close once those under way are answered."""
        self._leave(Reason.NONE)
        if not self._calls:
            self._transport.close()

    def abort(self) -> None:
        """Close now."""
        self._transport.abort()

    def _leave(self, reason: int) -> None:
        self._is_leaving = True
        told = self._last.to_bytes(4, "big") + reason.to_bytes(4, "big")
        self._transport.write(frame(Kind.GOAWAY, 0, 0, told))

    def _keep_watch(self) -> None:
        if self._watch is None and not self._transport.is_closing():
            self._watch = self._loop.call_later(self._host.patience / 2, self._look)

    def _look(self) -> None:
        """End what takes too long; look again while anything could."""
        self._watch = None
        late = monotonic() - self._host.patience
        is_stuck = bool(self._rest or self._open or not self._is_greeted) and self._since < late
        if is_stuck or (self._is_full and self._since_full < late):
            self._transport.abort()
            return
        for call in list(self._calls.values()):
            is_arriving = not call.is_whole and (call.messages is None or bool(call.body))
            if call.moved < late and is_arriving:
                self._refuse(call, "DEADLINE_EXCEEDED", "the message did not arrive in time")
            elif call.moved < late and call.pending:
                self._reset(call.id, Reason.CANCEL)
                self._drop(call)
        if self._calls or self._rest or self._open or self._is_full or not self._is_greeted:
            self._keep_watch()


async def _received(call: _Call) -> AsyncIterator[bytes]:
    assert call.messages is not None, "a call of a stream has a queue"
    while (message := await call.messages.get()) is not None:
        yield message


def _unpacked(message: bytes, encoding: str, limit: int) -> bytes:
    if encoding not in ("gzip", "deflate"):
        raise CallError("UNIMPLEMENTED", f"grpc-encoding {encoding!r} is not known")
    packer = zlib.decompressobj(31 if encoding == "gzip" else 15)
    with contextlib.suppress(zlib.error):
        whole = packer.decompress(message, limit + 1)
        if len(whole) > limit:
            raise CallError("RESOURCE_EXHAUSTED", f"the message is larger than {limit} bytes")
        if packer.eof:
            return whole
    raise CallError("INVALID_ARGUMENT", f"the message is not {encoding}")


def seconds(timeout: str | None) -> float | None:
    """What a header grpc-timeout such as ``200m`` says."""
    if not timeout:
        return None
    number, unit = timeout[:-1], timeout[-1]
    if not (number.isascii() and number.isdigit() and len(number) <= 8 and unit in _UNITS):
        raise CallError("INVALID_ARGUMENT", f"grpc-timeout is {timeout!r}")
    return int(number) * _UNITS[unit]
