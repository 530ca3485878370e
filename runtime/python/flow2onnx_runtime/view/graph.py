"""A model's graph as people look at it: nodes with their layers, values with shapes, parameters."""

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from flow2onnx_runtime.dtypes import ELEMENTS
from flow2onnx_runtime.errors import BundleError
from flow2onnx_runtime.manifest import NEXT
from flow2onnx_runtime.view.texts import shape_text

__all__ = ["Graph", "Node", "Role", "Value", "dtype_name", "graph_of"]

Role = Literal["forward", "gradient", "update"]

_CONSTANT = "const/"  # the names of constants that are no weights
_STATE = "System-Train-"  # the names of what a train job keeps for itself
_NAMES = {e.code: e.name for e in ELEMENTS} | {
    8: "string", 14: "complex64", 15: "complex128", 17: "float8e4m3fn", 18: "float8e4m3fnuz",
    19: "float8e5m2", 20: "float8e5m2fnuz", 21: "uint4", 22: "int4", 23: "float4e2m1",
}  # fmt: skip
_BITS = {e.name: 8 * e.size for e in ELEMENTS} | {
    "complex64": 64, "complex128": 128, "uint4": 4, "int4": 4, "float4e2m1": 4,
}  # fmt: skip
_WEIGHTS = re.compile(r"b?float|u?int[48]$|complex")  # element types that weights have
_UPDATES = frozenset(
    {"accumulate", "clip", "part", "receive", "scale", "send", "step", "unscale", "update"}
)
_SCOPES = "pkg.torch.onnx.name_scopes"  # where torch says which module made a node
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")
_DEEPEST = 16  # graphs inside nodes
_LONGEST = 300  # characters of a name or an attribute that are shown
_SHOWN = 8  # elements of an attribute

Shape = tuple[int | str, ...]


@dataclass(frozen=True)
class Value:
    """The element type and shape of a value; None where the model does not say."""

    dtype: str | None = None
    shape: Shape | None = None

    @property
    def count(self) -> int | None:
        """The number of elements, sizes known at a call only taken for 1; None if unknown."""
        if self.shape is None:
            return None
        return math.prod(d if isinstance(d, int) else 1 for d in self.shape)

    @property
    def bytes(self) -> int | None:
        """The bytes of all elements, free sizes taken for 1."""
        if self.count is None or self.dtype is None:
            return None
        return math.ceil(self.count * _BITS.get(self.dtype, 8) / 8)

    @property
    def is_free(self) -> bool:
        """True if a size, or the rank, is known at a call only."""
        return self.shape is None or not all(isinstance(d, int) for d in self.shape)

    def __str__(self) -> str:
        return f"{self.dtype or '?'} {shape_text(self.shape)}"


