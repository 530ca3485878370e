"""A model without what some of its outputs do not need, made of its bytes.

Nodes and tensors are copied as they are; nothing is parsed but names, so no library is needed.
Fields are those of onnx.proto.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from flow2onnx_runtime.errors import BundleError
from flow2onnx_runtime.wire import GroupError, WireError, fields

__all__ = ["Signature", "prune_model", "signature_of"]

_GRAPH, _GRAPH_TAG = 7, 0x3A  # of a model
_NODE, _INITIALIZER, _INPUT, _OUTPUT, _VALUE = 1, 5, 11, 12, 13  # of a graph
_NODE_INPUT, _NODE_OUTPUT, _ATTRIBUTE = 1, 2, 5  # of a node
_SUBGRAPHS = (6, 11)  # of an attribute
_NAME = {_INITIALIZER: 8, _INPUT: 1, _OUTPUT: 1, _VALUE: 1}  # the field with the name of each


@dataclass(frozen=True)
class Signature:
    """The names of the inputs and outputs of a model, in their order."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class _Record:
    """A field of a graph: its number, where it begins with its tag, where its content lies."""

    number: int
    begin: int
    start: int
    end: int


def signature_of(model: bytes) -> Signature:
    """The inputs and outputs of a model. Raises `BundleError` for bytes that are none."""
    try:
        _, start, end = _graph(model)
        records = list(_records(model, start, end))
        found = {
            number: tuple(_name(model, r) for r in records if r.number == number)
            for number in (_INPUT, _OUTPUT)
        }
    except (WireError, GroupError) as error:
        raise BundleError(f"it is no ONNX model: {error}") from error
    return Signature(found[_INPUT], found[_OUTPUT])


def prune_model(model: bytes, outputs: Collection[str]) -> bytes:
    """The model with these outputs alone, and the nodes, inputs and constants that they need.

    Raises `BundleError` for bytes that are no model.
    """
    try:
        begin, start, end = _graph(model)
        records = list(_records(model, start, end))
        nodes, used = _needed(model, records, outputs)
        kept = [model[r.begin : r.end] for r in records if _is_kept(model, r, nodes, used, outputs)]
    except (WireError, GroupError) as error:
        raise BundleError(f"it is no ONNX model: {error}") from error
    graph = b"".join(kept)
    return model[:begin] + bytes([_GRAPH_TAG]) + _size(len(graph)) + graph + model[end:]


def _graph(model: bytes) -> tuple[int, int, int]:
    """Where the field of a model's graph begins, and where its content lies."""
    found = [field for field in fields(model, 0, len(model)) if field.number == _GRAPH]
    if len(found) != 1:
        raise WireError(f"it has {len(found)} graphs")
    (_, start, end) = found[0]
    begin = start - len(_size(end - start)) - 1
    if model[begin] != _GRAPH_TAG:
        raise WireError("the length of its graph is written in another way than the shortest")
    return begin, start, end


def _records(model: bytes, start: int, end: int) -> Iterator[_Record]:
    """The fields of a graph, which are all messages or texts."""
    begin = start
    for field in fields(model, start, end):
        if not field.end:
            raise WireError("its graph has a field that is a number")
        yield _Record(field.number, begin, field.start, field.end)
        begin = field.end


def _needed(
    model: bytes, records: list[_Record], outputs: Collection[str]
) -> tuple[set[_Record], set[str]]:
    """The nodes that outputs need, and the names of all values that these read or make."""
    makers = {
        name: record
        for record in records
        if record.number == _NODE
        for name in _texts(model, record.start, record.end, _NODE_OUTPUT)
    }
    nodes, used, pending = set[_Record](), set(outputs), list(outputs)
    while pending:
        node = makers.get(pending.pop())
        if node is not None and node not in nodes:
            nodes.add(node)
            read = list(_reads(model, node.start, node.end))
            used.update(read, _texts(model, node.start, node.end, _NODE_OUTPUT))
            pending += read
    return nodes, used


def _is_kept(
    model: bytes, record: _Record, nodes: set[_Record], used: set[str], outputs: Collection[str]
) -> bool:
    if record.number == _NODE:
        return record in nodes
    if record.number not in _NAME:
        return True
    return _name(model, record) in (outputs if record.number == _OUTPUT else used)


def _reads(model: bytes, start: int, end: int) -> Iterator[str]:
    """The names that a node reads, those of nodes in its subgraphs included."""
    for field in fields(model, start, end):
        if field.number == _NODE_INPUT:
            yield model[field.start : field.end].decode()
        elif field.number == _ATTRIBUTE:
            for part in fields(model, field.start, field.end):
                if part.number in _SUBGRAPHS and part.end:
                    yield from _reads_of_graph(model, part.start, part.end)


def _reads_of_graph(model: bytes, start: int, end: int) -> Iterator[str]:
    """The names that a subgraph reads: its outputs may be values from outside, too."""
    for record in _records(model, start, end):
        if record.number == _NODE:
            yield from _reads(model, record.start, record.end)
        elif record.number == _OUTPUT:
            yield _name(model, record)


def _texts(model: bytes, start: int, end: int, number: int) -> list[str]:
    """The texts that a message has in a field."""
    found = (field for field in fields(model, start, end) if field.number == number)
    return [model[field.start : field.end].decode() for field in found]


def _name(model: bytes, record: _Record) -> str:
    return next(iter(_texts(model, record.start, record.end, _NAME[record.number])), "")


def _size(number: int) -> bytes:
    """A number as protobuf writes the length of a message."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes((*found, number))
