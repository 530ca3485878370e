"""Import: the nodes of any ONNX model appended to a builder, typed and with shapes."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import onnx_ir as ir
from flow2onnx_runtime.model_limits import most_nodes

from flow2onnx.dtypes import DType, by_code
from flow2onnx.errors import ArgumentError, DTypeError, FlowError, ShapeError, UnsupportedError
from flow2onnx.graph.builder import Builder
from flow2onnx.graph.functions import constant_branch, inline_nodes
from flow2onnx.graph.nodes import attribute, read_values, subgraphs_of
from flow2onnx.graph.saturation import mark_saturation
from flow2onnx.graph.sequences import SEQUENCES, Parts
from flow2onnx.graph.types import dims, is_static
from flow2onnx.graph.unroll import unroll_loop
from flow2onnx.onnx_io.foreign import ForeignModel

__all__ = [
    "Handler",
    "add_output",
    "append_again",
    "append_model",
    "input_dtype",
    "input_shape",
    "value_like",
]

# What a node becomes instead of itself: (builder, node, its inputs, values so far) -> its outputs
Handler = Callable[
    [Builder, ir.Node, Sequence[ir.Value | None], Mapping[str, ir.Value]],
    Sequence[ir.Value | None],
]
_OF_JOBS = ("loss/", "next/", "out/", "watch/")
_TEXTS = ("value_string", "value_strings", "sparse_value")


def add_output(b: Builder, value: ir.Value, name: str) -> ir.Value:
    """Make `value` an output called `name`, which it may be called already."""
    if value.name != name or value.producer() is None or value.is_graph_output():
        return b.output(value, name)
    b.graph.outputs.append(value)
    return value


def input_shape(
    value: ir.Value, shapes: Mapping[str, Sequence[int | str | None]] = {}
) -> Sequence[int | str | None]:
    """The shape of an input, the one in `shapes` before the model's own."""
    given = shapes.get(str(value.name))
    known = value.shape
    if given is None and known is None:
        raise ShapeError(
            f"the model does not say the shape of its input {value.name}",
            hint=f"give it: inputs={{{value.name!r}: (…)}}",
        )
    own = [d if isinstance(d, int) else d.value for d in known] if known is not None else None
    if given is None:
        assert own is not None, "one of the two is there"
        return own
    fits = own is None or (
        len(own) == len(given)
        and all(not isinstance(a, int) or a == b for a, b in zip(own, given, strict=True))
    )
    if not fits:
        raise ShapeError(f"input {value.name} is {own} in the model, {list(given)} was asked for")
    return given


def input_dtype(value: ir.Value) -> DType:
    """The element type of an input."""
    if not isinstance(value.type, ir.TensorType):
        raise UnsupportedError(
            f"input {value.name} is no tensor", hint="export the model with tensors as inputs"
        )
    return by_code(int(value.type.dtype))


def append_model(
    b: Builder,
    foreign: ForeignModel,
    values: Mapping[str, ir.Value],
    handlers: Mapping[str, Handler] = {},
) -> dict[str, ir.Value]:
    """Append the nodes of a model; returns its values by name, the outputs among them.

    `values` stand for inputs and tensors of those names; other tensors become constants.
    `handlers`, by ``domain::Operator``, say what a node becomes instead of itself.
    """
    b.most_nodes = most_nodes()
    return _Appender(b, foreign, dict(values), handlers).run()


