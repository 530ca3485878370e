"""A graph run as it is and with native operators, side by side."""

import functools
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
from flow2onnx_native import accelerator
from flow2onnx_native.library import NativeLibrary
from flow2onnx_native.pipeline import rewrite_training
from flow2onnx_runtime.extensions import GraphAnalysis

from flow2onnx.analysis import in_place as analysis
from flow2onnx.analysis.in_place import index_origin, late_readers
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_bytes, model_of

ANALYSIS = GraphAnalysis(late_readers, index_origin)
in_place = functools.partial(analysis.in_place, traits=accelerator)
Array = np.ndarray[Any, np.dtype[Any]]


def rewrite(
    model: ir.Model,
    operators: Collection[str],
    threads: int = 1,
    *,
    winograd: bool = True,
    avx512: bool = False,
) -> tuple[ir.Model, dict[str, int]]:
    """A copy that uses the operators, and how many of each it has."""
    return rewrite_training(model, operators, threads, ANALYSIS, winograd=winograd, avx512=avx512)


def session(model: ir.Model, library: NativeLibrary | None = None, threads: int = 1) -> Any:
    """A session as train jobs have it."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    if library is not None:
        options.register_custom_ops_library(library.path)
    return ort.InferenceSession(model_bytes(model), options, providers=["CPUExecutionProvider"])


def run(opened: Any, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs by name."""
    names = [o.name for o in opened.get_outputs()]
    return dict(zip(names, opened.run(names, dict(feeds)), strict=True))


def both(
    b: Builder,
    feeds: Mapping[str, Array],
    library: NativeLibrary,
    threads: int = 1,
    *,
    winograd: bool = True,
) -> tuple[dict[str, Array], dict[str, Array], dict[str, int]]:
    """The outputs of the standard graph, those of the rewritten one, and the native operators."""
    model = model_of(b.graph)
    rewritten, used = rewrite(
        model, library.operators, threads, winograd=winograd, avx512=library.uses_avx512
    )
    return (
        run(session(model), feeds),
        run(session(rewritten, library, threads), feeds),
        used,
    )