@dataclass(frozen=True, kw_only=True)
class Node:
    """An operation: `path` are the layers that it lies in, from the outermost to its own."""

    name: str
    operator: str
    path: tuple[str, ...]
    role: Role = "forward"
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A model's nodes in order, with what is known of its values.

    `inputs` and `outputs` are the data, without state. `parameters` are the weights; those in
    `trained` are changed by a step, and None says that nothing is known of that.
    """

    title: str
    nodes: tuple[Node, ...]
    values: Mapping[str, Value]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: tuple[str, ...]
    trained: frozenset[str] | None = None
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_step(self) -> bool:
        """True if there are gradients or updates in it."""
        return any(node.role != "forward" for node in self.nodes)

    def value(self, name: str) -> Value:
        """The element type and shape of a value, empty where nothing is known of it."""
        return self.values.get(name, Value())


def graph_of(
    model: Any,  # an ONNX ModelProto, of whatever library
    title: str,
    *,
    state: Collection[str] | None = None,
    variables: Collection[str] | None = None,
    trained: Collection[str] | None = None,
) -> Graph:
    """The graph of a model. `state` names the inputs that are no data, `variables` the weights.

    Of a model that nothing else is known of, state are the inputs that have a next value, and
    variables those of them that a forward node reads. Raises `BundleError` for graphs that lie
    deeper in each other than anyone writes them.
    """
    proto = model.graph
    values = dict(_values(proto))
    weights = [t.name for t in proto.initializer if _is_weight(t)]
    inside = {t.name for t in proto.initializer}
    owners = {_owner(_text(n)) for n in (*weights, *(variables or ()), *(state or ()))}
    is_own = _text(model.producer_name).startswith("flow2onnx")
    outputs = [_text(v.name) for v in proto.output]
    written = {name.removeprefix(NEXT) for name in outputs if name.startswith(NEXT)}
    if is_own:
        owners |= {_owner(name) for name in written}
    nodes = tuple(_with_gradients(_nodes(proto, values, owners, is_own=is_own)))
    inputs = [_text(v.name) for v in proto.input if v.name not in inside]
    kept = written | {n for n in inputs if n.startswith(_STATE)} if state is None else set(state)
    if variables is None:
        read = {name for node in nodes if node.role == "forward" for name in node.inputs}
        variables = [name for name in inputs if name in written & read]
    known = frozenset(trained) if trained is not None else frozenset(written) if written else None
    return Graph(
        title=title,
        nodes=nodes,
        values=values,
        inputs=tuple(name for name in inputs if name not in kept),
        outputs=tuple(name for name in outputs if not name.startswith(NEXT)),
        parameters=tuple(dict.fromkeys(map(_text, (*weights, *variables)))),
        trained=known,
        facts=_facts(model),
    )


def _with_gradients(nodes: Iterable[Node]) -> Iterator[Node]:
    """The nodes; one without a role in its name that reads a gradient adds gradients up."""
    makers: dict[str, Node] = {}
    for node in nodes:
        sources = [makers[name] for name in node.inputs if name in makers]
        if node.role == "forward" and sources:
            node = replace(node, role=sources[0].role, path=sources[0].path)
        if node.role == "gradient" or (node.role == "update" and sources):
            makers.update((name, node) for name in node.outputs)
        yield node


def _facts(model: Any) -> dict[str, str]:
    versions = {_text(o.domain) or "ai.onnx": o.version for o in model.opset_import}
    return {
        "producer": f"{_text(model.producer_name)} {_text(model.producer_version)}".strip(),
        "opset": ", ".join(f"{d} {v}" for d, v in versions.items()).removeprefix("ai.onnx "),
        "IR": str(model.ir_version),
    }


def _values(proto: Any, depth: int = 0) -> Iterator[tuple[str, Value]]:
    """The values of a graph, and of those inside its nodes, of which the outer ones win."""
    for node in proto.node:
        for attribute in node.attribute:
            for inner in _graphs(attribute, depth):
                yield from _values(inner, depth + 1)
    for info in (*proto.value_info, *proto.input, *proto.output):
        yield _text(info.name), _typed(info.type)
    for tensor in proto.initializer:
        yield _text(tensor.name), Value(dtype_name(tensor.data_type), tuple(tensor.dims))


def _typed(kind: Any) -> Value:
    if not kind.HasField("tensor_type"):
        return Value()
    tensor = kind.tensor_type
    if not tensor.HasField("shape"):
        return Value(dtype_name(tensor.elem_type))
    sizes = (
        d.dim_value if d.HasField("dim_value") else _text(d.dim_param) or "?"
        for d in tensor.shape.dim
    )
    return Value(dtype_name(tensor.elem_type), tuple(sizes))


def dtype_name(code: int) -> str:
    """Our name of the standard's number of an element type."""
    return _NAMES.get(code, f"type {code}")


def _is_weight(tensor: Any) -> bool:
    is_constant = _text(tensor.name).startswith(_CONSTANT) or not len(tensor.dims)
    return not is_constant and _WEIGHTS.match(dtype_name(tensor.data_type)) is not None


def _graphs(attribute: Any, depth: int) -> list[Any]:
    """The graphs that an attribute holds."""
    found = [attribute.g] if attribute.HasField("g") else []
    found += list(attribute.graphs)
    if found and depth >= _DEEPEST:
        raise BundleError(
            f"the model has graphs inside each other, more than {_DEEPEST} deep",
            hint="export it again without nested loops or branches",
        )
    return found


