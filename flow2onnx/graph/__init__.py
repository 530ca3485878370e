"""The graph of a job: typed ONNX nodes, how they are made and checked."""

from onnx_ir import Graph, Model, Node, Value

from flow2onnx.graph.builder import Builder

__all__ = ["Builder", "Graph", "Model", "Node", "Value"]
