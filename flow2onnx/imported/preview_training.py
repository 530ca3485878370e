"""`ai.onnx.preview.training`: Gradient and the optimizers, made of standard operators."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from flow2onnx.autodiff import gradients
from flow2onnx.dtypes import int64
from flow2onnx.errors import GradientError, UnsupportedError
from flow2onnx.graph import Builder, Node, Value
from flow2onnx.graph.nodes import attribute
from flow2onnx.graph.types import dims, dtype_of
from flow2onnx.onnx_io.append import Handler, append_again
from flow2onnx.onnx_io.foreign import ForeignModel

__all__ = ["PREVIEW_OPERATORS", "preview_handlers"]

_DOMAIN = "ai.onnx.preview.training"
PREVIEW_OPERATORS = tuple(
    f"{_DOMAIN}::{name}" for name in ("Adagrad", "Adam", "Gradient", "Momentum")
)

Operands = Sequence[Value | None]
Values = Mapping[str, Value]
# One tensor's update: (builder, node, rate, step, x, g, its states) -> new x and states
Update = Callable[..., Sequence[Value]]


def preview_handlers(foreign: ForeignModel) -> dict[str, Handler]:
    """The expansions of the domain's operators in a model."""
    optimizers: dict[str, tuple[Update, int]] = {
        "Adagrad": (_adagrad, 1),
        "Adam": (_adam, 2),
        "Momentum": (_momentum, 1),
    }
    found: dict[str, Handler] = {
        f"{_DOMAIN}::{name}": partial(_optimizer, update, states)
        for name, (update, states) in optimizers.items()
    }
    found[f"{_DOMAIN}::Gradient"] = partial(_gradient, foreign)
    return found


def _gradient(
    foreign: ForeignModel, b: Builder, node: Node, inputs: Operands, made: Values
) -> list[Value]:
    """dy/dx of the graph before the node, at the operands in the place of `xs` and `zs`."""
    xs, zs = (_strings(node, name) for name in ("xs", "zs"))
    y = str(node.attributes["y"].value)
    names, operands = [*xs, *zs], [v for v in inputs if v is not None]
    if len(names) != len(operands):
        raise GradientError(f"Gradient names {len(names)} tensors and has {len(inputs)} operands")
    if all(made.get(n) is v for n, v in zip(names, operands, strict=True)) and y in made:
        points, result = operands, made[y]
    else:
        # elsewhere: the graph once more, with the operands in their places
        points = operands
        result = append_again(b, foreign, node, dict(zip(names, operands, strict=True)), made, y)
    seed = b.const(np.ones(dims(result)), dtype_of(result))
    found = gradients(b, {result: seed}, points[: len(xs)])
    zero = [b.const(np.zeros(dims(v)), dtype_of(v)) for v in points[: len(xs)]]
    return [found.get(v, z) for v, z in zip(points[: len(xs)], zero, strict=True)]


def _strings(node: Node, name: str) -> list[str]:
    return [str(s) for s in attribute(node, name, ())]


def _optimizer(
    update: Update, states: int, b: Builder, node: Node, inputs: Operands, made: Values
) -> list[Value]:
    """The operands are rate, step, then all tensors, all gradients, all states of each kind."""
    rate, step, *tensors = [v for v in inputs if v is not None]
    groups = states + 2
    if len(tensors) % groups:
        raise UnsupportedError(
            f"{node.op_type} has {len(tensors)} tensors, which is no multiple of {groups}"
        )
    count = len(tensors) // groups
    results = [
        update(b, node, rate, step, *(tensors[i + k * count] for k in range(groups)))
        for i in range(count)
    ]
    return [result[k] for k in range(states + 1) for result in results]


def _adagrad(
    b: Builder, node: Node, rate: Value, step: Value, x: Value, g: Value, h: Value
) -> Sequence[Value]:
    decay = b.Add(b.Mul(_real(b, step, x), _number(node, "decay_factor", 0.0)), 1.0)
    g = _regularize(b, node, g, x)
    total = b.Add(h, b.Mul(g, g))
    root = b.Add(b.Sqrt(total), _number(node, "epsilon", 1e-6))
    return b.Sub(x, b.Div(b.Mul(b.Div(_real(b, rate, x), decay), g), root)), total


def _momentum(
    b: Builder, node: Node, rate: Value, step: Value, x: Value, g: Value, v: Value
) -> Sequence[Value]:
    alpha, beta = _number(node, "alpha", 0.0), _number(node, "beta", 0.0)
    g = _regularize(b, node, g, x)
    is_first = b.Equal(step, b.const(np.zeros((), np.int64), int64))
    share = b.Where(is_first, b.like(1.0, g), b.like(beta, g))
    moved = b.Add(b.Mul(v, alpha), b.Mul(g, b.Reshape(share, [1] * max(len(dims(g)), 1))))
    moved = moved if dims(moved) == dims(x) else b.Reshape(moved, list(dims(x)))
    mode = str(node.attributes["mode"].value)
    direction = b.Add(g, b.Mul(moved, alpha)) if mode == "nesterov" else moved
    return b.Sub(x, b.Mul(_real(b, rate, x), direction)), moved


def _adam(
    b: Builder, node: Node, rate: Value, step: Value, x: Value, g: Value, v: Value, h: Value
) -> Sequence[Value]:
    alpha, beta = _number(node, "alpha", 0.9), _number(node, "beta", 0.999)
    g = _regularize(b, node, g, x)
    first = b.Add(b.Mul(v, alpha), b.Mul(g, 1.0 - alpha))
    second = b.Add(b.Mul(h, beta), b.Mul(b.Mul(g, g), 1.0 - beta))
    root = b.Add(b.Sqrt(second), _number(node, "epsilon", 1e-6))
    # from the second step on, the moments' start at 0 is corrected in the rate
    t, one = _real(b, step, x), b.like(1.0, x)
    corrections = [b.Sub(1.0, b.Pow(b.like(m, x), t)) for m in (alpha, beta)]
    is_later = b.Greater(t, b.like(0.0, x))
    safe = b.Where(is_later, corrections[0], one)
    factor = b.Where(is_later, b.Div(b.Sqrt(corrections[1]), safe), one)
    moved = b.Sub(x, b.Div(b.Mul(b.Mul(_real(b, rate, x), factor), first), root))
    shrink = 1.0 - _number(node, "norm_coefficient_post", 0.0)
    return b.Mul(moved, shrink) if shrink != 1.0 else moved, first, second


def _regularize(b: Builder, node: Node, g: Value, x: Value) -> Value:
    factor = _number(node, "norm_coefficient", 0.0)
    return b.Add(b.Mul(x, factor), g) if factor else g


def _real(b: Builder, number: Value, like: Value) -> Value:
    """The rate or step, a scalar or of one element, in the type of a tensor and without rank."""
    if dtype_of(number) != dtype_of(like):
        number = b.Cast(number, to=dtype_of(like))
    return number if not dims(number) else b.Reshape(number, np.zeros(0, np.int64))


def _number(node: Node, name: str, default: float) -> float:
    return float(attribute(node, name, default))
