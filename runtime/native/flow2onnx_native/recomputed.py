"""Which values are the same numbers, computed twice: once for a result, once for its gradient."""

import onnx_ir as ir

from flow2onnx_native.graph import dims, is_standard, is_static

__all__ = ["Recomputed"]

_DEEPEST = 64  # nodes one behind the other that are compared: recomputation goes a layer back
_DRAWS = ("Random", "Bernoulli", "Multinomial", "Dropout")  # how operators begin that differ
_SCALARS = ("INT", "FLOAT", "STRING")
_PLAIN = frozenset(ir.AttributeType[kind + end] for kind in _SCALARS for end in ("", "S"))


class Recomputed:
    """Compares values by what they are computed from; what was compared is known from then on."""

    def __init__(self) -> None:
        self._known: dict[tuple[ir.Value, ir.Value], bool] = {}

    def is_same(self, a: ir.Value, b: ir.Value, depth: int = 0) -> bool:
        """True if equal nodes compute both from the same values."""
        a, b = _without_equal_shapes(a), _without_equal_shapes(b)
        if a is b:
            return True
        key = (a, b)
        if key not in self._known:
            self._known[key] = False  # until it is known
            self._known[key] = depth < _DEEPEST and self._are_equal(a, b, depth)
        return self._known[key]

    def _are_equal(self, a: ir.Value, b: ir.Value, depth: int) -> bool:
        first, second = a.producer(), b.producer()
        if first is None or second is None or not _compute_alike(first, second):
            return False
        if a.index() != b.index():
            return False
        pairs = list(zip(first.inputs, second.inputs, strict=True))
        pairs.sort(key=lambda pair: pair[0] is not None and pair[0].producer() is not None)
        return all(
            x is y or (x is not None and y is not None and self.is_same(x, y, depth + 1))
            for x, y in pairs
        )


def _without_equal_shapes(value: ir.Value) -> ir.Value:
    """The value that a reshape is of, if it has the same shape."""
    while (node := value.producer()) is not None and is_standard(node, "Reshape"):
        before = node.inputs[0]
        if before is None or not is_static(before) or not is_static(value):
            break
        if dims(before) != dims(value):
            break
        value = before
    return value


def _compute_alike(a: ir.Node, b: ir.Node) -> bool:
    """True if two nodes are the same function of as many inputs."""
    if (a.domain, a.op_type, len(a.inputs)) != (b.domain, b.op_type, len(b.inputs)):
        return False
    if a.op_type.startswith(_DRAWS) or a.attributes.keys() != b.attributes.keys():
        return False
    return all(
        x.type in _PLAIN and x.value == b.attributes[n].value for n, x in a.attributes.items()
    )
