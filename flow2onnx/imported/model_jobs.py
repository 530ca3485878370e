"""Jobs of an imported model, compiled at one batch size or for all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from flow2onnx.compile import CompiledJob, Target, compile_job
from flow2onnx.compile.variants import for_any_batch, unusual_sizes
from flow2onnx.config import FunctionConfig
from flow2onnx.errors import FlowError, UnsupportedError
from flow2onnx.imported.feeds import Feeds
from flow2onnx.onnx_io.serialize import rename_outputs
from flow2onnx.trace.spec import GENERATIONS, JobSpec

__all__ = ["ModelJobs"]


@dataclass(frozen=True, kw_only=True)
class ModelJobs:
    """Compiles jobs: `body(kind, batch)` is what one does, `names(kind, n)` its n results.

    `half` is the element type of mixed precision, or None.
    """

    title: str
    feeds: Feeds
    body: Callable[[str, int], Callable[[], Any]]
    names: Callable[[str, int], Sequence[str]]
    target: Target
    half: str | None = None
    has_optimizer: bool = True

    def job(self, kind: str) -> CompiledJob:
        """A job, for any batch if that is free; "train" is the step."""
        if not self.feeds.is_free:
            return self._rename_results(self.at(kind), kind)
        try:
            job = for_any_batch(partial(self.at, kind), self.feeds.sizes())
        except UnsupportedError as error:
            if error.job is None:  # no job at one size is at fault, but what they have in common
                error.hint = f"fix the batch: inputs={self._example_shapes()}"
            raise error.located(self.title, None, None) from None
        return self._rename_results(job, kind)

    def at(self, kind: str, batch: int | None = None) -> CompiledJob:
        """A job at one batch size, or at the first of those it would be compiled at."""
        config = FunctionConfig()
        if self.half is not None:
            config.enable_auto_mixed_precision(True)
            config.runtime.mixed_precision_dtype(self.half)
        is_train = kind == "train"
        spec = JobSpec(
            name=self.title if is_train else kind,
            function=self.body(kind, batch or self._size()),
            kind="train" if is_train and self.has_optimizer else "predict",
            config=config,
            release=GENERATIONS["c"],
        )
        try:
            job = compile_job(spec, None, self.target)
        except FlowError as error:
            raise error.located(self.title, None, None) from None
        return replace(job, kind="train") if is_train else job

    def _size(self) -> int:
        return unusual_sizes(self.feeds.sizes())[0] if self.feeds.is_free else 1

    def _example_shapes(self) -> str:
        feeds = [f for f in self.feeds.model if set(f.shape) & self.feeds.symbols]
        return "{" + ", ".join(f"{f.name!r}: {self.feeds.shape(f, 8)}" for f in feeds) + "}"

    def _rename_results(self, job: CompiledJob, kind: str) -> CompiledJob:
        wanted = self.names(kind, len(job.results))
        names = rename_outputs(job.model, dict(zip(job.results, wanted, strict=True)))
        losses = [names[n] for n in job.losses] or [n for n in names.values() if n == "loss"]
        return replace(
            job,
            results=tuple(names[r] for r in job.results),
            losses=tuple(losses) if kind == "train" else (),
        )
