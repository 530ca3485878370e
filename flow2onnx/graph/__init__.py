"""The graph of a job: typed ONNX nodes, how they are made, checked and written.

With `passes` the only place that knows `onnx` and `onnx_ir`.
"""

from onnx_ir import Graph, Model, Node, Value

from flow2onnx.graph.builder import Builder
from flow2onnx.graph.model import copy_model, model_bytes, model_of, model_text, parse_model
from flow2onnx.graph.shaping import unbroadcast
from flow2onnx.graph.types import constant_of, dims, dtype_of, is_static, rank_of, size_of
from flow2onnx.graph.verify import Report, verify

__all__ = [
    "Builder",
    "Graph",
    "Model",
    "Node",
    "Report",
    "Value",
    "constant_of",
    "copy_model",
    "dims",
    "dtype_of",
    "is_static",
    "model_bytes",
    "model_of",
    "model_text",
    "parse_model",
    "rank_of",
    "size_of",
    "unbroadcast",
    "verify",
]
