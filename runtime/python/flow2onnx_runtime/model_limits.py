"""Limits of what a model may hold, counted before anyone parses, expands or opens it.

A model of a thousand bytes can call functions that call functions until there are 10^30 nodes, and
runtimes expand them without counting. The same walk finds the other files that tensors name.
"""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from flow2onnx_runtime.errors import BundleError
from flow2onnx_runtime.external_data import tensor_locations
from flow2onnx_runtime.list_growth import CARRIERS, ListSteps
from flow2onnx_runtime.wire import Buffer, Field, fields

__all__ = ["LIMITS", "Limits", "count_model", "most_nodes"]


@dataclass(frozen=True)
class Limits:
    """The most that a model may hold."""

    nodes: int = 100_000  # those in graphs inside nodes and in expanded functions counted
    operands: int = 500_000  # inputs and outputs of nodes
    of_one_node: int = 16_384  # its inputs and outputs
    entries: int = 80_000  # tensors, types, opsets, texts
    nested: int = 8_000  # nodes in graphs of depth d > 2, each d (d - 2) times: as they cost
    depth: int = 32  # functions that call functions
    copied: int = 1 << 26  # bytes that the expansion of functions adds
    lists: int = 1 << 18  # numbers in lists that Concats put together, each counted as 1 at first
    equation: int = 1 << 10  # bytes of an Einsum's attributes: inference reads them slowly
    text: int = 1 << 24  # bytes of one name, note or type


LIMITS = Limits()
_FIELDS_OF_NODE = 15  # so many for each allowed node; here alone, as each takes a microsecond
_VARIABLE = "FLOW2ONNX_MOST_NODES"

_Key = tuple[bytes, bytes, bytes]  # domain, operator, overload

# The numbers of the fields that are looked into, by message of onnx.proto.
_MODEL_GRAPH, _MODEL_TRAINING, _MODEL_FUNCTION = 7, 20, 25
_GRAPH_NODE, _FUNCTION_NODE, _TRAINING_GRAPHS = 1, 7, (1, 2)
_NODE_OPERANDS, _NODE_ATTRIBUTE, _NODE_NAMES = (1, 2), 5, {4: 1, 7: 0, 8: 2}
_GRAPH_TENSOR, _GRAPH_SPARSE = 5, 15
_ATTRIBUTE_TENSORS, _ATTRIBUTE_GRAPHS, _ATTRIBUTE_SPARSE = (5, 10), (6, 11), (22, 23)
_FUNCTION_OUTPUT, _FUNCTION_ATTRIBUTE, _FUNCTION_NAMES = 5, 11, {1: 1, 10: 0, 13: 2}
_STANDARD = (b"", b"ai.onnx")
_SPARSE_TENSORS = (1, 2)


@dataclass
class _Body:
    """Counts of a graph or a function, and of its calls of functions."""

    nodes: int = 0
    operands: int = 0
    bytes: int = 0
    calls: Counter[_Key] = field(default_factory=Counter)
    lists: ListSteps = field(default_factory=ListSteps)


def count_model(content: Buffer) -> frozenset[str]:
    """The locations of other files that a model's tensors name.

    Raises BundleError for a model that holds more than `LIMITS`, WireError for what is no model.
    The environment variable FLOW2ONNX_MOST_NODES allows more nodes.
    """
    counter = _Counter(content)
    counter.check()
    return frozenset(counter.locations)


