"""Mixed precision: matrix products and convolutions in float16 or bfloat16, the rest in float32."""

import functools
import logging
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from flow2onnx.dtypes import DType, float32
from flow2onnx.graph.builder import Builder
from flow2onnx.graph.schemas import schema
from flow2onnx.graph.types import constant_of, dtype_of
from flow2onnx.graph.verify import Kernels

__all__ = [
    "CLEAR",
    "FAILING_IN_HALF",
    "GREY",
    "NORMALIZED",
    "WHITE",
    "computes_in",
    "mix_precision",
]

_log = logging.getLogger("flow2onnx.passes")

# The lists are those of OneFlow but for what is said below.

# Matrix products and convolutions: fast in half precision, and summed in float32 by the kernels.
WHITE = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})

# In half precision between two operators that are: elementwise, without a large range.
GREY = frozenset({"Add", "AveragePool", "Div", "Dropout", "Gelu", "GlobalAveragePool", "Mul",
                  "Sigmoid", "Sub", "Sum", "Tanh"})  # fmt: skip

# What their input is: they choose, move or repeat elements and round nothing. Gather is not among
# them, because its gradient adds up.
CLEAR = frozenset({"Concat", "Flatten", "Identity", "MaxPool", "Pad", "Relu", "Reshape", "Slice",
                   "Split", "Squeeze", "Transpose", "Trilu", "Unsqueeze"})  # fmt: skip

# Made in float32, and no larger than a half precision number: where memory is what takes the time,
# what follows them on the way to a product reads them rounded.
NORMALIZED = frozenset({"BatchNormalization", "GroupNormalization", "InstanceNormalization",
                        "LayerNormalization", "RMSNormalization", "Softmax"})  # fmt: skip

# Everything else stays in float32. OneFlow let softmax and the normalizations follow too; here
# they are composed of sums and exponentials, which lose digits and overflow in half precision.

# The registry lists kernels for these; they fail when they add up float16.
FAILING_IN_HALF = frozenset({"ScatterElements", "ScatterND"})


def computes_in(half: DType, opset: int, kernels: Kernels | None) -> bool:
    """True if a runtime multiplies matrices of such numbers itself, so that they gain speed."""
    return kernels is None or kernels.supports("MatMul", opset, {"T": half.name})


def mix_precision(
    b: Builder,
    half: DType,
    kernels: Kernels | None = None,
    *,
    weights: Collection[ir.Value] = (),
    fixed: Collection[ir.Node] = (),
    watched: Collection[ir.Value] = (),
    rounds_early: bool = False,
) -> None:
    """Rewrite the forward graph of a job; gradients appended later follow the casts.

    Given:   h = Gemm(x, w);  a = Add(h, c);  r = Relu(a);  y = Gemm(r, v);  l = Softmax(y)
    Result:  h' = Gemm(x', w');  a' = Add(h', c');  r' = Relu(a');  y' = Gemm(r', v')
             y = Cast(y');  l = Softmax(y)             where x', w', c', v' are casts to `half`
    Kept:    every value that was there, in its element type and under its name; `fixed` nodes

    White operators read casts to `half`. Clear ones follow what they read; grey ones do so where a
    white one is ahead. Beside what is there in `half` they may read one of the `weights`, or a
    constant that fits. The gradient of a `watched` value is that of everything made of it. With
    `rounds_early`, what leads to a product follows normalized values too, which are rounded before
    it and not after: a device that waits for its memory moves half as much.
    """
    if not computes_in(half, b.opset, kernels):
        _warn_no_speedup(half)
    rewrite = _Rewrite(
        b=b,
        half=half,
        kernels=kernels,
        watched=frozenset(watched),
        weight_views=set(weights),
        rounds_early=rounds_early,
    )
    rewrite.run(frozenset(fixed))


