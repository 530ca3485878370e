import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from flow2onnx_runtime import Predictor

from tests.serving import models, triton_jobs, triton_pair, triton_server

ROOT = Path(__file__).parents[2]


@dataclass
class Running:
    """A server in a process of its own, and what it logs."""

    process: subprocess.Popen
    path: Path
    lines: list[dict] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)
    reader: threading.Thread | None = None

    def read(self) -> None:
        for line in self.process.stderr:
            self.raw.append(line)
            if line.startswith("{"):
                self.lines.append(json.loads(line))

    def wait_for(self, message: str, **values: object) -> dict:
        """The log line with that message and values, which must come within a minute."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            for line in list(self.lines):
                if line["message"] == message and values.items() <= line.items():
                    return line
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise AssertionError(f"no {message!r} in {''.join(self.raw)}")

    @property
    def http(self) -> str:
        return self.wait_for("listening")["http"]

    @property
    def grpc(self) -> str:
        return self.wait_for("listening")["grpc"]

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.http.rpartition(":")
        return host, int(port)

    def ask(self, path, body=None, headers=None, method=None):
        """Status, headers and body of an answer."""
        request = urllib.request.Request(
            f"http://{self.http}{path}", body, headers or {}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, error.read()

    def post(self, path, value, headers=None):
        """Status and JSON of the answer to JSON."""
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        status, _, text = self.ask(path, body, headers)
        return status, json.loads(text)

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=60)

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(60)


Start = Callable[..., Running]


def start(path: Path, *arguments: object, **options: object) -> Running:
    ours = (ROOT / "runtime" / "python", ROOT / "runtime" / "server")
    paths = [*map(str, ours), os.environ.get("PYTHONPATH", "")]
    command = [sys.executable, "-m", "flow2onnx_serve", path, "--port", 0, *arguments]
    process = subprocess.Popen(
        [str(word) for word in command],
        **({"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True,
            "env": os.environ | {"PYTHONPATH": os.pathsep.join(paths)}} | options),
    )  # fmt: skip
    running = Running(process, path)
    if process.stderr is not None:
        running.reader = threading.Thread(target=running.read, daemon=True)
        running.reader.start()
    return running


def stop(running: Running) -> None:
    running.process.kill()
    running.process.wait(60)
    running.reader.join(10)
    running.process.stderr.close()


@pytest.fixture
def serving() -> Iterator[Start]:
    """Starts servers, which end with the test."""
    started: list[Running] = []

    def begin(path: Path, *arguments: object) -> Running:
        started.append(start(path, *arguments))
        started[-1].wait_for("listening")
        return started[-1]

    yield begin
    for running in started:
        stop(running)


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One server of all models, with gRPC, which the tests leave as it is."""
    path = models.repository(tmp_path_factory.mktemp("models"))
    running = start(path, "--grpc-port", 0, "--linger", 0)
    running.wait_for("listening")
    yield running
    stop(running)


@pytest.fixture
def expected(server: Running) -> Callable[..., dict[str, np.ndarray]]:
    """The results of a model of the server, without the server."""

    def run(name: str, version: int = 1, **feeds: np.ndarray) -> dict[str, np.ndarray]:
        return Predictor(server.path / name / str(version) / "model.onnx")(**feeds)

    return run


@contextlib.contextmanager
def beside_triton(
    tmp_path_factory: pytest.TempPathFactory, names: Iterable[str], **options: object
) -> Iterator[triton_pair.Pair]:
    """Our server and the real Triton of one repository; skips where there is no Triton."""
    if lack := triton_server.installation().lack:
        pytest.skip(lack)
    repository = triton_jobs.write(tmp_path_factory.mktemp("triton"), names)
    started: list[Running] = []

    def begin(*arguments: object) -> Running:
        started.append(start(*arguments))
        return started[-1]

    try:
        with triton_pair.pair(repository, begin, **options) as found:
            yield found
    finally:
        for running in started:
            stop(running)


@pytest.fixture(scope="package")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[triton_pair.Pair]:
    """Both servers with all models, which the tests leave as they are."""
    with beside_triton(tmp_path_factory, triton_jobs.MODELS) as found:
        yield found


@pytest.fixture(scope="package")
def controlled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[triton_pair.Pair]:
    """Both servers with the models `conv` and `digits`, which the tests load and unload."""
    with beside_triton(tmp_path_factory, ("conv", "digits"), explicit=["conv"]) as found:
        yield found
