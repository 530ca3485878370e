"""Quantization-aware training: products read the 8-bit rounded values of their operands.

A weight is rounded by its own range. The range of any other operand is observed: a train job moves
it at every step and writes the scale beside it, and predict jobs read that scale.
"""

import math
from dataclasses import dataclass, field

from flow2onnx.config import FunctionConfig
from flow2onnx.dtypes import DType, float32, int64, uint8
from flow2onnx.errors import ConfigError
from flow2onnx.graph import Node, Value
from flow2onnx.graph.schemas import PRODUCTS
from flow2onnx.graph.types import dtype_of, rank_of
from flow2onnx.lowering.quantize import Scheme, fake_quantize, min_max, scale_of, zero_point
from flow2onnx.trace.context import tracing
from flow2onnx.trace.job import Job, Region

__all__ = ["Observer", "quantize", "straight_through"]

_PLAIN = Scheme()
_MOVES = frozenset({"Identity", "Reshape", "Transpose"})


def quantize(job: Job) -> None:
    """Quantize what the products of a traced job read, as its configuration says."""
    config = job.spec.config
    with tracing(job):
        _Rewrite(job, _scheme(config), config.value("qat.per_channel_weight_quantization")).run()


def _scheme(config: FunctionConfig) -> Scheme:
    is_symmetric, backend = config.value("qat.symmetric"), config.value("qat.target_backend")
    if backend == "cambricon":  # its formula has no other scheme
        return Scheme(True, True)
    if not is_symmetric and backend == "tensorrt":
        raise ConfigError(
            f"qat.symmetric is False, and qat.target_backend {backend!r} has zero points at 0",
            hint="leave qat.symmetric True, or qat.target_backend empty",
        )
    return Scheme(is_symmetric)


def straight_through(job: Job, x: Value, scale: Value, zero: Value | None,
                     axis: int | None = None) -> Value:  # fmt: skip
    """`x` quantized and back, whose gradient is that of `x` as it is, as in OneFlow."""
    start = len(job.b.nodes)
    y = fake_quantize(job.b, x, scale, zero, axis)
    job.add_region(Region((x,), (y,), lambda b, inputs, outputs, g: (g,)), start)
    return y


@dataclass(frozen=True)
class Observer:
    """The range of one value over the steps of a train job: state ``<name>-moving_min``, ….

    Nothing is observed until the first step: the scale is NaN, and so are results made with it.
    """

    job: Job
    name: str
    scheme: Scheme = _PLAIN
    momentum: float = 0.95
    last_step: int | None = None

    def scale_and_zero(self, x: Value) -> tuple[Value, Value | None]:
        """The scale and what stands for 0; a train job takes in `x` first."""
        if not self.job.is_trainable:
            return self._state("scale"), None if self.scheme.is_symmetric else self._zero()
        b, (low, high) = self.job.b, self.range(x)
        scale = scale_of(b, low, high, self.scheme)
        zero = zero_point(b, low, scale, self.scheme)
        self._keep("scale", self._state("scale"), scale)
        if zero is not None:
            self._keep("zero_point", self._zero(), zero)
        return scale, zero

    def range(self, x: Value) -> tuple[Value, Value]:
        """The least and the greatest so far; a train job takes in `x` first."""
        names = ("moving_min", "moving_max")
        if not self.job.is_trainable:
            return self._state(names[0]), self._state(names[1])
        found = min_max(self.job.b, x)
        return self._move(names[0], found[0]), self._move(names[1], found[1])

    def _move(self, which: str, found: Value) -> Value:
        b, old = self.job.b, self._state(which)
        moved = b.Add(b.Mul(old, self.momentum), b.Mul(found, 1.0 - self.momentum))
        next_value = b.Where(b.IsNaN(old), found, moved)
        if self.last_step is not None:
            step = self.job.counter(self.job.spec.step_counter)
            is_over = b.GreaterOrEqual(b.Reshape(step, b.const([], int64)), self.last_step)
            next_value = b.Where(b.And(is_over, b.Not(b.IsNaN(old))), old, next_value)
        # a step that overflowed says nothing of the range
        next_value = b.Where(b.IsNaN(b.Sub(found, found)), old, next_value)
        self._keep(which, old, next_value)
        return next_value

    def _keep(self, which: str, old: Value, value: Value) -> None:
        assert old.shape == value.shape, f"{self.name}-{which} changes its shape"
        self.job.assign(f"{self.name}-{which}", value)

    def _state(self, which: str, dtype: DType = float32, start: float = math.nan) -> Value:
        return self.job.counter(f"{self.name}-{which}", dtype, start, ())

    def _zero(self) -> Value:
        return self._state("zero_point", uint8, 0)


