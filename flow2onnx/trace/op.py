"""`@op`: a lowering becomes the OneFlow operator that users call in a job."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Any, Protocol, TypeVar, Union, cast, get_args, get_origin

import numpy as np

from flow2onnx.errors import ArgumentError, FlowError
from flow2onnx.graph import Builder, Value
from flow2onnx.source import (
    is_called_by_user,
    is_traceback_full,
    raised_inside,
    user_frame,
)
from flow2onnx.trace.blob import Blob, unwrap, wrap
from flow2onnx.trace.constants import array_constant, number_constant
from flow2onnx.trace.context import current_job
from flow2onnx.trace.guessed_release import GuessedRelease, Layout, changed_layout
from flow2onnx.trace.job import Job, Region
from flow2onnx.trace.registry import add_hint, bind, register
from flow2onnx.trace.spec import JobSpec
from flow2onnx.trace.sub_steps import at_each_step, sub_steps
from flow2onnx.trace.symbols import annotated_signature, symbols
from flow2onnx.typing.pytree import elements

__all__ = ["Operator", "composite", "op"]

Rule = Callable[..., Any]
# What Python raises when an argument is of a type that nobody expected.
_MISFITS = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError)


T = TypeVar("T")


class Operator(Protocol[T]):
    """An operator: users call it with blobs, in the signature of their release; we call `lower`."""

    lower: Callable[..., T]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Emit the operator into the job being traced."""


@dataclass(frozen=True)
class _Check:
    """A requirement of an argument, in words and as a test."""

    kind: str
    fits: Callable[[Any], bool]


@dataclass(frozen=True)
class _Called:
    """The name that an operator is called by, and what nodes without a name are called after."""

    name: str
    kind: str


