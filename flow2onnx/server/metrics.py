"""What Prometheus reads: how many requests, how long, how full the queue, per model."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

__all__ = ["Metrics", "ModelMetrics"]

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
            30.0)  # fmt: skip
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class ModelMetrics:
    """The numbers of one model, whichever version answers."""

    def __init__(self, metrics: "Metrics", name: str) -> None:
        self._codes = metrics.requests
        self._name = name
        self._good = metrics.requests.labels(name, "200")
        self._seconds = metrics.seconds.labels(name)
        self._waits = metrics.waits.labels(name)
        self._runs = metrics.runs.labels(name)
        self._rows = metrics.rows.labels(name)
        self._queue = metrics.queue.labels(name)

    def answered(self, status: int, seconds: float) -> None:
        """Count a request."""
        (self._good if status == 200 else self._codes.labels(self._name, str(status))).inc()
        self._seconds.observe(seconds)

    def ran(self, rows: int, waited: Sequence[float], seconds: float) -> None:
        """Count a run of so many rows, for requests that had waited so long."""
        for wait in waited:
            self._waits.observe(wait)
        self._runs.observe(seconds)
        self._rows.observe(rows)

    def queued(self, change: int) -> None:
        """The queue became longer or shorter."""
        self._queue.inc(change)


class Metrics:
    """The numbers of a server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        at = self.registry
        self.requests = Counter(
            "flow2onnx_requests", "Requests answered.", ["model", "code"], registry=at
        )
        self.seconds = Histogram(
            "flow2onnx_request_seconds", "From a whole request to its results.", ["model"],
            buckets=_SECONDS, registry=at,
        )  # fmt: skip
        self.waits = Histogram(
            "flow2onnx_queue_seconds", "How long requests waited for their run.", ["model"],
            buckets=_SECONDS, registry=at,
        )  # fmt: skip
        self.runs = Histogram(
            "flow2onnx_compute_seconds",
            "How long runs took.",
            ["model"],
            buckets=_SECONDS,
            registry=at,
        )
        self.rows = Histogram(
            "flow2onnx_batch_rows", "Rows of a run.", ["model"], buckets=_ROWS, registry=at
        )
        self.queue = Gauge("flow2onnx_queue_length", "Requests that wait.", ["model"], registry=at)
        self.held = Gauge("flow2onnx_held_bytes", "Bodies of unfinished requests.", registry=at)
        self.versions = Gauge(
            "flow2onnx_model_version", "The newest version that answers, 0 for none.", ["model"],
            registry=at,
        )  # fmt: skip
        self.loads = Counter(
            "flow2onnx_model_loads",
            "Versions loaded, and refused.",
            ["model", "result"],
            registry=at,
        )
        self._models: dict[str, ModelMetrics] = {}

    def model(self, name: str) -> ModelMetrics:
        """The numbers of a model."""
        if name not in self._models:
            self._models[name] = ModelMetrics(self, name)
        return self._models[name]

    def loaded(self, name: str, *, is_good: bool) -> None:
        """Count a version that was loaded, or refused."""
        self.loads.labels(name, "loaded" if is_good else "refused").inc()

    def serving(self, name: str, version: int) -> None:
        """Note which version answers."""
        self.versions.labels(name).set(version)

    def text(self) -> bytes:
        """Everything, in the text format."""
        return generate_latest(self.registry)
