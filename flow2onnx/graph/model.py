"""Graphs as models: opset and IR version always said, bytes and text out."""

import itertools
from collections.abc import Mapping

import onnx
import onnx_ir as ir

__all__ = [
    "IR_VERSION",
    "copy_model",
    "drop_unread_constants",
    "model_bytes",
    "model_of",
    "model_text",
    "parse_model",
    "to_proto",
    "unique_name",
]

# onnx writes its newest IR version unless told otherwise, and older runtimes refuse that.
IR_VERSION = 10


def model_of(graph: ir.Graph, metadata: Mapping[str, str] = {}) -> ir.Model:
    """A model around `graph`."""
    return ir.Model(
        graph,
        ir_version=IR_VERSION,
        producer_name="flow2onnx",
        metadata_props=dict(metadata),
    )


def model_bytes(model: ir.Model) -> bytes:
    """The model as the content of an .onnx file."""
    content: bytes = ir.to_proto(model).SerializeToString(deterministic=True)
    return content


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """The model in the standard's own form."""
    proto: onnx.ModelProto = ir.to_proto(model)
    return proto


def parse_model(content: bytes) -> ir.Model:
    """The model in the content of an .onnx file."""
    model: ir.Model = ir.from_proto(onnx.ModelProto.FromString(content))
    return model


def copy_model(model: ir.Model) -> ir.Model:
    """An independent copy."""
    return parse_model(model_bytes(model))


def model_text(model: ir.Model) -> str:
    """The graph in ONNX's textual form, for people and for golden files."""
    return str(ir.to_onnx_text(model))


def drop_unread_constants(graph: ir.Graph) -> bool:
    """Remove the initializers that nothing reads and no output is; returns whether any was."""
    constants = graph.initializers.items()
    unread = [name for name, v in constants if not v.uses() and not v.is_graph_output()]
    for name in unread:
        del graph.initializers[name]
    return bool(unread)


def unique_name(name: str, taken: set[str]) -> str:
    """`name`, or the first of ``name_1``, ``name_2``, … that is not `taken`; it is from then on."""
    numbered = (f"{name}_{i}" for i in itertools.count(1))
    free = next(n for n in itertools.chain([name], numbered) if n not in taken)
    taken.add(free)
    return free
