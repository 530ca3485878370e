"""The reverse walk: from the losses back to what is to be trained."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from flow2onnx.autodiff.registry import NOT_DIFFERENTIABLE, no_gradient, rule_for
from flow2onnx.graph import Builder, Node, Value, dims, dtype_of

__all__ = ["Override", "gradients"]


class Override(Protocol):
    """Nodes that have one gradient together, instead of one each."""

    @property
    def inputs(self) -> tuple[Value, ...]:
        """What flows in; gradients are for these."""

    @property
    def outputs(self) -> tuple[Value, ...]:
        """What flows out."""

    def vjp(self, b: Builder, inputs: object, outputs: object, *gradients: Value | None) -> object:
        """One gradient, or None, for each input."""


def gradients(
    b: Builder,
    seeds: Mapping[Value, Value],
    wrt: Iterable[Value],
    overrides: Mapping[Node, Override] = {},
) -> dict[Value, Value]:
    """The gradients of sum(loss * seed) by value, for `wrt` and everything on the way to it.

    A value of `wrt` that no loss depends on is absent from the result.
    """
    nodes = list(b.nodes)
    active = _active(nodes, wrt)
    sums = _Sums(b)
    for loss, seed in seeds.items():
        sums.add(loss, seed)
    done: set[int] = set()
    for node in reversed(nodes):
        override = overrides.get(node)
        outputs: Sequence[Value] = override.outputs if override else node.outputs
        if (override and id(override) in done) or not any(o in active for o in outputs):
            continue
        gs = [sums.total(o) for o in outputs]
        if all(g is None for g in gs):
            continue
        done.add(id(override))
        with b.under(f"grad/{node.name}", node.meta.get("source")):
            _apply(b, node, override, gs, active, sums)
    return sums.totals()


def _apply(
    b: Builder,
    node: Node,
    override: Override | None,
    gs: list[Value | None],
    active: set[Value],
    sums: "_Sums",
) -> None:
    if override is not None:
        inputs: Sequence[Value | None] = override.inputs
        result = override.vjp(b, override.inputs, override.outputs, *gs)
    elif node.op_type in NOT_DIFFERENTIABLE:
        return
    else:
        rule = rule_for(node.op_type)
        if rule is None:
            raise no_gradient(node)
        inputs = node.inputs
        result = rule(b, node, *gs)
    parts = result if isinstance(result, tuple | list) else (result,)
    for value, g in zip(inputs, parts, strict=False):
        if value is not None and g is not None and value in active:
            assert dims(g) == dims(value), f"{node.op_type}: {dims(g)} for {dims(value)}"
            assert dtype_of(g) == dtype_of(value), f"{node.op_type}: gradient of another type"
            sums.add(value, g)


def _active(nodes: Sequence[Node], wrt: Iterable[Value]) -> set[Value]:
    """The real-valued values that depend on `wrt`."""
    active = set(wrt)
    for node in nodes:
        if any(v in active for v in node.inputs if v is not None):
            active.update(o for o in node.outputs if dtype_of(o).is_floating_point)
    return active


class _Sums:
    """The contributions to the gradient of each value, added up when first asked for."""

    def __init__(self, b: Builder) -> None:
        self._b = b
        self._parts: dict[Value, list[Value]] = {}

    def add(self, value: Value, part: Value) -> None:
        self._parts.setdefault(value, []).append(part)

    def total(self, value: Value) -> Value | None:
        parts = self._parts.get(value)
        if parts is None:
            return None
        while len(parts) > 1:
            parts[:2] = [self._b.Add(parts[0], parts[1])]
        return parts[0]

    def totals(self) -> dict[Value, Value]:
        return {value: total for value in list(self._parts) if (total := self.total(value))}
