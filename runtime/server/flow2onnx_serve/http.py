"""The protocol over HTTP: who may ask, how much, for how long, and the way of an inference."""

import asyncio
import hmac
import logging
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

from flow2onnx_runtime import FlowError
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from flow2onnx_serve.codec import Text
from flow2onnx_serve.connections import CONNECTION
from flow2onnx_serve.errors import LEFT, RequestError
from flow2onnx_serve.headers import Headers, values_of
from flow2onnx_serve.held import Hold
from flow2onnx_serve.hosts import Hosts
from flow2onnx_serve.http_encoding import dump, parse_object
from flow2onnx_serve.negotiation import prefers_html
from flow2onnx_serve.origins import Origins
from flow2onnx_serve.pages import HEADERS, sign_in_page
from flow2onnx_serve.routes import Routes
from flow2onnx_serve.service import Service, as_request_error

__all__ = ["Application"]

_log = logging.getLogger("flow2onnx_serve")

_JSON_HEADER = (b"content-type", b"application/json")
_BYTES_HEADER = (b"content-type", b"application/octet-stream")
_CLOSE = (b"connection", b"close")
_LENGTH = b"inference-header-content-length"
_LINGER = 1.0  # seconds in which a client that still sends may read why it is refused
_CONTROL = 32 * 1024  # bytes of a request that is no inference
_LARGE = 64 * 1024  # bytes of an answer that a connection does not take at once
_READS = ("GET", "HEAD")
_OPEN = ("/v2/health/live", "/v2/health/ready")  # without a token: probes have none

Reply = tuple[int, Text, list[tuple[bytes, bytes]]]  # status, body, headers but its length


class Application:
    """An ASGI application: inference by the shortest way, everything else through routes."""

    def __init__(self, service: Service) -> None:
        self._service = service
        token = service.settings.token
        self._authorization = None if token is None else f"Bearer {token}".encode()
        self._hosts = Hosts((service.settings.host, *service.settings.allowed_hosts))
        self._origins = Origins(service.settings.allowed_origins)
        self._rest = Routes(service, self._object).application()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":  # no lifespan; a websocket is refused by the HTTP server
            return

        is_begun = False

        async def counted(message: Message) -> None:
            nonlocal is_begun
            if message["type"] == "http.response.start":
                is_begun = True
                self._service.metrics.answered("http", message["status"])
            await send(message)

        connection = CONNECTION.get()
        if connection is None:
            await self._respond(scope, receive, counted)
            return
        try:
            connection.begin(_head_size(scope))
            await self._respond(scope, receive, counted)
        except RequestError as error:
            await _send_last(receive, counted, _error_reply(error, _CLOSE))
        except asyncio.CancelledError:
            if not connection.is_over:
                raise
            if not is_begun:  # nobody reads it
                await _send(send if connection.is_refused else counted, (LEFT, b"", []))
        finally:
            connection.end()

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._hosts.check(scope["headers"], scope["http_version"])
            if scope["method"] not in _READS:
                self._origins.check(scope["headers"])
        except RequestError as error:
            await _send_last(receive, send, _error_reply(error, _CLOSE))
            return
        if not self._is_allowed(scope["path"], scope["headers"]):
            is_page = scope["method"] in _READS and prefers_html(scope["headers"])
            await _send_last(receive, send, _SIGN_IN if is_page else _NO_TOKEN)
        elif scope["method"] == "POST" and (named := _parse_infer_path(scope.get("raw_path", b""))):
            await self._infer(named, scope, receive, send)
        else:
            await self._rest(scope, receive, send)

    def _is_allowed(self, path: str, headers: Headers) -> bool:
        if self._authorization is None or path in _OPEN:
            return True
        given = values_of(b"authorization", headers)
        return len(given) == 1 and hmac.compare_digest(given[0], self._authorization)

    async def _infer(
        self, named: tuple[str, str], scope: Scope, receive: Receive, send: Send
    ) -> None:
        with self._hold(scope) as hold:
            reply, is_whole = await self._answer(named, dict(scope["headers"]), receive, hold)
            if is_whole:
                await _send(send, reply)
            else:
                await _send_last(receive, send, reply)

    def _hold(self, scope: Scope) -> Hold:
        client = scope.get("client") or ("", 0)
        return self._service.hold(client[0], tuple(client))

    async def _answer(
        self, named: tuple[str, str], headers: dict[bytes, bytes], receive: Receive, hold: Hold
    ) -> tuple[Reply, bool]:
        """The answer of a model to the body that is received, and whether this came as a whole."""
        is_whole = False
        try:
            body = await self._body(headers, receive, hold)
            is_whole = True
            body = await self._inflate(body, headers, hold)
            live = self._service.repository.find(*named)
            header = _header_length(headers.get(_LENGTH))
            request = await self._service.codec.read_http(body, header, live.version, hold)
            del body
            results = await self._service.infer(live, request)
            number = str(live.version.number)
            written = await self._service.codec.write_http(live.model, number, request, results)
            return await self._pack(*written, headers, hold), is_whole
        except FlowError as error:
            problem = as_request_error(error)
        except Exception as error:  # a fault of ours: an answer all the same
            _log.exception("a request failed", extra={"model": named[0]})
            problem = RequestError(f"internal error: {type(error).__name__}", 500)
        return _error_reply(problem, *([] if is_whole else [_CLOSE])), is_whole

    async def _pack(
        self, answer: Text, length: int | None, headers: dict[bytes, bytes], hold: Hold
    ) -> Reply:
        """The reply with an answer of which `length` bytes are JSON, packed if that is wished."""
        fields = [_JSON_HEADER if length is None else _BYTES_HEADER]
        if length is not None:
            fields.append((_LENGTH, b"%d" % length))
        if b"accept-encoding" in headers:
            accepted = headers[b"accept-encoding"]
            answer, encoded = await self._service.codec.deflate(answer, accepted)
            fields += encoded
        if self._service.is_draining:
            fields.append(_CLOSE)
        hold(len(answer))
        return 200, answer, fields

    async def _inflate(
        self, body: bytes | bytearray, headers: dict[bytes, bytes], hold: Hold
    ) -> bytes | bytearray:
        encoding = headers.get(b"content-encoding", b"identity").lower()
        if encoding == b"identity":
            return body
        content = await self._service.codec.inflate(body, encoding)
        hold(len(content))
        return content

    async def _body(
        self, headers: dict[bytes, bytes], receive: Receive, hold: Hold, limit: int | None = None
    ) -> bytes | bytearray:
        """A request's whole body; a client too slow or too talkative is refused."""
        settings = self._service.settings
        limit = settings.max_body if limit is None else min(limit, settings.max_body)
        announced = headers.get(b"content-length", b"")
        if announced.isdigit() and int(announced[:20]) > limit:
            raise _too_large(limit)
        try:
            async with asyncio.timeout(settings.read_timeout):
                return await _read_body(receive, limit, hold)
        except TimeoutError:
            raise RequestError("the body did not arrive in time", 408) from None

    async def _object(self, request: Request) -> dict[str, Any]:
        """The JSON object in a request's body; an empty body is an empty object."""
        headers = dict(request.scope["headers"])
        with self._hold(request.scope) as hold:
            body = await self._body(headers, request.receive, hold, _CONTROL)
            body = await self._inflate(body, headers, hold)
            if len(body) > _CONTROL:
                raise _too_large(_CONTROL)
            return parse_object(body) if body.strip() else {}


