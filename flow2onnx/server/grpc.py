"""The protocol over gRPC."""

import asyncio
import contextlib
import hmac
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import numpy as np
from flow2onnx_runtime import FlowError, OptionsError
from google.protobuf import json_format  # type: ignore[import-untyped]  # has no types
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # has no types
from numpy.typing import NDArray

from flow2onnx.server.http2 import CallError, Connection, Headers, Host, Method, seconds
from flow2onnx.server.inference import (
    Inference,
    Wanted,
    arranged,
    checked_shape,
    expected,
    from_bytes,
)
from flow2onnx.server.messages import MESSAGES, SERVICE
from flow2onnx.server.ports import Port
from flow2onnx.server.problem import RequestError
from flow2onnx.server.repository import Live
from flow2onnx.server.service import Service, refusal
from flow2onnx.server.wire import packed_bytes

__all__ = ["GrpcServer", "start_grpc"]

Message = Any  # of classes made at run time
Answer = Callable[[Message], Awaitable[Message]]

_CODES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    404: "NOT_FOUND",
    413: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
# the typed lists that a request may use in place of bytes
_CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents",
    "INT32": "int_contents", "INT64": "int64_contents", "UINT8": "uint_contents",
    "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents",
    "FP32": "fp32_contents", "FP64": "fp64_contents",
}  # fmt: skip


class GrpcServer:
    """Listens for gRPC; `address` tells where."""

    def __init__(self, host: Host, listener: asyncio.Server, address: str) -> None:
        self._host, self._listener, self.address = host, listener, address

    async def stop(self, seconds: float) -> None:
        """Accept nothing new, and let what is under way finish in so many seconds."""
        self._listener.close()
        for connection in list(self._host.connections):
            connection.leave()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._host.connections:
                    await asyncio.sleep(0.02)
        for connection in list(self._host.connections):
            connection.abort()


async def start_grpc(service: Service) -> GrpcServer:
    """A server that listens."""
    settings = service.settings
    host = Host(
        _Calls(service).methods(),
        _holding(service),
        settings.max_body,
        settings.read_timeout,
        set(),
    )
    loop = asyncio.get_running_loop()
    shown = f"[{settings.host}]" if ":" in settings.host else settings.host
    try:
        listener = await loop.create_server(
            lambda: Connection(host), settings.host, settings.grpc_port, ssl=_tls(service)
        )
    except OSError as error:
        raise OptionsError(
            f"cannot listen on {shown}:{settings.grpc_port}: {error.strerror}",
            hint="choose another --grpc-port",
        ) from error
    return GrpcServer(host, listener, f"{shown}:{listener.sockets[0].getsockname()[1]}")


def _holding(service: Service) -> Callable[[int], None]:
    def hold(size: int) -> None:
        try:
            service.hold(size)
        except RequestError as error:
            raise CallError(_CODES[error.status], error.text) from error

    return hold


def _tls(service: Service) -> ssl.SSLContext | None:
    settings = service.settings
    if settings.certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(settings.certificate, settings.key)
    context.set_alpn_protocols(["h2"])
    return context


class _Calls:
    """The calls of the service, each from a message to a message."""

    def __init__(self, service: Service) -> None:
        self._service = service
        token = service.settings.token
        self._authorization = None if token is None else f"Bearer {token}".encode()
        self._request = MESSAGES["ModelInferRequest"]
        self._response = MESSAGES["ModelInferResponse"]

    def methods(self) -> dict[str, Method]:
        """What answers each path."""
        found = {
            name: Method(unary=self._guarded(name, answer)) for name, answer in self.table().items()
        }
        found["ModelInfer"] = Method(unary=self._inferred)
        found["ModelStreamInfer"] = Method(stream=self._stream)
        return {f"/{SERVICE}/{name}": method for name, method in found.items()}

    def table(self) -> dict[str, Answer]:
        """The calls by name."""
        service, repository = self._service, self._service.repository

        async def live(request: Message) -> Message:
            return _message("ServerLiveResponse", live=True)

        async def ready(request: Message) -> Message:
            return _message("ServerReadyResponse", ready=service.is_ready)

        async def model_ready(request: Message) -> Message:
            is_ready = repository.answers(request.name, request.version)
            return _message("ModelReadyResponse", ready=is_ready)

        async def metadata(request: Message) -> Message:
            return _parsed("ServerMetadataResponse", service.metadata())

        async def model_metadata(request: Message) -> Message:
            found = service.model_metadata(request.name, request.version)
            return _parsed("ModelMetadataResponse", found)

        async def config(request: Message) -> Message:
            found = service.model_config(request.name, request.version)
            return _parsed("ModelConfigResponse", {"config": found})

        async def statistics(request: Message) -> Message:
            found = service.statistics(request.name, request.version)
            return _parsed("ModelStatisticsResponse", found)

        async def index(request: Message) -> Message:
            return _parsed("RepositoryIndexResponse", {"models": repository.index(request.ready)})

        async def load(request: Message) -> Message:
            await repository.load(request.model_name, _version(request.parameters))
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

    def _guarded(self, name: str, answer: Answer) -> Callable[[bytes, Headers], Awaitable[bytes]]:
        """A call that checks the token, and whose errors become the protocol's."""
        kind = MESSAGES[f"{name}Request"]
        is_open = name in ("ServerLive", "ServerReady")

        async def call(message: bytes, headers: Headers) -> bytes:
            if not is_open:
                self._check_token(headers)
            try:
                found = await answer(_read(kind, message))
            except FlowError as error:
                raise _error(error) from error
            return bytes(found.SerializeToString())

        return call

    async def _inferred(self, message: bytes, headers: Headers) -> bytes:
        self._check_token(headers)
        try:
            answer = await self._infer(_read(self._request, message), headers)
        except FlowError as error:
            raise _error(error) from error
        return bytes(answer.SerializeToString())

    async def _infer(self, request: Message, headers: Headers) -> Message:
        """Run a model."""
        live = self._service.repository.find(request.model_name, request.model_version)
        asked = _decode(request, live, seconds(headers.get("grpc-timeout")))
        results = await self._service.infer(live, asked)
        return self._response(
            model_name=live.model,
            model_version=str(live.version.number),
            id=asked.id,
            outputs=[{"name": n, "datatype": t, "shape": a.shape} for n, t, a in results],
            raw_output_contents=[packed_bytes(array) for _, _, array in results],
        )

    async def _stream(
        self, messages: AsyncIterator[bytes], headers: Headers
    ) -> AsyncIterator[bytes]:
        """Run a model for each request of a stream, one after the other."""
        self._check_token(headers)
        async for message in messages:
            request = _read(self._request, message)
            try:
                answer = {"infer_response": await self._infer(request, {})}
            except FlowError as error:
                failed = self._response(id=request.id)
                answer = {"error_message": refusal(error).text, "infer_response": failed}
            yield _message("ModelStreamInferResponse", **answer).SerializeToString()

    def _check_token(self, headers: Headers) -> None:
        if self._authorization is None:
            return
        given = headers.get("authorization", "").encode("latin-1")
        if not hmac.compare_digest(given, self._authorization):
            raise CallError("UNAUTHENTICATED", "a bearer token is needed")


