"""Which tensors of a model are trained: by pattern, by what the exporter says, by their use."""

import fnmatch
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from flow2onnx.dtypes import DType
from flow2onnx.errors import ArgumentError, DTypeError
from flow2onnx.graph import Node
from flow2onnx.graph.nodes import read_values, subgraphs_of
from flow2onnx.graph.schemas import PRODUCTS
from flow2onnx.imported.parameter_names import TensorNames, element_type, is_named_by_torch
from flow2onnx.onnx_io.foreign import ForeignModel
from flow2onnx.trace.call_text import known_names

__all__ = [
    "Parameter",
    "Patterns",
    "check_patterns",
    "choose",
    "depends",
    "real_tensors",
    "uses_of_tensors",
]

Patterns = Sequence[str] | str | None

# Inputs that say how an operator works, by position: no one means to train them.
_SETTINGS: dict[str, frozenset[int]] = {
    "BatchNormalization": frozenset({3, 4}),
    "Clip": frozenset({1, 2}),
    "Dropout": frozenset({1}),
    "NegativeLogLikelihoodLoss": frozenset({2}),
    "OneHot": frozenset({2}),
    "Pad": frozenset({2}),
    "Pow": frozenset({1}),
    "QuantizeLinear": frozenset({1, 2}),
    "DequantizeLinear": frozenset({1, 2}),
    "Range": frozenset({0, 1, 2}),
    "Resize": frozenset({1, 2}),
    "SoftmaxCrossEntropyLoss": frozenset({2}),
}

# Where a vector of one element is the offset of a layer of one unit, say.
_WITH_OFFSETS = (
    "Add", "BatchNormalization", "Conv", "ConvTranspose", "Gemm", "GroupNormalization",
    "InstanceNormalization", "LayerNormalization", "PRelu",
)  # fmt: skip


# Where a tensor that stood in a Constant node is a weight after all.
_WEIGHTS: dict[str, frozenset[int]] = {
    **dict.fromkeys(("Conv", "ConvTranspose", "InstanceNormalization"), frozenset({1, 2})),
    **dict.fromkeys(("BatchNormalization", "GroupNormalization"), frozenset({1, 2})),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), frozenset({1, 2, 3})),
    "Gather": frozenset({0}),
    "Gemm": frozenset({0, 1, 2}),
    "LayerNormalization": frozenset({1, 2}),
    "MatMul": frozenset({0, 1}),
    "PRelu": frozenset({1}),
}


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A tensor of the model: whether it is trained, and why or why not.

    `aliases` are other names of the same weight, which patterns match as well.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    is_trained: bool
    reason: str
    aliases: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


def check_patterns(patterns: Patterns, what: str) -> tuple[str, ...] | None:
    """Patterns as a tuple; None stays None."""
    if patterns is None:
        return None
    given = (patterns,) if isinstance(patterns, str) else tuple(patterns)
    if not all(isinstance(p, str) for p in given):
        raise ArgumentError(f"{what} is {patterns!r}", hint="give names or patterns such as 'fc.*'")
    return given


def choose(
    foreign: ForeignModel, trained: Patterns, frozen: Patterns, known: TensorNames
) -> tuple[Parameter, ...]:
    """The float tensors of a model, each with the decision whether it is trained.

    `trained` are shell patterns of names to train, and `frozen` of names not to; any name of a
    tensor will do, and a pattern without a match raises ArgumentError. Without `trained`, those
    that the exporter calls parameters are trained or, where it says nothing, those that no operator
    takes as a setting, that the exporter did not make itself and that are no single number.
    """
    wanted, held = check_patterns(trained, "trained"), check_patterns(frozen, "frozen")
    uses, dtypes = uses_of_tensors(foreign), real_tensors(foreign)
    placed = _in_weight_places(foreign)
    names = [a for n in dtypes for a in known.of(n)]
    for what, patterns in (("trained", wanted), ("frozen", held)):
        for pattern in patterns or ():
            _check_pattern(pattern, what, names, list(uses))

    def decide(name: str) -> tuple[bool, str]:
        if held and _matches(known.of(name), held):
            return False, "frozen"
        if wanted is not None:
            found = _matches(known.of(name), wanted)
            return found, "chosen" if found else "not chosen"
        if name in foreign.constants and name not in placed:
            return False, "a constant"
        return _usual_decision(foreign, name, uses[name], known)

    found = []
    for name, dtype in dtypes.items():
        is_trained, reason = decide(name)
        found.append(
            Parameter(
                name=name,
                shape=_shape(foreign, name),
                dtype=dtype.name,
                is_trained=is_trained,
                reason=reason,
                aliases=known.aliases.get(name, ()),
            )
        )
    return tuple(found)


