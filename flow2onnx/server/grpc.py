"""The protocol over gRPC."""

import hmac
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grpc
import numpy as np
from flow2onnx_runtime import FlowError, OptionsError
from google.protobuf import json_format  # type: ignore[import-untyped]  # has no types
from numpy.typing import NDArray

from flow2onnx.server.inference import (
    Inference,
    Wanted,
    arranged,
    checked_shape,
    expected,
    from_bytes,
)
from flow2onnx.server.messages import SERVICE, message_class
from flow2onnx.server.ports import Port
from flow2onnx.server.problem import RequestError
from flow2onnx.server.repository import Live
from flow2onnx.server.service import Service, refusal
from flow2onnx.server.wire import packed_bytes

__all__ = ["start_grpc"]

Message = Any  # of classes made at run time
Answer = Callable[[Message], Awaitable[Message]]

_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    404: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    500: grpc.StatusCode.INTERNAL,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
# the typed lists that a request may use in place of bytes
_CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents",
    "INT32": "int_contents", "INT64": "int64_contents", "UINT8": "uint_contents",
    "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents",
    "FP32": "fp32_contents", "FP64": "fp64_contents",
}  # fmt: skip


async def start_grpc(service: Service) -> tuple[Any, str]:
    """A server that listens, and its address."""
    settings = service.settings
    limits = [("grpc.max_receive_message_length", settings.max_body),
              ("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0)]  # fmt: skip
    server = grpc.aio.server(options=limits)
    server.add_generic_rpc_handlers((_handlers(service),))
    address = f"[{settings.host}]" if ":" in settings.host else settings.host
    try:
        port = _bind(server, service, f"{address}:{settings.grpc_port}")
    except (RuntimeError, OSError) as error:
        raise OptionsError(
            f"cannot listen on {address}:{settings.grpc_port}: {error}",
            hint="choose another --grpc-port",
        ) from error
    await server.start()
    return server, f"{address}:{port}"


def _bind(server: Any, service: Service, address: str) -> int:
    settings = service.settings
    if settings.certificate is None or settings.key is None:
        return int(server.add_insecure_port(address))
    pair = (settings.key.read_bytes(), settings.certificate.read_bytes())
    return int(server.add_secure_port(address, grpc.ssl_server_credentials([pair])))


def _handlers(service: Service) -> Any:
    calls = _Calls(service)
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            calls.guarded(answer, is_open=name in ("ServerLive", "ServerReady")),
            message_class(f"inference.{name}Request").FromString,
            message_class(f"inference.{name}Response").SerializeToString,
        )
        for name, answer in calls.table().items()
    }
    handlers["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(
        calls.stream,
        message_class("inference.ModelInferRequest").FromString,
        message_class("inference.ModelStreamInferResponse").SerializeToString,
    )
    return grpc.method_handlers_generic_handler(SERVICE, handlers)


class _Calls:
    """The calls of the service, each from a message to a message."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def table(self) -> dict[str, Answer]:
        """The calls by name."""
        service, repository = self._service, self._service.repository

        async def live(request: Message) -> Message:
            return _message("ServerLiveResponse", live=True)

        async def ready(request: Message) -> Message:
            return _message("ServerReadyResponse", ready=service.is_ready)

        async def model_ready(request: Message) -> Message:
            repository.find(request.name, request.version)
            return _message("ModelReadyResponse", ready=True)

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
            "ModelStatistics": statistics, "ModelInfer": self.infer, "RepositoryIndex": index,
            "RepositoryModelLoad": load, "RepositoryModelUnload": unload,
        }  # fmt: skip

    def guarded(self, answer: Answer, *, is_open: bool) -> Callable[[Message, Any], Any]:
        """A call that checks the token, and whose errors become the protocol's."""

        async def call(request: Message, context: Any) -> Message:
            try:
                if not is_open:
                    self._check_token(context)
                return await answer(request)
            except FlowError as error:
                problem = refusal(error)
            code = _CODES.get(problem.status, grpc.StatusCode.UNKNOWN)
            await context.abort(code, problem.text)

        return call

    async def infer(self, request: Message) -> Message:
        """Run a model."""
        live = self._service.repository.find(request.model_name, request.model_version)
        asked = _decode(request, live)
        results = await self._service.infer(live, asked)
        outputs = [{"name": n, "datatype": t, "shape": a.shape} for n, t, a in results]
        return _message(
            "ModelInferResponse",
            model_name=live.model,
            model_version=str(live.version.number),
            id=asked.id,
            outputs=outputs,
            raw_output_contents=[packed_bytes(array) for _, _, array in results],
        )

    async def stream(self, requests: Any, context: Any) -> Any:
        """Run a model for each request of a stream, one after the other."""
        try:
            self._check_token(context)
        except RequestError as error:
            await context.abort(_CODES[error.status], error.text)
        async for request in requests:
            try:
                answer = {"infer_response": await self.infer(request)}
            except FlowError as error:
                failed = _message("ModelInferResponse", id=request.id)
                answer = {"error_message": refusal(error).text, "infer_response": failed}
            yield _message("ModelStreamInferResponse", **answer)

    def _check_token(self, context: Any) -> None:
        token = self._service.settings.token
        if token is None:
            return
        given = [value for key, value in context.invocation_metadata() if key == "authorization"]
        if not _is_token(given, token):
            raise RequestError("a bearer token is needed", 401)


def _is_token(given: list[str], token: str) -> bool:
    """Whether exactly one authorization was given, and it is the one."""
    return len(given) == 1 and hmac.compare_digest(given[0].encode(), f"Bearer {token}".encode())


def _message(name: str, **fields: Any) -> Message:
    return message_class(f"inference.{name}")(**fields)


def _parsed(name: str, value: dict[str, Any]) -> Message:
    return json_format.ParseDict(value, message_class(f"inference.{name}")())


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


def _decode(request: Message, live: Live) -> Inference:
    ports = live.version.inputs
    is_raw = len(request.raw_input_contents) > 0
    if is_raw and len(request.raw_input_contents) != len(request.inputs):
        raise RequestError(
            f"{len(request.raw_input_contents)} raw_input_contents for {len(request.inputs)} inputs"
        )
    given: dict[str, NDArray[Any]] = {}
    for position, item in enumerate(request.inputs):
        port = expected(ports, item.name, item.datatype)
        if port.name in given:
            raise RequestError(f"input '{port.name}' is given twice")
        if "shared_memory_region" in item.parameters:
            raise RequestError("shared memory is not served", hint="send the data itself")
        shape = checked_shape(port.name, list(item.shape))
        given[port.name] = (
            from_bytes(port, shape, request.raw_input_contents[position])
            if is_raw else _from_contents(port, shape, item.contents)
        )  # fmt: skip
    return Inference(request.id, arranged(ports, given), _wanted(request, live), _timeout(request))


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
