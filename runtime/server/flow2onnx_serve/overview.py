"""Facts that the server tells of itself and of its models, for its pages and for scripts alike."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from flow2onnx_serve.examples import Address, Example, example_of, model_path
from flow2onnx_serve.loading import Version
from flow2onnx_serve.metrics import ModelMetrics
from flow2onnx_serve.ports import Port
from flow2onnx_serve.repository import LiveVersion
from flow2onnx_serve.service import Service

__all__ = ["MODELS_SHOWN", "Overview"]

MODELS_SHOWN = 20  # models of one answer
_LABELS = 5  # labels of an output that are shown

Facts = dict[str, Any]  # what JSON can carry


class Overview:
    """Facts about a server. Numbers are read on the event loop, examples written on a thread."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def server(self, address: Address, first: int) -> Facts:
        """Who answers, and up to 20 models from the one with that number on, from 0."""
        service = self._service
        names = service.repository.names()
        following = first + MODELS_SHOWN
        models = [self._model(name) for name in names[first:following]]
        return {
            **service.metadata(),
            "ready": service.is_ready,
            "grpc": service.settings.grpc_port is not None,
            "count": len(names),
            "first": first,
            "next": f"/?from={following}" if following < len(names) else None,
            "links": {"api": "/docs", "openapi": "/openapi.json", "metrics": "/metrics"},
            "models": await asyncio.to_thread(self._with_examples, models, address),
        }

    async def model(self, name: str, address: Address) -> Facts:
        """A model, whether it answers or not; raises `RequestError` for an unknown one."""
        models = [self._model(name)]
        return (await asyncio.to_thread(self._with_examples, models, address))[0]

    async def first_ready(self, address: Address) -> Facts | None:
        """The first model that answers; None if none does."""
        repository = self._service.repository
        name = next(filter(repository.answers, repository.names()), None)
        return None if name is None else await self.model(name, address)

    def _model(self, name: str) -> tuple[Facts, LiveVersion | None]:
        """The facts of a model but its example, and its newest version that answers."""
        repository = self._service.repository
        rows = repository.rows(name)
        lives = repository.versions(name) if repository.answers(name) else []
        by_number = {str(live.version.number): live for live in lives}
        newest = lives[0] if lives else None
        return {
            "name": name,
            "page": f"/models/{quote(name, safe='')}",
            "protocol": model_path(name),
            "state": "READY" if lives else "UNAVAILABLE",
            "versions": [{**row, **_version(by_number.get(row["version"]))} for row in rows],
            **({} if newest is None else {**_ports(newest.version), **_batching(newest)}),
            "adapters": [] if newest is None else newest.adapters.rows(),
            **_numbers(self._service.metrics.model(name)),
        }, newest

    def _with_examples(
        self, models: Sequence[tuple[Facts, LiveVersion | None]], address: Address
    ) -> list[Facts]:
        return [{**facts, "example": self._example(live, address)} for facts, live in models]

    def _example(self, live: LiveVersion | None, address: Address) -> Facts | None:
        if live is None:
            return None
        found, limit = example_of(live.version), self._service.settings.max_body
        if found.size > limit:
            return {"reason": f"a request takes {found.size} bytes, --max-body allows {limit}"}
        return _example(found, live.model, address)


def _example(found: Example, model: str, address: Address) -> Facts:
    return {
        "url": address.infer(model),
        "request": found.request,
        "zeros": found.zeros,
        "curl": found.curl(address, model),
        "python": found.python(address, model),
        "text": found.text,
    }


def _version(live: LiveVersion | None) -> Facts:
    """Counts and times, in seconds, of a version that answers."""
    if live is None:
        return {}
    s = live.version.statistics
    return {
        "answered": s.successes,
        "failed": s.failures,
        "rows": s.rows,
        "runs": s.runs,
        "mean_seconds": s.total / s.successes / 1e9 if s.successes else None,
        "last": s.last or None,
    }


def _ports(version: Version) -> Facts:
    return {
        "inputs": [_port(p) for p in version.inputs.values()],
        "outputs": [_port(p, version.labels) for p in version.outputs.values()],
    }


def _port(port: Port, labels: Mapping[str, tuple[str, ...]] | None = None) -> Facts:
    found: Facts = {
        "name": port.name,
        "datatype": port.datatype,
        "dtype": port.info.element,
        "shape": list(port.shape),
        "sizes": [str(size) for size in port.info.shape] + ["1"] * port.is_column,
    }
    given = (labels or {}).get(port.name, ())
    return {**found, "labels": list(given[:_LABELS]), "classes": len(given)} if given else found


def _batching(live: LiveVersion) -> Facts:
    limits = live.batcher.limits
    return {"batch_rows": limits.rows, "batch_delay": limits.delay, "instances": limits.instances}


def _numbers(metrics: ModelMetrics) -> Facts:
    """Counts since the server began, whichever version answered; times in seconds."""
    return {
        "requests": {str(code): count for code, count in sorted(metrics.codes.items())},
        "waiting": metrics.queue,
        "loads": dict(metrics.loads),
        "latency": {
            "request": metrics.seconds.summary(),
            "queue": metrics.waits.summary(),
            "run": metrics.runs.summary(),
        },
        "rows_of_a_run": metrics.rows.summary(),
        "histogram": [[bound, count] for bound, count in
                      zip([*metrics.seconds.bounds, None], metrics.seconds.counts, strict=True)],
    }  # fmt: skip
