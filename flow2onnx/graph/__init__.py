"""The graph of a job: typed ONNX nodes, how they are made, checked and written.

With `passes` the only place that knows `onnx` and `onnx_ir`.
"""

from onnx_ir import Graph, Model, Node, Value

from flow2onnx.graph.batch import free_batch
from flow2onnx.graph.builder import Builder
from flow2onnx.graph.freeze import (
    NEWEST_OPSET,
    Placement,
    Signature,
    drop_outputs,
    freeze,
    refer,
    signature,
    stamp,
)
from flow2onnx.graph.model import copy_model, model_bytes, model_of, model_text, parse_model
from flow2onnx.graph.reference import IncomparableError, Trial, check_bytes
from flow2onnx.graph.scattering import added_into, added_up, zeros
from flow2onnx.graph.shaping import unbroadcast
from flow2onnx.graph.stored import StoredModel, open_model, parameter_totals, typed_model
from flow2onnx.graph.types import constant_of, dims, dtype_of, is_static, rank_of, size_of
from flow2onnx.graph.verify import Report, kernel_gaps, verify

__all__ = [
    "NEWEST_OPSET",
    "Builder",
    "Graph",
    "IncomparableError",
    "Model",
    "Node",
    "Placement",
    "Report",
    "Signature",
    "StoredModel",
    "Trial",
    "Value",
    "added_into",
    "added_up",
    "check_bytes",
    "constant_of",
    "copy_model",
    "dims",
    "drop_outputs",
    "dtype_of",
    "free_batch",
    "freeze",
    "is_static",
    "kernel_gaps",
    "model_bytes",
    "model_of",
    "model_text",
    "open_model",
    "parameter_totals",
    "parse_model",
    "rank_of",
    "refer",
    "signature",
    "size_of",
    "stamp",
    "typed_model",
    "unbroadcast",
    "verify",
    "zeros",
]
