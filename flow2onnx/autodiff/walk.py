"""The reverse walk: from the losses back to what is to be trained."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from flow2onnx.autodiff.annotations import annotate_expanded, annotate_gradients
from flow2onnx.autodiff.attributes import unknown_attribute
from flow2onnx.autodiff.products import join_products
from flow2onnx.autodiff.registry import (
    DATA_MOVEMENT,
    NOT_DIFFERENTIABLE,
    QUANTIZING,
    attribute,
    expansion_for,
    no_gradient,
    rule_for,
)
from flow2onnx.autodiff.slices import join_slices
from flow2onnx.errors import GradientError, UnknownShapeError
from flow2onnx.graph import Builder, Node, Value
from flow2onnx.graph.functions import standard_body
from flow2onnx.graph.nodes import operator_name, read_values
from flow2onnx.graph.types import dtype_of, may_match, sizes_of

__all__ = ["Override", "expand_node", "gradients"]


class Override(Protocol):
    """Nodes that have one gradient together, instead of one each."""

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The inputs, for which there are gradients."""

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The outputs."""

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
    walk = _Walk(b, _active(nodes, wrt), _GradientSums(b), overrides)
    for loss, seed in seeds.items():
        walk.sums.add(loss, seed)
    walk.back(nodes)
    return walk.sums.totals()


@dataclass(frozen=True)
class _Walk:
    """One walk from the last node to the first: what counts, and the sums so far."""

    b: Builder
    active: set[Value]
    sums: "_GradientSums"
    overrides: Mapping[Node, Override]
    done: set[int] = field(default_factory=set)

    def back(self, nodes: Sequence[Node]) -> None:
        for node in reversed(nodes):
            override = self.overrides.get(node)
            outputs: Sequence[Value] = override.outputs if override else node.outputs
            is_done = override is not None and id(override) in self.done
            if is_done or not any(o in self.active for o in outputs):
                continue
            gs = [self.sums.total(o) for o in outputs]
            if any(g is not None for g in gs):
                self.done.add(id(override))
                with self.b.under(f"grad/{node.name}", node.meta.get("source")):
                    self._apply_known(node, override, gs)

    def _apply_known(self, node: Node, override: Override | None, gs: list[Value | None]) -> None:
        try:
            self._apply(node, override, gs)
        except UnknownShapeError as error:
            raise GradientError(
                f"GradientFunctionNotFound: {node.op_type} has no gradient here, as "
                f"{error.message}",
                op=node.name,
                source=node.meta.get("source"),
                hint="fix the sizes that are free, with inputs= where the model is imported; pass "
                "its operands through flow.cast_to_static_shape before, or multiply with a mask in "
                "place of gathering what flow.argwhere finds",
            ) from None

    def _apply(self, node: Node, override: Override | None, gs: list[Value | None]) -> None:
        if override is not None:
            result = override.vjp(self.b, override.inputs, override.outputs, *gs)
            self._add(node, override.inputs, result)
        elif operator_name(node) not in NOT_DIFFERENTIABLE:
            rule = rule_for(operator_name(node))
            if rule is not None:
                _check_attributes(self.b, node)
            result = rule(self.b, node, *gs) if rule else NotImplemented
            if result is NotImplemented:
                self._expand(node, gs)
            else:
                annotate_gradients(node, gs, result)
                self._add(node, read_values(node), result)

    def _expand(self, node: Node, gs: list[Value | None]) -> None:
        """Let others stand for a node, and walk back through them."""
        known = set(self.b.nodes)
        inputs = [v for v in node.inputs if v is not None]
        before = [len(self.sums.parts(v)) for v in inputs]
        with self.b.under(node.name or node.op_type, node.meta.get("source")):
            outputs = expand_node(self.b, node)
        made = [n for n in self.b.nodes if n not in known]
        self.active.update(_active(made, self.active))
        for output, g in zip(outputs, gs, strict=True):
            if g is not None:
                self.sums.add(output, g)
        self.back(made)
        added = {v: self.sums.parts(v)[n:] for v, n in zip(inputs, before, strict=True)}
        annotate_expanded(node, outputs, gs, added)

    def _add(self, node: Node, inputs: Sequence[Value | None], result: object) -> None:
        parts = result if isinstance(result, tuple | list) else (result,)
        for value, g in zip(inputs, parts, strict=False):
            if value is not None and g is not None and value in self.active:
                assert may_match(g, value), f"{node.op_type}: {sizes_of(g)} for {sizes_of(value)}"
                # a quantised value has the gradient of the real one that it stands for
                assert dtype_of(g) == dtype_of(value) or not dtype_of(value).is_floating_point, (
                    f"{node.op_type}: gradient of another type"
                )
                self.sums.add(value, self.b.agree(g, value))


def expand_node(b: Builder, node: Node) -> Sequence[Value]:
    """The values that stand for the outputs of a node, whose nodes are put before it.

    Whoever reads the node's outputs in the graph then reads these; the outputs stay valid for
    those who hold them, and what computes them is dead code where nobody does.
    """
    with b.before(node):
        made = _expand(b, node)
    for old, new in zip(node.outputs, made, strict=True):
        assert may_match(new, old), (
            f"{node.op_type}: expanded to {sizes_of(new)}, not {sizes_of(old)}"
        )
        assert dtype_of(new) == dtype_of(old), f"{node.op_type}: expanded to another type"
        old.replace_all_uses_with(new)
        b.read_sizes_of(new, old)
    return made


def _expand(b: Builder, node: Node) -> Sequence[Value]:
    own = expansion_for(operator_name(node))
    if own is not None:
        _check_attributes(b, node)
    made = own(b, node) if own is not None else standard_body(b, node)
    if made is None:
        raise no_gradient(node)
    return [made] if isinstance(made, Value) else made


def _check_attributes(b: Builder, node: Node) -> None:
    """Raise for an attribute that the gradient does not honour."""
    unknown = unknown_attribute(node, b.opset)
    if unknown is not None:
        raise no_gradient(node, f"with {unknown}={attribute(node, unknown)!r}")


def _active(nodes: Sequence[Node], wrt: Iterable[Value]) -> set[Value]:
    """The real-valued values that depend on `wrt`, and whole numbers that stand for such."""
    active = set(wrt)
    for node in nodes:
        if any(v in active for v in read_values(node) if v is not None):
            is_carried = node.op_type in QUANTIZING or (
                node.op_type in DATA_MOVEMENT and node.inputs[0] in active
            )
            active.update(o for o in node.outputs if is_carried or dtype_of(o).is_floating_point)
    return active


class _GradientSums:
    """The contributions to the gradient of each value, added up when first asked for."""

    def __init__(self, b: Builder) -> None:
        self._b = b
        self._parts: dict[Value, list[Value]] = {}

    def add(self, value: Value, part: Value) -> None:
        self._parts.setdefault(value, []).append(part)

    def parts(self, value: Value) -> Sequence[Value]:
        """The contributions so far."""
        return self._parts.get(value, [])

    def total(self, value: Value) -> Value | None:
        parts = self._parts.get(value)
        if parts is None:
            return None
        if len(parts) > 1:
            parts[:] = join_products(self._b, join_slices(self._b, parts))
        while len(parts) > 1:
            parts[:2] = [self._b.Add(parts[0], parts[1])]
        return parts[0]

    def totals(self) -> dict[Value, Value]:
        return {value: total for value in list(self._parts) if (total := self.total(value))}
