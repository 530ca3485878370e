"""Finished models parsed again: what a quantizer wrote, with its values taken out."""

from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from flow2onnx.dtypes import DType
from flow2onnx.graph.model import IR_VERSION, drop_unread_constants
from flow2onnx.graph.schemas import PRODUCTS
from flow2onnx.graph.types import dtype_of

__all__ = ["float_initializers", "input_dtypes", "load_with_inputs", "prepare_for_quantizer"]

_SMALL = 1024  # bytes: scales and shapes stay in the model


def prepare_for_quantizer(content: bytes) -> bytes:
    """A model for who rewrites it: inner types not said, each product's weight its own.

    A quantizer turns the weights of products round, and scales them by channel.
    """
    proto = onnx.ModelProto.FromString(content)
    del proto.graph.value_info[:]
    tensors = {t.name: t for t in proto.graph.initializer}
    readers = Counter(name for n in proto.graph.node for name in n.input)
    for node in proto.graph.node:
        name = node.input[1] if node.op_type in PRODUCTS else ""
        if name in tensors and readers[name] > 1:
            own = proto.graph.initializer.add()
            own.CopyFrom(tensors[name])
            own.name = node.input[1] = f"{name}/{node.name}"
            readers[name] -= 1
    result: bytes = proto.SerializeToString(deterministic=True)
    return result


def load_with_inputs(
    path: Path, like: ir.Model, unquantized: Collection[str] = ()
) -> tuple[ir.Model, dict[str, np.ndarray[Any, Any]]]:
    """A model in a file with its larger initializers as inputs, and their values.

    `freeze` is the way back. What the model says of itself is what `like` says; domains that it
    does not use are dropped. Nodes named `unquantized` read products as they are, not rounded to
    eight bits and back.
    """
    model: ir.Model = ir.load(path)
    graph = model.graph
    _drop_unread_quantization(graph, unquantized)
    _drop_unused_domains(graph)
    values = {}
    for name, value in list(graph.initializers.items()):
        tensor = value.const_value
        if tensor is None or tensor.nbytes < _SMALL:
            continue
        values[name] = np.array(tensor.numpy())  # apart from the file, which may go
        del graph.initializers[name]
        value.const_value = None
        value.shape, value.type = ir.Shape(values[name].shape), ir.TensorType(tensor.dtype)
        graph.inputs.append(value)
    model.ir_version = IR_VERSION
    model.producer_name, model.producer_version = like.producer_name, like.producer_version
    model.metadata_props.clear()
    model.metadata_props.update(like.metadata_props)
    graph.name = like.graph.name
    return model, values


def _drop_unread_quantization(graph: ir.Graph, unquantized: Collection[str]) -> None:
    """Remove the quantizing of a product's result that only nodes in float32 read."""
    for node in [n for n in graph if n.op_type == "QuantizeLinear"]:
        x, y = node.inputs[0], node.outputs[0]
        maker = x.producer() if x is not None else None
        back = [use.node for use in y.uses()]
        if x is None or maker is None or maker.op_type not in ("Gemm", "MatMul"):
            continue
        if len(back) != 1 or back[0].op_type != "DequantizeLinear" or x.is_graph_output():
            continue
        shown = back[0].outputs[0]
        if all(use.node.name in unquantized for use in shown.uses()):
            _replace_value(graph, shown, x)
            graph.remove([back[0], node], safe=True)
    drop_unread_constants(graph)


def _replace_value(graph: ir.Graph, old: ir.Value, new: ir.Value) -> None:
    """Let everyone read `new` in place of `old`, the callers of the graph under the old name."""
    for i, output in enumerate(graph.outputs):
        if output is old:
            old.name, new.name = f"{old.name}/rounded", old.name
            new.shape, new.type = new.shape or old.shape, new.type or old.type
            graph.outputs[i] = new
    old.replace_all_uses_with(new)


def _drop_unused_domains(graph: ir.Graph) -> None:
    used = {"" if n.domain == "ai.onnx" else n.domain for n in graph.all_nodes()} | {""}
    for domain in [d for d in graph.opset_imports if d not in used]:
        del graph.opset_imports[domain]


def float_initializers(path: Path) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """The real initializers of a model file, with their names."""
    model: ir.Model = ir.load(path)
    for name, value in model.graph.initializers.items():
        tensor = value.const_value
        if tensor is not None and tensor.dtype == ir.DataType.FLOAT:
            yield name, tensor.numpy()


def input_dtypes(model: ir.Model) -> dict[str, DType]:
    """The element type of each input."""
    return {str(v.name): dtype_of(v) for v in model.graph.inputs}
