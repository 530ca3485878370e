"""Jobs of an imported model, compiled at one batch size or for all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from flow2onnx.compile import CompiledJob, Target, compile_job
from flow2onnx.compile.variants import count_draws, for_any_batch, halves, unusual_sizes
from flow2onnx.config import FunctionConfig
from flow2onnx.errors import FlowError, UnsupportedError
from flow2onnx.imported.feeds import Feeds
from flow2onnx.onnx_io.serialize import rename_outputs
from flow2onnx.optim import Training
from flow2onnx.trace.releases import GENERATIONS
from flow2onnx.trace.spec import JobSpec

__all__ = ["ModelJobs"]


@dataclass(frozen=True, kw_only=True)
class Rewrites:
    """How a step is rewritten: the element type of mixed precision, or None; what is computed again
    for gradients, as in `config.runtime.recompute`, and whether products are; whether state may be
    updated in its own buffer; whether random draws depend on the step alone, and not on what was
    run before; whether no node is left to the processor where a GPU of a browser trains.
    """

    half: str | None = None
    recompute: bool | int | Sequence[str] = False
    recompute_products: bool = True
    in_place: bool = True
    draws_by_step: bool = False
    webgpu: bool = False

    def config(self) -> FunctionConfig:
        """The configuration of a job that is rewritten so."""
        config = FunctionConfig()
        if self.half is not None:
            config.enable_auto_mixed_precision(True)
            config.runtime.mixed_precision_dtype(self.half)
        config.runtime.recompute(self.recompute)
        config.runtime.recompute_products(self.recompute_products)
        config.runtime.in_place(self.in_place)
        return config


@dataclass(frozen=True, kw_only=True)
class ModelJobs:
    """Compiles jobs: `body(kind, batch)` is what one does, `names(kind, n)` its n results.

    The target says how a step is trained.
    """

    title: str
    feeds: Feeds
    body: Callable[[str, int | None], Callable[[], Any]]
    names: Callable[[str, int], Sequence[str]]
    target: Target
    rewrites: Rewrites = Rewrites()
    has_optimizer: bool = True

    def job(self, kind: str) -> CompiledJob:
        """A job, for any batch if that is free; "train" is the step."""
        return self._rename_results(self._for_any_batch(partial(self.at, kind)), kind)

    def halves(self) -> tuple[CompiledJob, CompiledJob]:
        """The step as two models: sum up gradients of a batch; update by the mean."""

        def compile_half(training: Training) -> CompiledJob:
            if training.part == "update":  # which reads no batch
                return self.at("train", training=training)
            return self._for_any_batch(lambda n: self.at("train", n, training))

        gradients, update = halves(self.target.training, compile_half)
        return self._rename_results(gradients, "train"), update

    def at(
        self, kind: str, batch: int | None = None, training: Training | None = None
    ) -> CompiledJob:
        """A job at one batch size, or at the first of those it would be compiled at.

        Where other axes are free too, all sizes have names, and there is one job for all.

        `training` is the part of the step, or None for the target's.
        """
        is_train = kind == "train"
        spec = JobSpec(
            name=self.title if is_train else kind,
            function=self.body(kind, batch or self._size()),
            kind="train" if is_train and self.has_optimizer else "predict",
            config=self.rewrites.config(),
            release=GENERATIONS["c"],
        )
        target = replace(self.target, training=training or self.target.training)
        try:
            job = compile_job(spec, None, target)
        except FlowError as error:
            raise error.located(self.title, None, None) from None
        if is_train and self.rewrites.draws_by_step:
            count_draws(job)
        return replace(job, kind="train") if is_train else job

    def _for_any_batch(self, compile_at: Callable[[int | None], CompiledJob]) -> CompiledJob:
        """The job at the one size of the batch, or for any if that is free."""
        if not self.feeds.is_free or self.feeds.has_free_axes:
            return compile_at(self._size())
        try:
            return for_any_batch(compile_at, self.feeds.sizes())
        except UnsupportedError as error:
            if error.job is None:  # no job at one size is at fault, but what they have in common
                error.hint = f"fix the batch: inputs={self._example_shapes()}"
            raise error.located(self.title, None, None) from None

    def _size(self) -> int | None:
        """The batch that a job is compiled at first; None where all free sizes have names."""
        if self.feeds.has_free_axes:
            return None
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