@dataclass(kw_only=True)
class _Rewrite:
    """The graph being rewritten, and what is known of its values by now.

    `weight_views` are weights, some in another shape; `halves` what nodes made in half precision;
    `casts` what was cast to it.
    """

    b: Builder
    half: DType
    kernels: Kernels | None
    watched: frozenset[ir.Value]
    weight_views: set[ir.Value]
    rounds_early: bool = False
    halves: dict[ir.Value, ir.Value] = field(default_factory=dict)
    casts: dict[ir.Value, ir.Value] = field(default_factory=dict)

    def run(self, fixed: frozenset[ir.Node]) -> None:
        """Take all nodes out and put them back one by one, casts between them."""
        nodes = list(self.b.nodes)
        able = {n for n in nodes if n not in fixed and self._is_able(n)}
        ahead = _leads_to_white(nodes, able)
        self.b.graph.remove(nodes)
        self.b.nodes.clear()
        for node in nodes:
            if node in able and self._is_chosen(node, node in ahead):
                self._append_half(node)
            else:
                self._append_unchanged(node)

    def _append_unchanged(self, node: ir.Node) -> None:
        self.b.graph.append(node)
        self.b.nodes.append(node)
        if node.op_type in CLEAR and all(self._is_weight_or_constant(v) for v in self._reals(node)):
            self.weight_views.update(node.outputs)

    def _is_able(self, node: ir.Node) -> bool:
        """True if ONNX, and a runtime that computes in it, take the node in half precision."""
        is_listed = _is_white(node) or node.op_type in GREY or node.op_type in CLEAR
        if not is_listed or not self._reals(node):
            return False
        opset, kind = self.b.opset, schema(node.op_type, self.b.opset)
        variable = kind.type_variable(0)
        if not kind.allows(variable, self.half):
            return False
        if self.kernels is None or not computes_in(self.half, opset, self.kernels):
            return True  # values are rounded as elsewhere, and computed in float32
        return self.kernels.supports(node.op_type, opset, {variable: self.half.name})

    def _is_chosen(self, node: ir.Node, is_before_white: bool) -> bool:
        reals = self._reals(node)
        if not all(self._fits(v) for v in reals):
            return False
        if _is_white(node):
            return True
        leads = [v for v in reals if v in self.halves or self._is_rounded_early(v)]
        follows = bool(leads) and all(v in leads or self._is_weight_or_constant(v) for v in reals)
        is_early = not any(v in self.halves for v in leads)
        return follows and (is_before_white or (node.op_type in CLEAR and not is_early))

    def _is_rounded_early(self, value: ir.Value) -> bool:
        maker = value.producer()
        return self.rounds_early and maker is not None and maker.op_type in NORMALIZED

    def _is_weight_or_constant(self, value: ir.Value) -> bool:
        return value in self.weight_views or constant_of(value) is not None

    def _fits(self, value: ir.Value) -> bool:
        """False for a constant of which a number would become infinite or zero."""
        content = constant_of(value)
        if content is None:
            return True
        small = _round_to(content, self.half)
        stays_finite = np.isfinite(small) == np.isfinite(content)
        return bool(np.all(stays_finite & ((small == 0) == (content == 0))))

    def _reals(self, node: ir.Node) -> list[ir.Value]:
        """The inputs of the first one's type variable; none unless they are float32."""
        kind = schema(node.op_type, self.b.opset)
        alike = [
            v
            for i, v in enumerate(node.inputs)
            if v is not None and kind.type_variable(i) == kind.type_variable(0)
        ]
        return alike if all(dtype_of(v) == float32 for v in alike) else []

    def _append_half(self, node: ir.Node) -> None:
        """The node on halves; a real number that it made before is a cast of what it makes now."""
        small = {v: self._half_of(v) for v in self._reals(node)}
        outputs, casts = [], []
        for old in _detach_outputs(node):
            if dtype_of(old) == float32:
                new = self._new_value(f"{old.name}/{self.half.name}", old)
                casts.append((new, old))
                outputs.append(new)
            else:
                outputs.append(old)
        inputs = [v if v is None else small.get(v, v) for v in node.inputs]
        attributes = tuple(node.attributes.values())
        again = ir.Node("", node.op_type, inputs, attributes, outputs=outputs, name=node.name)
        again.meta.update(node.meta)
        node.resize_inputs(0)  # it reads nothing any more
        self._append(again)
        for new, old in casts:
            self._append_cast(new, old, node)
            self.halves[old] = self._half_of(old) if old in self.watched else new

    def _new_value(self, name: str, like: ir.Value) -> ir.Value:
        code = ir.TensorType(ir.DataType(self.half.code))
        return ir.Value(name=self.b.unique(name), shape=like.shape, type=code)

    def _append_cast(self, source: ir.Value, target: ir.Value, of: ir.Node) -> None:
        """Make `target`, which nothing makes any more, a cast of `source`."""
        code = ir.AttrInt64("to", dtype_of(target).code)
        cast = ir.Node("", "Cast", [source], [code], outputs=[target])
        cast.name = self.b.unique(f"{target.name}/Cast")
        cast.meta["source"] = of.meta.get("source")
        self._append(cast)

    def _append(self, node: ir.Node) -> None:
        self.b.graph.append(node)
        self.b.nodes.append(node)

    def _half_of(self, value: ir.Value) -> ir.Value:
        if value in self.halves:
            return self.halves[value]
        if value not in self.casts:
            content = constant_of(value)
            with self.b.under(f"{value.name}/{self.half.name}"):
                self.casts[value] = (
                    self.b.Cast(value, to=self.half)
                    if content is None
                    else self.b.const(_round_to(content, self.half))
                )
        return self.casts[value]


@functools.cache
def _warn_no_speedup(half: DType) -> None:
    _log.warning(
        "mixed precision: the device of the job multiplies no %s matrices; it computes in float32 "
        "and rounds to %s at most, so that nothing gets faster",
        half.name, half.name,
    )  # fmt: skip


def _is_white(node: ir.Node) -> bool:
    return node.op_type in WHITE or node.meta.get("precision") == "white"


def _leads_to_white(nodes: list[ir.Node], able: set[ir.Node]) -> set[ir.Node]:
    """The nodes from which grey and clear ones lead to a white one."""
    found: set[ir.Node] = set()
    for node in reversed(nodes):
        readers = {use.node for value in node.outputs for use in value.uses()}
        if any(r in able and (_is_white(r) or r in found) for r in readers):
            found.add(node)
    return found


def _detach_outputs(node: ir.Node) -> list[ir.Value]:
    """The outputs of a node, which from now on nothing makes; their readers stay."""
    outputs = list(node.outputs)
    readers = [(v, list(v.uses())) for v in outputs]
    for _, uses in readers:
        for use in uses:
            use.node.replace_input_with(use.idx, None)
    node.resize_outputs(0)
    for value, uses in readers:
        for use in uses:
            use.node.replace_input_with(use.idx, value)
    return outputs


def _round_to(content: np.ndarray[Any, Any], half: DType) -> np.ndarray[Any, Any]:
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(content, half.numpy)
