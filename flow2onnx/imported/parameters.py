"""Which tensors of a model are trained: by pattern, by what the exporter says, by their use."""

import fnmatch
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flow2onnx.dtypes import DType, by_code
from flow2onnx.errors import ArgumentError, DTypeError
from flow2onnx.graph import Node
from flow2onnx.graph.nodes import read_values, subgraphs_of
from flow2onnx.onnx_io.append import value_like
from flow2onnx.onnx_io.foreign import ForeignModel
from flow2onnx.trace.call_text import known_names

__all__ = ["Parameter", "Patterns", "check_patterns", "choose", "depends", "separate_uses"]

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


@dataclass(frozen=True)
class Parameter:
    """A tensor of the model: whether it is trained, and why or why not."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    is_trained: bool
    reason: str

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


def choose(foreign: ForeignModel, trained: Patterns, frozen: Patterns) -> tuple[Parameter, ...]:
    """The float tensors of a model, each with the decision whether it is trained.

    `trained` are shell patterns of names to train, and `frozen` of names not to; a pattern
    without a match raises ArgumentError. Without `trained`, those that the exporter calls
    parameters are trained or, where it says nothing, those that no operator takes as a setting and
    that are no single number.
    """
    wanted, held = check_patterns(trained, "trained"), check_patterns(frozen, "frozen")
    uses = _uses(foreign)
    dtypes = {name: _dtype(t) for name, t in foreign.tensors.items() if name in uses}
    names = [n for n, d in dtypes.items() if d is not None and d.is_floating_point]
    for what, patterns in (("trained", wanted), ("frozen", held)):
        for pattern in patterns or ():
            _check_pattern(pattern, what, names, list(dtypes))
    return tuple(_parameter(foreign, n, dtypes[n], uses[n], wanted, held) for n in names)


def depends(foreign: ForeignModel, names: Collection[str]) -> bool:
    """True if an output depends on one of the tensors."""
    reached = set(names)
    for node in foreign.graph:
        if any(v is not None and v.name in reached for v in read_values(node)):
            reached.update(str(o.name) for o in node.outputs)
    return any(name in reached for name in foreign.outputs)


def separate_uses(foreign: ForeignModel) -> tuple[ForeignModel, tuple[str, ...]]:
    """The model with a tensor for each use where one of equal numbers has several, and their names.

    Exporters merge tensors of equal content, such as the zeros that all offsets begin with; trained
    as one they would stay equal. A tensor of different numbers is shared on purpose.
    """
    tensors, kinds, names = dict(foreign.tensors), dict(foreign.kinds), []
    taken = {*tensors, *foreign.outputs, *(str(v.name) for v in foreign.inputs)}
    taken |= {str(o.name) for node in foreign.graph.all_nodes() for o in node.outputs}
    for value in [*foreign.graph.inputs, *foreign.graph.initializers.values()]:
        name, uses = str(value.name), sorted(value.uses(), key=lambda u: u.node.name or "")
        if name not in tensors or len(uses) < 2 or not _is_uniform(tensors[name]):
            continue
        weights = [u for u in uses if u.idx not in _SETTINGS.get(u.node.op_type, ())]
        for use in weights[1:]:
            new = f"{name}/{use.node.name or use.node.op_type}"
            if new in taken:
                continue
            taken.add(new)
            use.node.replace_input_with(use.idx, value_like(value, new))
            tensors[new] = tensors[name]
            if name in kinds:
                kinds[new] = kinds[name]
        if len(weights) > 1:
            names.append(name)
    return replace(foreign, tensors=tensors, kinds=kinds), tuple(names)


def _is_uniform(tensor: Any) -> bool:
    dtype = _dtype(tensor)
    if dtype is None or not dtype.is_floating_point or tensor.size < 2:
        return False
    content = tensor.numpy().ravel()
    return bool((content == content[0]).all())


def _parameter(
    foreign: ForeignModel,
    name: str,
    dtype: DType | None,
    uses: list[tuple[str, int]],
    wanted: tuple[str, ...] | None,
    held: tuple[str, ...] | None,
) -> Parameter:
    assert dtype is not None, f"{name} is of real numbers"
    shape = tuple(int(d) for d in foreign.tensors[name].shape)
    decision = _decision(name, shape, foreign.kinds.get(name), uses, wanted, held)
    return Parameter(name, shape, dtype.name, *decision)


def _decision(
    name: str,
    shape: tuple[int, ...],
    kind: str | None,
    uses: list[tuple[str, int]],
    wanted: tuple[str, ...] | None,
    held: tuple[str, ...] | None,
) -> tuple[bool, str]:
    if held and _matches(name, held):
        return False, "frozen"
    if wanted is not None:
        found = _matches(name, wanted)
        return found, "chosen" if found else "not chosen"
    if all(i in _SETTINGS.get(op_type, ()) for op_type, i in uses):
        return False, f"a setting of {uses[0][0]}"
    if kind is not None:
        return kind == "PARAMETER", f"the exporter calls it {kind.lower()}"
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


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, p) for p in patterns)


def _dtype(tensor: Any) -> DType | None:
    try:
        return by_code(int(tensor.dtype))
    except DTypeError:
        return None


def _uses(foreign: ForeignModel) -> dict[str, list[tuple[str, int]]]:
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