def real_tensors(foreign: ForeignModel) -> dict[str, DType]:
    """The tensors of real numbers that something reads, with their element types."""
    uses = uses_of_tensors(foreign)
    dtypes = {name: element_type(t) for name, t in foreign.tensors.items() if name in uses}
    return {n: d for n, d in dtypes.items() if d is not None and d.is_floating_point}


def depends(foreign: ForeignModel, names: Collection[str]) -> bool:
    """True if an output depends on one of the tensors."""
    reached = set(names)
    for node in foreign.graph:
        if any(v is not None and v.name in reached for v in read_values(node)):
            reached.update(str(o.name) for o in node.outputs)
    return any(name in reached for name in foreign.outputs)


def _shape(foreign: ForeignModel, name: str) -> tuple[int, ...]:
    return tuple(int(d) for d in foreign.tensors[name].shape)


def _usual_decision(
    foreign: ForeignModel, name: str, uses: Sequence[tuple[str, int]], known: TensorNames
) -> tuple[bool, str]:
    """The decision about a tensor that no pattern names."""
    kind, shape = foreign.kinds.get(name), _shape(foreign, name)
    if all(i in _SETTINGS.get(op_type, ()) for op_type, i in uses):
        return False, f"a setting of {uses[0][0]}"
    if kind is not None:
        return kind == "PARAMETER", f"the exporter calls it {kind.lower()}"
    if name in foreign.fitted:
        return False, "fitted to the data, not trained"
    if name in known.constants:
        return False, "a constant of the exporter"
    if foreign.producer == "pytorch" and is_named_by_torch(name):
        return True, "a weight"  # a module has it, such as the scale of a residual
    is_offset = any(op_type in _WITH_OFFSETS for op_type, _ in uses)
    if not shape or (math.prod(shape) <= 1 and len(shape) == 1 and not is_offset):
        return False, "a single number"
    return True, "a weight"


def _check_pattern(pattern: str, what: str, names: Sequence[str], others: Sequence[str]) -> None:
    if fnmatch.filter(names, pattern):
        return
    whole = fnmatch.filter(others, pattern)
    if whole:
        raise DTypeError(
            f"{what}={pattern!r}: {whole[0]} is not of a real type", hint="it has no gradient"
        )
    raise ArgumentError(f"{what}={pattern!r} matches no tensor", hint=known_names(pattern, names))


def _matches(names: Sequence[str], patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, p) for name in names for p in patterns)


def _in_weight_places(foreign: ForeignModel) -> set[str]:
    """The values that are read where weights are, offsets added to a product among them."""
    found = set()
    for node in foreign.graph.all_nodes():
        places = _WEIGHTS.get(node.op_type, frozenset())
        makers = [v.producer() if v is not None else None for v in node.inputs]
        if node.op_type == "Add" and any(m is not None and m.op_type in PRODUCTS for m in makers):
            places = frozenset({0, 1})
        found |= {str(v.name) for i, v in enumerate(node.inputs) if v is not None and i in places}
    return found


def uses_of_tensors(foreign: ForeignModel) -> dict[str, list[tuple[str, int]]]:
    """Where each tensor is read: the operators, with the positions."""
    found: dict[str, list[tuple[str, int]]] = {}

    def visit(nodes: "Sequence[Node]") -> None:
        for node in nodes:
            for i, value in enumerate(node.inputs):
                if value is not None and value.name in foreign.tensors:
                    found.setdefault(str(value.name), []).append((node.op_type, i))
            for inner in subgraphs_of(node):
                visit(list(inner))

    visit(list(foreign.graph))
    for name in foreign.outputs:
        if name in foreign.tensors:
            found.setdefault(name, []).append(("output", 0))
    return found
