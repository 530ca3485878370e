"""Jobs of an imported model, compiled at one batch size or for all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flow2onnx.compile import CompiledJob, Target, compile_job
from flow2onnx.config import FunctionConfig
from flow2onnx.errors import FlowError, UnsupportedError
from flow2onnx.imported.feeds import Feeds
from flow2onnx.onnx_io.free_batch import free_batch
from flow2onnx.onnx_io.serialize import rename_outputs
from flow2onnx.trace.spec import GENERATIONS, JobSpec
from flow2onnx.typing import AbsentReturn

__all__ = ["Maker"]

# Sizes of the batch to compile at that no layer has by accident: odd, even, a multiple of three.
_UNUSUAL = (61, 74, 87, 91, 106, 123)


@dataclass(frozen=True)
class Maker:
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
        sizes = self._sizes()
        jobs = [self.at(kind, n) for n in sizes]
        if self.feeds.is_free:
            graphs = [job.model.graph for job in jobs]
            try:
                free_batch(graphs, sizes, _batch_axes(jobs[:2]), (graphs[1], sizes[1]))
            except UnsupportedError as error:
                error.hint = f"fix the batch: inputs={self._fixed()}"
                raise error.located(self.title, None, None) from None
        return self._named(jobs[0], kind)

    def at(self, kind: str, batch: int | None = None) -> CompiledJob:
        """A job at one batch size, or at the first of those it would be compiled at."""
        config = FunctionConfig()
        if self.half is not None:
            config.enable_auto_mixed_precision(True)
            config.runtime.mixed_precision_dtype(self.half)
        is_train = kind == "train"
        spec = JobSpec(
            self.title if is_train else kind, self.body(kind, batch or self._sizes()[0]),
            "train" if is_train and self.has_optimizer else "predict",
            config, (), (), AbsentReturn(), GENERATIONS["c"], "unique", "consistent",
        )  # fmt: skip
        try:
            job = compile_job(spec, None, self.target)
        except FlowError as error:
            raise error.located(self.title, None, None) from None
        return replace(job, kind="train") if is_train else job

    def _sizes(self) -> tuple[int, ...]:
        known = self.feeds.sizes()
        return tuple(n for n in _UNUSUAL if n not in known)[:3] if self.feeds.is_free else (1,)

    def _fixed(self) -> str:
        feeds = [f for f in self.feeds.model if set(f.shape) & self.feeds.symbols]
        return "{" + ", ".join(f"{f.name!r}: {self.feeds.shape(f, 8)}" for f in feeds) + "}"

    def _named(self, job: CompiledJob, kind: str) -> CompiledJob:
        wanted = self.names(kind, len(job.results))
        names = rename_outputs(job.model, dict(zip(job.results, wanted, strict=True)))
        losses = [names[n] for n in job.losses] or [n for n in names.values() if n == "loss"]
        return replace(
            job,
            results=tuple(names[r] for r in job.results),
            losses=tuple(losses) if kind == "train" else (),
        )


def _batch_axes(jobs: Sequence[CompiledJob]) -> dict[str, int]:
    """For each input whose shape depends on the batch, the axis."""
    first, second = ({str(v.name): v for v in j.model.graph.inputs} for j in jobs)
    axes = {}
    for name in jobs[0].feeds:
        pairs = zip(first[name].shape or (), second[name].shape or (), strict=True)
        differing = [i for i, (a, b) in enumerate(pairs) if a != b]
        if differing:
            axes[name] = differing[0]
    return axes