def append_again(
    b: Builder,
    foreign: ForeignModel,
    before: ir.Node | None,
    values: Mapping[str, ir.Value],
    around: Mapping[str, ir.Value],
    wanted: str,
) -> ir.Value:
    """Append once more what depends on `values`, before a node if one is given; returns `wanted`.

    What does not depend on them is taken from `around`, the values made so far.
    """
    made, changed = {**around, **values}, set(values)
    nodes = []
    for node in foreign.graph:
        if node is before:
            break
        if any(v is not None and v.name in changed for v in node.inputs):
            nodes.append(node)
            changed.update(str(v.name) for v in node.outputs)
            changed -= set(values)  # what is given is not computed
    needed, part = {wanted}, []
    for node in reversed(nodes):
        if any(v.name in needed and v.name not in values for v in node.outputs):
            part.append(node)
            needed.update(str(v.name) for v in node.inputs if v is not None)
    for node in reversed(part):
        inputs = [v and made[str(v.name)] for v in node.inputs]
        copies = inline_nodes(b, [node], _formal_values(node.inputs), inputs, node.outputs)
        made.update(
            {str(o.name): c for o, c in zip(node.outputs, copies, strict=True) if c is not None}
        )
        made.update(values)
    if wanted not in made:
        raise ArgumentError(f"nothing makes the value {wanted!r} of the model")
    return made[wanted]


class _Appender:
    """One model on its way into a builder: what stands for each of its values so far."""

    def __init__(
        self,
        b: Builder,
        foreign: ForeignModel,
        values: dict[str, ir.Value],
        handlers: Mapping[str, Handler],
    ) -> None:
        self.b, self.foreign, self.made, self.handlers = b, foreign, values, handlers
        self.sequences: dict[str, Parts] = {}
        # taken now, so that nothing made on the way is called so
        own = [*foreign.tensors, *_value_names(foreign.graph)]
        self._names = {n: b.unique(_inner_name(n)) for n in dict.fromkeys(own) if n not in values}

    def run(self) -> dict[str, ir.Value]:
        for node in self.foreign.graph:
            try:
                self._append(node)
            except FlowError as error:
                raise error.located(None, _label(node), None) from None
        for name in self.foreign.outputs:
            self.made[name] = self._value(name)
        return self.made

    def _append(self, node: ir.Node) -> None:
        handler = self.handlers.get(f"{node.domain}::{node.op_type}")
        if node.op_type in SEQUENCES and not node.domain:
            self._append_sequence(node)
            return
        if node.op_type == "Loop" and any(v and v.name in self.sequences for v in node.inputs):
            self._append_loop(node)
            return
        inputs = [None if v is None or not v.name else self._value(v.name) for v in node.inputs]
        start = len(self.b.nodes)
        with self.b.under(_label(node)):
            if handler is not None:
                outputs = handler(self.b, node, inputs, self.made)
            else:
                outputs = self._copies(node, inputs)
        made = set(self.b.nodes[start:])
        for copy in made:
            mark_saturation(copy, node)
        for old, new in zip(node.outputs, outputs, strict=True):
            if old.name and new is not None:
                self.made[old.name] = new
                if new.producer() in made:
                    new.name = self._names[old.name]

    def _append_sequence(self, node: ir.Node) -> None:
        """Let a node on sequences act here and now, so that none is left in the graph."""
        operands = [self._operand(v) for v in node.inputs]
        with self.b.under(_label(node)):
            result = SEQUENCES[node.op_type](self.b, node, operands)
        self._bind(node.outputs[0], result)

    def _append_loop(self, node: ir.Node) -> None:
        """Unroll a loop that carries sequences, so that none is left in the graph."""
        body = node.attributes["body"].as_graph()

        def iterate(actual: Sequence[ir.Value | None]) -> list[ir.Value]:
            for formal, value in zip(body.inputs, actual, strict=True):
                self._bind(formal, value)
            self._names.update({n: self.b.unique(_inner_name(n)) for n in _value_names(body)})
            for name, value in body.initializers.items():
                assert value.const_value is not None, f"{name} has no content"
                self.made[name] = self.b.const(value.const_value.numpy())
            for inner in body:
                self._append(inner)
            return [self._operand(v) for v in body.outputs]  # type: ignore[misc]  # or sequences, which go round as they are

        operands = [self._operand(v) for v in node.inputs]
        with self.b.under(_label(node)):
            results = unroll_loop(self.b, node, operands, iterate)  # type: ignore[arg-type]  # as above
        for output, result in zip(node.outputs, results, strict=True):
            self._bind(output, result)

    def _operand(self, value: ir.Value | None) -> ir.Value | Parts | None:
        """The counterpart of a value of the model: a value, or the tensors of a sequence."""
        if value is None or not value.name:
            return None
        found = self.sequences.get(value.name)
        return self._value(value.name) if found is None else found

    def _bind(self, value: ir.Value, found: ir.Value | Parts | None) -> None:
        """Let something stand for a value of the model from here on."""
        name = str(value.name)
        self.sequences.pop(name, None)
        self.made.pop(name, None)
        if isinstance(found, tuple):
            self.sequences[name] = found
        elif found is not None:
            self.made[name] = found

    def _copies(
        self, node: ir.Node, inputs: Sequence[ir.Value | None]
    ) -> Sequence[ir.Value | None]:
        if node.op_type == "Constant" and any(a in node.attributes for a in _TEXTS):
            raise DTypeError("a constant of text, or a sparse one, is not supported")
        _check_groups(node, inputs)
        branch = constant_branch(node, inputs)
        formal = _formal_values(read_values(node))
        outer = [v for v in read_values(node)[len(node.inputs) :] if v is not None]
        actual = [*inputs, *(self._value(str(v.name)) for v in outer)]
        if branch is not None:
            return inline_nodes(self.b, branch, formal, actual, branch.outputs)
        self.b.expected = node.outputs
        try:
            return inline_nodes(self.b, [node], formal, actual, node.outputs)
        finally:
            self.b.expected = ()

    def _value(self, name: str) -> ir.Value:
        if name not in self.made:
            tensor = self.foreign.tensors.get(name)
            if name in self.sequences:
                raise UnsupportedError(f"the sequence {name} is read as a tensor")
            if tensor is None:
                raise ArgumentError(f"nothing makes the value {name!r} of the model")
            self.made[name] = _constant(self.b, self._names[name], tensor)
        return self.made[name]


