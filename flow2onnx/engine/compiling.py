"""The jobs of a session compiled: for its seed and devices, with lowerings that were measured."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from flow2onnx_runtime import kernels
from flow2onnx_runtime.providers import CPU, provider_named
from flow2onnx_runtime.world import launched_world

from flow2onnx.compile import CompiledJob, Target, compile_job, compile_rounds
from flow2onnx.compile.half_opset import compile_in_half
from flow2onnx.compile.kept_program import compile_known_job
from flow2onnx.compile.opsets import USUAL_OPSET
from flow2onnx.compile.segments import cut_for_ranks
from flow2onnx.compile.variants import compile_for_ranks, count_draws, draw_as_rank
from flow2onnx.engine.opening_cache import OpeningCache, cache_for
from flow2onnx.engine.options import options_of
from flow2onnx.engine.placement import Placement
from flow2onnx.engine.tuning import cache_path, fastest_forms
from flow2onnx.errors import FlowError
from flow2onnx.trace.spec import JobSpec

__all__ = ["JobCompiler", "Shapes"]

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class JobCompiler:
    """Compiles jobs by the settings of their session; `shapes` of inputs as in `trace`."""

    placement: Placement

    def target(self) -> Target:
        """The opset, seed, kernels and devices to compile for."""
        settings, providers = self.placement.settings, self.placement.target_providers()
        return Target(
            seed=settings.value("random_seed"),
            kernels=kernels(*providers),
            provider=provider_named(providers[0]).tag,
            shows_losses=settings.value("stop_on_non_finite"),
            devices=self.placement.device_count(),
        )

    def compile(
        self,
        spec: JobSpec,
        shapes: Shapes | None = None,
        target: Target | None = None,
        programs: OpeningCache | None = None,
    ) -> CompiledJob:
        """A job as one model, which is made when somebody looks if `programs` know the job."""
        target = target or self.target()
        with _name_job_in_errors(spec):
            job = (
                compile_job(spec, shapes, target)
                if programs is None
                else compile_known_job(spec, shapes, target, programs)
            )
            if target.provider != CPU.tag and target.opset == USUAL_OPSET:
                job, target = compile_in_half(job, shapes, target)
            tuned = self._with_measured_forms(job, target)
            return job if tuned is target else compile_job(spec, shapes, tuned)

    def compile_for_calls(self, spec: JobSpec, shapes: Shapes | None = None) -> CompiledJob:
        """A job whose calls may read several batches each, or be captured as a CUDA graph.

        Of a train job that several processes share, the part of this one.
        """
        if spec.kind == "train" and launched_world().size > 1:
            return self._for_rank(spec, shapes)
        rounds = spec.config.value("train.num_gradient_accumulation_steps")
        is_measured = bool(spec.config.value("runtime.autotune"))
        programs = None if rounds > 1 or is_measured else cache_for(spec.config)
        job = self.compile(spec, shapes, programs=programs)
        if job.kind == "predict":
            return job
        with _name_job_in_errors(spec):
            if rounds > 1:
                target = self._with_measured_forms(job, self.target())
                job = compile_rounds(spec, shapes, target, rounds)
            if spec.config.value("runtime.enable_cuda_graph"):
                count_draws(job)  # a replay would repeat what the runtime's generators drew
        return job

    def _for_rank(self, spec: JobSpec, shapes: Shapes | None) -> CompiledJob:
        world = launched_world()
        target = replace(self.target(), devices=1, ranks=world.size, rank=world.rank)
        rounds = spec.config.value("train.num_gradient_accumulation_steps")
        with _name_job_in_errors(spec):
            job = compile_for_ranks(spec, shapes, target, rounds)
            draw_as_rank(job, world.rank)
            if job.division is not None:
                return job
            return cut_for_ranks(
                job, on_host=target.provider == CPU.tag, overlaps=self._has_idle_processor(spec)
            )

    def _has_idle_processor(self, spec: JobSpec) -> bool:
        """False for two processes of one thread each on a machine of two processors.

        What they send is then work of these too. Of more than two, some wait for others meanwhile.
        """
        world = launched_world()
        asked = self.placement.settings.session_options() | spec.config.session_options()
        is_full = (os.cpu_count() or 1) <= world.size and asked.get("intra_op_threads", 1) == 1
        return world.size > 2 or world.machines > 1 or not is_full

    def _with_measured_forms(self, job: CompiledJob, target: Target) -> Target:
        """The target with the forms that `autotune` measured for a job, where that is on."""
        config = job.spec.config
        how = config.value("runtime.autotune")
        if not how or target.tuned:
            return target
        path = cache_path(config.value("runtime.tuning_cache_path"))
        options = options_of(job, self.placement.settings, self.placement.device_of([job]))
        forms = fastest_forms(job, options, path, measures=how is True)
        return replace(target, tuned=forms) if forms else target


@contextmanager
def _name_job_in_errors(spec: JobSpec) -> Iterator[None]:
    """Give errors the name of the job and its place in the program."""
    try:
        yield
    except FlowError as error:
        error.located(spec.name, None, spec.source)
        raise
