"""A compiled job on the runtime: providers, state, one program for each shape of its inputs."""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from flow2onnx_runtime import Options, Program, State, usable_providers
from flow2onnx_runtime.errors import NonFiniteError

from flow2onnx.compile import CompiledJob
from flow2onnx.config import FunctionConfig
from flow2onnx.graph import model_bytes

__all__ = ["Executable", "best_device", "job_options", "provider_of"]

_log = logging.getLogger("flow2onnx.execute")
_PROVIDERS = {"cpu": "CPUExecutionProvider", "gpu": "CUDAExecutionProvider"}
Array = np.ndarray[Any, np.dtype[Any]]


def best_device() -> str:
    """Where jobs without a placement run: on the GPU when the runtime can use it."""
    return "gpu" if _PROVIDERS["gpu"] in usable_providers() else "cpu"


def provider_of(device: str) -> str:
    """The runtime's name for a device tag.

    As in OneFlow, "gpu" on a build without GPU support means the CPU, and says so; a GPU build
    whose libraries are missing is an error when the session is opened.
    """
    import onnxruntime

    provider = _PROVIDERS[device]
    if provider not in onnxruntime.get_available_providers():
        _log.warning("this onnxruntime is a CPU build: jobs placed on %r run on the CPU", device)
        return _PROVIDERS["cpu"]
    return provider


def job_options(config: FunctionConfig, provider: str) -> Options:
    """How the session of a job is opened: the rows of the flag table that reach the runtime."""
    settings = config.session_options()
    entries = {k: str(v) for k, v in settings.items() if "." in k}
    providers: list[Any] = [provider]
    if provider != _PROVIDERS["cpu"]:
        providers = [(provider, config.provider_options("cuda")), _PROVIDERS["cpu"]]
    return Options(
        providers=tuple(providers),
        memory_pattern=bool(settings.get("enable_mem_pattern", False)),
        deterministic=bool(settings.get("use_deterministic_compute", False)),
        session_entries=entries,
    )


class Executable:
    """One compiled job bound to the session's state."""

    def __init__(self, compiled: CompiledJob, state: State, options: Options) -> None:
        self.compiled = compiled
        self.program = Program(model_bytes(compiled.model), state, options, name=compiled.spec.name)
        outputs = [info.name for info in self.program.results]
        self._order = [compiled.feeds.index(f.name) for f in self.program.feeds]
        self._results = [outputs.index(name) for name in compiled.results]
        self._losses = [outputs.index(name) for name in compiled.losses if name in outputs]
        self._watches = [(outputs.index(w.output), w.handler) for w in compiled.watches]
        self.stops_on_non_finite = False

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """One call: new arrays in the order of the job's results. Watch handlers run first."""
        outputs = self.program.run([arrays[i] for i in self._order], commit=not self._is_guarded)
        if self._is_guarded:
            self._check_finite(outputs)
            self.program.commit()
        for position, handler in self._watches:
            handler(outputs[position])
        return [outputs[i] for i in self._results]

    @property
    def _is_guarded(self) -> bool:
        return self.stops_on_non_finite and bool(self._losses)

    def _check_finite(self, outputs: list[Array]) -> None:
        if all(np.isfinite(outputs[i]).all() for i in self._losses):
            return
        name = self.compiled.spec.name
        step = int(self.program.state.read(f"System-Train-TrainStep-{name}")[0])
        raise NonFiniteError(
            f"the loss of step {step} is not finite",
            job=name,
            source=self.compiled.spec.source,
            hint="the variables are as before this step; lower the learning rate, or look at the "
            "inputs of this call",
        )