@dataclass
class _Rewrite:
    """The graph being rewritten: what is quantized by now, and which values are weights."""

    job: Job
    scheme: Scheme
    is_per_channel: bool
    done: dict[tuple[Value, int | None], Value] = field(default_factory=dict)
    weights: dict[Value, str] = field(default_factory=dict)

    def run(self) -> None:
        """Take all nodes out and put them back one by one, quantization between them."""
        b = self.job.b
        self.weights = {
            self.job.values[n]: n for n, v in self.job.variables.items() if v.role == "variable"
        }
        nodes = list(b.nodes)
        b.graph.remove(nodes)
        b.nodes.clear()
        for node in nodes:
            if self._is_product(node):
                with b.under(str(node.name), node.meta.get("source")):
                    self._quantize(node)
            b.graph.append(node)
            b.nodes.append(node)
            if node.op_type in _MOVES and node.inputs[0] in self.weights:
                self.weights[node.outputs[0]] = self.weights[node.inputs[0]]

    def _is_product(self, node: Node) -> bool:
        operands = node.inputs[:2]
        return (
            node.op_type in PRODUCTS
            and node not in self.job.regions
            and all(v is not None and dtype_of(v) == float32 for v in operands)
            and not any(v.const_value is not None for v in operands if v is not None)
        )

    def _quantize(self, node: Node) -> None:
        for i, value in enumerate(node.inputs[:2]):
            assert value is not None, "a product has two operands"
            axis = self._axis(node, i) if value in self.weights else None
            if (value, axis) not in self.done:
                self.done[value, axis] = self._quantize_operand(node, i, value, axis)
            node.replace_input_with(i, self.done[value, axis])

    def _quantize_operand(self, node: Node, i: int, value: Value, axis: int | None) -> Value:
        b = self.job.b
        if value in self.weights:
            low, high = min_max(b, value, axis)
            scale = scale_of(b, low, high, self.scheme)
            zero = zero_point(b, low, scale, self.scheme)
        else:
            scale, zero = self._observer(node, i).scale_and_zero(value)
        return straight_through(self.job, value, scale, zero, axis)

    def _axis(self, node: Node, i: int) -> int | None:
        """The axis of the output channels in a weight that is the second operand."""
        if not self.is_per_channel or i == 0:
            return None
        if node.op_type == "Conv":
            return 0
        if node.op_type == "ConvTranspose":
            return None  # its channels are spread over groups and axis 1
        if node.op_type == "Gemm":
            transposed = node.attributes.get("transB")
            return 0 if transposed is not None and transposed.value else 1
        return rank_of(_operand(node, 1)) - 1

    def _observer(self, node: Node, i: int) -> Observer:
        """Named after the weight beside it, which is the same in jobs that differ elsewhere."""
        config, other = self.job.spec.config, node.inputs[1 - i]
        owner = self._owner(other)
        name = stem = f"{owner}-input" if owner else f"{node.name}-{'ab'[i]}"
        count = 0
        while f"{name}-scale" in self.job.variables:
            count += 1
            name = f"{stem}_{count}"
        momentum = config.value("qat.moving_min_max_momentum")
        last = config.value("qat.moving_min_max_stop_update_after_iters")
        return Observer(self.job, name, self.scheme, momentum, last)

    def _owner(self, value: Value | None) -> str | None:
        """The variable that an operand, quantized or not, is."""
        for (weight, _), quantized in self.done.items():
            if quantized is value:
                value = weight
        return self.weights.get(value) if value is not None else None


def _operand(node: Node, i: int) -> Value:
    value = node.inputs[i]
    assert value is not None, f"{node.name} reads nothing at {i}"
    return value
