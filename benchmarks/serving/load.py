"""A closed loop of clients against a server of the Open Inference Protocol over HTTP.

    python benchmarks/serving/load.py --url 127.0.0.1:8000 --model mlp --concurrency 1 8 32

Each client sends its next request, one binary tensor of one row, when the last is answered.
Prints requests a second, p50, p99, and with --pid the processor time the server spent per request.
The clients are plain sockets in one thread, so that they take little from the server's cores.
"""

import argparse
import asyncio
import json
import os
import time

import numpy as np

_TICK = os.sysconf("SC_CLK_TCK")


def _request(host: str, model: str, name: str, shape: list[int], datatype: str) -> bytes:
    kinds = {"FP32": np.float32, "FP64": np.float64, "INT64": np.int64, "INT32": np.int32}
    data = np.random.default_rng(0).standard_normal(shape).astype(kinds[datatype]).tobytes()
    head = json.dumps({
        "inputs": [{"name": name, "shape": shape, "datatype": datatype,
                    "parameters": {"binary_data_size": len(data)}}],
        "parameters": {"binary_data_output": True},
    }).encode()  # fmt: skip
    lines = [
        f"POST /v2/models/{model}/infer HTTP/1.1", f"Host: {host}",
        f"Inference-Header-Content-Length: {len(head)}",
        f"Content-Length: {len(head) + len(data)}", "", "",
    ]  # fmt: skip
    return "\r\n".join(lines).encode() + head + data


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n")
                  if line.lower().startswith(b"content-length"))  # fmt: skip
    return int(head[9:12]), await reader.readexactly(length)


async def _client(address: tuple[str, int], request: bytes, end: float, seconds: list[float]):
    reader, writer = await asyncio.open_connection(*address)
    while time.perf_counter() < end:
        began = time.perf_counter()
        writer.write(request)
        status, body = await _answer(reader)
        if status != 200:
            raise SystemExit(f"the server answered {status}: {body[:300]!r}")
        seconds.append(time.perf_counter() - began)
    writer.close()


async def _metadata(address: tuple[str, int], model: str) -> dict:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(f"GET /v2/models/{model} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    _, body = await _answer(reader)
    writer.close()
    return json.loads(body)


def _processor_seconds(pid: int | None) -> float:
    if pid is None:
        return float("nan")
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


async def _measure(args: argparse.Namespace, count: int, request: bytes) -> dict:
    address = _address(args.url)
    seconds: list[float] = []
    warm = time.perf_counter() + args.warm_up
    await asyncio.gather(*(_client(address, request, warm, []) for _ in range(count)))
    before, began = _processor_seconds(args.pid), time.perf_counter()
    end = began + args.seconds
    await asyncio.gather(*(_client(address, request, end, seconds) for _ in range(count)))
    taken = time.perf_counter() - began
    spent = _processor_seconds(args.pid) - before
    p50, p99 = np.percentile(seconds, [50, 99]) * 1000
    return {
        "model": args.model,
        "concurrency": count,
        "requests_per_s": len(seconds) / taken,
        "p50_ms": p50,
        "p99_ms": p99,
        "cpu_ms_per_request": 1000 * spent / len(seconds),
    }


def _address(url: str) -> tuple[str, int]:
    host, _, port = url.rpartition(":")
    return host, int(port)


async def _main(args: argparse.Namespace) -> None:
    found = (await _metadata(_address(args.url), args.model))["inputs"][0]
    shape = [1 if size < 0 else size for size in found["shape"]]
    request = _request(args.url, args.model, found["name"], shape, found["datatype"])
    for count in args.concurrency:
        row = await _measure(args, count, request)
        print(json.dumps({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--url", default="127.0.0.1:8000")
    parser.add_argument("--model", required=True)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--warm-up", type=float, default=1)
    parser.add_argument("--pid", type=int, help="The server's process, on this machine.")
    asyncio.run(_main(parser.parse_args()))
