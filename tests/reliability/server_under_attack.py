"""A server that some clients treat badly: what its other clients wait, and what memory it keeps.

Usage: python -m tests.reliability.server_under_attack [--case NAME …] [--times N] [--scale X]
                                                       [--json FILE]

Starts `flow2onnx-serve` on models of its own. A healthy client in a process of its own asks for
small inferences all the time, over HTTP and over gRPC by turns, while a case is played `times`
times. Prints for each case the longest that the healthy client waited, the server's memory (with
that of its worker processes) before, at most, after the first time and after the last, and what
came of the attack. `scale` makes the attacks smaller. Exits with 1 if the healthy client got a
wrong answer, waited longer than `--most` milliseconds, or something was still held at the end.
"""

import argparse
import asyncio
import contextlib
import gzip
import json
import os
import re
import select
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from flow2onnx_serve.messages import MESSAGES

from tests.reliability import http2_frames

ROOT = Path(__file__).parents[2]
SERVICE = "/inference.GRPCInferenceService"
LARGE = 60_000_000  # bytes of a body
SMALL = 10_000_000  # bytes of small messages together
STREAM = 25_000  # messages
CLIENTS = 200
X = np.random.default_rng(7).standard_normal((3, 16)).astype(np.float32)
WIDE = 1 << 30  # bytes, of a message that a client takes


@dataclass(frozen=True)
class Server:
    """A server that runs: its process, and where it listens."""

    pid: int
    http: tuple[str, int]
    grpc: str

    def metrics(self) -> str:
        """The server's own words about itself."""
        host, port = self.http
        with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=60) as answer:
            return str(answer.read().decode())

    def waiting(self, model: str) -> int:
        """How many requests wait for a model."""
        name = f'queue_length{{model="{model}"}}'
        found = re.search(rf"^flow2onnx_{re.escape(name)} (.*)$", self.metrics(), re.MULTILINE)
        return int(float(found[1])) if found else 0

    def held(self) -> int:
        """How many bytes of requests it holds, as it counts them."""
        found = re.search(r"^flow2onnx_held_bytes (.*)$", self.metrics(), re.MULTILINE)
        assert found is not None
        return int(float(found[1]))


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Server]:
    """A server of the models that the tests use."""
    from tests.serving import models  # here: the healthy client begins sooner without onnx

    command = [sys.executable, "-m", "flow2onnx_serve", str(models.repository(folder)),
               "--port", "0", "--grpc-port", "0", "--threads", "1", "--linger", "0"]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if '"listening"' in line:
                    said = json.loads(line)
                    break
            else:
                raise AssertionError("the server did not begin")
            threading.Thread(target=process.stderr.read, daemon=True).start()
            host, _, port = said["http"].rpartition(":")
            yield Server(process.pid, (host, int(port)), said["grpc"])
        finally:
            process.terminate()
            process.wait(60)


