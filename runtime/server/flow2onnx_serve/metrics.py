"""Metrics for Prometheus: how many requests, how long, how full the queue, per model."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

__all__ = ["Metrics", "ModelMetrics"]

_SECONDS = (5e-05, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
            0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # fmt: skip
_SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_ROWS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)


class _Histogram:
    """How often values fell between bounds. Only the event loop counts, so there is no lock."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds, self.counts, self.total = bounds, [0] * (len(bounds) + 1), 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)

    def quantile(self, share: float) -> float | None:
        """The value that a share of all reach at most, estimated within its bounds; None of none.

        Values are taken to lie evenly between two bounds, as Prometheus' histogram_quantile does;
        above the last bound it is that bound.
        """
        rank, below, low = share * self.count, 0, 0.0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            if count and below + count >= rank:
                return low + (bound - low) * (rank - below) / count
            below, low = below + count, bound
        return low if self.count else None

    def summary(self) -> dict[str, float | None]:
        """How many values there were, their mean, and quantiles."""
        shares = {name: self.quantile(share) for name, share in _SHARES.items()}
        return {"count": self.count, "mean": self.total / self.count if self.count else None,
                **shares}  # fmt: skip

    def buckets(self) -> list[tuple[str, float]]:
        names = [*map(floatToGoString, self.bounds), "+Inf"]
        return list(zip(names, accumulate(self.counts), strict=True))


class ModelMetrics:
    """The numbers of one model, whichever version answers."""

    def __init__(self) -> None:
        self.codes: Counter[int] = Counter()
        self.loads: Counter[str] = Counter()
        self.seconds, self.waits, self.runs = (_Histogram(_SECONDS) for _ in range(3))
        self.rows = _Histogram(_ROWS)
        self.queue = self.version = 0

    def answered(self, status: int, seconds: float) -> None:
        """Count a request."""
        self.codes[status] += 1
        self.seconds.observe(seconds)

    def ran(self, rows: int, waited: Sequence[float], seconds: float) -> None:
        """Count a run of so many rows, for requests that had waited so long."""
        for wait in waited:
            self.waits.observe(wait)
        self.runs.observe(seconds)
        self.rows.observe(rows)

    def queued(self, change: int) -> None:
        """The queue became longer or shorter."""
        self.queue += change


class Metrics(Collector):
    """The numbers of a server, in a registry of its own."""

    def __init__(self) -> None:
        self.held = 0  # bytes
        self.answers: Counter[tuple[str, int]] = Counter()  # by protocol and HTTP's status
        self._models: dict[str, ModelMetrics] = {}
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def model(self, name: str) -> ModelMetrics:
        """The numbers of a model."""
        if name not in self._models:
            self._models[name] = ModelMetrics()
        return self._models[name]

    def loaded(self, name: str, *, is_good: bool) -> None:
        """Count a version that was loaded, or refused."""
        self.model(name).loads["loaded" if is_good else "refused"] += 1

    def answered(self, protocol: str, status: int) -> None:
        """Count an answer, by HTTP's number of its status whatever the protocol."""
        self.answers[protocol, status] += 1

    def serving(self, name: str, version: int) -> None:
        """Note which version answers."""
        self.model(name).version = version

    def collect(self) -> Iterator[Metric]:
        """Everything, as the client library wants it."""
        models = sorted(self._models.items())
        requests = CounterMetricFamily(
            "flow2onnx_requests", "Requests answered.", labels=["model", "code"]
        )
        loads = CounterMetricFamily(
            "flow2onnx_model_loads", "Versions loaded, and refused.", labels=["model", "result"]
        )
        for name, found in models:
            for code, count in sorted(found.codes.items()):
                requests.add_metric([name, str(code)], count)
            for result, count in sorted(found.loads.items()):
                loads.add_metric([name, result], count)
        answers = CounterMetricFamily(
            "flow2onnx_answers", "Answers, whether or not a model was asked.",
            labels=["protocol", "code"],
        )  # fmt: skip
        for (protocol, status), count in sorted(self.answers.items()):
            answers.add_metric([protocol, str(status)], count)
        yield from (requests, loads, answers)
        yield _histogram(
            "request_seconds", "From a whole request to its results.",
            {name: found.seconds for name, found in models},
        )  # fmt: skip
        yield _histogram(
            "queue_seconds", "How long requests waited for their run.",
            {name: found.waits for name, found in models},
        )  # fmt: skip
        yield _histogram(
            "compute_seconds", "How long runs took.", {name: found.runs for name, found in models}
        )
        yield _histogram("batch_rows", "Rows of a run.", {name: m.rows for name, m in models})
        yield _gauge("queue_length", "Requests that wait.", {n: m.queue for n, m in models})
        yield _gauge("model_version", "The newest version that answers, 0 for none.",
                     {name: found.version for name, found in models})  # fmt: skip
        yield GaugeMetricFamily(
            "flow2onnx_held_bytes", "Bodies of unfinished requests.", value=self.held
        )

    def text(self) -> bytes:
        """Everything, in the text format."""
        return generate_latest(self.registry)


def _histogram(name: str, what: str, models: dict[str, _Histogram]) -> HistogramMetricFamily:
    family = HistogramMetricFamily(f"flow2onnx_{name}", what, labels=["model"])
    for model, found in models.items():
        family.add_metric([model], found.buckets(), found.total)
    return family


def _gauge(name: str, what: str, models: dict[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"flow2onnx_{name}", what, labels=["model"])
    for model, value in models.items():
        family.add_metric([model], value)
    return family