async def _read_body(receive: Receive, limit: int, hold: Hold) -> bytes | bytearray:
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        whole: bytes = message["body"]
        if len(whole) > limit:
            raise _too_large(limit)
        hold(len(whole))
        return whole
    body = bytearray()  # grows in place: parts and their sum would take the room twice
    while message["type"] == "http.request":
        part = message["body"]
        if len(body) + len(part) > limit:
            raise _too_large(limit)
        hold(len(part))
        body += part
        if not message.get("more_body"):
            return body
        message = await receive()
    raise RequestError("the client left in the middle of the body", LEFT)


def _too_large(limit: int) -> RequestError:
    return RequestError(f"the body is larger than {limit} bytes", 413)


def _header_length(value: bytes | None) -> int | None:
    if value is None:
        return None
    if not value.isdigit() or len(value) > 15:
        raise RequestError(f"Inference-Header-Content-Length is {value.decode('latin-1')!r}")
    return int(value)


def _head_size(scope: Scope) -> int:
    fields = sum(len(name) + len(value) for name, value in scope["headers"])
    return len(scope["raw_path"]) + len(scope["query_string"]) + fields


async def _send(send: Send, reply: Reply) -> None:
    """Send an answer; a large one is sent once the connection has taken most of it."""
    await send(_start(reply))
    is_large = len(reply[1]) > _LARGE
    await send({"type": "http.response.body", "body": reply[1], "more_body": is_large})
    if is_large:
        if (connection := CONNECTION.get()) is not None:
            await connection.flush()
        await send({"type": "http.response.body", "body": b""})


async def _send_last(receive: Receive, send: Send, reply: Reply) -> None:
    """Answer a request whose body has not come as a whole, and end the connection soon.

    Closing it while the client still sends would take back the answer.
    """
    await send(_start(reply))
    await send({"type": "http.response.body", "body": reply[1], "more_body": True})
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGER):
            while (await receive()).get("more_body"):
                pass
    await send({"type": "http.response.body", "body": b""})


def _start(reply: Reply) -> Message:
    status, body, headers = reply
    length = (b"content-length", b"%d" % len(body))
    return {"type": "http.response.start", "status": status, "headers": [*headers, length]}


def _error_reply(error: RequestError, *more: tuple[bytes, bytes]) -> Reply:
    """The answer to a request that is refused."""
    fields = [_JSON_HEADER, *more]
    if error.retry_after is not None:
        fields.append((b"retry-after", b"%d" % error.retry_after))
    return error.status, dump({"error": error.text}), fields


_BEARER = (b"www-authenticate", b"Bearer")
_NO_TOKEN = _error_reply(RequestError("a bearer token is needed", 401), _BEARER, _CLOSE)
_SIGN_IN: Reply = (
    401,
    sign_in_page(),
    [
        (b"content-type", b"text/html; charset=utf-8"),
        *((name.encode(), value.encode()) for name, value in HEADERS.items()),
        _BEARER,
        _CLOSE,
    ],
)


def _parse_infer_path(path: bytes) -> tuple[str, str] | None:
    """The model and the version ("" for the newest) that a path asks to infer; else None."""
    parts = path.split(b"/")
    if parts[-1] != b"infer" or parts[:3] != [b"", b"v2", b"models"]:
        return None
    if len(parts) != 5 and not (len(parts) == 7 and parts[4] == b"versions" and parts[5]):
        return None
    names = (parts[3], b"" if len(parts) == 5 else parts[5])
    if b"%" in path:
        model, version = (unquote(part.decode("ascii", "replace")) for part in names)
        return model, version
    model, version = (part.decode("ascii", "replace") for part in names)
    return model, version
