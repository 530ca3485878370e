"""Requests read and answers written: small ones at once, large ones beside the event loop.

What holds Python's lock for long goes to another process, what releases it to a thread.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pickle import PickleBuffer
from typing import Any, TypeVar

from numpy.typing import NDArray

from flow2onnx_serve import grpc_encoding, http_encoding
from flow2onnx_serve.compression import MOST_PACKED, deflate, inflate
from flow2onnx_serve.errors import RequestError
from flow2onnx_serve.grpc_encoding import Incoming, decode_parts, split
from flow2onnx_serve.inference import Inference, Result, top_classes
from flow2onnx_serve.loading import Version
from flow2onnx_serve.messages import MESSAGES
from flow2onnx_serve.settings import Settings
from flow2onnx_serve.workers import Workers

__all__ = ["Codec"]

# What the event loop reads or writes itself takes it about a millisecond.
_TEXT = 32 * 1024  # bytes of JSON, or of a message without its tensors
_TENSORS = 1 << 20  # bytes of tensors that are looked through or copied
_VALUES = 2048  # numbers that are written as JSON, or sorted
_MEMORY = 16  # bytes that a process may take for each byte of the largest request

Hold = Callable[[int], object]
Text = bytes | bytearray | memoryview
Found = TypeVar("Found")


class Codec:
    """Reads and writes what the protocols carry, for as long as a request may take at most."""

    def __init__(self, settings: Settings) -> None:
        self._limit, self._timeout = settings.max_body, settings.timeout
        count = max(1, settings.core_count // 2)
        self._workers = Workers(count, _MEMORY * settings.max_body)
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="codec")

    def close(self) -> None:
        """End processes and threads."""
        self._workers.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def read_http(
        self, body: bytes | bytearray, header: int | None, version: Version, hold: Hold
    ) -> Inference:
        """The request in a body, of which the first `header` bytes are JSON (None: all of it)."""
        ports = version.inputs, version.outputs
        if (len(body) if header is None else min(header, len(body))) > _TEXT:
            decode = http_encoding.decode
            return await self._read_apart(hold, decode, PickleBuffer(body), header, *ports)
        if len(body) > _TENSORS:
            return await self._in_thread(http_encoding.decode, body, header, *ports)
        return http_encoding.decode(body, header, *ports)

    async def write_http(
        self, model: str, version: str, request: Inference, results: Sequence[Result]
    ) -> tuple[Text, int | None]:
        """The answer, and how many bytes of it are JSON unless all are."""
        encode, asked = http_encoding.encode, replace(request, arrays=[])
        pairs = zip(request.wanted, results, strict=True)
        if sum(array.size for wanted, (*_, array) in pairs if not wanted.is_binary) > _VALUES:
            return await self._in_process(_encode_apart, model, version, asked, results)
        if _size(results) > _TENSORS:
            return await self._in_thread(encode, model, version, asked, results)
        return encode(model, version, asked, results)

    def open_grpc(self, data: bytes) -> Incoming:
        """The request in a message, read as far as its names at least."""
        if len(data) > _TEXT:
            return split(data)
        return Incoming(grpc_encoding.parse(MESSAGES["ModelInferRequest"], data))

    async def read_grpc(self, incoming: Incoming, version: Version, hold: Hold) -> Inference:
        """The request to that version."""
        ports, head, tensors = (version.inputs, version.outputs), incoming.head, incoming.tensors
        if head is None:
            return grpc_encoding.decode(incoming.message, *ports)
        if sum(map(len, head)) > _TEXT:
            parts = [[PickleBuffer(part) for part in parts] for parts in (head, tensors)]
            return await self._read_apart(hold, decode_parts, *parts, *ports)
        if sum(map(len, tensors)) > _TENSORS:
            return await self._in_thread(decode_parts, head, tensors, *ports)
        return decode_parts(head, tensors, *ports)

    async def write_grpc(
        self, model: str, version: str, request: Inference, results: Sequence[Result]
    ) -> Any:
        """The answer's message."""
        encode = grpc_encoding.encode
        if _size(results) > _TENSORS:
            return await self._in_thread(encode, model, version, request.id, results)
        return encode(model, version, request.id, results)

    async def classes(self, array: NDArray[Any], *how: Any) -> NDArray[Any]:
        """The largest values of each row, as texts; `how` as `top_classes` takes it."""
        if array.size > _VALUES:
            return await self._in_process(top_classes, array, *how)
        return top_classes(array, *how)

    async def inflate(self, body: bytes | bytearray, encoding: bytes) -> bytes:
        """The content of a packed body, within the limit for requests."""
        if len(body) * MOST_PACKED > _TENSORS:
            return await self._in_thread(inflate, body, encoding, self._limit)
        return inflate(body, encoding, self._limit)

    async def deflate(
        self, answer: Text, accepted: bytes
    ) -> tuple[Text, list[tuple[bytes, bytes]]]:
        """The answer, packed if the client asks for it, and headers to say so."""
        if len(answer) > _TEXT:
            return await self._in_thread(deflate, answer, accepted)
        return deflate(answer, accepted)

    async def _read_apart(
        self, hold: Hold, decode: Callable[..., Inference], *arguments: object
    ) -> Inference:
        found = await self._in_process(decode, *arguments)
        hold(sum(array.nbytes for array in found.arrays))  # beside the text that they were
        return found

    async def _in_process(self, function: Callable[..., Found], *arguments: object) -> Found:
        return await self._in_time(self._workers.call(function, *arguments))

    async def _in_thread(self, function: Callable[..., Found], *arguments: object) -> Found:
        loop = asyncio.get_running_loop()
        return await self._in_time(loop.run_in_executor(self._threads, function, *arguments))

    async def _in_time(self, found: Awaitable[Found]) -> Found:
        try:
            async with asyncio.timeout(self._timeout):
                return await found
        except TimeoutError:
            raise RequestError("the request's time is over", 504) from None


def _encode_apart(*arguments: Any) -> tuple[Any, int | None]:
    """The answer as `http_encoding.encode` makes it, to be passed on without a copy."""
    text, length = http_encoding.encode(*arguments)
    return PickleBuffer(text), length


def _size(results: Sequence[Result]) -> int:
    return sum(array.nbytes for *_, array in results)
