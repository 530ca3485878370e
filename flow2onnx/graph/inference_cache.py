"""Types inferred before: networks repeat their layers, and inference is most of what a node costs.

Only nodes are remembered whose outputs follow from what a key can hold: operator, attributes that
are numbers or texts, and of every input the element type, the shape, and small contents.
"""

from collections.abc import Hashable, Sequence

import onnx
import onnx_ir as ir

from flow2onnx.graph.types import is_static

__all__ = ["InferenceCache"]

_Key = tuple[Hashable, ...]

_PLAIN = frozenset({ir.AttributeType.FLOAT, ir.AttributeType.INT, ir.AttributeType.STRING})
_LISTS = frozenset({ir.AttributeType.FLOATS, ir.AttributeType.INTS, ir.AttributeType.STRINGS})

# Where the `meta` of a value has more about it than a key holds.
_TOLD = frozenset({"bounds", "content", "sizes"})


class InferenceCache:
    """The types of the outputs of nodes by all that they follow from; one opset for all.

    `largest` is how many elements a content may have for inference to look at it.
    """

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._types: dict[_Key, Sequence[onnx.TypeProto]] = {}

    def key(self, node: ir.Node) -> _Key | None:
        """All that the types of the outputs follow from; None if it is too much to compare."""
        attributes = []
        for name, attribute in node.attributes.items():
            if attribute.is_ref() or attribute.type not in _PLAIN | _LISTS:
                return None
            value = attribute.value
            attributes.append((name, tuple(value) if attribute.type in _LISTS else value))
        inputs = []
        for value in node.inputs:
            told = None if value is None else self._facts(value)
            if value is not None and told is None:
                return None
            inputs.append(told)
        outputs = len(node.outputs)
        return node.domain, node.op_type, outputs, tuple(sorted(attributes)), tuple(inputs)

    def _facts(self, value: ir.Value) -> _Key | None:
        """The type, shape and small content of a value; None where there is more to know."""
        if not isinstance(value.type, ir.TensorType) or not is_static(value):
            return None
        if not _TOLD.isdisjoint(value.meta):
            return None
        content = value.const_value
        small = content.tobytes() if content is not None and content.size <= self._largest else None
        return value.type.dtype, tuple(value.shape or ()), small

    def types(self, key: _Key) -> Sequence[onnx.TypeProto] | None:
        """The types of the outputs of a node with this key; None if there was none before."""
        return self._types.get(key)

    def keep(self, key: _Key, types: Sequence[onnx.TypeProto]) -> None:
        """Remember the types of the outputs of a node with this key."""
        self._types[key] = types
