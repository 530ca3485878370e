"""A server under load for minutes, with a new version of its model every few seconds.

    python benchmarks/serving/soak.py --minutes 10 --reload-every 5

Starts `flow2onnx-serve` on a repository of its own and asks it over HTTP (bytes and JSON) and gRPC
without a pause. Every few seconds a version with other weights and a stored check is written, and
the one before the last removed from the disk. Every answer must be the right one of the version
that it names. Prints a table, writes it as JSON with a chart, and exits with 1 unless nothing
failed but by 503, the resident memory stayed within 5 % and the descriptors did not grow.
"""

import argparse
import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from flow2onnx_serve.messages import MESSAGES
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).parents[2]
WIDTH, HIDDEN, CLASSES = 784, 512, 10
MODEL = "mlp"
KEPT = 2  # versions on the disk
MEMORY = 0.05  # by how much the resident memory may differ from its median


@dataclass
class Seen:
    """The events so far."""

    statuses: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    latencies: list[tuple[float, float]] = field(default_factory=list)  # when, seconds
    reloads: list[float] = field(default_factory=list)  # seconds from the write to the answer
    samples: list[dict[str, float]] = field(default_factory=list)
    versions: set[int] = field(default_factory=set)  # that answered


class Weights:
    """The weights of a version: they follow from its number, so that any answer can be checked."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows, self._known = rows, {}

    def arrays(self, version: int) -> tuple[np.ndarray, np.ndarray]:
        draws = np.random.default_rng(version)
        first = draws.standard_normal((WIDTH, HIDDEN)).astype(np.float32)
        second = draws.standard_normal((HIDDEN, CLASSES)).astype(np.float32)
        return first * np.float32(0.05), second * np.float32(0.05)

    def results(self, version: int) -> np.ndarray:
        if version not in self._known:
            first, second = self.arrays(version)
            self._known[version] = np.maximum(self.rows @ first, 0) @ second
            self._known.pop(version - 10, None)
        return self._known[version]


def model_bytes(first: np.ndarray, second: np.ndarray) -> bytes:
    """The network as ONNX."""
    node, info = helper.make_node, helper.make_tensor_value_info
    graph = helper.make_graph(
        [node("MatMul", ["x", "first"], ["h"]), node("Relu", ["h"], ["r"]),
         node("MatMul", ["r", "second"], ["y"])],
        "mlp",
        [info("x", TensorProto.FLOAT, ["batch", WIDTH])],
        [info("y", TensorProto.FLOAT, ["batch", CLASSES])],
        [numpy_helper.from_array(first, "first"), numpy_helper.from_array(second, "second")],
    )  # fmt: skip
    opset = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString()


def write_version(repository: Path, version: int, weights: Weights) -> None:
    """Put a version into the repository as a whole, and take old ones away."""
    making = repository / f".making-{version}"
    making.mkdir(parents=True)
    (making / "model.onnx").write_bytes(model_bytes(*weights.arrays(version)))
    results = {"results/y": weights.results(version)[:4]}
    np.savez(making / "check.npz", **{"feeds/x": weights.rows[:4]}, **results)
    folder = repository / MODEL
    folder.mkdir(exist_ok=True)
    making.rename(folder / str(version))
    for old in range(max(1, version - KEPT - 2), version - KEPT + 1):
        shutil.rmtree(folder / str(old), ignore_errors=True)


async def start_server(repository: Path, log: Path, *arguments: str) -> tuple[Any, dict[str, str]]:
    """The server's process, and the addresses at which it listens."""
    command = [sys.executable, "-m", "flow2onnx_serve", str(repository), "--port", "0",
               "--grpc-port", "0", *arguments]  # fmt: skip
    paths = [str(ROOT), str(ROOT / "runtime" / "python"), os.environ.get("PYTHONPATH", "")]
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *command, stderr=file, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
        )
    for _ in range(600):
        for line in log.read_text().splitlines():
            if '"listening"' in line:
                return process, json.loads(line)
        if process.returncode is not None:
            break
        await asyncio.sleep(0.1)
    raise SystemExit(f"the server did not start: {log.read_text()}")


