"""The answers of the server, in no protocol's form: HTTP and gRPC are two ways to ask."""

import asyncio
from collections.abc import Hashable, Mapping
from time import perf_counter
from typing import Any

from flow2onnx_runtime import FlowError, RunError

from flow2onnx_serve.codec import Codec
from flow2onnx_serve.errors import LEFT, RequestError
from flow2onnx_serve.held import Held, Hold
from flow2onnx_serve.inference import Inference, RequestedOutput, Result
from flow2onnx_serve.loading import Version
from flow2onnx_serve.metrics import Metrics
from flow2onnx_serve.repository import LiveVersion, Repository
from flow2onnx_serve.settings import Settings

__all__ = ["EXTENSIONS", "Service", "as_request_error"]

EXTENSIONS = ("binary_tensor_data", "classification", "model_configuration", "model_repository",
              "statistics")  # fmt: skip
_PLATFORM = "onnxruntime_onnx"


class Service:
    """Answers about models and runs them; shared by all protocols of a server."""

    def __init__(self, settings: Settings, version: str) -> None:
        self.settings, self.version = settings, version
        self.metrics = Metrics()
        self.repository = Repository(settings, self.metrics)
        self.codec = Codec(settings)
        self.is_draining = False
        self._held = Held(settings.held, self._count_held)

    @property
    def is_ready(self) -> bool:
        """True while requests are welcome."""
        return not self.is_draining and self.repository.is_ready

    def hold(self, client: str, connection: Hashable) -> Hold:
        """The counter of the bytes that a request of that client holds until it is answered."""
        return self._held.request(client, connection)

    def close(self) -> None:
        """Let threads and processes end."""
        self.repository.close()
        self.codec.close()

    def _count_held(self, size: int) -> None:
        self.metrics.held = size

    def metadata(self) -> dict[str, Any]:
        """Who answers."""
        return {"name": "flow2onnx", "version": self.version, "extensions": list(EXTENSIONS)}

    def model_metadata(self, name: str, version: str = "") -> dict[str, Any]:
        """A model's inputs and outputs; asked of one version, that is the only one listed."""
        live = self.repository.find(name, version)
        lives = [live] if version else self.repository.versions(name)
        versions = sorted(each.version.number for each in lives)
        return {
            "name": name,
            "versions": list(map(str, versions)),
            "platform": _PLATFORM,
            "inputs": _ports(live.version.inputs),
            "outputs": _ports(live.version.outputs),
        }

    def model_config(self, name: str, version: str = "") -> dict[str, Any]:
        """A model's config.pbtxt; where there is none, what would stand in it."""
        live = self.repository.find(name, version)
        given = live.version.config
        return given.to_dict() if given.raw is not None else _derived_config(live)

    def adapters(self, name: str, version: str = "") -> dict[str, Any]:
        """The adapters of a model that a request may ask for, with their states."""
        return {"adapters": self.repository.find(name, version).adapters.rows()}

    def statistics(self, name: str, version: str = "") -> dict[str, Any]:
        """Counts of what the versions of a model have done."""
        if version:
            lives = [self.repository.find(name, version)]
        else:
            names = [name] if name else self.repository.names()
            ready = [n for n in names if name or self.repository.answers(n)]
            lives = [live for n in ready for live in self.repository.versions(n)]
        return {"model_stats": [_statistics(live) for live in lives]}

    async def infer(self, live: LiveVersion, request: Inference) -> list[Result]:
        """The outputs that a request wants, each with its name and datatype."""
        began = perf_counter()
        status = 500
        version = live.version
        try:
            self._check_rows(version, request)
            timeout = min(request.timeout or self.settings.timeout, self.settings.timeout)
            slots = live.adapters.find(request.adapter) if request.adapter else None
            arrays = await live.batcher.submit(request.arrays, timeout, slots)
            found = dict(zip(version.outputs, arrays, strict=True))
            results = [await self._result(live, w, found[w.name]) for w in request.wanted]
            status = 200
            return results
        except FlowError as error:
            status = as_request_error(error).status
            raise
        except asyncio.CancelledError:
            status = LEFT
            raise
        finally:
            seconds = perf_counter() - began
            live.metrics.answered(status, seconds)
            version.statistics.answered(status == 200, seconds)

    async def _result(self, live: LiveVersion, wanted: RequestedOutput, array: Any) -> Result:
        version, name = live.version, wanted.name
        array = version.outputs[name].outer(array)
        if not wanted.classes:
            return name, version.outputs[name].datatype, array
        labels, is_bits = version.labels.get(name, ()), version.outputs[name].datatype == "BF16"
        arguments = (array, wanted.classes, labels, version.has_batch, is_bits)
        return name, "BYTES", await self.codec.classes(*arguments)

    def _check_rows(self, version: Version, request: Inference) -> None:
        limit = version.config.max_batch
        if limit and (rows := request.arrays[0].shape[0]) > limit:
            raise RequestError(f"{rows} rows exceed the model's max_batch_size of {limit}")


def as_request_error(error: FlowError) -> RequestError:
    """The answer to a request that failed."""
    if isinstance(error, RequestError):
        return error
    return RequestError(error.message, 500 if isinstance(error, RunError) else 400)


def _ports(ports: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"name": p.name, "datatype": p.datatype, "shape": list(p.shape)} for p in ports.values()
    ]


def _derived_config(live: LiveVersion) -> dict[str, Any]:
    version = live.version
    rows = live.batcher.limits.rows
    skip = 1 if rows > 1 else 0

    def described(ports: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [
            {"name": p.name, "data_type": f"TYPE_{p.datatype}", "dims": list(p.shape[skip:])}
            for p in ports.values()
        ]

    return {
        "name": live.model,
        "platform": _PLATFORM,
        "backend": "onnxruntime",
        "max_batch_size": rows if rows > 1 else 0,
        "input": described(version.inputs),
        "output": described(version.outputs),
        **({"dynamic_batching": {}} if rows > 1 else {}),
    }


def _statistics(live: LiveVersion) -> dict[str, Any]:
    s = live.version.statistics
    nothing = {"count": 0, "ns": 0}
    return {
        "name": live.model,
        "version": str(live.version.number),
        "last_inference": s.last,
        "inference_count": s.rows,
        "execution_count": s.runs,
        "inference_stats": {
            "success": {"count": s.successes, "ns": s.total},
            "fail": {"count": s.failures, "ns": s.failed},
            "queue": {"count": s.successes, "ns": s.queue},
            "compute_input": nothing,
            "compute_infer": {"count": s.successes, "ns": s.compute},
            "compute_output": nothing,
        },
        "batch_stats": [
            {"batch_size": rows, "compute_input": nothing,
             "compute_infer": {"count": count, "ns": spent}, "compute_output": nothing}
            for rows, (count, spent) in sorted(s.sizes.items())
        ],
    }  # fmt: skip