def resident(pid: int) -> int:
    """Bytes in memory of a process and its children."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        tasks = Path(f"/proc/{pid}/task").iterdir()
        children = [int(n) for t in tasks for n in (t / "children").read_text().split()]
    except OSError:  # it ended meanwhile
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") + sum(map(resident, children))


def http_request(
    model: str, head: dict[str, Any], data: bytes = b"", fields: tuple[str, ...] = ()
) -> bytes:
    """A request for an inference: JSON and bytes behind it."""
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    length = [f"Inference-Header-Content-Length: {len(text)}"] if data else []
    lines = [f"POST /v2/models/{model}/infer HTTP/1.1", "Host: localhost", *length, *fields,
             f"Content-Length: {len(text) + len(data)}", "", ""]  # fmt: skip
    return "\r\n".join(lines).encode() + text + data


def small_http() -> bytes:
    """A request for three rows."""
    entry = {"name": "x", "shape": X.shape, "datatype": "FP32",
             "parameters": {"binary_data_size": X.nbytes}}  # fmt: skip
    return http_request("mlp", {"inputs": [entry]}, X.tobytes())


def small_grpc() -> bytes:
    """The same as a message."""
    entry = {"name": "x", "datatype": "FP32", "shape": X.shape}
    request = MESSAGES["ModelInferRequest"](
        model_name="mlp", inputs=[entry], raw_input_contents=[X.tobytes()]
    )
    return bytes(request.SerializeToString())


def read_answers(connection: socket.socket, count: int) -> Counter[str]:
    """The statuses of so many answers."""
    found, data = Counter[str](), bytearray()
    while found.total() < count:
        head, end, _ = bytes(data[:4096]).partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        if end and length and len(data) >= len(head) + 4 + int(length[1]):
            found[head[9:12].decode()] += 1
            del data[: len(head) + 4 + int(length[1])]
            continue
        part = connection.recv(1 << 20)
        if not part:
            found["closed"] += 1
            break
        data += part
    return found


def ask(server: Server, request: bytes) -> Counter[str]:
    """The status of the answer to one request on a connection of its own."""
    with socket.create_connection(server.http, timeout=120) as connection:
        connection.sendall(request)
        return read_answers(connection, 1)


def large_json(server: Server, scale: float) -> Counter[str]:
    """One body of 60 MB of JSON."""
    rows = int(LARGE * scale) // (3 * 6)
    numbers = b"0.125,-1.75,12.5,"
    data = (numbers * rows)[:-1]
    head = (b'{"parameters":{"binary_data_output":true},"inputs":[{"name":"x","datatype":"FP32",'
            b'"shape":[%d,3],"data":[' % rows)  # fmt: skip
    return ask(server, http_request("centred", head + data + b"]}]}"))  # type: ignore[arg-type]


def large_lists(server: Server, scale: float) -> Counter[str]:
    """One message of 60 MB whose numbers stand in a typed list."""
    rows = int(LARGE * scale) // 12
    entry = {"name": "x", "datatype": "FP32", "shape": [rows, 3],
             "contents": {"fp32_contents": np.ones(3 * rows, np.float32)}}  # fmt: skip
    request = MESSAGES["ModelInferRequest"](model_name="centred", inputs=[entry])
    return call_once(server, bytes(request.SerializeToString()))


def many_fields(server: Server, scale: float) -> Counter[str]:
    """One message of 10 MB that consists of inputs of two bytes."""
    return call_once(server, b"\x2a\x00" * int(SMALL * scale / 2))


def call_once(server: Server, message: bytes) -> Counter[str]:
    options = [("grpc.max_send_message_length", WIDE), ("grpc.max_receive_message_length", WIDE)]
    with grpc.insecure_channel(server.grpc, options=options) as channel:
        try:
            channel.unary_unary(f"{SERVICE}/ModelInfer")(message, timeout=120)
        except grpc.RpcError as error:
            return Counter({error.code().name: 1})
    return Counter({"200": 1})


def large_answer(server: Server, scale: float) -> Counter[str]:
    """A request of 12 MB of bytes whose answer is JSON."""
    x = np.random.default_rng(0).standard_normal((int(1_000_000 * scale), 3)).astype(np.float32)
    entry = {"name": "x", "shape": x.shape, "datatype": "FP32",
             "parameters": {"binary_data_size": x.nbytes}}  # fmt: skip
    return ask(server, http_request("centred", {"inputs": [entry]}, x.tobytes()))


def packed(server: Server, scale: float) -> Counter[str]:
    """A body of 60 KB that inflates to 60 MB, and one that would to 600 MB."""
    found = Counter[str]()
    for size in (LARGE, 10 * LARGE):
        body = gzip.compress(b" " * int(size * scale))
        found += ask(server, http_request("mlp", body, fields=("Content-Encoding: gzip",)))  # type: ignore[arg-type]
    return found


def pipelined(server: Server, scale: float) -> Counter[str]:
    """10 MB of small requests on one connection, sent without waiting."""
    request = small_http()
    count = max(1, int(SMALL * scale) // len(request))
    with socket.create_connection(server.http, timeout=120) as connection:
        sending = threading.Thread(target=connection.sendall, args=(request * count,))
        sending.start()
        found = read_answers(connection, count)
        sending.join()
    return found


def small_calls(server: Server, scale: float) -> Counter[str]:
    """10 MB of small calls on one connection, as many at once as it allows."""
    message = small_grpc()
    count = max(1, int(SMALL * scale) // len(message))

    async def main() -> Counter[str]:
        found, left = Counter[str](), iter(range(count))
        async with grpc.aio.insecure_channel(server.grpc) as channel:
            infer = channel.unary_unary(f"{SERVICE}/ModelInfer")
            await infer(message)

            async def work() -> None:
                for _ in left:
                    try:
                        await infer(message, timeout=120)
                        found["200"] += 1
                    except grpc.RpcError as error:
                        found[error.code().name] += 1

            await asyncio.gather(*(work() for _ in range(1000)))
        return found

    return asyncio.run(main())


def one_stream(server: Server, scale: float) -> Counter[str]:
    """25,000 small messages on one healthy stream."""
    message = small_grpc()
    with grpc.insecure_channel(server.grpc) as channel:
        messages = iter([message] * int(STREAM * scale))
        answers = channel.stream_stream(f"{SERVICE}/ModelStreamInfer")(messages, timeout=600)
        kind = MESSAGES["ModelStreamInferResponse"]
        return Counter("error" if kind.FromString(a).error_message else "200" for a in answers)


def endless() -> dict[str, Any]:
    """A request that a model would work on for hours."""
    entry = {"name": "n", "shape": [1], "datatype": "INT64", "data": [2_000_000_000]}
    return {"inputs": [entry]}


def leaving(server: Server, scale: float) -> Counter[str]:
    """200 clients that wait for a busy model, half over HTTP and half over gRPC, leave at once."""
    count = max(2, int(CLIENTS * scale))
    request = http_request("slow", endless())
    entry = {"name": "n", "datatype": "INT64", "shape": [1]}
    message = MESSAGES["ModelInferRequest"](
        model_name="slow", inputs=[entry], raw_input_contents=[np.array([2_000_000_000]).tobytes()]
    ).SerializeToString()
    connections = [socket.create_connection(server.http) for _ in range(count // 2)]
    channels = [grpc.insecure_channel(server.grpc, options=[("grpc.use_local_subchannel_pool", 1)])
                for _ in range(count - len(connections))]  # fmt: skip
    for connection in connections:
        connection.sendall(request)
    calls = [c.unary_unary(f"{SERVICE}/ModelInfer").future(message, timeout=25) for c in channels]
    until(lambda: server.waiting("slow") >= count - 1)
    for number, connection in enumerate(connections):
        if number % 2:  # reset it, in place of ending it in order
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    for call, channel in zip(calls, channels, strict=True):
        call.cancel()
        channel.close()
    until(lambda: server.waiting("slow") == 0)
    return Counter({"left": count})


def until(is_so: Callable[[], bool], seconds: float = 20) -> None:
    """Wait until it is so, which it must be soon."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)