class _Counter:
    """The counts of one model, and the `locations` that its tensors name."""

    def __init__(self, content: Buffer) -> None:
        self.locations: set[str] = set()
        self._content = content
        self._limits = LIMITS
        self._most_nodes = most_nodes()
        self._entries = 0
        most = _FIELDS_OF_NODE * max(self._most_nodes, self._limits.nodes)
        # asked for a number at each field, in C, as there are millions
        self._count_field = chain(range(most), _too_many_fields(most)).__next__
        self._nested = 0
        self._main = _Body()
        self._functions: dict[_Key, _Body] = {}

    def check(self) -> None:
        for one in self._fields(0, len(self._content)):
            if one.number == _MODEL_GRAPH and one.end:
                self._read_graph(one, self._main, 0)
            elif one.number == _MODEL_TRAINING and one.end:
                self._read_training(one)
            elif one.number == _MODEL_FUNCTION and one.end:
                self._read_function(one)
            else:
                self._count_entry(one)
        self._check_expanded()

    def _fields(self, start: int, end: int) -> Iterator[Field]:
        return fields(self._content, start, end, self._count_field)

    def _read_graph(self, graph: Field, body: _Body, depth: int) -> None:
        for one in self._fields(graph.start, graph.end):
            if one.number == _GRAPH_NODE and one.end:
                self._read_node(one, body, depth)
            else:
                self._read_part(one)

    def _read_part(self, part: Field) -> None:
        """Count what a graph has beside its nodes."""
        is_tensor = part.number == _GRAPH_TENSOR and part.end
        is_sparse = part.number == _GRAPH_SPARSE and part.end
        self._count_entry(None if is_tensor or is_sparse else part)
        if is_tensor:
            self._read_tensor(part)
        elif is_sparse:
            self._read_sparse(part)

    def _read_training(self, training: Field) -> None:
        for one in self._fields(training.start, training.end):
            if one.number in _TRAINING_GRAPHS and one.end:
                self._read_graph(one, self._main, 0)
            else:
                self._count_entry(one)

    def _read_function(self, function: Field) -> None:
        body, names = _Body(), [b"", b"", b""]
        for one in self._fields(function.start, function.end):
            if one.number == _FUNCTION_NODE and one.end:
                self._read_node(one, body, 0)
            else:
                self._count_entry(one)
                if one.number == _FUNCTION_ATTRIBUTE and one.end:
                    self._read_attribute(one, body, 0)
                elif one.number == _FUNCTION_OUTPUT and one.end:
                    body.lists.outputs.append(self._text(one))
                elif one.number in _FUNCTION_NAMES and one.end:
                    names[_FUNCTION_NAMES[one.number]] = self._text(one)
        known = self._functions.setdefault(_key(names), body)
        if known is not body:  # the second of a name, which may be the one that counts
            _add(known, body, 1)

    def _read_node(self, node: Field, body: _Body, depth: int) -> None:
        names = [b"", b"", b""]
        body.nodes += 1
        body.bytes += node.end - node.start if not depth else 0  # the outer node has them
        if body.nodes > self._most_nodes:
            raise _too_many_nodes(body.nodes, self._most_nodes)
        if depth > 2:
            self._nested += depth * (depth - 2)
        if self._nested > self._limits.nested:
            raise _too_much("(weighed) nodes in graphs inside each other", self._nested,
                            self._limits.nested)  # fmt: skip
        operands: tuple[list[Field], list[Field]] = [], []
        count = attributes = 0
        for one in self._fields(node.start, node.end):
            if one.number == _NODE_ATTRIBUTE and one.end:
                self._read_attribute(one, body, depth)
                attributes += one.end - one.start
                continue
            self._check_text(one)
            if one.number in _NODE_OPERANDS:
                count += 1
                if count > self._limits.of_one_node:
                    raise _too_much("inputs and outputs of one node", count,
                                    self._limits.of_one_node)  # fmt: skip
                operands[one.number - 1].append(one)
            elif one.number in _NODE_NAMES and one.end:
                names[_NODE_NAMES[one.number]] = self._text(one)
        body.operands += count
        if names[1] == b"Einsum" and attributes > self._limits.equation:
            raise _too_much("bytes of an Einsum's equation", attributes, self._limits.equation)
        body.calls[_key(names)] += 1
        if names[0] not in _STANDARD or names[1] in CARRIERS:
            kind = names[1] if names[0] in _STANDARD else _key(names)
            reads, makes = ([self._text(one) for one in side] for side in operands)
            body.lists.makers.update(dict.fromkeys(makes, (kind, reads)))

    def _read_attribute(self, attribute: Field, body: _Body, depth: int) -> None:
        for one in self._fields(attribute.start, attribute.end):
            if not one.end:
                continue
            if one.number in _ATTRIBUTE_GRAPHS:
                self._read_graph(one, body, depth + 1)
            elif one.number in _ATTRIBUTE_TENSORS:
                self._read_tensor(one)
            elif one.number in _ATTRIBUTE_SPARSE:
                self._read_sparse(one)

    def _read_tensor(self, tensor: Field) -> None:
        self.locations.update(
            tensor_locations(self._content, tensor.start, tensor.end, self._count_field)
        )

    def _read_sparse(self, sparse: Field) -> None:
        for one in self._fields(sparse.start, sparse.end):
            if one.number in _SPARSE_TENSORS and one.end:
                self._read_tensor(one)

    def _text(self, one: Field) -> bytes:
        self._check_text(one)
        return bytes(self._content[one.start : one.end])

    def _check_text(self, one: Field) -> None:
        if one.end - one.start > self._limits.text:
            raise _too_much("bytes of one text", one.end - one.start, self._limits.text)

    def _count_entry(self, text: Field | None) -> None:
        if text is not None:
            self._check_text(text)
        self._entries += 1
        if self._entries > self._limits.entries:
            raise _too_much("tensors, types and texts", self._entries, self._limits.entries)

    def _check_expanded(self) -> None:
        """Raise where functions, expanded, are too many nodes or bytes."""
        expanded = _Expansion(self._functions, self._limits.depth)
        whole = expanded.whole(self._main, 0)
        nodes = whole.nodes + sum(body.nodes for body in self._functions.values())
        if nodes > self._most_nodes:
            raise _too_many_nodes(nodes, self._most_nodes)
        if whole.operands > self._limits.operands:
            raise _too_much("inputs and outputs of nodes", whole.operands, self._limits.operands)
        copied = whole.bytes - self._main.bytes
        if copied > self._limits.copied:
            raise _too_much("bytes of expanded functions", copied, self._limits.copied)
        self._check_lists()

    def _check_lists(self) -> None:
        """Raise where lists are put together until they are too long."""
        known: dict[object, int] = {}

        def growth(kind: object) -> int:
            if kind not in known:
                known[kind] = 1
                callee = self._functions.get(kind)  # type: ignore[call-overload]  # or an operator
                known[kind] = callee.lists.longest(growth) if callee is not None else 1
            return known[kind]

        bodies = [self._main, *self._functions.values()]
        total = sum(body.lists.total(growth) for body in bodies)
        if total > self._limits.lists:
            raise _too_much("numbers in lists that are put together", total, self._limits.lists)


