"""The protocol over HTTP: who may ask, how much, for how long, and the way of an inference."""

import asyncio
import hmac
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

from flow2onnx_runtime import FlowError
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from flow2onnx_serve.compression import deflate, inflate
from flow2onnx_serve.connections import CONNECTION
from flow2onnx_serve.errors import RequestError
from flow2onnx_serve.http_encoding import decode, dump, encode, parse_object
from flow2onnx_serve.routes import Routes
from flow2onnx_serve.service import Service, as_request_error

__all__ = ["Application"]

_log = logging.getLogger("flow2onnx_serve")

_JSON_HEADER = (b"content-type", b"application/json")
_BYTES_HEADER = (b"content-type", b"application/octet-stream")
_CLOSE = (b"connection", b"close")
_LENGTH = b"inference-header-content-length"
_LINGER = 1.0  # seconds in which a client that still sends may read why it is refused
_OPEN = ("/v2/health/live", "/v2/health/ready")  # without a token: probes have none

Headers = Iterable[tuple[bytes, bytes]]
Hold = Callable[[int], None]  # counts bytes that are held until a request is answered
Reply = tuple[int, bytes, list[tuple[bytes, bytes]]]  # status, body, headers but its length


class Application:
    """An ASGI application: inference by the shortest way, everything else through routes."""

    def __init__(self, service: Service) -> None:
        self._service = service
        token = service.settings.token
        self._authorization = None if token is None else f"Bearer {token}".encode()
        self._rest = Routes(service, self._object).application()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":  # no lifespan; a websocket is refused by the HTTP server
            return

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
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
        finally:
            connection.end()

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._is_allowed(scope["path"], scope["headers"]):
            await _send_last(receive, send, _NO_TOKEN)
        elif scope["method"] == "POST" and (named := _parse_infer_path(scope.get("raw_path", b""))):
            await self._infer(named, scope, receive, send)
        else:
            await self._rest(scope, receive, send)

    def _is_allowed(self, path: str, headers: Headers) -> bool:
        if self._authorization is None or path in _OPEN:
            return True
        given = [value for name, value in headers if name == b"authorization"]
        return len(given) == 1 and hmac.compare_digest(given[0], self._authorization)

    async def _infer(
        self, named: tuple[str, str], scope: Scope, receive: Receive, send: Send
    ) -> None:
        headers = dict(scope["headers"])
        with self._service.holding() as hold:
            try:
                body = await self._body(headers, receive, hold)
            except FlowError as error:
                await _send_last(receive, send, _error_reply(as_request_error(error), _CLOSE))
                return
            await _send(send, await self._answer(named, headers, body, hold))

    async def _answer(
        self, named: tuple[str, str], headers: dict[bytes, bytes], body: bytes, hold: Hold
    ) -> Reply:
        """Run a model on a body, which may be packed."""
        name, number = named
        try:
            if b"content-encoding" in headers:
                body = self._inflate(body, headers[b"content-encoding"], hold)
            live = self._service.repository.find(name, number)
            header = _header_length(headers.get(_LENGTH))
            request = decode(body, header, live.version.inputs, live.version.outputs)
            del body
            results = await self._service.infer(live, request)
            answer, length = encode(name, str(live.version.number), request, results)
        except FlowError as error:
            return _error_reply(as_request_error(error))
        except Exception as error:  # a fault of ours: an answer all the same
            _log.exception("a request failed", extra={"model": name})
            return _error_reply(RequestError(f"internal error: {type(error).__name__}", 500))
        fields = [_JSON_HEADER if length is None else _BYTES_HEADER]
        if length is not None:
            fields.append((_LENGTH, b"%d" % length))
        if b"accept-encoding" in headers:
            answer, encoded = deflate(answer, headers[b"accept-encoding"])
            fields += encoded
        if self._service.is_draining:
            fields.append(_CLOSE)
        return 200, answer, fields

    def _inflate(self, body: bytes, encoding: bytes, hold: Hold) -> bytes:
        if encoding.lower() == b"identity":
            return body
        body = inflate(body, encoding.lower(), self._service.settings.max_body)
        hold(len(body))
        return body

    async def _body(self, headers: dict[bytes, bytes], receive: Receive, hold: Hold) -> bytes:
        """A request's whole body; a client too slow or too talkative is refused."""
        settings = self._service.settings
        announced = headers.get(b"content-length", b"")
        if announced.isdigit() and int(announced[:20]) > settings.max_body:
            raise _too_large(settings.max_body)
        try:
            async with asyncio.timeout(settings.read_timeout):
                body = await _read_body(receive, settings.max_body, hold)
        except TimeoutError:
            raise RequestError("the body did not arrive in time", 408) from None
        return body

    async def _object(self, request: Request) -> dict[str, Any]:
        """The JSON object in a request's body; an empty body is an empty object."""
        headers = dict(request.scope["headers"])
        with self._service.holding() as hold:
            body = await self._body(headers, request.receive, hold)
            body = self._inflate(body, headers.get(b"content-encoding", b"identity"), hold)
            return parse_object(body) if body.strip() else {}


async def _read_body(receive: Receive, limit: int, hold: Hold) -> bytes:
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        body: bytes = message["body"]
        if len(body) > limit:
            raise _too_large(limit)
        hold(len(body))
        return body
    parts, size = [], 0
    while message["type"] == "http.request":
        hold(len(message["body"]))
        size += len(message["body"])
        if size > limit:
            raise _too_large(limit)
        parts.append(message["body"])
        if not message.get("more_body"):
            return b"".join(parts)
        message = await receive()
    raise RequestError("the client left in the middle of the body")


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
    await send(_start(reply))
    await send({"type": "http.response.body", "body": reply[1]})


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


_NO_TOKEN = _error_reply(
    RequestError("a bearer token is needed", 401), (b"www-authenticate", b"Bearer"), _CLOSE
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
