"""The protocol over HTTP."""

import asyncio
import hmac
import logging
import re
import zlib
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

from flow2onnx_runtime import FlowError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from flow2onnx.server.openapi import description
from flow2onnx.server.problem import RequestError
from flow2onnx.server.service import Service, refusal
from flow2onnx.server.wire import decode, dump, encode, parse_object

__all__ = ["Application", "Reply", "refused"]

_log = logging.getLogger("flow2onnx.server")

_JSON_HEADER = (b"content-type", b"application/json")
_BYTES_HEADER = (b"content-type", b"application/octet-stream")
_CLOSE = (b"connection", b"close")
_LENGTH = b"inference-header-content-length"
_OPEN = ("/v2/health/live", "/v2/health/ready")  # without a token: probes have none

Answer = Callable[[Request], Awaitable[Response]]
Headers = Iterable[tuple[bytes, bytes]]
Reply = tuple[int, bytes, list[tuple[bytes, bytes]]]  # status, body, headers but its length


class Application:
    """An ASGI application: inference by the shortest way, everything else through routes."""

    def __init__(self, service: Service) -> None:
        self._service = service
        token = service.settings.token
        self._authorization = None if token is None else f"Bearer {token}".encode()
        self._rest = Starlette(
            routes=_routes(self),
            exception_handlers={
                HTTPException: _http_error, FlowError: _flow_error, Exception: _other_error,
            },
        )  # fmt: skip
        self._rest.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":  # no lifespan; a websocket is refused by uvicorn
            return
        if not self._is_allowed(scope["path"], scope["headers"]):
            await _send(send, *_NO_TOKEN)
            return
        if scope["method"] == "POST" and (named := _asked(scope.get("raw_path", b""))):
            await self._infer(named, scope, receive, send)
            return
        await self._rest(scope, receive, send)

    async def inferred(self, url: bytes, headers: Headers, body: bytes) -> Reply | None:
        """The answer to a POST whose body is complete; None if it asks for no inference."""
        path, _, _ = url.partition(b"?")
        named = _asked(path)
        if named is None:
            return None
        if not self._is_allowed("", headers):
            return _NO_TOKEN
        return await self._answer(named, dict(headers), body)

    def hold(self, size: int) -> None:
        """Count bytes of a body that is being received, or were; raises `RequestError`."""
        self._service.hold(size)

    @property
    def max_body(self) -> int:
        """Bytes of a body."""
        return self._service.settings.max_body

    def _is_allowed(self, path: str, headers: Headers) -> bool:
        if self._authorization is None or path in _OPEN:
            return True
        given = [value for name, value in headers if name == b"authorization"]
        return len(given) == 1 and hmac.compare_digest(given[0], self._authorization)

    async def _infer(
        self, named: tuple[str, str], scope: Scope, receive: Receive, send: Send
    ) -> None:
        headers = dict(scope["headers"])
        try:
            with self._holding() as hold:
                body = await self._body(headers, receive, hold)
                reply = await self._answer(named, headers, body)
        except FlowError as error:
            reply = refused(refusal(error))
        await _send(send, *reply)

    async def _answer(
        self, named: tuple[str, str], headers: dict[bytes, bytes], body: bytes
    ) -> Reply:
        """Run a model on a body, which may be packed."""
        name, number = named
        try:
            if b"content-encoding" in headers:
                return await self._unpacked_answer(named, headers, body)
            live = self._service.repository.find(name, number)
            header = _header_length(headers.get(_LENGTH))
            request = decode(body, header, live.version.inputs, live.version.outputs)
            del body
            results = await self._service.infer(live, request)
            answer, length = encode(name, str(live.version.number), request, results)
        except FlowError as error:
            return refused(refusal(error))
        except Exception as error:  # a fault of ours: an answer all the same
            _log.exception("a request failed", extra={"model": name})
            return refused(RequestError(f"internal error: {type(error).__name__}", 500))
        fields = [_JSON_HEADER if length is None else _BYTES_HEADER]
        if length is not None:
            fields.append((_LENGTH, b"%d" % length))
        if b"accept-encoding" in headers:
            answer, encoded = _compressed(answer, headers[b"accept-encoding"])
            fields += encoded
        if self._service.is_draining:
            fields.append(_CLOSE)
        return 200, answer, fields

    async def _unpacked_answer(
        self, named: tuple[str, str], headers: dict[bytes, bytes], body: bytes
    ) -> Reply:
        headers = dict(headers)
        with self._holding() as hold:
            body = self._plain(body, headers.pop(b"content-encoding"))
            hold(len(body))
            return await self._answer(named, headers, body)

    def _plain(self, body: bytes, encoding: bytes) -> bytes:
        """A body that was packed, unpacked."""
        encoding = encoding.lower()
        if encoding == b"identity":
            return body
        return _unpacked(body, encoding, self._service.settings.max_body)

    @contextmanager
    def _holding(self) -> Iterator[Callable[[int], None]]:
        """Counts the bytes that a request holds until it is answered."""
        total = 0

        def hold(size: int) -> None:
            nonlocal total
            self._service.hold(size)
            total += size

        try:
            yield hold
        finally:
            if total:
                self._service.hold(-total)

    async def _body(
        self, headers: dict[bytes, bytes], receive: Receive, hold: Callable[[int], None]
    ) -> bytes:
        """A request's whole body; a client too slow or too talkative is refused."""
        settings = self._service.settings
        announced = headers.get(b"content-length", b"")
        if announced.isdigit() and int(announced[:20]) > settings.max_body:
            raise _too_large(settings.max_body)
        try:
            async with asyncio.timeout(settings.read_timeout):
                body = await _received(receive, settings.max_body, hold)
        except TimeoutError:
            raise RequestError("the body did not arrive in time", 408) from None
        return body

    async def object(self, request: Request) -> dict[str, Any]:
        """The JSON object in a request's body; an empty body is an empty object."""
        headers = dict(request.scope["headers"])
        with self._holding() as hold:
            body = await self._body(headers, request.receive, hold)
            body = self._plain(body, headers.get(b"content-encoding", b"identity"))
            return parse_object(body) if body.strip() else {}