def _constant(b: Builder, name: str, tensor: ir.TensorProtocol) -> ir.Value:
    """A constant under a name of its own, which does not refer to another file."""
    by_code(int(tensor.dtype))  # raises for an element type that we do not have
    content = ir.Tensor(tensor.numpy(), dtype=tensor.dtype, name=name)
    value = ir.val(name, const_value=content)
    b.graph.register_initializer(value)
    return value


def _check_groups(node: ir.Node, inputs: Sequence[ir.Value | None]) -> None:
    """Raise for a convolution whose channels are not those of its groups: inference lets it by."""
    if node.op_type not in ("Conv", "ConvTranspose") or node.domain or len(inputs) < 2:
        return
    x, w = inputs[:2]
    if x is None or w is None or not (is_static(x) and is_static(w)):
        return
    if len(dims(x)) < 3 or len(dims(w)) < 3:
        return  # refused by inference
    group = attribute(node, "group", 1)
    inside, (first, second) = dims(x)[1], dims(w)[:2]
    reads = second * group if node.op_type == "Conv" else first
    if group < 1 or inside != reads or first % group:
        raise ShapeError(
            f"{node.op_type} of {group} groups: weights {dims(w)} do not fit {inside} channels"
        )


def _formal_values(values: Sequence[ir.Value | None]) -> list[ir.Value]:
    """Values as `inline_nodes` takes them, one nobody reads for those that are left out."""
    return [ir.Value(name="") if v is None else v for v in values]


def value_like(value: ir.Value, name: str) -> ir.Value:
    """Another value of the same type."""
    return ir.Value(name=name, type=value.type, shape=value.shape)


def _value_names(graph: ir.Graph) -> Iterator[str]:
    """The names that a graph and the graphs inside its nodes give to values."""
    yield from (str(v.name) for v in (*graph.inputs, *graph.initializers.values()) if v.name)
    for node in graph:
        yield from (v.name for v in node.outputs if v.name)
        for inner in subgraphs_of(node):
            yield from _value_names(inner)


def _inner_name(name: str) -> str:
    """The name of a value inside; results and the next state of a job have theirs to themselves."""
    return f"model/{name}" if name.startswith(_OF_JOBS) else name


def _label(node: ir.Node) -> str:
    return node.name or next((v.name for v in node.outputs if v.name), node.op_type)
