"""A compiled job on the runtime: providers, state, one program for each shape of its inputs."""

import functools
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from flow2onnx_runtime import Options, Program, State, usable_providers
from flow2onnx_runtime.errors import NonFiniteError

from flow2onnx.compile import CompiledJob
from flow2onnx.config import FunctionConfig, Settings
from flow2onnx.errors import FlowError
from flow2onnx.graph import dtype_of, model_bytes

__all__ = ["Executable", "best_device", "job_options", "provider_of"]

_log = logging.getLogger("flow2onnx.execute")
_PROVIDERS = {
    "cpu": "CPUExecutionProvider",
    "gpu": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
}
Array = np.ndarray[Any, np.dtype[Any]]


@functools.cache
def best_device() -> str:
    """Where jobs without a placement run: on the GPU when the runtime can use it."""
    return "gpu" if _PROVIDERS["gpu"] in usable_providers() else "cpu"


@functools.cache
def provider_of(device: str) -> str:
    """The runtime's name for a device tag.

    As in OneFlow, "gpu" on a build without GPU support means the CPU, and says so once; a GPU
    build whose libraries are missing is an error when the session is opened.
    """
    import onnxruntime

    provider = _PROVIDERS[device]
    if provider not in onnxruntime.get_available_providers():
        _log.warning("this onnxruntime is a CPU build: jobs placed on %r run on the CPU", device)
        return _PROVIDERS["cpu"]
    return provider


def job_options(config: FunctionConfig, settings: Settings, provider: str) -> Options:
    """How the session of a job is opened: the rows of the flag tables that reach the runtime."""
    asked = settings.session_options() | config.session_options()
    entries = {k: str(v) for k, v in asked.items() if "." in k}
    providers: list[Any] = [
        (_PROVIDERS[name], config.provider_options(name)) for name in config.providers()
    ]
    if provider != _PROVIDERS["cpu"]:
        tuned = settings.provider_options("cuda") | config.provider_options("cuda")
        providers.append((provider, tuned))
    return Options(
        providers=(*providers, _PROVIDERS["cpu"]),
        intra_op_threads=asked.get("intra_op_num_threads"),
        memory_pattern=bool(asked.get("enable_mem_pattern", False)),
        deterministic=bool(asked.get("use_deterministic_compute", False)),
        session_entries=entries,
    )


class Executable:
    """One compiled job bound to the session's state."""

    def __init__(
        self,
        compiled: CompiledJob,
        state: State,
        options: Options,
        *,
        stops_on_non_finite: bool = False,
    ) -> None:
        self.compiled = compiled
        self._program: Program | None = None
        outputs: list[str] = []
        self._order: list[int] = []
        if compiled.model.graph.outputs:  # the runtime opens no model without
            name = compiled.spec.name
            options = options.for_training() if compiled.kind == "train" else options
            self._program = Program(model_bytes(compiled.model), state, options, name=name)
            outputs = [info.name for info in self._program.results]
            self._order = [compiled.feeds.index(f.name) for f in self._program.feeds]
        self._state = state
        self._results = [outputs.index(name) for name in compiled.results]
        self._losses = [outputs.index(name) for name in compiled.losses if name in outputs]
        self._watches = [(outputs.index(w.output), w.handler) for w in compiled.watches]
        self._bits = _travelling_as_bits(compiled, outputs)
        self._guard = self._check_finite if stops_on_non_finite and self._losses else None

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """One call: new arrays in the order of the job's results. Watch handlers run first."""
        if self._program is None:
            return []
        try:
            outputs = self._program.run([arrays[i] for i in self._order], guard=self._guard)
        except FlowError as error:
            error.located(self.compiled.spec.name, None, None)
            raise
        for position, dtype in self._bits:
            outputs[position] = outputs[position].view(dtype)
        for position, handler in self._watches:
            handler(outputs[position])
        return [outputs[i] for i in self._results]

    def _check_finite(self, outputs: list[Array]) -> None:
        if all(np.isfinite(outputs[i]).all() for i in self._losses):
            return
        name = self.compiled.spec.name
        step = int(self._state.read(f"System-Train-TrainStep-{name}")[0])
        raise NonFiniteError(
            f"the loss of step {step} is not finite",
            job=name,
            hint="the variables are as before this step; lower the learning rate, or look at the "
            "inputs of this call",
        )


def _travelling_as_bits(
    compiled: CompiledJob, outputs: Sequence[str]
) -> list[tuple[int, "np.dtype[Any]"]]:
    """The results that the runtime hands out as unsigned bits of the same size."""
    values = {v.name: v for v in compiled.model.graph.outputs}
    dtypes = [dtype_of(values[name]) for name in outputs]
    return [(i, d.numpy) for i, d in enumerate(dtypes) if d.name == "bfloat16"]
