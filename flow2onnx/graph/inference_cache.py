"""Types inferred before: networks repeat their layers, and inference is most of what a node costs.

Only nodes are remembered whose outputs follow from what a key can hold: operator, attributes that
are numbers, texts or small tensors, and of every input the element type, the shape, and small
contents.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import onnx
import onnx_ir as ir

from flow2onnx.graph.types import dims, is_static

__all__ = ["InferenceCache", "Inferred", "is_static_tensor"]

_Key = tuple[Hashable, ...]

_PLAIN = frozenset({ir.AttributeType.FLOAT, ir.AttributeType.INT, ir.AttributeType.STRING})
_LISTS = frozenset({ir.AttributeType.FLOATS, ir.AttributeType.INTS, ir.AttributeType.STRINGS})
_DRAWN = "seed"  # of what is drawn, which has the same type whatever it is

# Where the `meta` of a value has more about it than a key holds.
_TOLD = frozenset({"bounds", "content", "sizes"})


class Inferred(NamedTuple):
    """The type of an output whose every dimension is known, in both forms."""

    dtype: ir.DataType
    shape: tuple[int, ...]
    proto: onnx.TypeProto

    @classmethod
    def of(cls, value: ir.Value, proto: onnx.TypeProto) -> "Inferred":
        """The type of a value, which `proto` is too."""
        assert isinstance(value.type, ir.TensorType), "others are not kept"
        return cls(value.type.dtype, dims(value), proto)


def is_static_tensor(value: ir.Value) -> bool:
    """True for a tensor whose every dimension is known."""
    return isinstance(value.type, ir.TensorType) and is_static(value)


class InferenceCache:
    """The types of the outputs of nodes by all that they follow from; one opset for all.

    `largest` is how many elements a content may have for inference to look at it.
    """

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._types: dict[_Key, Sequence[Inferred]] = {}
        self._known: dict[ir.Value, tuple[object, object, object, _Key]] = {}

    def key(self, node: ir.Node) -> _Key | None:
        """All that the types of the outputs follow from; None if it is too much to compare."""
        attributes = self._attributes(node) if node.attributes.data else ()
        if attributes is None:
            return None
        inputs = []
        for value in node.inputs:
            told = None if value is None else self._facts(value)
            if value is not None and told is None:
                return None
            inputs.append(told)
        return node.domain, node.op_type, len(node.outputs), attributes, tuple(inputs)

    def _attributes(self, node: ir.Node) -> _Key | None:
        """The attributes of a node; None where they are too much to compare."""
        found: list[tuple[str, Hashable]] = []
        for name, attribute in node.attributes.data.items():
            if attribute.is_ref():
                return None
            value = attribute.value
            if attribute.type in _LISTS:
                found.append((name, tuple(value)))
            elif attribute.type in _PLAIN:
                found.append((name, value if name != _DRAWN else None))
            elif attribute.type == ir.AttributeType.TENSOR and self._is_small(value):
                found.append((name, (value.dtype, tuple(value.shape), value.tobytes())))
            else:
                return None
        return tuple(sorted(found, key=lambda pair: pair[0]))

    def _is_small(self, tensor: ir.TensorProtocol) -> bool:
        return tensor.size <= self._largest and tensor.dtype != ir.DataType.STRING

    def _facts(self, value: ir.Value) -> _Key | None:
        """The type, shape and small content of a value; None where there is more to know."""
        shape, kind, content = value.shape, value.type, value.const_value
        if value.meta and not _TOLD.isdisjoint(value.meta):
            return None
        known = self._known.get(value)
        if known is not None and known[0] is shape and known[1] is kind and known[2] is content:
            return known[3]
        if not isinstance(kind, ir.TensorType) or not is_static(value):
            return None
        small = content.tobytes() if content is not None and content.size <= self._largest else None
        facts = (kind.dtype, tuple(shape or ()), small)
        self._known[value] = (shape, kind, content, facts)
        return facts

    def types(self, key: _Key) -> Sequence[Inferred] | None:
        """The types of the outputs of a node with this key; None if there was none before."""
        return self._types.get(key)

    def keep(self, key: _Key, types: Sequence[Inferred]) -> None:
        """Remember the types of the outputs of a node with this key."""
        self._types[key] = types
