"""Nodes before an input: what a model does with raw data before its job sees it."""

from collections.abc import Callable

import onnx_ir as ir

from flow2onnx.dtypes import DType
from flow2onnx.graph.builder import Builder

__all__ = ["prefix_input"]


def prefix_input(
    model: ir.Model,
    name: str,
    shape: tuple[int | str, ...],
    dtype: DType,
    prepare: Callable[[Builder, ir.Value], ir.Value],
) -> None:
    """Give the input `name` another shape and element type; `prepare` makes the old one of it.

    The input keeps its name and its place. The nodes before it are named ``name/prepared/…``.
    """
    graph, prefix = model.graph, f"{name}/prepared"
    b = Builder(graph.opset_imports[""])
    raw = b.input(name, shape, dtype)
    with b.under(prefix):
        made = prepare(b, raw)
    place = next(i for i, v in enumerate(graph.inputs) if v.name == name)
    old = graph.inputs[place]
    if made is raw:
        return
    nodes = list(b.nodes)
    b.graph.remove(nodes)
    b.graph.inputs.remove(raw)
    for value in list(b.graph.initializers.values()):
        del b.graph.initializers[str(value.name)]
        value.name = f"{prefix}/{value.name}"
        graph.initializers[value.name] = value
    old.replace_all_uses_with(made)
    graph.inputs.remove(old)
    graph.inputs.insert(place, raw)
    first = graph[0]
    graph.insert_before(first, nodes)
