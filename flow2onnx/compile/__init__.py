"""From a job's specification to a model that runs."""

from flow2onnx.compile.job import (
    CompiledJob,
    Target,
    WatchedOutput,
    compile_job,
    initial_state,
)
from flow2onnx.compile.variants import compile_rounds

__all__ = [
    "CompiledJob",
    "Target",
    "WatchedOutput",
    "compile_job",
    "compile_rounds",
    "initial_state",
]
