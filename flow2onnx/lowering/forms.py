"""Lowerings: computations that have several forms, and how one of them is picked.

A lowering names its forms once, with the rule that picks by shape. What is asked for by name goes
before what was measured, and that before the rule.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np

from flow2onnx.dtypes import by_name
from flow2onnx.errors import ArgumentError
from flow2onnx.graph import Builder, Graph, Node, Value
from flow2onnx.graph.model import model_bytes, model_of
from flow2onnx.graph.types import bounds_of, constant_of, dtype_of, is_static

__all__ = [
    "BY_RULE",
    "Choice",
    "Lowering",
    "Picks",
    "Question",
    "check_form_names",
    "choose_forms",
    "lowering",
    "lowerings",
    "surviving_choices",
    "trial_bytes",
]

# Constants of more elements are data, on which no form depends.
_LARGEST_CONTENT = 64

# form(b, at, *operands) -> the value, or the values, of the lowering
Form = Callable[..., Any]  # what it takes and gives is each lowering's own
Why = Literal["static rule", "tuned", "asked"]


@dataclass(frozen=True)
class Tensor:
    """An operand's element type and shape, and its content where that is constant."""

    dtype: str
    shape: tuple[int, ...]
    content: bytes | None = field(default=None, repr=False)

    @classmethod
    def of(cls, value: Value | None) -> "Tensor | None":
        """The description of a value."""
        if value is None:
            return None
        known = constant_of(value)
        content = None if known is None or known.size > _LARGEST_CONTENT else known.tobytes()
        return cls(dtype_of(value).name, bounds_of(value), content)

    def __str__(self) -> str:
        held = "" if self.content is None else f"={self.content.hex()[:64]}"
        return f"{self.dtype}[{','.join(map(str, self.shape))}]{held}"


@dataclass(frozen=True)
class NodeType:
    """A node as far as its lowering depends on it."""

    op_type: str
    attributes: tuple[tuple[str, Any], ...]
    inputs: tuple[Tensor | None, ...]
    outputs: int

    @classmethod
    def of(cls, node: Node) -> "NodeType":
        """The description of a node."""
        attributes = sorted((k, _hashable(a.value)) for k, a in node.attributes.items())
        inputs = tuple(Tensor.of(v) for v in node.inputs)
        return cls(node.op_type, tuple(attributes), inputs, len(node.outputs))

    def __str__(self) -> str:
        attributes = ", ".join(f"{k}={_text(v)}" for k, v in self.attributes)
        return f"{self.op_type}<{attributes}>({', '.join(map(str, self.inputs))})"


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return "x".join(map(str, value)) or "()"
    if isinstance(value, NodeType) or not hasattr(value, "__dataclass_fields__"):
        return str(value)
    parts = (f"{f.name}={_text(getattr(value, f.name))}" for f in fields(value))  # type: ignore[arg-type]  # just asked
    return ", ".join(parts)


@dataclass(frozen=True)
class Question:
    """One lowering at one place: which form? `forms` are those that are valid there."""

    lowering: str
    at: Any  # a frozen dataclass or a `NodeType`: what the forms need to know besides operands
    operands: tuple[Tensor | None, ...]
    forms: tuple[str, ...]
    is_static: bool = True

    @property
    def key(self) -> str:
        """The question in one line, equal for equal questions."""
        at = "" if self.at is None else f" {_text(self.at)};"
        return f"{self.lowering}:{at} {', '.join(map(str, self.operands))}"


@dataclass(frozen=True)
class Choice:
    """The form that a lowering took at one place, which `node` names, and why.

    `rule` is the form that the static rule picks there.
    """

    node: str
    question: Question
    form: str
    why: Why
    rule: str


@dataclass(frozen=True)
class Picks:
    """Forms `asked` for by name of the lowering, and `tuned` by key of the question.

    Where neither has one, the rule for the `provider` picks, by its tag.
    """

    asked: Mapping[str, str] = field(default_factory=dict)
    tuned: Mapping[str, str] = field(default_factory=dict)
    provider: str = "cpu"


BY_RULE = Picks()
_CHOICE_KEY = "choice"  # on the nodes that make the results of a lowering: its place in the record
_PICKS: ContextVar[tuple[Picks, list[Choice]]] = ContextVar("flow2onnx_picks")
_LOWERINGS: dict[str, "Lowering"] = {}


@dataclass(frozen=True)
class _Form:
    build: Form
    when: Callable[..., bool]


