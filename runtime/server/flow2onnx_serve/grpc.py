"""The protocol over gRPC."""

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn
from urllib.parse import unquote

import grpc
import grpc.aio
from flow2onnx_runtime import FlowError, OptionsError
from google.protobuf import json_format  # type: ignore[import-untyped]  # has no types

from flow2onnx_serve.compression import GZIP_MAGIC
from flow2onnx_serve.errors import LEFT, RequestError
from flow2onnx_serve.grpc_encoding import parse
from flow2onnx_serve.held import Hold
from flow2onnx_serve.messages import MESSAGES, SERVICE
from flow2onnx_serve.repository import requested_version
from flow2onnx_serve.service import Service, as_request_error
from flow2onnx_serve.settings import Settings

__all__ = ["GrpcServer", "start_grpc"]

_log = logging.getLogger("flow2onnx_serve")

Message = Any  # of classes made at run time
Context = Any  # grpc.aio's, which has no types
Answer = Callable[[Message], Awaitable[Message]]
Infer = Callable[[bytes, Hold], Awaitable[Message]]

_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    500: grpc.StatusCode.INTERNAL,
    501: grpc.StatusCode.UNIMPLEMENTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
_LONGEST = 2048  # letters of an error, which travels as a header
_CALLS = 4096  # under way at once
_STREAMS = 100  # of one connection: calls of others wait behind them
_METADATA = 16 * 1024  # bytes
_PING = 60.0  # seconds between asking a silent client whether it is there
_FREQUENT = 10.0  # seconds between pings of a client that are not too many
_IDLE = 600.0  # seconds without a call, or a message on a stream, after which it ends
_CONTROL = 32 * 1024  # bytes of a message that asks for no inference
_OPEN = ("ServerLive", "ServerReady")  # without a token: probes have none
_IDENTITY, _GZIP = 1 << 0, 1 << 2  # bits of grpc.compression_enabled_algorithms_bitset


class GrpcServer:
    """Listens for gRPC; `address` tells where."""

    def __init__(self, server: Any, address: str) -> None:
        self._server, self.address = server, address

    async def stop(self, seconds: float) -> None:
        """Accept nothing new, and let what is under way finish in so many seconds."""
        await self._server.stop(seconds)


async def start_grpc(service: Service) -> GrpcServer:
    """A server that listens."""
    settings = service.settings
    server = grpc.aio.server(options=_options(settings), maximum_concurrent_rpcs=_CALLS)
    server.add_generic_rpc_handlers([_Calls(service)])
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"{host}:{settings.grpc_port}"
    try:
        if settings.certificate is None or settings.key is None:
            port = server.add_insecure_port(address)
        else:
            pair = (settings.key.read_bytes(), settings.certificate.read_bytes())
            port = server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
    except RuntimeError as error:
        raise OptionsError(
            f"cannot listen on {address} for gRPC", hint="choose another --grpc-port"
        ) from error
    await server.start()
    return GrpcServer(server, f"{host}:{port}")


def _options(settings: Settings) -> list[tuple[str, int]]:
    """The limits that gRPC itself keeps."""
    patience = round(settings.read_timeout * 1000)
    return [
        ("grpc.so_reuseport", 0),  # a port that is taken is an error
        ("grpc.max_receive_message_length", settings.max_body),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_concurrent_streams", _STREAMS),
        # without: it refuses calls of a client that keeps to the limit
        ("grpc.http.overload_protection", 0),
        ("grpc.max_allowed_incoming_connections", settings.max_connections),
        ("grpc.max_metadata_size", _METADATA),
        ("grpc.absolute_max_metadata_size", _METADATA),
        ("grpc.server_handshake_timeout_ms", patience),
        ("grpc.http2.settings_timeout", patience),
        ("grpc.keepalive_time_ms", round(_PING * 1000)),
        ("grpc.keepalive_timeout_ms", patience),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", round(_FREQUENT * 1000)),
        ("grpc.max_connection_idle_ms", round(_IDLE * 1000)),
        # packed messages come as they are: they are inflated here, counted and behind the token
        ("grpc.per_message_decompression", 0),
        ("grpc.compression_enabled_algorithms_bitset", _IDENTITY | _GZIP),
    ]


