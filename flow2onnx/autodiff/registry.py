"""The table of gradient rules by ONNX operator. Filled when the rule modules are imported."""

from collections.abc import Callable, Sequence
from typing import Any

from flow2onnx.errors import GradientError
from flow2onnx.graph import Node, Value

__all__ = [
    "NOT_DIFFERENTIABLE",
    "Rule",
    "attribute",
    "has_rule",
    "no_gradient",
    "rule_for",
    "rule_names",
    "vjp",
]

# rule(b, node, *gradients of its outputs) -> one gradient, or None, for each input
Rule = Callable[..., Sequence[Value | None] | Value]

_RULES: dict[str, Rule] = {}

# No gradient passes: whole numbers, truths, positions, draws.
NOT_DIFFERENTIABLE = frozenset(
    {
        "And", "ArgMax", "ArgMin", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr",
        "BitwiseXor", "ConstantOfShape", "Equal", "EyeLike", "Greater",
        "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "NonZero", "Not", "OneHot", "Or",
        "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Range",
        "Shape", "Size", "Unique", "Xor",
    }
)  # fmt: skip


def vjp(*op_types: str) -> Callable[[Rule], Rule]:
    """Register the rule of one operator or of several with the same gradient."""

    def add(rule: Rule) -> Rule:
        for op_type in op_types:
            assert op_type not in _RULES, f"{op_type} has two rules"
            _RULES[op_type] = rule
        return rule

    return add


def rule_for(op_type: str) -> Rule | None:
    """The rule of an operator, if it has one."""
    return _RULES.get(op_type)


def has_rule(op_type: str) -> bool:
    """Whether gradients pass this operator."""
    return op_type in _RULES


def rule_names() -> list[str]:
    """The operators with a rule."""
    return sorted(_RULES)


def no_gradient(n: Node, form: str = "") -> GradientError:
    """The error for an operator without a gradient, or without one in this `form`."""
    what = f"{n.op_type} {form}" if form else n.op_type
    return GradientError(
        f"GradientFunctionNotFound: {what} has no gradient",
        op=n.name,
        source=n.meta.get("source"),
        hint="keep it off the way from the variables to the loss",
    )


def attribute(n: Node, name: str, default: Any = None) -> Any:
    """An attribute of a node, as Python value."""
    found = n.attributes.get(name)
    return default if found is None else found.value
