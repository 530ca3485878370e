"""The protocol over HTTP: every path but that of inference."""

from collections.abc import Awaitable, Callable
from typing import Any

from flow2onnx_runtime import FlowError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from flow2onnx_serve.errors import RequestError
from flow2onnx_serve.http_encoding import dump
from flow2onnx_serve.openapi import description
from flow2onnx_serve.repository import requested_version
from flow2onnx_serve.service import Service, as_request_error

__all__ = ["Routes"]

_MODEL, _VERSION = "/v2/models/{model}", "/v2/models/{model}/versions/{version}"

Answer = Callable[[Request], Awaitable[Response]]


class Routes:
    """Answers about the server and its models; names and numbers are looked up, never opened.

    `read_object` reads the JSON object in a request's body.
    """

    def __init__(
        self, service: Service, read_object: Callable[[Request], Awaitable[dict[str, Any]]]
    ) -> None:
        self._service, self._read_object = service, read_object

    def application(self) -> Starlette:
        """The ASGI application of these paths; whatever else is asked is not found."""
        handlers = {HTTPException: _http_error, FlowError: _flow_error, Exception: _other_error}
        found = Starlette(routes=self._routes(), exception_handlers=handlers)
        found.router.redirect_slashes = False
        return found

    def _routes(self) -> list[Route]:
        return [
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
        service = self._service
        has_token = service.settings.token is not None
        found = description(service.version, service.repository.names(), has_token=has_token)
        return _json(found)

    async def _parameters(self, request: Request) -> dict[str, Any]:
        parameters = (await self._read_object(request)).get("parameters", {})
        if not isinstance(parameters, dict):
            raise RequestError("'parameters' is no object")
        return parameters


def _route(path: str, answer: Answer, method: str = "GET") -> Route:
    return Route(path, answer, methods=[method])


def _path_names(request: Request) -> tuple[str, str]:
    return request.path_params.get("model", ""), request.path_params.get("version", "")


def _json(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(dump(value), status, headers, "application/json")


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "starlette calls it for these"
    if "sharedmemory" in request.url.path:
        return _json({"error": "shared memory is not served (send the data itself)"}, 404)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _flow_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, FlowError), "starlette calls it for these"
    problem = as_request_error(error)
    retry = {} if problem.retry_after is None else {"retry-after": str(problem.retry_after)}
    return _json({"error": problem.text}, problem.status, retry)


async def _other_error(request: Request, error: Exception) -> Response:
    return _json({"error": f"internal error: {type(error).__name__}"}, 500)
