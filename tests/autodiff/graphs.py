"""Graphs with their gradients, on the runtime."""

import numpy as np
import onnxruntime as ort
from flow2onnx_runtime import kernels

from flow2onnx.autodiff import gradients
from flow2onnx.errors import UnsupportedError
from flow2onnx.graph import Builder
from flow2onnx.graph.contrib import CONTRIB
from flow2onnx.graph.model import model_bytes, model_of
from flow2onnx.graph.types import dims, dtype_of
from flow2onnx.graph.verify import verify


def as_tuple(values):
    return values if isinstance(values, tuple) else (values,)


def open_graph(b):
    """The graph of a builder as a function of arrays, or None where the runtime lacks a kernel.

    What the runtime opens, our own check has to allow, and the other way round.
    """
    model = model_of(b.graph)
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    try:
        session = ort.InferenceSession(model_bytes(model), options, ["CPUExecutionProvider"])
    except Exception as error:
        if "NOT_IMPLEMENTED" not in str(error):
            raise
        session = None
    try:
        verify(model, kernels(), contrib=CONTRIB)
        is_allowed = True
    except UnsupportedError:
        is_allowed = False
    assert is_allowed == (session is not None), "the kernel check and the runtime disagree"
    if session is None:
        return None
    names = [i.name for i in session.get_inputs()]
    return lambda *arrays: session.run(None, dict(zip(names, arrays, strict=True)))


def forward(case, dtype):
    """The node of a case as a function of arrays, or None without kernels."""
    b = Builder(case.opset)
    inputs = [b.input(f"x{i}", s, dtype) for i, s in enumerate(case.shapes)]
    for i, y in enumerate(as_tuple(case.make(b, *inputs))):
        b.output(y, f"y{i}")
    return open_graph(b)


def differentiate(case, dtype):
    """The gradients of a case: a function of its inputs and of one seed for each output.

    None without kernels; and the element types of the outputs.
    """
    b = Builder(case.opset)
    inputs = [b.input(f"x{i}", s, dtype) for i, s in enumerate(case.shapes)]
    outputs = as_tuple(case.make(b, *inputs))
    seeds = [b.input(f"dy{i}", dims(y), dtype_of(y)) for i, y in enumerate(outputs)]
    grads = gradients(b, dict(zip(outputs, seeds, strict=True)), inputs)
    for i, x in enumerate(inputs):
        b.output(grads[x], f"dx{i}")
    return open_graph(b), [dtype_of(y).numpy for y in outputs]


def slope(function, point, direction, seeds, step):
    """The central difference of the sum of outputs times seeds, in the precision of `point`."""

    def total(size):
        moved = [np.asarray(x + size * d, x.dtype) for x, d in zip(point, direction, strict=True)]
        return sum(
            float((y.astype(np.float64) * s).sum())
            for y, s in zip(function(*moved), seeds, strict=True)
        )

    return (total(step) - total(-step)) / (2 * step)