@dataclass(frozen=True)
class _Signatures:
    """The signature users see, those of earlier releases, newest first, and those of later ones.

    `own` are the parameters of the function behind it. A name that it does not know stands for
    the parameter at the same place: releases call one thing by several names.
    """

    own: tuple[inspect.Parameter, ...]
    symbol: str
    current: inspect.Signature
    earlier: tuple[tuple[str, inspect.Signature], ...] = ()
    later: tuple[tuple[str, inspect.Signature], ...] = ()
    checks: Mapping[str, _Check] = field(init=False)
    names: Mapping[str, str] = field(init=False)
    layout: Layout | None = field(init=False)

    def __post_init__(self) -> None:
        known = [p.name for p in self.own]
        others = (self.current, *(s for _, s in (*self.earlier, *self.later)))
        names = {n: known[i] for s in others for i, n in enumerate(s.parameters) if n not in known}
        object.__setattr__(self, "checks", _checks(self.own))
        layout = changed_layout(self.symbol, self.current, self.earlier)
        object.__setattr__(self, "layout", layout)
        object.__setattr__(self, "names", names | {n: n for n in known})

    def bind(self, job: Job, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments, in the release that the job speaks, by the function's own names."""
        chosen = self.current
        for until, signature in self.earlier:
            if job.spec.is_before(until):
                chosen = signature
        bound = _bound([chosen, *(s for _, s in self.later)], args, kwargs)
        given = {self.names[name]: value for name, value in bound.arguments.items()}
        found = _blobs(given)
        for name, value in bound.arguments.items():
            check = self.checks.get(self.names[name])
            if check is not None:
                given[self.names[name]] = _checked(job, name, value, check, found)
        if job.spec.guess is not None and is_called_by_user(__file__):
            self._note_release(job.spec, job.spec.guess, args, kwargs, given)
        return given

    def _note_release(
        self,
        spec: JobSpec,
        guess: GuessedRelease,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        given: Mapping[str, Any],
    ) -> None:
        """Note what a call of the user's says of the release, and what it leaves to it."""
        known = set(self.current.parameters)
        newer = {n: u for u, s in self.earlier[::-1] for n in known - {*s.parameters}}
        latest = {n: r for r, s in self.later for n in {*s.parameters} - known}
        guess.use(self.symbol, tuple(kwargs), newer | latest)
        if self.layout is not None:
            by_place = [*self.current.parameters][: len(args)]
            if self.layout.parameter not in (*kwargs, *by_place):
                guess.leave(self.layout, spec.release, given, user_frame())


def _checked(job: Job, name: str, value: Any, check: _Check, blobs: list[Blob]) -> Any:
    """An argument that is to be a blob or a list of them; arrays become constants."""
    if check.fits(value):
        return value
    if isinstance(value, np.ndarray | np.generic):
        value = array_constant(job, np.asarray(value), blobs)
    elif isinstance(value, int | float) and not isinstance(value, bool) and blobs:
        value = number_constant(job, value, blobs[-1])
    elif isinstance(value, list | tuple):
        value = [array_constant(job, v, blobs) if isinstance(v, np.ndarray) else v for v in value]
    if not check.fits(value):
        raise ArgumentError(
            f"{name} is {check.kind}, got {value!r}",
            hint="pass what a parameter of the job, an operator or flow.get_variable gave, "
            "or a numpy array as a constant",
        )
    return value


def _bound(
    signatures: list[inspect.Signature], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> inspect.BoundArguments:
    """The arguments in the first of the signatures that takes them."""
    for signature in signatures[1:]:
        # a keyword that is new, or what is no text where a text stands by position, tells a later
        # release's call
        new = set(kwargs) - set(signatures[0].parameters)
        if (new or _is_shifted(signatures[0], args)) and set(kwargs) <= set(signature.parameters):
            signatures = [signature]
    return bind(signatures[0], args, kwargs)


def _is_shifted(signature: inspect.Signature, args: tuple[Any, ...]) -> bool:
    pairs = zip(signature.parameters.values(), args, strict=False)
    return any(isinstance(p.default, str) and not isinstance(a, str) for p, a in pairs)


def _checks(parameters: Sequence[inspect.Parameter]) -> dict[str, _Check]:
    """The requirement of each parameter that is a blob or a list of them."""
    found = {p.name: _check(p.annotation) for p in parameters}
    return {name: check for name, check in found.items() if check is not None}


def _check(annotation: Any) -> _Check | None:
    """None for an annotation that says nothing of blobs, or allows something else besides."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if annotation is Blob:
        return _Check("a blob", lambda given: isinstance(given, Blob))
    if origin in (Union, UnionType):
        return _either([_check(p) for p in parts if p is not NoneType], NoneType in parts)
    if origin in (list, Sequence) and parts == (Blob,):
        return _Check("a list of blobs", _is_list_of_blobs)
    return None


def _either(checks: list[_Check | None], is_optional: bool) -> _Check | None:
    known = [check for check in checks if check is not None]
    if len(known) < len(checks):
        return None
    return _Check(
        " or ".join(check.kind for check in known),
        lambda given: (given is None and is_optional) or any(c.fits(given) for c in known),
    )


def _is_list_of_blobs(given: Any) -> bool:
    return isinstance(given, list | tuple) and all(isinstance(g, Blob) for g in given)


def op(
    *names: str,
    vjp: Rule | None = None,
    catalogued: bool = False,
    is_public: bool = True,
    is_static: bool = False,
) -> Callable[[Callable[..., Any]], Operator[Value]]:
    """Publish a lowering ``f(b, values..., attributes...)`` under its OneFlow names.

    `vjp` replaces the gradient composed from the nodes: ``rule(b, inputs, outputs, *gradients)``
    returns one gradient, or None, for each blob argument in order. The signatures of earlier
    releases are those in the catalogue, and those of later ones too, taken when a call has a
    keyword that only they know: a keyword-only parameter of the lowering, which users do not see.
    With `catalogued` the names and defaults that users see are those of OneFlow's signature there,
    in the order of the lowering's parameters. An operator that is not public is a part of others;
    the results of one that is static have their shape at every call, whatever goes in.
    """

    def publish(lower: Callable[..., Any]) -> Operator[Value]:
        signatures = _signatures(lower, names[0], catalogued)

        def make(called: str) -> Callable[..., Any]:
            @functools.wraps(lower)
            def public(*args: Any, **kwargs: Any) -> Any:
                __tracebackhide__ = True
                job = current_job(called)
                made = _Called(called, names[0].rpartition(".")[2])
                result = _call(job, made, lower, signatures, vjp, args, kwargs)
                return wrap(unwrap(result)) if is_static else result

            return public

        return _publish(make, lower, signatures.current, names, is_public)

    return publish


def composite(
    *names: str,
    catalogued: bool = False,
    like: Operator[Any] | None = None,
    is_public: bool = True,
) -> Callable[[Callable[..., T]], Operator[T]]:
    """Publish a function over blobs: it makes variables and calls operators, but emits no node.

    `catalogued` is that of `op`. A function that hands further arguments on to the operator `like`
    takes them by ``**``; its signature is the catalogue's too.
    """

    def publish(function: Callable[..., T]) -> Operator[T]:
        signature = inspect.signature(function)
        others = inspect.signature(like.lower).parameters if like else {}
        known = {**others, **signature.parameters}
        own = tuple(p for p in known.values() if p.kind is not p.VAR_KEYWORD)
        symbol = symbols().get(names[0])
        shown = _shown(names[0], own, signature) if catalogued or like else signature
        signatures = _Signatures(
            own, names[0], shown, symbol.signatures("before") if symbol else ()
        )

        def make(called: str) -> Callable[..., Any]:
            @functools.wraps(function)
            def public(*args: Any, **kwargs: Any) -> Any:
                __tracebackhide__ = True
                job = current_job(called)
                try:
                    return function(**signatures.bind(job, args, kwargs))
                except FlowError as error:
                    add_hint(error, called)
                    raise error.located(job.spec.name, called, user_frame()) from None
                except _MISFITS as error:
                    if not raised_inside(error):  # by a function of the user's
                        raise
                    found = _misfit(error, signatures)
                    raise found.located(job.spec.name, called, user_frame()) from _cause(error)

            return public

        return _publish(make, function, shown, names, is_public)

    return publish


def _publish(
    make: Callable[[str], Callable[..., Any]],
    lower: Callable[..., T],
    shown: inspect.Signature,
    names: Sequence[str],
    is_public: bool,
) -> Operator[T]:
    """The operator under the first of its names; each name has a function whose errors say it."""
    made = [cast(Operator[T], make(name)) for name in names]
    for name, operator in zip(names, made, strict=True):
        operator.lower = lower
        function: Any = operator
        function.__signature__ = shown  # for help() and tests
        function.__name__ = function.__qualname__ = name.rpartition(".")[2]
        if is_public:
            register(name, operator)
    return made[0]


def _signatures(lower: Callable[..., Any], name: str, catalogued: bool) -> _Signatures:
    signature, symbol = inspect.signature(lower), symbols().get(name)
    own = tuple(
        p.replace(annotation=_as_users_see(p.annotation))
        for p in list(signature.parameters.values())[1:]
    )
    older, newer = (symbol.signatures(w) if symbol else () for w in ("before", "from"))
    hidden = {p for _, s in newer for p in s.parameters} if newer else set[str]()
    seen = [p for p in own if p.name not in hidden or p.kind is not p.KEYWORD_ONLY]
    returned = _as_users_see(signature.return_annotation)
    current = signature.replace(parameters=seen, return_annotation=returned)
    if catalogued and symbol is not None:
        current = _shown(symbol.name, seen, current)
    return _Signatures(own, name, current, older, newer)


def _shown(
    name: str, own: Sequence[inspect.Parameter], signature: inspect.Signature
) -> inspect.Signature:
    """The catalogue's signature of an operator, annotated as the function's own."""
    shown = annotated_signature(name, own)
    return shown.replace(return_annotation=signature.return_annotation)


def _as_users_see(annotation: Any) -> Any:
    """The annotation of a lowering with blobs for values."""
    if annotation is Value:
        return Blob
    parts = get_args(annotation)
    shown = tuple(map(_as_users_see, parts))
    if shown == parts:
        return annotation
    origin = get_origin(annotation)
    return Union[shown] if origin in (Union, UnionType) else origin[shown]  # noqa: UP007


def _call(
    job: Job,
    called: _Called,
    lower: Callable[..., Any],
    signatures: _Signatures,
    vjp: Rule | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    source = user_frame()
    try:
        arguments = signatures.bind(job, args, kwargs)
        emit = functools.partial(_emit, job, called.kind, lower, vjp, source)
        count = sub_steps(arguments)
        return emit(arguments) if count is None else at_each_step(count, arguments, emit)
    except FlowError as error:
        raise add_hint(error, called.name).located(job.spec.name, called.name, source) from None
    except _MISFITS as error:
        found = _misfit(error, signatures).located(job.spec.name, called.name, source)
        raise found from _cause(error)


def _emit(
    job: Job,
    kind: str,
    lower: Callable[..., Any],
    vjp: Rule | None,
    source: str | None,
    arguments: dict[str, Any],
) -> Any:
    """The blobs of the operator's nodes, which are emitted."""
    name = job.name_op(arguments.get("name"), kind)
    with job.b.under(name, source):
        start = len(job.b.nodes)
        blobs = _blobs(arguments)
        for blob in blobs:
            job.check_own(blob.value, "blob")
        result = lower(job.b, **unwrap(arguments))
        if vjp is not None:
            _override(job, vjp, arguments, result, start)
    is_dynamic = any(blob.is_dynamic for blob in blobs)
    return wrap(_name_results(job.b, name, result, start), is_dynamic)


def _cause(error: Exception) -> Exception | None:
    """The cause to show: the error inside the compiler, if that is asked for."""
    return error if is_traceback_full() else None


def _misfit(error: Exception, signatures: _Signatures) -> ArgumentError:
    """The error of an argument of a type that the operator cannot use."""
    return ArgumentError(
        f"an argument is of the wrong type: {error}",
        hint=f"the signature is {signatures.current}",
    )


def _blobs(arguments: dict[str, Any]) -> list[Blob]:
    """The blobs among the arguments, those in lists too."""
    return [a for a in elements(arguments) if isinstance(a, Blob)]


def _override(job: Job, vjp: Rule, arguments: dict[str, Any], result: Any, start: int) -> None:
    """Remember that everything since node `start` has the gradient `vjp`."""
    inputs = tuple(a.value for a in arguments.values() if isinstance(a, Blob))
    outputs = tuple(result) if isinstance(result, list | tuple) else (result,)
    if len(job.b.nodes) > start:
        job.add_region(Region(inputs, outputs, vjp), start)


def _name_results(b: Builder, name: str, result: Any, start: int) -> Any:
    """Call what the operator made ``<name>/out`` (``out_0``, …); the rest keeps its name."""
    made = set(b.nodes[start:])
    several = isinstance(result, list | tuple)
    for i, value in enumerate(result if several else [result]):
        if isinstance(value, Value) and value.producer() in made:
            b.rename(value, f"{name}/out_{i}" if several else f"{name}/out")
    return result