def _nodes(
    proto: Any,
    values: dict[str, Value],
    owners: Collection[tuple[str, ...]],
    outer: tuple[str, ...] = (),
    role: Role = "forward",
    *,
    is_own: bool,
    depth: int = 0,
) -> Iterator[Node]:
    """The nodes, each followed by those of the graphs inside it; constants are values alone."""
    for number, node in enumerate(proto.node):
        operator = _operator(node)
        outputs = tuple(map(_text, node.output))
        if operator == "Constant" and outputs:
            values.setdefault(outputs[0], _constant(node))
            continue
        name = _text(node.name) or f"{operator}_{number}"
        own_role, path = (role, _path(node, name)) if outer else _place(node, name, is_own)
        path = (*outer, *_layer(path, owners)) or (name,)
        yield Node(
            name=_shortened(name),
            operator=operator,
            path=tuple(map(_shortened, path)),
            role=own_role,
            inputs=tuple(map(_text, node.input)),
            outputs=outputs,
            attributes={_text(a.name): _content(a) for a in node.attribute},
        )
        for attribute in node.attribute:
            for inner in _graphs(attribute, depth):
                within = (*path, f"{name.rpartition('/')[2]} {_text(attribute.name)}")
                yield from _nodes(
                    inner, values, owners, within, own_role, is_own=is_own, depth=depth + 1
                )


def _operator(node: Any) -> str:
    domain = _text(node.domain)
    return _text(node.op_type) if domain in ("", "ai.onnx") else f"{domain}::{_text(node.op_type)}"


def _constant(node: Any) -> Value:
    for attribute in node.attribute:
        if attribute.HasField("t"):
            return Value(dtype_name(attribute.t.data_type), tuple(attribute.t.dims))
    return Value()


def _place(node: Any, name: str, is_own: bool) -> tuple[Role, tuple[str, ...]]:
    """The role of a node, told by its name, and the layers that it lies in."""
    first, _, rest = name.partition("/")
    if not is_own or not rest:
        return "forward", _path(node, name)
    if first == "grad":
        return "gradient", _path(node, rest.rpartition("/")[0] or rest)
    if first in _UPDATES:
        return "update", _pieces(rest.rpartition("/")[0]) if first == "update" else (first,)
    return "forward", _path(node, name)


def _path(node: Any, name: str) -> tuple[str, ...]:
    """The layers that a node lies in, by what torch has noted, or else by its name."""
    for entry in node.metadata_props:
        if entry.key == _SCOPES:
            scopes = [a or b for a, b in _QUOTED.findall(_text(entry.value))]
            return _relative([s for s in scopes if s][:-1])
    return _pieces(name.rpartition("/")[0])


def _pieces(text: str) -> tuple[str, ...]:
    """The layers in ``/encoder/encoder.0/norm`` or ``encoder-norm``."""
    whole = [p for p in text.split("/") if p]
    return tuple(p for piece in _relative(whole) for p in piece.split("-") if p)


def _relative(scopes: Iterable[str]) -> tuple[str, ...]:
    """Each scope without what it repeats of the one around it."""
    found: list[str] = []
    around = ""
    for scope in scopes:
        found.append(scope.removeprefix(f"{around}.") if around else scope)
        around = scope
    return tuple(found)


def _owner(name: str) -> tuple[str, ...]:
    """The layers that a parameter lies in, by its name."""
    return tuple(p for p in re.split(r"[-./]", name)[:-1] if p)


def _layer(path: tuple[str, ...], owners: Collection[tuple[str, ...]]) -> tuple[str, ...]:
    """The path up to the innermost layer that has parameters, or all of it."""
    for end in range(len(path), 0, -1):
        if path[:end] in owners:
            return path[:end]
    return path


def _content(attribute: Any) -> Any:
    """An attribute: numbers as they are, where something reads them; the rest as short text."""
    for kind in ("i", "f"):
        if attribute.HasField(kind):
            return getattr(attribute, kind)
    if attribute.HasField("s"):
        return _shortened(attribute.s.decode(errors="replace"))
    if attribute.HasField("t"):
        return f"tensor of {Value(dtype_name(attribute.t.data_type), tuple(attribute.t.dims))}"
    if attribute.HasField("g"):
        return f"a graph of {len(attribute.g.node)} nodes"
    if attribute.strings:
        return [_shortened(s.decode(errors="replace")) for s in attribute.strings[:_SHOWN]]
    if attribute.tensors or attribute.graphs:
        return f"{len(attribute.tensors)} tensors, {len(attribute.graphs)} graphs"
    numbers = attribute.ints or attribute.floats
    return list(numbers[:64]) if numbers else ""


def _text(name: Any) -> str:
    """A name as text, whatever bytes a foreign file has in its place."""
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