def rapid_reset(server: Server, scale: float) -> Counter[str]:
    """25,000 calls that are taken back as they begin."""
    return http2_frames.rapid_reset(server.grpc, max(100, int(STREAM * scale)))


def flood_of(
    send: Callable[[str, int], Counter[str]], most: int = 4 * STREAM
) -> Callable[[Server, float], Counter[str]]:
    """A case of `most` frames that cost their sender nothing."""
    return lambda server, scale: send(server.grpc, max(100, int(most * scale)))


def nothing(server: Server, scale: float) -> Counter[str]:
    """No attack: what the healthy client waits by itself."""
    time.sleep(5 * scale)
    return Counter()


CASES: dict[str, Callable[[Server, float], Counter[str]]] = {
    "nothing": nothing,
    "json": large_json,
    "lists": large_lists,
    "fields": many_fields,
    "answer": large_answer,
    "packed": packed,
    "pipelined": pipelined,
    "calls": small_calls,
    "stream": one_stream,
    "leaving": leaving,
    "reset": rapid_reset,
    "headers": flood_of(http2_frames.endless_headers),
    "pings": flood_of(http2_frames.pings),
    "settings": flood_of(http2_frames.settings),
    "empty": flood_of(http2_frames.empty_data),
    "halves": flood_of(http2_frames.half_frames, CLIENTS),
}


