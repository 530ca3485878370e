"""A closed loop of clients against a server of the Open Inference Protocol, over HTTP or gRPC.

    python benchmarks/serving/load.py --url 127.0.0.1:8000 --model mlp --concurrency 1 8 32
    python benchmarks/serving/load.py --url 127.0.0.1:8000 --grpc 127.0.0.1:8001 --model mlp

Each client has a connection of its own and sends its next request, one binary tensor of one row,
when the last is answered. Prints requests a second, p50, p99, and with --pid the processor time
that the server's processes spent per request. The clients are plain sockets in one thread, for gRPC
with as much of HTTP/2 as it takes, so that they take little from the server's cores.
"""

import argparse
import json
import os
import select
import socket
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import numpy as np

TICK = os.sysconf("SC_CLK_TCK")
_KINDS = {"FP32": np.float32, "FP64": np.float64, "INT64": np.int64, "INT32": np.int32}
_LARGEST_WINDOW = 2**31 - 1
_FRAME = 16384  # the most that a frame may hold unless the server says otherwise
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
_INITIAL_WINDOW = 4  # the number of the setting


@dataclass(frozen=True)
class Tensor:
    """The input of a model, one row of it."""

    model: str
    name: str
    datatype: str
    shape: tuple[int, ...]

    def data(self) -> bytes:
        draws = np.random.default_rng(0).standard_normal(self.shape)
        return draws.astype(_KINDS[self.datatype]).tobytes()


def http_request(host: str, tensor: Tensor) -> bytes:
    data = tensor.data()
    head = json.dumps({
        "inputs": [{"name": tensor.name, "shape": tensor.shape, "datatype": tensor.datatype,
                    "parameters": {"binary_data_size": len(data)}}],
        "parameters": {"binary_data_output": True},
    }).encode()  # fmt: skip
    lines = [
        f"POST /v2/models/{tensor.model}/infer HTTP/1.1", f"Host: {host}",
        f"Inference-Header-Content-Length: {len(head)}",
        f"Content-Length: {len(head) + len(data)}", "", "",
    ]  # fmt: skip
    return "\r\n".join(lines).encode() + head + data


def grpc_request(tensor: Tensor) -> bytes:
    """A ModelInferRequest, in the five bytes that gRPC puts before a message."""
    shape = b"".join(_varint(size) for size in tensor.shape)
    item = _field(1, tensor.name.encode()) + _field(2, tensor.datatype.encode()) + _field(3, shape)
    message = _field(1, tensor.model.encode()) + _field(5, item) + _field(7, tensor.data())
    return b"\0" + len(message).to_bytes(4, "big") + message


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


class Client:
    """One connection; `unsent` is what the socket has not taken yet."""

    def __init__(self, address: tuple[str, int], request: bytes) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.request, self.unsent, self.answer = request, b"", b""
        self.began, self.is_watched = 0.0, False

    def ask(self) -> None:
        """Send the request."""
        self.began = time.perf_counter()
        self.send(self.request)

    def send(self, data: bytes) -> None:
        self.unsent = self.unsent + data if self.unsent else data
        self.flush()

    def flush(self) -> None:
        try:
            sent = self.socket.send(self.unsent)
        except BlockingIOError:
            return
        self.unsent = self.unsent[sent:] if sent < len(self.unsent) else b""

    def take(self, data: bytes) -> bool:
        """True if these bytes complete the answer."""
        raise NotImplementedError

    def outputs(self) -> bytes:
        """The bytes of the tensors in the last answer."""
        raise NotImplementedError


class HttpClient(Client):
    _buffer, _wanted = b"", 0

    def take(self, data: bytes) -> bool:
        data = self._buffer = self._buffer + data if self._buffer else data
        if not self._wanted:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                return False
            lower = data[:end].lower()
            start = lower.index(b"content-length:") + 15
            self._wanted = end + 4 + int(lower[start : (lower + b"\r").index(b"\r", start)])
        if len(data) < self._wanted:
            return False
        if data[9:12] != b"200":
            raise SystemExit(f"the server answered {data[:500]!r}")
        self.answer, self._buffer, self._wanted = data, b"", 0
        return True

    def outputs(self) -> bytes:
        head, _, body = self.answer.partition(b"\r\n\r\n")
        fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:])
        return body[int(fields[b"inference-header-content-length"]) :]