class _Expansion:
    """Bodies with the functions that they call in the place of the calls."""

    def __init__(self, functions: Mapping[_Key, _Body], depth: int) -> None:
        self._functions, self._depth = functions, depth
        self._known: dict[_Key, tuple[_Body, int]] = {}  # with the calls inside each other

    def whole(self, body: _Body, depth: int) -> _Body:
        return self._expand(body, depth)[0]

    def _expand(self, body: _Body, depth: int) -> tuple[_Body, int]:
        if depth > self._depth:
            raise _too_much("functions that call each other", depth, self._depth,
                            "a function that calls itself has no end")  # fmt: skip
        made, deepest = _Body(), 0
        _add(made, body, 1)
        for key, count in body.calls.items():
            callee = self._functions.get(key)
            if callee is None:
                continue
            if key not in self._known:
                self._known[key] = self._expand(callee, depth + 1)
            inner, inside = self._known[key]
            _add(made, inner, count)
            deepest = max(deepest, inside + 1)
        if depth + deepest > self._depth:
            raise _too_much("functions that call each other", depth + deepest, self._depth)
        return made, deepest


def _add(total: _Body, body: _Body, times: int) -> None:
    total.nodes += body.nodes * times
    total.operands += body.operands * times
    total.bytes += body.bytes * times


def _key(names: list[bytes]) -> _Key:
    domain, operator, overload = names
    return (b"" if domain == b"ai.onnx" else domain), operator, overload


def most_nodes() -> int:
    """The most nodes of a model: those of `LIMITS`, or FLOW2ONNX_MOST_NODES."""
    given = os.environ.get(_VARIABLE, "")
    return int(given) if given.isdecimal() else LIMITS.nodes


def _too_many_nodes(count: int, most: int) -> BundleError:
    return _too_much("nodes, those of expanded functions counted", count, most,
                     f"set {_VARIABLE} for a model that you trust")  # fmt: skip


def _too_many_fields(most: int) -> Iterator[int]:
    """Raise when it is asked for a number: all that there were are taken."""
    raise _too_much("fields of messages", most + 1, most)
    yield


def _too_much(what: str, count: int, most: int, hint: str | None = None) -> BundleError:
    shown = count if count < 10**18 else f"{float(count) if count < 10**300 else 1e300:.0e}"
    return BundleError(
        f"{shown} {what}; {most} are the most",
        hint=hint or "is the model damaged? if not, split it or export it in a simpler form",
    )