def be_healthy(server: Server) -> dict[str, Any]:
    """Ask until stdin ends; returns counts, and the longest waits in milliseconds."""
    request, message = small_http(), small_grpc()
    waits: dict[str, list[float]] = {"http": [], "grpc": []}
    wrong = 0
    with (
        socket.create_connection(server.http, timeout=120) as connection,
        grpc.insecure_channel(server.grpc) as channel,
    ):
        infer = channel.unary_unary(f"{SERVICE}/ModelInfer")
        for turn in range(10**9):
            began = time.perf_counter()
            connection.sendall(request)
            wrong += read_answers(connection, 1) != {"200": 1}
            between = time.perf_counter()
            wrong += not infer(message, timeout=120)
            if turn < 20:  # what is slow the first time is no wait for others
                continue
            if turn == 20:
                print("ready", flush=True)
            waits["http"].append(between - began)
            waits["grpc"].append(time.perf_counter() - between)
            if select.select([sys.stdin], [], [], 0.002)[0]:
                break
    return {
        "asked": sum(map(len, waits.values())), "wrong": wrong,
        **{f"{kind}_ms": round(1000 * max(found, default=0), 1) for kind, found in waits.items()},
    }  # fmt: skip


@contextlib.contextmanager
def healthy(server: Server) -> Iterator[dict[str, Any]]:
    """A healthy client meanwhile; what it found is in the dictionary afterwards."""
    host, port = server.http
    command = [sys.executable, "-m", "tests.reliability.server_under_attack", "--healthy",
               f"{host}:{port}", server.grpc]  # fmt: skip
    found: dict[str, Any] = {}
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield found
        finally:
            text, _ = process.communicate("\n", timeout=120)
    found |= json.loads(text)


class Memory:
    """Looks how much memory a server has, and how much it had at most."""

    def __init__(self, pid: int) -> None:
        self._pid, self.peak, self._is_over = pid, 0, False
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._is_over:
            self.peak = max(self.peak, resident(self._pid))
            time.sleep(0.05)

    def close(self) -> None:
        """Look no longer."""
        self._is_over = True
        self._thread.join()


def play(server: Server, case: str, times: int, scale: float) -> dict[str, Any]:
    """The outcome of a case that is played so often."""
    with healthy(server) as found:
        memory, outcome = Memory(server.pid), Counter[str]()
        before, after = resident(server.pid), []
        began = time.perf_counter()
        for _ in range(times):
            outcome += CASES[case](server, scale)
            until(lambda: server.held() <= 4 * len(small_http()))  # the healthy client's own
            after.append(resident(server.pid))
        seconds = time.perf_counter() - began
        memory.close()
    mega = [round(size / 1e6) for size in (before, memory.peak, after[0], after[-1])]
    names = ("before_mb", "peak_mb", "first_mb", "last_mb")
    return {"case": case, "times": times, "seconds": round(seconds, 1), **found,
            **dict(zip(names, mega, strict=True)), "outcome": dict(outcome)}  # fmt: skip


def measure(cases: list[str], times: int, scale: float) -> list[dict[str, Any]]:
    """The outcome of each case, one after the other on one server."""
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as server:
        rows = [play(server, case, times, scale) for case in cases]
        assert server.held() == 0
        assert all(server.waiting(name) == 0 for name in ("mlp", "slow", "centred"))
        return rows


def show(rows: list[dict[str, Any]]) -> None:
    """Print the rows as a table."""
    names = [name for name in rows[0] if name != "outcome"]
    for row in [dict(zip(names, names, strict=True)), *rows]:
        print("  ".join(f"{row[name]!s:>10}" for name in names), row.get("outcome", ""))


def main() -> int:
    """Attack; 1 if the healthy client waited too long or got a wrong answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=CASES, nargs="+", default=list(CASES))
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--most", type=float, default=250.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--healthy", nargs=2)
    arguments = parser.parse_args()
    if arguments.healthy:
        host, _, port = arguments.healthy[0].rpartition(":")
        print(json.dumps(be_healthy(Server(0, (host, int(port)), arguments.healthy[1]))))
        return 0
    rows = measure(arguments.case, arguments.times, arguments.scale)
    show(rows)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    return any(row["wrong"] or max(row["http_ms"], row["grpc_ms"]) > arguments.most for row in rows)


if __name__ == "__main__":
    sys.exit(main())
