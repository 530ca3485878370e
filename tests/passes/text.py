"""Graphs as ONNX text, for people to read in a test."""

import onnx
import onnx_ir as ir

from flow2onnx.graph.model import model_bytes, model_of, parse_model

_HEAD = '<ir_version: 10, opset_import: ["" : 21]>\n'


def graph_of(text):
    """The graph that a text in ONNX's own notation describes, every value typed."""
    typed = onnx.shape_inference.infer_shapes(
        onnx.parser.parse_model(_HEAD + text), check_type=True, strict_mode=True, data_prop=True
    )
    return parse_model(typed.SerializeToString()).graph


def body_of(graph):
    """One line for each node, spaces left out."""
    proto = ir.to_proto(model_of(graph)).graph
    return [_line(node) for node in proto.node]


def lines(text):
    """The lines of a body, as `body_of` writes them."""
    graph = onnx.parser.parse_graph("g (float x) => (float y) {" + text + "}")
    return [_line(node) for node in graph.node]


def interface(graph):
    """The names of the inputs and outputs, in order."""
    return [v.name for v in graph.inputs], [v.name for v in graph.outputs]


def checked(graph):
    """The graph as a model that the ONNX checker accepts."""
    content = model_bytes(model_of(graph))
    onnx.checker.check_model(content, full_check=True)
    return content


def _line(node):
    bare = onnx.NodeProto()
    bare.CopyFrom(node)
    del bare.metadata_props[:]
    bare.name = bare.doc_string = ""
    return "".join(onnx.printer.to_text(bare).split())
