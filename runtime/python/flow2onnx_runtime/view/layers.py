"""The layers of a model: what each makes, its parameters, multiplications and memory."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flow2onnx_runtime.view.costs import macs
from flow2onnx_runtime.view.graph import Graph, Node, Value

__all__ = ["Layer", "Summary", "summary_of"]

_MOST_OPERATORS = 3


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A layer: its operators, its last value, numbers of its parameters, MACs, bytes it makes.

    `trained` is None where nothing says what is trained.
    """

    name: str
    operators: str
    output: Value
    parameters: int
    trained: int | None
    macs: int
    bytes: int
    nodes: int

    @property
    def frozen(self) -> int | None:
        """The parameters that are not trained."""
        return None if self.trained is None else self.parameters - self.trained


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The layers of a model in order, and what is true of all of it.

    `parameter_bytes` are those of all weights, `bytes` of all that a forward pass makes.
    """

    title: str
    layers: tuple[Layer, ...]
    parameters: int
    trained: int | None
    parameter_bytes: int
    macs: int
    bytes: int
    nodes: Mapping[str, int]
    is_free: bool
    facts: Mapping[str, str]

    @property
    def frozen(self) -> int | None:
        """The parameters that are not trained."""
        return None if self.trained is None else self.parameters - self.trained

    def as_dict(self) -> dict[str, Any]:
        """The summary in plain data."""
        return {
            "title": self.title,
            "layers": [
                {
                    "name": layer.name,
                    "operators": layer.operators,
                    "dtype": layer.output.dtype,
                    "shape": None if layer.output.shape is None else list(layer.output.shape),
                    "parameters": layer.parameters,
                    "trainable": layer.trained,
                    "macs": layer.macs,
                    "bytes": layer.bytes,
                    "nodes": layer.nodes,
                }
                for layer in self.layers
            ],
            "parameters": self.parameters,
            "trainable": self.trained,
            "parameter_bytes": self.parameter_bytes,
            "macs": self.macs,
            "activation_bytes": self.bytes,
            "nodes": dict(self.nodes),
            "free_sizes_count_as_1": self.is_free,
            **self.facts,
        }


def summary_of(graph: Graph) -> Summary:
    """The layers of the forward pass, in the order of their first nodes, and the totals.

    A parameter belongs to the layer that reads it first; one that no forward node reads belongs to
    none, and is in the totals.
    """
    groups: dict[tuple[str, ...], list[Node]] = {}
    for node in graph.nodes:
        if node.role == "forward":
            groups.setdefault(node.path, []).append(node)
    left, parameters = set(graph.parameters), graph.parameters
    layers = []
    for path, nodes in groups.items():
        read = dict.fromkeys(name for node in nodes for name in node.inputs if name in left)
        left -= read.keys()
        layers.append(_layer(graph, path, nodes, tuple(read)))
    return Summary(
        title=graph.title,
        layers=tuple(layers),
        parameters=_count(graph, parameters),
        trained=_trained(graph, parameters),
        parameter_bytes=sum(graph.value(name).bytes or 0 for name in parameters),
        macs=sum(layer.macs for layer in layers),
        bytes=sum(layer.bytes for layer in layers),
        nodes=dict(Counter(node.role for node in graph.nodes)),
        is_free=any(graph.value(name).is_free for name in graph.inputs),
        facts=graph.facts,
    )


def _layer(
    graph: Graph, path: tuple[str, ...], nodes: list[Node], parameters: tuple[str, ...]
) -> Layer:
    made = [name for node in nodes for name in node.outputs if name]
    read = {name for node in nodes for name in node.inputs}
    first = [node.outputs[0] for node in nodes if node.outputs]  # what a node is there for
    last = [name for name in first if name not in read] or first or [""]
    operators = list(Counter(node.operator for node in nodes))
    more = ["…"] * (len(operators) > _MOST_OPERATORS)
    return Layer(
        name="/".join(path),
        operators=", ".join([*operators[:_MOST_OPERATORS], *more]),
        output=graph.value(last[-1]),
        parameters=_count(graph, parameters),
        trained=_trained(graph, parameters),
        macs=sum(macs(graph, node) for node in nodes),
        bytes=sum(graph.value(name).bytes or 0 for name in made),
        nodes=len(nodes),
    )


def _count(graph: Graph, names: tuple[str, ...]) -> int:
    return sum(graph.value(name).count or 0 for name in names)


def _trained(graph: Graph, names: tuple[str, ...]) -> int | None:
    if graph.trained is None:
        return None
    return _count(graph, tuple(name for name in names if name in graph.trained))