async def _received(receive: Receive, limit: int, hold: Callable[[int], None]) -> bytes:
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


def _unpacked(body: bytes, encoding: bytes, limit: int) -> bytes:
    if encoding not in (b"gzip", b"deflate"):
        raise RequestError(f"content-encoding {encoding.decode('latin-1')!r} is not known",
                           hint="gzip or deflate")  # fmt: skip
    packer = zlib.decompressobj(31 if encoding == b"gzip" else 15)
    try:
        whole = packer.decompress(body, limit + 1)
    except zlib.error as error:
        raise RequestError(f"the body is not {encoding.decode()}: {error}") from error
    if len(whole) > limit:
        raise _too_large(limit)
    if not packer.eof:
        raise RequestError(f"the body is cut off: it is not all of its {encoding.decode()}")
    return whole


def _compressed(answer: bytes, accepted: bytes) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """The answer, packed if the client asks for it before anything else."""
    first = accepted.split(b",")[0].strip()
    if first not in (b"gzip", b"deflate") or len(answer) < 256:
        return answer, []
    packer = zlib.compressobj(1, zlib.DEFLATED, 31 if first == b"gzip" else 15)
    return packer.compress(answer) + packer.flush(), [(b"content-encoding", first)]


def _header_length(value: bytes | None) -> int | None:
    if value is None:
        return None
    if not value.isdigit() or len(value) > 15:
        raise RequestError(f"Inference-Header-Content-Length is {value.decode('latin-1')!r}")
    return int(value)


