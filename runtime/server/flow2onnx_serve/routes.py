"""The protocol over HTTP, and pages for browsers: every path but that of inference."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from flow2onnx_runtime import FlowError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from flow2onnx_serve.api_page import api_page
from flow2onnx_serve.errors import RequestError
from flow2onnx_serve.examples import Address
from flow2onnx_serve.http_encoding import dump
from flow2onnx_serve.negotiation import prefers_html
from flow2onnx_serve.openapi import MOST_MODELS, description
from flow2onnx_serve.overview import Overview
from flow2onnx_serve.pages import HEADERS, error_page, home_page, model_page
from flow2onnx_serve.repository import requested_version
from flow2onnx_serve.service import Service, as_request_error

__all__ = ["Routes"]

_MODEL, _VERSION = "/v2/models/{model}", "/v2/models/{model}/versions/{version}"
_PROTOCOL = "/v2"  # whatever is asked below, errors are JSON
_FRESH = {"cache-control": "no-store", "vary": "accept"}

Answer = Callable[[Request], Awaitable[Response]]


class Routes:
    """Answers about the server and its models; names and numbers are looked up, never opened.

    `read_object` reads the JSON object in a request's body.
    """

    def __init__(
        self, service: Service, read_object: Callable[[Request], Awaitable[dict[str, Any]]]
    ) -> None:
        self._service, self._read_object = service, read_object
        self._overview = Overview(service)

    def application(self) -> Starlette:
        """The ASGI application of these paths; whatever else is asked is not found."""
        handlers = {HTTPException: _http_error, FlowError: _flow_error, Exception: _other_error}
        found = Starlette(routes=self._routes(), exception_handlers=handlers)
        found.router.redirect_slashes = False
        return found

    def _routes(self) -> list[Route]:
        return [
            _route("/", self._home),
            _route("/docs", self._docs),
            _route("/models/{model}", self._model),
            _route("/v2", self._server),
            _route("/v2/health/live", self._live),
            _route("/v2/health/ready", self._ready),
            _route("/v2/models/stats", self._statistics),
            *(
                _route(path + rest, answer)
                for path in (_MODEL, _VERSION)
                for rest, answer in {
                    "": self._metadata, "/ready": self._model_ready, "/config": self._config,
                    "/stats": self._statistics, "/adapters": self._adapters,
                }.items()
            ),
            _route("/v2/repository/index", self._index, "POST"),
            _route("/v2/repository/models/{model}/load", self._load, "POST"),
            _route("/v2/repository/models/{model}/unload", self._unload, "POST"),
            _route("/metrics", self._metrics),
            _route("/openapi.json", self._openapi),
        ]  # fmt: skip

    async def _home(self, request: Request) -> Response:
        facts = await self._overview.server(self._address(request), _first(request))
        return await _page_or_json(request, facts, home_page)

    async def _model(self, request: Request) -> Response:
        facts = await self._overview.model(_path_names(request)[0], self._address(request))
        return await _page_or_json(request, facts, model_page)

    async def _docs(self, request: Request) -> Response:
        described = self._description()
        if not prefers_html(request.scope["headers"]):
            return _json(described, headers=_FRESH)
        model = await self._overview.first_ready(self._address(request))
        page = await asyncio.to_thread(api_page, described, model)
        return Response(page, headers=HEADERS, media_type="text/html")

    def _address(self, request: Request) -> Address:
        server = ":".join(map(str, request.scope.get("server") or ("localhost",)))
        host = request.headers.get("host", server)  # HTTP/1.0 may have none
        has_token = self._service.settings.token is not None
        return Address(request.url.scheme, host, has_token)

    async def _live(self, request: Request) -> Response:
        return Response()

    async def _ready(self, request: Request) -> Response:
        return Response() if self._service.is_ready else _json({"error": "not ready"}, 503)

    async def _server(self, request: Request) -> Response:
        return _json(self._service.metadata())

    async def _model_ready(self, request: Request) -> Response:
        self._service.repository.find(*_path_names(request))
        return Response()

    async def _metadata(self, request: Request) -> Response:
        return _json(self._service.model_metadata(*_path_names(request)))

    async def _config(self, request: Request) -> Response:
        return _json(self._service.model_config(*_path_names(request)))

    async def _statistics(self, request: Request) -> Response:
        return _json(self._service.statistics(*_path_names(request)))

    async def _adapters(self, request: Request) -> Response:
        return _json(self._service.adapters(*_path_names(request)))

    async def _index(self, request: Request) -> Response:
        only_ready = (await self._read_object(request)).get("ready", False)
        if not isinstance(only_ready, bool):
            raise RequestError(f"ready is {only_ready!r}, neither true nor false")
        return _json(self._service.repository.index(only_ready))

    async def _load(self, request: Request) -> Response:
        version = requested_version(await self._parameters(request))
        await self._service.repository.load(_path_names(request)[0], version)
        return _json({})

    async def _unload(self, request: Request) -> Response:
        await self._parameters(request)
        await self._service.repository.unload(_path_names(request)[0])
        return _json({})

    async def _metrics(self, request: Request) -> Response:
        return Response(self._service.metrics.text(), media_type="text/plain; version=0.0.4")

    async def _openapi(self, request: Request) -> Response:
        return _json(self._description())

    def _description(self) -> dict[str, Any]:
        service = self._service
        has_token = service.settings.token is not None
        return description(service.version, service.repository.names(), has_token=has_token)

    async def _parameters(self, request: Request) -> dict[str, Any]:
        parameters = (await self._read_object(request)).get("parameters", {})
        if not isinstance(parameters, dict):
            raise RequestError("'parameters' is no object")
        return parameters


def _route(path: str, answer: Answer, method: str = "GET") -> Route:
    return Route(path, answer, methods=[method])


def _path_names(request: Request) -> tuple[str, str]:
    return request.path_params.get("model", ""), request.path_params.get("version", "")


def _first(request: Request) -> int:
    """The number of the first model that is asked for."""
    given = request.query_params.get("from", "0")
    is_number = given.isascii() and given.isdecimal() and len(given) < len(str(MOST_MODELS))
    if not is_number:
        raise RequestError(
            f"from is {given!r}, not the number of a model",
            hint=f"0 for the first, below {MOST_MODELS}",
        )
    return int(given)


async def _page_or_json(
    request: Request, facts: dict[str, Any], page: Callable[[dict[str, Any]], bytes]
) -> Response:
    """The facts as the client wants them; a page is written on a thread."""
    if not prefers_html(request.scope["headers"]):
        return _json(facts, headers=_FRESH)
    text = await asyncio.to_thread(page, facts)
    return Response(text, headers=HEADERS, media_type="text/html")


def _refusal(
    request: Request, status: int, text: str, headers: Mapping[str, str] | None = None
) -> Response:
    """An error as JSON, or as a page for a browser that did not ask by the protocol."""
    given = dict(headers or {})
    if request.url.path.startswith(_PROTOCOL) or not prefers_html(request.scope["headers"]):
        return _json({"error": text}, status, given)
    return Response(error_page(status, text), status, {**HEADERS, **given}, "text/html")


def _json(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(dump(value), status, headers, "application/json")


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "starlette calls it for these"
    if "sharedmemory" in request.url.path:
        return _json({"error": "shared memory is not served (send the data itself)"}, 404)
    return _refusal(request, error.status_code, error.detail, error.headers)


async def _flow_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, FlowError), "starlette calls it for these"
    problem = as_request_error(error)
    retry = {} if problem.retry_after is None else {"retry-after": str(problem.retry_after)}
    return _refusal(request, problem.status, problem.text, retry)


async def _other_error(request: Request, error: Exception) -> Response:
    return _refusal(request, 500, f"internal error: {type(error).__name__}")