def http_request(rows: np.ndarray, is_binary: bool) -> bytes:
    """A whole request for a few rows."""
    entry: dict[str, Any] = {"name": "x", "shape": list(rows.shape), "datatype": "FP32"}
    data, extra = b"", ""
    if is_binary:
        data = rows.tobytes()
        entry["parameters"] = {"binary_data_size": len(data)}
    else:
        entry["data"] = rows.reshape(-1).tolist()
    head = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": is_binary}}).encode()
    if is_binary:
        extra = f"Inference-Header-Content-Length: {len(head)}\r\n"
    length = len(head) + len(data)
    line = f"POST /v2/models/{MODEL}/infer HTTP/1.1\r\nHost: soak\r\n{extra}"
    return f"{line}Content-Length: {length}\r\n\r\n".encode() + head + data


async def http_answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    fields = [line.partition(":") for line in lines[1:] if line]
    headers = {name.lower(): value.strip() for name, _, value in fields}
    body = await reader.readexactly(int(headers["content-length"]))
    return int(lines[0].split()[1]), headers, body


def http_result(headers: dict[str, str], body: bytes) -> tuple[int, np.ndarray]:
    """The version that answered, and what."""
    split = headers.get("inference-header-content-length")
    head = json.loads(body if split is None else body[: int(split)])
    output = head["outputs"][0]
    data = output["data"] if split is None else np.frombuffer(body[int(split) :], np.float32)
    return int(head["model_version"]), np.array(data, np.float32).reshape(output["shape"])


