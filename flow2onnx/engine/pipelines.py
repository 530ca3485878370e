"""Pipelines that feed the jobs of a session from the host, one for each job that reads."""

import weakref
from collections.abc import Iterable, Iterator, Mapping

from flow2onnx_runtime.world import launched_world

from flow2onnx.compile import CompiledJob
from flow2onnx.data.pipeline import Pipeline
from flow2onnx.errors import JobError

__all__ = ["Pipelines"]


class Pipelines:
    """The pipelines of a session, by job; they end with `close`, or when the process does."""

    def __init__(self) -> None:
        self._pipelines: dict[str, Pipeline] = {}

    def __iter__(self) -> Iterator[Pipeline]:
        return iter(self._pipelines.values())

    def feeding(self, job: CompiledJob) -> Pipeline | None:
        """The one pipeline of a job, for inputs of any shape; None if it reads nothing.

        Of a job that several processes share, each reads its part.
        """
        if job.host is None:
            return None
        if not self._pipelines:
            # At exit too, but behind the queue of calls, which begins later: it needs batches.
            weakref.finalize(self, _close, self._pipelines)
        world = launched_world()
        part = (world.rank, world.size) if job.digest else (0, 1)
        known = self._pipelines.setdefault(job.spec.name, Pipeline(job.host, part=part))
        if known.plan.signature != job.host.signature:
            raise JobError(
                "inputs of other shapes change what the job reads",
                job=job.spec.name,
                source=job.spec.source,
                hint="let readers and decoders not depend on the shape of an input",
            )
        return known

    def forget(self, jobs: Iterable[str]) -> None:
        """End the pipelines of jobs, which may read something else from now on."""
        for name in jobs:
            known = self._pipelines.pop(name, None)
            if known is not None:
                known.close()

    def close(self) -> None:
        """End the threads of all pipelines; waits for them."""
        _close(self._pipelines)


def _close(pipelines: Mapping[str, Pipeline]) -> None:
    for pipeline in pipelines.values():
        pipeline.close()
