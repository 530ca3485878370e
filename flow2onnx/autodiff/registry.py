"""The table of gradient rules by ONNX operator. Filled when the rule modules are imported."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from flow2onnx.errors import GradientError
from flow2onnx.graph import Node, Value
from flow2onnx.graph.contrib import CONTRIB
from flow2onnx.graph.nodes import RANDOM_OPERATORS, attribute

__all__ = [
    "DATA_MOVEMENT",
    "NOT_DIFFERENTIABLE",
    "QUANTIZING",
    "SEQUENCE_MAKERS",
    "Expansion",
    "Rule",
    "attribute",
    "contrib_rule_names",
    "expansion",
    "expansion_for",
    "expansion_names",
    "has_rule",
    "no_gradient",
    "rule_for",
    "rule_names",
    "vjp",
]

# rule(b, node, *gradients of its outputs) -> one gradient, or None, for each input;
# NotImplemented for a form that is left to the expansion of the operator
Rule = Callable[..., Sequence[Value | None] | Value]

# expansion(b, node) -> the values that stand for the node's outputs
Expansion = Callable[..., Sequence[Value] | Value]

F = TypeVar("F", bound=Callable[..., Any])
_RULES: dict[str, Rule] = {}
_EXPANSIONS: dict[str, Expansion] = {}

# Operators whose whole numbers stand for real ones, and those that only move them about.
QUANTIZING = frozenset({"DynamicQuantizeLinear", "QuantizeLinear"})
DATA_MOVEMENT = frozenset(
    {"Concat", "Expand", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Transpose",
     "Unsqueeze"}
)  # fmt: skip

# Operators that make sequences: who reads one is followed to the tensors that it holds.
SEQUENCE_MAKERS = frozenset(
    {"SequenceConstruct", "SequenceErase", "SequenceInsert", "SequenceMap", "SplitToSequence"}
)

_LOGIC = "its results are truths"
_WHOLE = "its results are whole numbers"
_PLACES = "its results are positions"
_DRAWN = "its results are drawn, whatever goes in"
_TEXT = "it works on text"
_FIXED = "its results depend on shapes and whole numbers alone"

# Operators that no gradient passes, each with the reason.
NOT_DIFFERENTIABLE: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "And", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual",
            "Not", "OptionalHasElement", "Or", "Xor",
        ),
        _LOGIC,
    ),
    **dict.fromkeys(
        (
            "BitCast", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor",
            "ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul", "SequenceLength",
            "Shape", "Size",
        ),
        _WHOLE,
    ),
    **dict.fromkeys(("ArgMax", "ArgMin", "NonMaxSuppression", "NonZero"), _PLACES),
    **dict.fromkeys(RANDOM_OPERATORS - {"Dropout"}, _DRAWN),
    **dict.fromkeys(
        ("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer"),
        _TEXT,
    ),
    **dict.fromkeys(
        (
            "BlackmanWindow", "Constant", "ConstantOfShape", "EyeLike", "HammingWindow",
            "HannWindow", "MelWeightMatrix", "SequenceEmpty",
        ),
        _FIXED,
    ),
    "ImageDecoder": "it reads bytes",
    "Optional": "what it holds is not followed: give the tensor itself",
    "Range": "its ends are taken as given: its length depends on them",
    "Unique": "which elements are left depends on equality alone",
}  # fmt: skip


def vjp(*op_types: str) -> Callable[[Rule], Rule]:
    """Register the rule of one operator or of several with the same gradient."""

    return _adder(_RULES, op_types)


def expansion(*op_types: str) -> Callable[[Expansion], Expansion]:
    """Register how an operator without a rule is made of operators that have one."""

    return _adder(_EXPANSIONS, op_types)


def _adder(table: dict[str, F], op_types: Sequence[str]) -> Callable[[F], F]:
    def add(function: F) -> F:
        for op_type in op_types:
            assert op_type not in table, f"{op_type} is there twice"
            table[op_type] = function
        return function

    return add


def expansion_for(op_type: str) -> Expansion | None:
    """The expansion of an operator into others, if one is registered."""
    return _EXPANSIONS.get(op_type)


def expansion_names() -> list[str]:
    """The operators with an expansion of ours."""
    return sorted(_EXPANSIONS)


def rule_for(op_type: str) -> Rule | None:
    """The rule of an operator, if it has one."""
    return _RULES.get(op_type)


def has_rule(op_type: str) -> bool:
    """True if the operator has a rule."""
    return op_type in _RULES


def rule_names() -> list[str]:
    """The operators of the standard with a rule."""
    return sorted(set(_RULES) - set(CONTRIB))


def contrib_rule_names() -> list[str]:
    """The operators of the runtime beside the standard with a rule."""
    return sorted(set(_RULES) & set(CONTRIB))


def no_gradient(n: Node, form: str = "") -> GradientError:
    """The error for an operator without a gradient, or without one in this `form`."""
    what = f"{n.op_type} {form}" if form else n.op_type
    return GradientError(
        f"GradientFunctionNotFound: {what} has no gradient",
        op=n.name,
        source=n.meta.get("source"),
        hint="keep it off the way from the variables to the loss",
    )