class GrpcClient(Client):
    """A call of ModelInfer after the other, each a stream of one HTTP/2 connection."""

    def __init__(self, address: tuple[str, int], request: bytes) -> None:
        super().__init__(address, request)
        self._buffer, self._message = b"", b""
        self._stream, self._position = -1, len(request)
        self._window = self._stream_window = self._initial = 65535
        host = f"{address[0]}:{address[1]}"
        self._headers = (
            b"\x83\x86"  # POST, http
            + b"\x04" + _text("/inference.GRPCInferenceService/ModelInfer")
            + b"\x01" + _text(host)
            + b"\x00" + _text("te") + _text("trailers")
            + b"\x00" + _text("content-type") + _text("application/grpc")
        )  # fmt: skip
        setting = _INITIAL_WINDOW.to_bytes(2, "big") + _LARGEST_WINDOW.to_bytes(4, "big")
        more = (_LARGEST_WINDOW - 65535).to_bytes(4, "big")
        self.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(_SETTINGS, 0, 0, setting)
                  + _frame(_WINDOW, 0, 0, more))  # fmt: skip

    def ask(self) -> None:
        self.began = time.perf_counter()
        self._stream += 2
        self._message, self._position, self._stream_window = b"", 0, self._initial
        self._send_data(_frame(_HEADERS, _END_HEADERS, self._stream, self._headers))

    def _send_data(self, before: bytes = b"") -> None:
        """As much of the request as the server has room for."""
        parts, total = [before], len(self.request)
        while self._position < total:
            room = min(self._window, self._stream_window, _FRAME, total - self._position)
            if room <= 0:
                break
            part = self.request[self._position : self._position + room]
            self._position += room
            self._window -= room
            self._stream_window -= room
            end = _END_STREAM if self._position == total else 0
            parts.append(_frame(_DATA, end, self._stream, part))
        if any(parts):
            self.send(b"".join(parts))

    def take(self, data: bytes) -> bool:
        data = self._buffer + data if self._buffer else data
        position, is_done = 0, False
        while len(data) - position >= 9:
            end = position + 9 + int.from_bytes(data[position : position + 3], "big")
            if end > len(data):
                break
            kind, flags = data[position + 3], data[position + 4]
            number = int.from_bytes(data[position + 5 : position + 9], "big")
            is_done |= self._frame(kind, flags, number, data[position + 9 : end])
            position = end
        self._buffer = data[position:]
        return is_done

    def outputs(self) -> bytes:
        from tritonclient.grpc import service_pb2  # needed to check answers, not to drive a server

        message = service_pb2.ModelInferResponse.FromString(self.answer)
        return b"".join(message.raw_output_contents)

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> bool:
        if kind == _DATA:
            self._message += payload
        elif kind == _HEADERS and flags & _END_STREAM:
            if not self._message:
                raise SystemExit(f"the server answered an error: {payload!r}")
            self.answer = self._message[5:]
            return True
        elif kind == _WINDOW:
            self._widen(stream, int.from_bytes(payload, "big"))
        elif kind == _SETTINGS and not flags & _ACK:
            self._set(payload)
            self.send(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            self.send(_frame(_PING, _ACK, 0, payload))
        elif kind in (_RESET, _GOAWAY):
            raise SystemExit(f"the server ended the call: frame {kind}, {payload!r}")
        return False

    def _widen(self, stream: int, size: int) -> None:
        if stream == 0:
            self._window += size
        elif stream == self._stream:
            self._stream_window += size
        self._send_data()

    def _set(self, payload: bytes) -> None:
        for start in range(0, len(payload), 6):
            number = int.from_bytes(payload[start : start + 2], "big")
            value = int.from_bytes(payload[start + 2 : start + 6], "big")
            if number == _INITIAL_WINDOW:
                self._stream_window += value - self._initial
                self._initial = value
        self._send_data()


def _text(value: str) -> bytes:
    assert len(value) < 127, "longer texts have longer lengths"
    return bytes([len(value)]) + value.encode()


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + (
        payload
    )  # fmt: skip


class Load:
    """So many clients that ask a server; their connections stay open between measurements."""

    def __init__(
        self, kind: type[Client], address: tuple[str, int], request: bytes, count: int
    ) -> None:
        clients = [kind(address, request) for _ in range(count)]
        self._clients = {client.socket.fileno(): client for client in clients}
        self._poll = select.epoll()
        for number in self._clients:
            self._poll.register(number, select.EPOLLIN)

    def close(self) -> None:
        self._poll.close()
        for client in self._clients.values():
            client.socket.close()

    def run(self, duration: float) -> list[float]:
        """Ask for so long; the seconds that each answer took."""
        seconds: list[float] = []
        end = time.perf_counter() + duration
        open_ = len(self._clients)
        for number, client in self._clients.items():
            client.ask()
            self._watch(number, client)
        while open_:
            for number, _ in self._poll.poll():
                client = self._clients[number]
                if client.unsent:
                    client.flush()
                if self._is_answered(client):
                    now = time.perf_counter()
                    seconds.append(now - client.began)
                    if now < end:
                        client.ask()
                    else:
                        open_ -= 1
                self._watch(number, client)
        return seconds

    def outputs(self) -> bytes:
        """The bytes of the tensors that the first client was answered last."""
        return next(iter(self._clients.values())).outputs()

    def _is_answered(self, client: Client) -> bool:
        try:
            data = client.socket.recv(1 << 18)
        except BlockingIOError:
            return False
        if not data:
            raise SystemExit("the server closed a connection")
        return client.take(data)

    def _watch(self, number: int, client: Client) -> None:
        """Ask to be told when a socket takes more only while there is more."""
        if client.is_watched != bool(client.unsent):
            client.is_watched = bool(client.unsent)
            also = select.EPOLLOUT if client.is_watched else 0
            self._poll.modify(number, select.EPOLLIN | also)


def processor_seconds(pid: int) -> float:
    """Processor time that a process and those it started have spent so far."""
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended in the meantime
            continue
        number = int(path.parent.name)
        parents[number] = int(fields[1])
        spent[number] = (int(fields[11]) + int(fields[12])) / TICK
    family = {pid}
    while more := {n for n, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(spent.get(number, 0.0) for number in family)


def tensor_of(url: str, model: str) -> Tensor:
    """The input of a model, as the server describes it."""
    with urllib.request.urlopen(f"http://{url}/v2/models/{model}", timeout=60) as answer:
        found = json.load(answer)["inputs"][0]
    shape = tuple(1 if size < 0 else size for size in found["shape"])
    return Tensor(model, found["name"], found["datatype"], shape)


def address_of(url: str) -> tuple[str, int]:
    host, _, port = url.rpartition(":")
    return host, int(port)


def load_of(url: str, grpc: str | None, tensor: Tensor, count: int) -> Load:
    """Clients for HTTP at `url`, or for gRPC at `grpc` if there is one."""
    if grpc:
        return Load(GrpcClient, address_of(grpc), grpc_request(tensor), count)
    return Load(HttpClient, address_of(url), http_request(url, tensor), count)


def figures(seconds: list[float], elapsed: float, processor: float) -> dict[str, float]:
    """The report of a measurement."""
    p50, p99 = np.percentile(seconds, [50, 99]) * 1000
    return {
        "requests": len(seconds),
        "requests_per_s": len(seconds) / elapsed,
        "p50_ms": float(p50),
        "p99_ms": float(p99),
        "cpu_ms_per_request": 1000 * processor / len(seconds),
    }


def measure(load: Load, duration: float, pid: int | None) -> dict[str, float]:
    """Ask for so long, and see what it took."""
    before = processor_seconds(pid) if pid else float("nan")
    began = time.perf_counter()
    seconds = load.run(duration)
    elapsed = time.perf_counter() - began
    spent = processor_seconds(pid) - before if pid else float("nan")
    return figures(seconds, elapsed, spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--url", default="127.0.0.1:8000")
    parser.add_argument("--grpc", help="The address for gRPC, which then is what is measured.")
    parser.add_argument("--model", required=True)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--warm-up", type=float, default=1)
    parser.add_argument("--pid", type=int, help="The server's process, on this machine.")
    args = parser.parse_args()
    tensor = tensor_of(args.url, args.model)
    for count in args.concurrency:
        load = load_of(args.url, args.grpc, tensor, count)
        load.run(args.warm_up)
        row = measure(load, args.seconds, args.pid)
        load.close()
        shown = {name: round(value, 3) for name, value in row.items()}
        print(json.dumps({"model": args.model, "concurrency": count, **shown}))


if __name__ == "__main__":
    main()
