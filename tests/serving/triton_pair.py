"""Our server and the real Triton, asked the same by the real client over each of its protocols."""

import asyncio
import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc
import tritonclient.http
import tritonclient.http.aio
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from tests.serving.triton_server import Triton

KINDS = ("http", "aio", "grpc")
_MODULES = {
    "http": tritonclient.http, "aio": tritonclient.http.aio, "grpc": tritonclient.grpc,
}  # fmt: skip
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Server:
    """Where a server listens."""

    http: str
    grpc: str

    def call(self, kind: str, method: str, *args: Any, **options: Any) -> Any:
        """The result of a method of Triton's client; errors are its `InferenceServerException`."""
        if kind == "aio":
            return asyncio.run(self._call_async(method, *args, **options))
        url = self.grpc if kind == "grpc" else self.http
        client = _MODULES[kind].InferenceServerClient(url)
        try:
            return getattr(client, method)(*args, **options)
        finally:
            client.close()

    async def _call_async(self, method: str, *args: Any, **options: Any) -> Any:
        async with tritonclient.http.aio.InferenceServerClient(self.http) as client:
            return await getattr(client, method)(*args, **options)

    def describe(self, kind: str, method: str, *args: Any) -> Any:
        """The result of a method, as JSON."""
        more = {"as_json": True} if kind == "grpc" else {}
        return self.call(kind, method, *args, **more)

    def infer(
        self, kind: str, model: str, feeds: Arrays, *, version: str = "",
        wanted: Mapping[str, int] | None = None,
    ) -> dict[str, np.ndarray]:  # fmt: skip
        """The outputs; `wanted` ones with their numbers of classes, 0 for the values themselves."""
        module = _MODULES[kind]
        inputs = []
        for name, array in feeds.items():
            inputs.append(module.InferInput(name, array.shape, np_to_triton_dtype(array.dtype)))
            inputs[-1].set_data_from_numpy(array)
        outputs = None
        if wanted is not None:
            outputs = [
                module.InferRequestedOutput(n, class_count=count) for n, count in wanted.items()
            ]
        found = self.call(
            kind, "infer", model, inputs, model_version=version, outputs=outputs, request_id="7"
        )
        return {name: found.as_numpy(name) for name in _names(kind, found)}

    def ask(
        self, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """The status and the body of an answer over HTTP."""
        request = urllib.request.Request(f"http://{self.http}{path}", body, headers or {})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()


def _names(kind: str, found: Any) -> list[str]:
    response = found.get_response()
    if kind == "grpc":
        assert (response.id, response.model_version != "") == ("7", True)
        return [output.name for output in response.outputs]
    assert (response["id"], response["model_version"] != "") == ("7", True)
    return [output["name"] for output in response["outputs"]]


@dataclass(frozen=True)
class Pair:
    """The two servers of one repository."""

    ours: Server
    theirs: Server
    repository: Path

    def each(self) -> tuple[Server, Server]:
        return self.ours, self.theirs


@contextlib.contextmanager
def pair(repository: Path, start: Any, *, explicit: list[str] | None = None) -> Iterator[Pair]:
    """Both servers of a repository, with one thread for each session: `start` begins ours."""
    with Triton(repository, explicit=explicit, threads=1) as triton:
        running = start(repository, "--grpc-port", 0, "--threads", 1, "--linger", 0, "--poll", 0)
        ours = Server(running.http, running.grpc)
        yield Pair(ours, Server(triton.http, triton.grpc), repository)


def code_of(server: Server, kind: str, method: str, *args: Any, **options: Any) -> str:
    """The status of an error that a method raises, or "OK"."""
    try:
        server.call(kind, method, *args, **options)
    except InferenceServerException as error:
        code = str(error.status()).rpartition(".")[2]
        return code if error.message() else f"{code} without a text"
    return "OK"


def error_of(body: bytes) -> str:
    """The text of an error of the protocol."""
    found = json.loads(body)
    assert list(found) == ["error"], found
    assert isinstance(found["error"], str)
    assert found["error"]
    return found["error"]
