"""Models ready to be written: values inside or in other files, chosen outputs, metadata."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from flow2onnx.dtypes import DType
from flow2onnx.graph.types import dims, dtype_of

__all__ = [
    "NEWEST_OPSET",
    "Placement",
    "Signature",
    "drop_inputs",
    "drop_outputs",
    "embed_values",
    "externalize_values",
    "load_external_values",
    "rename_outputs",
    "set_metadata",
    "signature",
]

# What the installed onnx can describe; a runtime may take less.
NEWEST_OPSET: int = onnx.defs.onnx_opset_version()


@dataclass(frozen=True)
class Placement:
    """The place of a tensor: bytes `offset` to `offset + length` of a file beside the model."""

    file: str
    offset: int
    length: int


@dataclass(frozen=True)
class Signature:
    """An input or output: name, shape with text for free sizes, name of the element type."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str


def embed_values(model: ir.Model, values: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Turn the inputs that `values` names into initializers, in place.

    A bfloat16 value may come as the uint16 bits of its elements.
    """
    for value in _remove_inputs(model.graph, values):
        assert value.name is not None, "an input has a name"
        dtype = dtype_of(value)
        array = np.ascontiguousarray(values[value.name]).reshape(values[value.name].shape)
        bits = array.view(dtype.numpy) if array.dtype != dtype.numpy else array
        _add_initializer(
            model.graph, value, ir.Tensor(bits, dtype=ir.DataType(dtype.code), name=value.name)
        )


def externalize_values(model: ir.Model, places: Mapping[str, Placement]) -> None:
    """Turn the inputs that `places` names into initializers whose values lie in another file."""
    for value in _remove_inputs(model.graph, places):
        assert value.name is not None, "an input has a name"
        assert value.shape is not None, "an input has a shape"
        place = places[value.name]
        tensor = ir.ExternalTensor(
            place.file,
            place.offset,
            place.length,
            ir.DataType(dtype_of(value).code),
            shape=ir.Shape(value.shape),
            name=value.name,
        )
        _add_initializer(model.graph, value, tensor)


def load_external_values(
    model: ir.Model, content: Callable[[str, tuple[int, ...], DType], np.ndarray[Any, Any]]
) -> None:
    """Put inside what lies in other files: `content` gives it, by name, shape and element type."""
    for name, value in model.graph.initializers.items():
        if isinstance(value.const_value, ir.ExternalTensor):
            dtype = dtype_of(value)
            array = content(name, dims(value), dtype).view(dtype.numpy)
            value.const_value = ir.Tensor(array, dtype=ir.DataType(dtype.code), name=name)


def _remove_inputs(graph: ir.Graph, names: Collection[str]) -> list[ir.Value]:
    """Remove the inputs of these names from the graph's list and return them."""
    taken = [v for v in graph.inputs if v.name in names]
    for value in taken:
        graph.inputs.remove(value)
    return taken


def _add_initializer(graph: ir.Graph, value: ir.Value, tensor: Any) -> None:
    value.const_value = tensor
    assert value.name is not None, "an input has a name"
    graph.initializers[value.name] = value


def drop_inputs(model: ir.Model, kept: Collection[str]) -> None:
    """Remove the inputs that nothing reads, but those in `kept`."""
    for value in list(model.graph.inputs):
        if value.name not in kept and not value.uses() and not value.is_graph_output():
            model.graph.inputs.remove(value)


def drop_outputs(model: ir.Model, names: Collection[str]) -> bool:
    """Make values outputs no longer; returns whether any was. What computed them stays."""
    dropped = [v for v in model.graph.outputs if v.name in names]
    for value in dropped:
        model.graph.outputs.remove(value)
    return bool(dropped)


def rename_outputs(model: ir.Model, names: Mapping[str, str]) -> dict[str, str]:
    """Give outputs other names where these are free; returns what each is called now."""
    graph = model.graph
    taken = {v.name for v in (*graph.inputs, *graph.initializers.values())}
    taken |= {o.name for node in graph.all_nodes() for o in node.outputs}
    found = {}
    for value in graph.outputs:
        old = value.name or ""
        new = names.get(old, old)
        if new not in taken:
            taken.add(new)
            value.name = new
        found[old] = value.name or ""
    return found


def signature(values: Collection[ir.Value]) -> tuple[Signature, ...]:
    """Names, shapes and element types; a size that nothing is known of is ``"?"``."""
    return tuple(Signature(v.name or "", _shape(v), dtype_of(v).name) for v in values)


def _shape(value: ir.Value) -> tuple[int | str, ...]:
    assert value.shape is not None, f"{value.name} has no shape"
    return tuple(d if isinstance(d, int) else d.value or "?" for d in value.shape)


def set_metadata(model: ir.Model, version: str, metadata: Mapping[str, str]) -> None:
    """Say in the model who wrote it, and add texts for people."""
    model.producer_version = version
    model.metadata_props.update(metadata)