class _Calls(grpc.GenericRpcHandler):  # type: ignore[misc]  # has no types
    """The calls of the service.

    Each reads its message itself, also where there is only one: not before the token has been
    seen, and not for longer than a client may take.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        token = service.settings.token
        self._authorization = None if token is None else f"Bearer {token}".encode()
        self._handlers = {f"/{SERVICE}/{name}": found for name, found in self._by_name().items()}
        self._unknown = grpc.stream_unary_rpc_method_handler(self._refuse)

    def service(self, call: Any) -> Any:
        """The handler of a call; gRPC asks for it."""
        return self._handlers.get(call.method, self._unknown)

    def _by_name(self) -> dict[str, Any]:
        handlers = {
            name: grpc.stream_unary_rpc_method_handler(self._unary(self._control(name, answer),
                                                                   name in _OPEN))
            for name, answer in self._answers().items()
        }  # fmt: skip
        return {
            **handlers,
            "ModelInfer": grpc.stream_unary_rpc_method_handler(self._unary(self._infer, False)),
            "ModelStreamInfer": grpc.stream_stream_rpc_method_handler(self._model_stream_infer),
        }

    def _answers(self) -> dict[str, Answer]:
        """The answers to the calls that take one message and give one, by name."""
        service, repository = self._service, self._service.repository

        async def live(request: Message) -> Message:
            return _message("ServerLiveResponse", live=True)

        async def ready(request: Message) -> Message:
            return _message("ServerReadyResponse", ready=service.is_ready)

        async def model_ready(request: Message) -> Message:
            is_ready = repository.answers(request.name, request.version)
            return _message("ModelReadyResponse", ready=is_ready)

        async def metadata(request: Message) -> Message:
            return _from_dict("ServerMetadataResponse", service.metadata())

        async def model_metadata(request: Message) -> Message:
            found = service.model_metadata(request.name, request.version)
            return _from_dict("ModelMetadataResponse", found)

        async def config(request: Message) -> Message:
            found = service.model_config(request.name, request.version)
            return _from_dict("ModelConfigResponse", {"config": found})

        async def statistics(request: Message) -> Message:
            found = service.statistics(request.name, request.version)
            return _from_dict("ModelStatisticsResponse", found)

        async def index(request: Message) -> Message:
            return _from_dict(
                "RepositoryIndexResponse", {"models": repository.index(request.ready)}
            )

        async def load(request: Message) -> Message:
            parameters = {name: v.string_param for name, v in request.parameters.items()}
            await repository.load(request.model_name, requested_version(parameters))
            return _message("RepositoryModelLoadResponse")

        async def unload(request: Message) -> Message:
            await repository.unload(request.model_name)
            return _message("RepositoryModelUnloadResponse")

        return {
            "ServerLive": live, "ServerReady": ready, "ModelReady": model_ready,
            "ServerMetadata": metadata, "ModelMetadata": model_metadata, "ModelConfig": config,
            "ModelStatistics": statistics, "RepositoryIndex": index,
            "RepositoryModelLoad": load, "RepositoryModelUnload": unload,
        }  # fmt: skip

    def _control(self, name: str, answer: Answer) -> Infer:
        """An answer as `_unary` takes it, which reads a message of this call."""
        kind = MESSAGES[f"{name}Request"]

        async def call(data: bytes, hold: Hold) -> Message:
            if len(data) > _CONTROL:
                raise RequestError(f"the message is larger than {_CONTROL} bytes", 413)
            return await answer(parse(kind, data))

        return call

    def _unary(self, answer: Infer, is_open: bool) -> Callable[[object, Context], Awaitable[bytes]]:
        """The handler of a call with one message and one answer; `is_open` ones need no token."""

        async def call(requests: object, context: Context) -> bytes:
            hold = self._service.hold(*_client(context))
            context.add_done_callback(lambda _: hold.release())
            try:
                if not is_open:
                    self._check_token(context)
                reply = await answer(await self._unpack(await self._read_one(context), hold), hold)
                found = bytes(reply.SerializeToString())
                hold(len(found))
            except asyncio.CancelledError:
                self._count(LEFT)
                raise
            except Exception as error:
                return await self._abort(context, error)
            timer = self._limit_time()
            context.add_done_callback(lambda _: timer.cancel())
            self._count(200)
            return found

        return call

    async def _refuse(self, requests: object, context: Context) -> NoReturn:
        """The handler of calls that there are not."""
        await self._abort(context, RequestError("there is no such call", 501))

    async def _model_stream_infer(self, requests: object, context: Context) -> None:
        """Run a model for each request of a stream, one after the other."""
        client = _client(context)
        try:
            self._check_token(context)
            while (data := await self._read(context, _IDLE)) is not grpc.aio.EOF:
                with self._service.hold(*client) as hold:
                    reply = await self._stream_reply(data, hold)
                    del data
                    timer = self._limit_time()
                    await context.write(reply)
                    timer.cancel()
        except RequestError as error:
            await self._abort(context, error)
        except asyncio.CancelledError:
            self._count(LEFT)
            raise

    async def _stream_reply(self, data: bytes, hold: Hold) -> bytes:
        """The bytes that answer one message of a stream, whose errors are its own."""
        names: list[str] = []
        try:
            found = await self._infer(await self._unpack(data, hold), hold, names.append)
            reply = _message("ModelStreamInferResponse", infer_response=found)
            whole = bytes(reply.SerializeToString())
            hold(len(whole))
            self._count(200)
            return whole
        except Exception as error:
            text = self._problem(error).text
            failed = _message("ModelInferResponse", id="".join(names))
            reply = _message("ModelStreamInferResponse", infer_response=failed, error_message=text)
            return bytes(reply.SerializeToString())

    async def _infer(
        self, data: bytes, hold: Hold, named: Callable[[str], object] = lambda _: None
    ) -> Message:
        """Run a model; `named` is told the request's id."""
        codec, service = self._service.codec, self._service
        incoming = codec.open_grpc(data)
        del data
        named(incoming.message.id)
        live = service.repository.find(incoming.message.model_name, incoming.message.model_version)
        asked = await codec.read_grpc(incoming, live.version, hold)
        del incoming
        results = await service.infer(live, asked)
        return await codec.write_grpc(live.model, str(live.version.number), asked, results)

    def _count(self, status: int) -> None:
        self._service.metrics.answered("grpc", status)

    def _problem(self, error: Exception) -> RequestError:
        """The answer to a request that failed, which is counted."""
        if isinstance(error, FlowError):
            problem = as_request_error(error)
        else:  # a fault of ours: an answer all the same
            _log.error("a request failed", exc_info=error)
            problem = RequestError(f"internal error: {type(error).__name__}", 500)
        self._count(problem.status)
        return problem

    async def _abort(self, context: Context, error: Exception) -> NoReturn:
        problem = self._problem(error)
        code = _CODES.get(problem.status, grpc.StatusCode.UNKNOWN)
        await context.abort(code, problem.text[:_LONGEST])
        raise AssertionError("abort raises")

    def _check_token(self, context: Context) -> None:
        if self._authorization is None:
            return
        given = [v for name, v in context.invocation_metadata() if name == "authorization"]
        if len(given) != 1 or not hmac.compare_digest(given[0].encode(), self._authorization):
            raise RequestError("a bearer token is needed", 401)

    async def _read_one(self, context: Context) -> bytes:
        """The message of a call that has one."""
        data = await self._read(context, self._service.settings.read_timeout)
        if data is grpc.aio.EOF:
            raise RequestError("the call has no message")
        return bytes(data)

    async def _read(self, context: Context, seconds: float) -> Any:
        """The next message in bytes, or EOF."""
        try:
            async with asyncio.timeout(seconds):
                return await context.read()
        except TimeoutError:
            raise RequestError("the message did not arrive in time", 408) from None

    async def _unpack(self, data: bytes, hold: Hold) -> bytes:
        """The message, inflated if it is packed."""
        hold(len(data))
        # no message begins like this: there is no type of field for these bits
        if data.startswith(GZIP_MAGIC):
            data = await self._service.codec.inflate(data, b"gzip")
            hold(len(data))
        return data

    def _limit_time(self) -> asyncio.TimerHandle:
        """End the call that is being answered if its client does not take the answer in time."""
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None, "calls are tasks"
        return loop.call_later(self._service.settings.read_timeout, task.cancel)


def _client(context: Context) -> tuple[str, str]:
    """The address of a call's client, as HTTP knows it, and what tells its connection."""
    peer: str = context.peer()
    address = peer.rpartition(":")[0].partition(":")[2]
    return unquote(address).strip("[]") if "%" in address else address, peer


def _message(name: str, **fields: Any) -> Message:
    return MESSAGES[name](**fields)


def _from_dict(name: str, value: dict[str, Any]) -> Message:
    return json_format.ParseDict(value, MESSAGES[name]())