def _read(kind: Any, message: bytes) -> Message:
    try:
        return kind.FromString(message)
    except DecodeError as error:
        raise CallError("INVALID_ARGUMENT", f"the message cannot be read: {error}") from error


def _error(error: FlowError) -> CallError:
    problem = refusal(error)
    return CallError(_CODES.get(problem.status, "UNKNOWN"), problem.text)


def _message(name: str, **fields: Any) -> Message:
    return MESSAGES[name](**fields)


def _parsed(name: str, value: dict[str, Any]) -> Message:
    return json_format.ParseDict(value, MESSAGES[name]())


def _version(parameters: Mapping[str, Message]) -> int | None:
    unknown = [name for name in parameters if name != "version"]
    if unknown:
        raise RequestError(f"load takes no parameter {unknown[0]!r}", hint="only version")
    if "version" not in parameters:
        return None
    text = parameters["version"].string_param
    if not re.fullmatch("[1-9][0-9]{0,8}", text):
        raise RequestError(f"{text!r} is no version")
    return int(text)


def _decode(request: Message, live: Live, limit: float | None) -> Inference:
    ports = live.version.inputs
    raw = request.raw_input_contents
    is_raw = len(raw) > 0
    if is_raw and len(raw) != len(request.inputs):
        raise RequestError(f"{len(raw)} raw_input_contents for {len(request.inputs)} inputs")
    given: dict[str, NDArray[Any]] = {}
    for position, item in enumerate(request.inputs):
        port = expected(ports, item.name, item.datatype)
        if port.name in given:
            raise RequestError(f"input '{port.name}' is given twice")
        if "shared_memory_region" in item.parameters:
            raise RequestError("shared memory is not served", hint="send the data itself")
        shape = checked_shape(port.name, list(item.shape))
        given[port.name] = (
            from_bytes(port, shape, raw[position])
            if is_raw else _from_contents(port, shape, item.contents)
        )  # fmt: skip
    times = [t for t in (_timeout(request), limit) if t is not None]
    timeout = min(times, default=None)
    return Inference(request.id, arranged(ports, given), _wanted(request, live), timeout)


def _from_contents(port: Port, shape: tuple[int, ...], contents: Message) -> NDArray[Any]:
    name = _CONTENTS.get(port.datatype)
    if name is None:
        raise RequestError(f"input '{port.name}' is {port.datatype}", hint="use raw_input_contents")
    values = np.array(getattr(contents, name))
    if values.size != np.prod(shape, dtype=object):
        raise RequestError(f"input '{port.name}' has {values.size} elements in {name}, its shape "
                           f"is {list(shape)}")  # fmt: skip
    if values.size and port.dtype.kind in "iu":
        limits = np.iinfo(port.dtype)
        if values.min() < limits.min or values.max() > limits.max:
            raise RequestError(f"input '{port.name}' has data outside the range of {port.datatype}")
    return values.astype(port.dtype).reshape(shape)


def _wanted(request: Message, live: Live) -> tuple[Wanted, ...]:
    outputs = live.version.outputs
    if not request.outputs:
        return tuple(Wanted(name) for name in outputs)
    names = [item.name for item in request.outputs]
    for name in names:
        if name not in outputs:
            raise RequestError(f"unexpected output {name!r}", hint=f"outputs: {', '.join(outputs)}")
    if len(set(names)) < len(names):
        raise RequestError("an output is asked for twice")
    return tuple(Wanted(item.name, True, _classes(item)) for item in request.outputs)


def _classes(item: Message) -> int:
    if "classification" not in item.parameters:
        return 0
    classes = int(item.parameters["classification"].int64_param)
    if classes < 0:
        raise RequestError(f"classification is {classes}, not a number of classes")
    return classes


def _timeout(request: Message) -> float | None:
    parameters = request.parameters
    if "sequence_id" in parameters:
        raise RequestError("sequences are not served", hint="models here keep no state")
    if "timeout" not in parameters:
        return None
    value = parameters["timeout"]
    return max(value.int64_param, value.uint64_param, 0) / 1e6 or None
