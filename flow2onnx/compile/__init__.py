"""From a job's specification to a model that runs."""

from flow2onnx.compile.job import (
    CompiledJob,
    Target,
    WatchedOutput,
    compile_job,
    compile_rounds,
    initial_state,
)

__all__ = [
    "CompiledJob",
    "Target",
    "WatchedOutput",
    "compile_job",
    "compile_rounds",
    "initial_state",
]
