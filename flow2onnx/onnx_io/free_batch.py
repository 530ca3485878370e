"""A batch of any size: what the traces of one job at several sizes have in common."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from flow2onnx.errors import UnsupportedError
from flow2onnx.graph.model import drop_unread_constants, unique_name
from flow2onnx.graph.types import constant_of, sizes_of

__all__ = ["SYMBOL", "free_batch"]

SYMBOL = "batch"

_INT64 = ir.TensorType(ir.DataType.INT64)
_ELSE = "the job does something else for another batch size"
_HINT = "let the body do the same whatever the batch, with sizes as -1 or from an input's shape"


@dataclass(frozen=True)
class _Line:
    """A whole number that depends on the batch: ``slope * batch + offset``."""

    slope: int
    offset: int

    def __str__(self) -> str:
        product = SYMBOL if self.slope == 1 else f"{self.slope}*{SYMBOL}"
        return f"{product}{self.offset:+d}" if self.offset else product


def free_batch(
    graphs: Sequence[ir.Graph],
    sizes: Sequence[int],
    axes: Mapping[str, int],
    declared: tuple[ir.Graph, int],
) -> ir.Graph:
    """The first of `graphs`, changed in place so that it holds for every batch.

    `graphs` are one job at three or more `sizes` of the batch, which is axis ``axes[input]`` of
    some inputs. Numbers that depend on it become -1 or 0 of a Reshape, or are computed from an
    input's shape. Raises UnsupportedError for what depends on the batch in another way, and where
    the job is something else at its `declared` batch, as one that squeezes a batch of 1 is.
    """
    _check_alike(graphs)
    _check_operators(graphs[0], declared[0])
    traces = _Traces(graphs, sizes, axes)
    for nodes in zip(*(list(g) for g in graphs), strict=True):
        traces.free(nodes)
    traces.check_results(*declared)
    traces.free_shapes()
    graph = graphs[0]
    drop_unread_constants(graph)
    return graph


def _check_alike(graphs: Sequence[ir.Graph]) -> None:
    """Raise unless the graphs have the same nodes, connected in the same way."""
    places: list[dict[ir.Value, object]] = [
        {v: ("input", i) for i, v in enumerate(g.inputs)} for g in graphs
    ]
    for nodes in zip(*(list(g) for g in graphs), strict=False):
        forms = [_form(n, known) for n, known in zip(nodes, places, strict=True)]
        if any(form != forms[0] for form in forms):
            raise _refusal(nodes[0], _ELSE)
        for node, known in zip(nodes, places, strict=True):
            known.update({v: (node.name, i) for i, v in enumerate(node.outputs)})
    longest = max(graphs, key=len)
    shortest = min(len(g) for g in graphs)
    if len(longest) != shortest:
        raise _refusal(list(longest)[shortest], _ELSE)
    ends = [[known[v] for v in g.outputs] for g, known in zip(graphs, places, strict=True)]
    if any(end != ends[0] for end in ends):
        raise _refusal(_maker(graphs[0].outputs[0]), _ELSE)


def _check_operators(graph: ir.Graph, declared: ir.Graph) -> None:
    """Raise for a job that has other operators or results at its declared batch."""
    ours, theirs = ({n.op_type for n in g} for g in (graph, declared))
    for node in (*graph, *declared):
        if node.op_type in ours ^ theirs or len(graph.outputs) != len(declared.outputs):
            raise _refusal(node, _ELSE)


def _maker(value: ir.Value) -> ir.Node:
    node = value.producer()
    assert node is not None, f"output {value.name} comes from nowhere"
    return node


def _form(node: ir.Node, places: Mapping[ir.Value, object]) -> object:
    """The node without its attributes' and constants' content."""
    inputs = ["constant" if constant_of(v) is not None else places.get(v, v and v.name)  # type: ignore[arg-type]  # None looks up to None
              for v in node.inputs]  # fmt: skip
    return node.op_type, node.name, inputs, len(node.outputs), sorted(node.attributes)


class _Traces:
    """The graphs side by side, and the nodes that compute sizes in the first."""

    def __init__(
        self, graphs: Sequence[ir.Graph], sizes: Sequence[int], axes: Mapping[str, int]
    ) -> None:
        self.graphs, self.graph, self.sizes, self.axes = graphs, graphs[0], sizes, axes
        self._first = self.graph[0] if len(self.graph) else None
        self._values = list(zip(*(_typed_values(g) for g in graphs), strict=True))
        self._names = {str(v.name) for v in _typed_values(self.graph)} | {*self.graph.initializers}
        self._made: dict[object, ir.Value] = {}

    def free(self, nodes: tuple[ir.Node, ...]) -> None:
        """Make one node hold for every batch."""
        for name in nodes[0].attributes:
            written = [_content(n.attributes[name]) for n in nodes]
            if any(w != written[0] for w in written):
                raise _refusal(nodes[0], f"attribute {name} depends on the batch size")
        for i in range(len(nodes[0].inputs)):
            contents = [constant_of(n.inputs[i]) for n in nodes]
            if contents[0] is not None and not _equal(contents):
                nodes[0].replace_input_with(i, self._free_constant(nodes, i, contents))

    def check_results(self, declared: ir.Graph, size: int) -> None:
        """Raise unless the outputs have the shapes that the job has at its declared batch."""
        outputs = zip(*(g.outputs for g in self.graphs), declared.outputs, strict=True)
        for *values, wanted in outputs:
            lines = self._fit_shapes(values)
            have = tuple(line and line.slope * size + line.offset for line in lines)
            declared_shape = _known_sizes(wanted)
            if have != declared_shape:
                raise _refusal(
                    _maker(wanted),
                    f"the batch of {size} is a case of its own: {wanted.name} is {declared_shape}, "
                    f"{have} by what other sizes give",
                )

    def free_shapes(self) -> None:
        """Name the sizes of every value that depend on the batch; forget those that only vary."""
        fitted = [self._fit_shapes(values) for values in self._values]
        for values, sizes in zip(self._values, fitted, strict=True):
            values[0].shape = ir.Shape([_size(line) for line in sizes])

    def _free_constant(
        self, nodes: tuple[ir.Node, ...], i: int, contents: Sequence[Any]
    ) -> ir.Value:
        node, first = nodes[0], contents[0]
        share = self._inverse_batch(contents)
        if share is not None:
            return share
        lines = self._fit_elements(contents)
        if lines is not None and node.op_type == "Reshape" and i == 1:
            return self._reshape_target(nodes, lines)
        if lines is not None:
            return self._compute_sizes(lines, first.ndim == 0)
        sizes = [self._fit(d) for d in zip(*(c.shape for c in contents), strict=True)]
        if len({c.ndim for c in contents}) > 1 or not _is_one_number(contents) or None in sizes:
            raise _refusal(
                node, f"a {first.dtype} constant of shape {first.shape} depends on the batch size",
            )  # fmt: skip
        return self._fill(first, [line for line in sizes if line is not None])

    def _inverse_batch(self, contents: Sequence[Any]) -> ir.Value | None:
        """A real number that is a factor divided by the batch, such as 1 / batch of a mean."""
        first = contents[0]
        if first.dtype.kind != "f" or any(c.shape != first.shape or c.size != 1 for c in contents):
            return None
        factors = [float(c.item()) * n for c, n in zip(contents, self.sizes, strict=True)]
        near = float(np.finfo(first.dtype).eps) * 4
        if not factors[0] or any(abs(f / factors[0] - 1) > near for f in factors):
            return None
        key = ("share", round(factors[0], 12), first.dtype.str, first.shape)
        if key not in self._made:
            dtype = ir.DataType.from_numpy(first.dtype)
            batch = self._node("Cast", [self._batch()], [1], [ir.AttrInt64("to", int(dtype))])
            batch.type = ir.TensorType(dtype)
            factor = self._constant(np.asarray([_round_to_integer(factors[0])], first.dtype))
            share = self._node("Div", [factor, batch], [1])
            share.type = batch.type
            if first.shape != (1,):
                shape = self._constant(np.asarray(first.shape, np.int64))
                share = self._node("Reshape", [share, shape], first.shape)
                share.type = batch.type
            self._made[key] = share
        return self._made[key]

    def _fit_elements(self, contents: Sequence[Any]) -> list[_Line] | None:
        """The elements as lines, if all are: int64 vectors or numbers of equal length."""
        first = contents[0]
        if (
            first.dtype != np.int64
            or first.ndim > 1
            or any(c.shape != first.shape for c in contents)
        ):
            return None
        lines = [
            self._fit([int(e) for e in c]) for c in zip(*(c.ravel() for c in contents), strict=True)
        ]
        return None if None in lines else [line for line in lines if line is not None]

    def _fit_shapes(self, values: Sequence[ir.Value]) -> list[_Line | None]:
        """The sizes of one value at all batches as lines; None for those known at run time only."""
        sizes = zip(*map(_known_sizes, values), strict=True)
        return [
            self._fit([d for d in s if d is not None]) if None not in s else None for s in sizes
        ]

    def _fit(self, numbers: Sequence[int]) -> _Line | None:
        """The line through the numbers at `sizes`, if it goes through all of them."""
        (a, b), (x, y) = self.sizes[:2], numbers[:2]
        slope = (y - x) // (b - a)
        line = _Line(slope, x - slope * a)
        fits = all(slope * s + line.offset == n for s, n in zip(self.sizes, numbers, strict=True))
        return line if fits else None

    def _reshape_target(self, nodes: tuple[ir.Node, ...], lines: Sequence[_Line]) -> ir.Value:
        """The shape operand of a Reshape: with 0 and -1 if they can say it."""
        node = nodes[0]
        have = self._fit_shapes([v for n in nodes if (v := n.inputs[0]) is not None])
        copies = [j < len(have) and have[j] == line for j, line in enumerate(lines)]
        said = [0 if line.slope and copies[j] else line.offset for j, line in enumerate(lines)]
        unsaid = [j for j, line in enumerate(lines) if line.slope and not copies[j]]
        allows_zero = node.attributes.get("allowzero")
        is_literal = allows_zero is not None and bool(allows_zero.value)
        if is_literal or len(unsaid) + said.count(-1) > 1:
            return self._compute_sizes(lines, False)
        for j in unsaid:
            said[j] = -1
        return self._constant(np.array(said, np.int64))

    def _compute_sizes(self, lines: Sequence[_Line], is_number: bool) -> ir.Value:
        """A vector (or number) computed from the batch at run time."""
        key = (tuple(lines), is_number)
        if key not in self._made:
            value = self._batch()
            slopes, offsets = [line.slope for line in lines], [line.offset for line in lines]
            if slopes != [1]:
                value = self._int64("Mul", [value, self._constant(slopes)], [len(lines)])
            if any(offsets):
                value = self._int64("Add", [value, self._constant(offsets)], [len(lines)])
            if is_number:
                value = self._int64("Squeeze", [value], [])
            self._made[key] = value
        return self._made[key]

    def _fill(self, content: Any, sizes: Sequence[_Line]) -> ir.Value:
        """A tensor of one number everywhere, in a shape known at run time."""
        number = self._constant(content.ravel()[:1].reshape(()))
        dtype = number.type
        shape = self._compute_sizes(sizes, False)
        value = self._node("Expand", [number, shape], [_size(line) for line in sizes])
        value.type = dtype
        return value

    def _batch(self) -> ir.Value:
        """The batch as a vector of one element."""
        if "batch" not in self._made:
            name, axis = next(iter(self.axes.items()))
            source = next(v for v in self.graph.inputs if v.name == name)
            attributes = [ir.AttrInt64("start", axis), ir.AttrInt64("end", axis + 1)]
            self._made["batch"] = self._int64("Shape", [source], [1], attributes)
        return self._made["batch"]

    def _int64(
        self,
        op_type: str,
        inputs: Sequence[ir.Value],
        shape: Sequence[int],
        attributes: Sequence[ir.Attr] = (),
    ) -> ir.Value:
        value = self._node(op_type, inputs, shape, attributes)
        value.type = _INT64
        return value

    def _node(
        self,
        op_type: str,
        inputs: Sequence[ir.Value],
        shape: Sequence[int | str | None],
        attributes: Sequence[ir.Attr] = (),
    ) -> ir.Value:
        """A node before all nodes of the job."""
        node = ir.Node("", op_type, inputs, attributes, num_outputs=1)
        value = node.outputs[0]
        value.name = node.name = unique_name(f"{SYMBOL}/{op_type}", self._names)
        value.shape = ir.Shape(shape)
        assert self._first is not None, "an empty graph has no constants"
        self.graph.insert_before(self._first, node)
        return value

    def _constant(self, content: Any) -> ir.Value:
        array = np.asarray(content, getattr(content, "dtype", np.int64))
        tensor = ir.tensor(array, name=unique_name(f"const/{SYMBOL}", self._names))
        value = ir.val(tensor.name, const_value=tensor)
        self.graph.register_initializer(value)
        return value


def _content(attribute: ir.Attr) -> bytes:
    """The bytes of an attribute; a graph in it loses the shapes of its values."""
    if attribute.type == ir.AttributeType.GRAPH:
        _forget_shapes(attribute.as_graph())
    content: bytes = ir.to_proto(attribute).SerializeToString(deterministic=True)
    return content


def _forget_shapes(graph: ir.Graph) -> None:
    for value in (*graph.inputs, *graph.outputs, *(o for n in graph for o in n.outputs)):
        if value.const_value is None:
            value.shape = None
    for node in graph:
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                _forget_shapes(attribute.as_graph())


def _known_sizes(value: ir.Value) -> tuple[int | None, ...]:
    """The sizes of a value, with None for those that are known at run time only."""
    return tuple(d if isinstance(d, int) else None for d in sizes_of(value))


def _typed_values(graph: ir.Graph) -> list[ir.Value]:
    """Inputs and results of nodes: what has another shape for another batch."""
    return [*graph.inputs, *(v for n in graph for v in n.outputs)]


def _size(line: _Line | None) -> int | str | None:
    if line is None:
        return None
    return str(line) if line.slope else line.offset


def _round_to_integer(factor: float) -> float:
    """The whole number that a factor is but for rounding, or else itself."""
    whole = round(factor)
    return float(whole) if abs(factor - whole) <= 1e-6 * abs(factor) else factor


def _equal(contents: Sequence[Any]) -> bool:
    first = contents[0]
    return all(c.dtype == first.dtype and np.array_equal(c, first) for c in contents)


def _is_one_number(contents: Sequence[Any]) -> bool:
    """True if all the tensors hold the same number everywhere, and only their shapes differ."""
    if any(math.prod(c.shape) == 0 for c in contents):
        return False
    numbers = {c.ravel()[0].tobytes() for c in contents}
    return len(numbers) == 1 and all(bool((c == c.ravel()[0]).all()) for c in contents)


def _refusal(node: ir.Node, reason: str) -> UnsupportedError:
    return UnsupportedError(
        f"{node.op_type}: {reason}",
        op=(node.name or "").rpartition("/")[0] or None,
        source=node.meta.get("source"),
        hint=_HINT,
    )