class Soak:
    """Clients, versions and samples of one run."""

    def __init__(self, args: argparse.Namespace, repository: Path) -> None:
        self.args, self.repository, self.seen = args, repository, Seen()
        draws = np.random.default_rng(0)
        self.weights = Weights(draws.standard_normal((64, WIDTH)).astype(np.float32))
        self.began = self.end = 0.0

    async def run(self, process: Any, addresses: dict[str, str]) -> None:
        self.began = time.perf_counter()
        self.end = self.began + 60 * self.args.minutes
        count = self.args.clients
        clients = [self._http(addresses["http"], i, i % 3 != 2) for i in range(count)]
        async with grpc.aio.insecure_channel(addresses["grpc"]) as channel:
            clients += [self._grpc(channel, count + i) for i in range(count)]
            await asyncio.gather(
                *clients, self._reload(addresses["http"]), self._sample(process.pid)
            )

    def _rows(self, number: int) -> slice:
        start = 3 * number % 60
        return slice(start, start + 1 + number % 4)

    def _count(self, status: str, began: float, version: int, got: Any, rows: slice) -> None:
        now = time.perf_counter()
        self.seen.statuses[status] += 1
        self.seen.latencies.append((now - self.began, now - began))
        if got is None:
            return
        self.seen.versions.add(version)
        wanted = self.weights.results(version)[rows]
        if got.shape != wanted.shape or not np.allclose(got, wanted, rtol=1e-3, atol=1e-4):
            self.seen.wrong.append(f"{status} of version {version} differs")

    async def _http(self, address: str, number: int, is_binary: bool) -> None:
        host, _, port = address.rpartition(":")
        rows, kind = self._rows(number), "HTTP" if is_binary else "JSON"
        request = http_request(self.weights.rows[rows], is_binary)
        reader, writer = await asyncio.open_connection(host, int(port))
        while (began := time.perf_counter()) < self.end:
            try:
                writer.write(request)
                status, headers, body = await http_answer(reader)
            except (OSError, EOFError) as error:
                self._count(f"{kind} {type(error).__name__}", began, 0, None, rows)
                writer.close()
                reader, writer = await asyncio.open_connection(host, int(port))
                continue
            version, got = http_result(headers, body) if status == 200 else (0, None)
            self._count(f"{kind} {status}", began, version, got, rows)
            await asyncio.sleep(self.args.pause)
        writer.close()

    async def _grpc(self, channel: Any, number: int) -> None:
        rows = self._rows(number)
        given = self.weights.rows[rows]
        entry = {"name": "x", "datatype": "FP32", "shape": given.shape}
        message = MESSAGES["ModelInferRequest"](
            model_name=MODEL, inputs=[entry], raw_input_contents=[given.tobytes()]
        )
        ask = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer",
            request_serializer=MESSAGES["ModelInferRequest"].SerializeToString,
            response_deserializer=MESSAGES["ModelInferResponse"].FromString,
        )
        while (began := time.perf_counter()) < self.end:
            status, version, got = "gRPC OK", 0, None
            try:
                answer = await ask(message, timeout=30)
                version = int(answer.model_version)
                got = np.frombuffer(answer.raw_output_contents[0], np.float32)
                got = got.reshape(tuple(answer.outputs[0].shape))
            except grpc.RpcError as error:
                status = f"gRPC {error.code().name}"
            self._count(status, began, version, got, rows)
            await asyncio.sleep(self.args.pause)

    async def _reload(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        version = 1
        while time.perf_counter() + self.args.reload_every < self.end:
            await asyncio.sleep(self.args.reload_every)
            version += 1
            began = time.perf_counter()
            await asyncio.to_thread(write_version, self.repository, version, self.weights)
            while version not in self.seen.versions and time.perf_counter() < began + 30:
                if time.perf_counter() > self.end:
                    return
                await asyncio.sleep(0.02)
            if version not in self.seen.versions:
                self.seen.wrong.append(f"version {version} did not come within 30 s")
            self.seen.reloads.append(time.perf_counter() - began)
            if version % 3 == 0:  # what watches a server meanwhile
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(b"GET /metrics HTTP/1.1\r\nHost: soak\r\n\r\n")
                await http_answer(reader)
                writer.close()

    async def _sample(self, process: int) -> None:
        while (now := time.perf_counter()) < self.end:
            pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
            self.seen.samples.append({
                "second": now - self.began,
                "resident_mb": pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
                "descriptors": len(os.listdir(f"/proc/{process}/fd")),
                "threads": len(os.listdir(f"/proc/{process}/task")),
            })  # fmt: skip
            await asyncio.sleep(min(1.0, 0.2 * self.args.minutes))


def verdict(seen: Seen, warm: float, exit_status: int) -> dict[str, Any]:
    """The numbers, and what of the bar was missed."""
    later = [s for s in seen.samples if s["second"] >= warm]
    memory = np.array([s["resident_mb"] for s in later])
    descriptors = np.array([s["descriptors"] for s in later])
    third = max(1, len(later) // 3)
    apart = float(np.abs(memory / np.median(memory) - 1).max())
    grown = float(np.median(descriptors[-third:]) - np.median(descriptors[:third]))
    good = {"HTTP 200", "JSON 200", "gRPC OK"}
    by_design = {"HTTP 503", "JSON 503", "gRPC UNAVAILABLE"}
    failed = {k: n for k, n in seen.statuses.items() if k not in good | by_design}
    seconds = np.array([s for _, s in seen.latencies]) * 1000
    missed = {
        "requests failed": bool(failed),
        "answers were wrong": bool(seen.wrong),
        "resident memory is not flat": apart > MEMORY,
        "descriptors grow": grown > 0,
        "no version was reloaded": not seen.reloads,
        "the server did not end in order": exit_status != 0,
    }
    return {
        "requests": sum(seen.statuses.values()),
        "statuses": dict(sorted(seen.statuses.items())),
        "failed": sum(failed.values()),
        "wrong": seen.wrong[:20],
        "reloads": len(seen.reloads),
        "reload_s": {"median": float(np.median(seen.reloads or [0])),
                     "largest": max(seen.reloads, default=0.0)},
        "versions_that_answered": len(seen.versions),
        "latency_ms": {f"p{p:g}": float(np.percentile(seconds, p)) for p in (50, 99, 99.9, 100)},
        "resident_mb": {"median": float(np.median(memory)), "smallest": float(memory.min()),
                        "largest": float(memory.max()), "apart": apart},
        "descriptors": {"first": float(np.median(descriptors[:third])),
                        "last": float(np.median(descriptors[-third:])),
                        "largest": int(descriptors.max())},
        "threads": int(max(s["threads"] for s in later)),
        "warm_up_s": warm,
        "series": [{k: round(v, 1) for k, v in s.items()} for s in thinned(seen.samples)],
        "exit_status": exit_status,
        "missed": [what for what, is_so in missed.items() if is_so],
    }  # fmt: skip


def thinned(samples: list[dict[str, float]]) -> list[dict[str, float]]:
    """About a hundred of them."""
    return samples[:: 1 + len(samples) // 100]


def show(row: dict[str, Any]) -> None:
    """The table."""
    memory, descriptors = row["resident_mb"], row["descriptors"]
    print(f"requests          {row['requests']:>12,}   failed {row['failed']}")
    for status, count in row["statuses"].items():
        print(f"  {status:<16}{count:>12,}")
    print(f"wrong answers     {len(row['wrong']):>12}")
    print(f"reloads           {row['reloads']:>12}   median {row['reload_s']['median']:.2f} s, "
          f"largest {row['reload_s']['largest']:.2f} s")  # fmt: skip
    print("latency ms        " + ", ".join(f"{k} {v:.2f}" for k, v in row["latency_ms"].items()))
    print(f"resident MB       {memory['median']:>12.1f}   {memory['smallest']:.1f} to "
          f"{memory['largest']:.1f}, {memory['apart']:.1%} apart")  # fmt: skip
    print(f"descriptors       {descriptors['first']:>12.0f}   at the end {descriptors['last']:.0f}")
    print(f"threads           {row['threads']:>12}")
    print("missed: " + "; ".join(row["missed"]) if row["missed"] else "the bar is met")


def chart(seen: Seen, path: Path) -> None:
    """Memory, descriptors and latency over time."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(3, 1, figsize=(9, 7), sharex=True, layout="constrained")
    seconds = [s["second"] for s in seen.samples]
    for axis, name in zip(axes, ("resident_mb", "descriptors"), strict=False):
        axis.plot(seconds, [s[name] for s in seen.samples])
        axis.set_ylabel(name.replace("_", " "))
        axis.set_ylim(bottom=0)
    bins: dict[int, list[float]] = {}
    for when, taken in seen.latencies:
        bins.setdefault(int(when), []).append(1000 * taken)
    for percent in (50, 99):
        axes[2].plot(list(bins), [np.percentile(v, percent) for v in bins.values()],
                     label=f"p{percent}")  # fmt: skip
    axes[2].set(ylabel="latency ms", xlabel="seconds", yscale="log")
    axes[2].legend()
    figure.savefig(path, dpi=100)


async def main(args: argparse.Namespace) -> int:
    """One soak; returns the exit status."""
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / "models"
        soak = Soak(args, repository)
        write_version(repository, 1, soak.weights)
        log = Path(folder) / "log"
        process, addresses = await start_server(repository, log, "--poll", "0.5", *args.serve)
        try:
            await soak.run(process, addresses)
            process.send_signal(signal.SIGTERM)
            status = await asyncio.wait_for(process.wait(), 60)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        row = {"minutes": args.minutes, "reload_every_s": args.reload_every,
               "clients": 2 * args.clients}  # fmt: skip
        row |= verdict(soak.seen, min(60.0, 12 * args.minutes), status)
        show(row)
        if args.out:
            args.out.parent.mkdir(parents=True, exist_ok=True)
            args.out.write_text(json.dumps(row, indent=1) + "\n")
            chart(soak.seen, args.out.with_suffix(".png"))
        return 1 if row["missed"] else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--reload-every", type=float, default=5, help="Seconds.")
    parser.add_argument("--clients", type=int, default=6, help="Of each protocol.")
    parser.add_argument("--pause", type=float, default=0.0, help="Seconds after each answer.")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "soak.json")
    parser.add_argument("serve", nargs="*", help="Further options of the server, after --.")
    sys.exit(asyncio.run(main(parser.parse_args())))