async def _send(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


def refused(error: RequestError, *more: tuple[bytes, bytes]) -> Reply:
    """The answer to a request that is refused."""
    fields = [_JSON_HEADER, *more]
    if error.retry_after is not None:
        fields.append((b"retry-after", b"%d" % error.retry_after))
    return error.status, dump({"error": error.text}), fields


_NO_TOKEN = refused(RequestError("a bearer token is needed", 401), (b"www-authenticate", b"Bearer"))


def _asked(path: bytes) -> tuple[str, str] | None:
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


def _routes(app: Application) -> list[Route]:
    """Every path but the one of inference; names and numbers are looked up, never opened."""
    service = app._service
    model, version = "/v2/models/{model}", "/v2/models/{model}/versions/{version}"

    def route(path: str, answer: Answer, *methods: str) -> Route:
        return Route(path, answer, methods=list(methods or ("GET",)))

    def both(rest: str, answer: Answer) -> list[Route]:
        return [route(model + rest, answer), route(version + rest, answer)]

    async def live(request: Request) -> Response:
        return Response()

    async def ready(request: Request) -> Response:
        if service.is_ready:
            return Response()
        return _json({"error": "not ready"}, 503)

    async def server(request: Request) -> Response:
        return _json(service.metadata())

    async def model_ready(request: Request) -> Response:
        service.repository.find(*_named(request))
        return Response()

    async def metadata(request: Request) -> Response:
        return _json(service.model_metadata(*_named(request)))

    async def config(request: Request) -> Response:
        return _json(service.model_config(*_named(request)))

    async def statistics(request: Request) -> Response:
        return _json(service.statistics(*_named(request)))

    async def index(request: Request) -> Response:
        only_ready = (await app.object(request)).get("ready", False)
        if not isinstance(only_ready, bool):
            raise RequestError(f"ready is {only_ready!r}, neither true nor false")
        return _json(service.repository.index(only_ready))

    async def load(request: Request) -> Response:
        await service.repository.load(_named(request)[0], _version(await app.object(request)))
        return _json({})

    async def unload(request: Request) -> Response:
        if not isinstance((await app.object(request)).get("parameters", {}), dict):
            raise RequestError("'parameters' is no object")
        await service.repository.unload(_named(request)[0])
        return _json({})

    async def metrics(request: Request) -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")

    async def openapi(request: Request) -> Response:
        names = service.repository.names()
        has_token = service.settings.token is not None
        return _json(description(service.version, names, has_token=has_token))

    return [
        route("/v2", server),
        route("/v2/health/live", live),
        route("/v2/health/ready", ready),
        route("/v2/models/stats", statistics),
        *both("", metadata),
        *both("/ready", model_ready),
        *both("/config", config),
        *both("/stats", statistics),
        route("/v2/repository/index", index, "POST"),
        route("/v2/repository/models/{model}/load", load, "POST"),
        route("/v2/repository/models/{model}/unload", unload, "POST"),
        route("/metrics", metrics),
        route("/openapi.json", openapi),
    ]


def _named(request: Request) -> tuple[str, str]:
    return request.path_params.get("model", ""), request.path_params.get("version", "")


def _version(asked: dict[str, Any]) -> int | None:
    """The version that a load request names in its parameters."""
    parameters = asked.get("parameters", {})
    if not isinstance(parameters, dict):
        raise RequestError("'parameters' is no object")
    unknown = [name for name in parameters if name != "version"]
    if unknown:
        raise RequestError(f"load takes no parameter {unknown[0]!r}", hint="only version")
    if "version" not in parameters:
        return None
    version = parameters["version"]
    if not isinstance(version, str) or not re.fullmatch("[1-9][0-9]{0,8}", version):
        raise RequestError(f"{version!r} is no version", hint="text, such as '2'")
    return int(version)


def _json(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(dump(value), status, headers, "application/json")


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "starlette calls it for these"
    if "sharedmemory" in request.url.path:
        return _json({"error": "shared memory is not served (send the data itself)"}, 404)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _flow_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, FlowError), "starlette calls it for these"
    problem = refusal(error)
    retry = {} if problem.retry_after is None else {"retry-after": str(problem.retry_after)}
    return _json({"error": problem.text}, problem.status, retry)


async def _other_error(request: Request, error: Exception) -> Response:
    return _json({"error": f"internal error: {type(error).__name__}"}, 500)
