"""Jobs in types and operators that onnxruntime-web computes on a GPU."""

from collections.abc import Iterable

from flow2onnx.compile import CompiledJob
from flow2onnx.errors import UnsupportedError
from flow2onnx.onnx_io.single_precision import narrow_float64
from flow2onnx.passes.webgpu_forms import UseWebGPUForms

__all__ = ["fit_to_webgpu"]


def fit_to_webgpu(jobs: Iterable[CompiledJob]) -> None:
    """Write what models compute in float64 in float32, and operators in their forms, in place.

    Raises UnsupportedError for feeds and weights of float64, which no GPU of a browser has.
    """
    for job in jobs:
        wide = [
            v.name
            for v in job.model.graph.inputs
            if v.dtype is not None and v.dtype.name == "DOUBLE"
        ]
        if wide:
            raise UnsupportedError(
                f"webgpu: {', '.join(map(str, wide[:5]))} of float64, which WebGPU does not have",
                job=job.spec.name,
                hint="export the model in float32",
            )
        narrow_float64(job.model)
        UseWebGPUForms().run(job.model.graph)