class Lowering:
    """Something that has several forms. Calling it appends the one that is picked.

    `rule(at, *operands)` gives the name of a form, `on_cuda` where the provider is CUDA and that
    is another. With `forward`, a form may change what the
    node `at` itself costs, so that trials run that too. `limit(at)`: whole numbers among the
    operands lie below it.
    """

    def __init__(
        self,
        name: str,
        rule: Callable[..., str],
        *,
        on_cuda: Callable[..., str] | None = None,
        forward: bool = False,
        limit: Callable[[Any], int] | None = None,
    ) -> None:
        assert name not in _LOWERINGS, f"{name} is there twice"
        self.name, self.forward, self.limit = name, forward, limit
        self._rules = {"cuda": on_cuda or rule}
        self._rule = rule
        self.forms: dict[str, _Form] = {}
        _LOWERINGS[name] = self

    def form(
        self, name: str, when: Callable[..., bool] = lambda *_: True
    ) -> Callable[[Form], Form]:
        """Register a form, valid where `when(at, *operands)` holds."""

        def add(build: Form) -> Form:
            assert name not in self.forms, f"{self.name} has form {name} twice"
            self.forms[name] = _Form(build, when)
            return build

        return add

    def valid(self, at: Any, *operands: Value | None) -> tuple[str, ...]:
        """The forms that give the right result here."""
        return tuple(name for name, f in self.forms.items() if f.when(at, *operands))

    def __call__(self, b: Builder, at: Any, *operands: Value | None) -> Any:
        """Append the form that is picked here, and record the choice."""
        question = self._question(at, operands)
        picks, record = _PICKS.get((BY_RULE, []))
        rule = self._rules.get(picks.provider, self._rule)(at, *operands)
        assert rule in question.forms, f"{self.name}: the rule picks {rule}, which is not valid"
        form, why = self._pick(picks, question, rule)
        made = self.forms[form].build(b, at, *operands)
        for node in filter(None, (v.producer() for v in _values(made))):
            node.meta[_CHOICE_KEY] = len(record)
        record.append(Choice(b.prefix, question, form, why, rule))
        return made

    def _question(self, at: Any, operands: Sequence[Value | None]) -> Question:
        forms = self.valid(at, *operands)
        values = [*operands, *(at.inputs if isinstance(at, Node) else ())]
        known = all(v is None or is_static(v) for v in values)
        about = NodeType.of(at) if isinstance(at, Node) and known else at if known else None
        types = tuple(Tensor.of(v) for v in operands) if known else ()
        return Question(self.name, about, types, forms, known)

    def _pick(self, picks: Picks, question: Question, rule: str) -> tuple[str, Why]:
        asked = picks.asked.get(self.name)
        if asked in question.forms:
            return asked, "asked"
        tuned = picks.tuned.get(question.key) if picks.tuned and question.is_static else None
        if tuned in question.forms:
            return tuned, "tuned"
        return rule, "static rule"


@contextmanager
def choose_forms(picks: Picks = BY_RULE, before: Sequence[Choice] = ()) -> Iterator[list[Choice]]:
    """Let lowerings inside follow `picks`; gives the list of what they chose, as it grows.

    It begins with what was chosen `before`, for the same graph.
    """
    record: list[Choice] = list(before)
    token = _PICKS.set((picks, record))
    try:
        yield record
    finally:
        _PICKS.reset(token)


def lowerings() -> list[str]:
    """The names of all lowerings."""
    return sorted(_LOWERINGS)


def lowering(name: str) -> Lowering:
    """The lowering of that name."""
    return _LOWERINGS[name]


def check_form_names(asked: Mapping[str, str], source: str | None = None) -> None:
    """Raise for a lowering, or a form of it, that there is not."""
    for name, form in asked.items():
        if name not in _LOWERINGS:
            raise ArgumentError(
                f"{name!r} is no lowering with several forms",
                source=source,
                hint=f"there are {', '.join(lowerings())}",
            )
        if form not in _LOWERINGS[name].forms:
            raise ArgumentError(
                f"lowering {name} has no form {form!r}",
                source=source,
                hint=f"it has {', '.join(_LOWERINGS[name].forms)}",
            )


def surviving_choices(choices: Sequence[Choice], graph: Graph) -> tuple[Choice, ...]:
    """Those of the choices whose results a graph still computes, after its dead code is gone."""
    marks = {node.meta.get(_CHOICE_KEY) for node in graph.all_nodes()}
    return tuple(choice for i, choice in enumerate(choices) if i in marks)


# --- trials --------------------------------------------------------------------------------------
def trial_bytes(question: Question, form: str, opset: int = 21) -> bytes:
    """A model of one form alone, whose inputs are the operands: for timing and comparing."""
    assert question.is_static, f"{question.lowering}: sizes are known only at run time"
    b, asked = Builder(opset), lowering(question.lowering)
    with choose_forms():
        at = _node(b, question.at) if isinstance(question.at, NodeType) else question.at
        operands = [_operand(b, f"g{i}", t) for i, t in enumerate(question.operands)]
        made = asked.forms[form].build(b, at, *operands)
    for i, value in enumerate(_values(made)):
        b.output(value, f"out/{i}")
    if asked.forward:
        b.output(at.outputs[0], "forward")
    return model_bytes(model_of(b.graph))


def _values(made: Any) -> list[Value]:
    return [v for v in (made if isinstance(made, tuple | list) else (made,)) if v is not None]


def _node(b: Builder, of: NodeType) -> Node:
    inputs = [_operand(b, f"x{i}", t) for i, t in enumerate(of.inputs)]
    made = b.emit(of.op_type, inputs, dict(of.attributes), of.outputs)[0].producer()
    assert made is not None, "a node made its output"
    return made


def _operand(b: Builder, name: str, of: Tensor | None) -> Value | None:
    if of is None:
        return None
    dtype = by_name(of.dtype)
    if of.content is None:
        return b.input(name, of.shape, dtype)
    return b.const(np.frombuffer(of.content, dtype.numpy).reshape(of.shape))
