"""`@op`: a lowering becomes the OneFlow operator that users call in a job."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Protocol, TypeVar, Union, cast, get_args, get_origin

from flow2onnx.errors import ArgumentError, FlowError
from flow2onnx.graph import Builder, Value
from flow2onnx.source import user_frame
from flow2onnx.trace.blob import Blob, unwrap, wrap
from flow2onnx.trace.context import current_job
from flow2onnx.trace.job import Job, Region
from flow2onnx.trace.registry import bind, register
from flow2onnx.typing.pytree import elements

__all__ = ["Operator", "composite", "op"]

Rule = Callable[..., Any]
_NONE: Mapping[str, str] = MappingProxyType({})


T = TypeVar("T")


class Operator(Protocol[T]):
    """What users call with blobs, in the signature of their release; ours call `lower` directly."""

    lower: Callable[..., T]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Emit the operator into the job being traced."""


@dataclass(frozen=True)
class _Check:
    """What an argument has to be, and whether it is."""

    kind: str
    fits: Callable[[Any], bool]


@dataclass(frozen=True)
class _Signatures:
    """The signature users see, those of earlier releases, newest first, and those of later ones.

    `hidden` are parameters that only later releases have.
    """

    current: inspect.Signature
    earlier: tuple[tuple[str, inspect.Signature], ...] = field(default=())
    later: tuple[tuple[str, inspect.Signature], ...] = field(default=())
    hidden: tuple[inspect.Parameter, ...] = field(default=())
    checks: Mapping[str, _Check] = field(init=False)
    taken: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        parameters = [*self.current.parameters.values(), *self.hidden]
        object.__setattr__(self, "checks", _checks(parameters))
        object.__setattr__(self, "taken", frozenset(p.name for p in parameters))

    def bind(self, job: Job, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name, in the release that the job speaks."""
        chosen = self.current
        for until, signature in self.earlier:
            if job.spec.is_before(until):
                chosen = signature
        bound = _bound([chosen, *(s for _, s in self.later)], args, kwargs)
        for name, check in self.checks.items():
            if name in bound.arguments and not check.fits(bound.arguments[name]):
                raise ArgumentError(
                    f"{name} is {check.kind}, got {bound.arguments[name]!r}",
                    hint="pass what a parameter of the job, an operator or flow.get_variable gave",
                )
        return bound.arguments


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
    """What is checked of each parameter that is a blob or a list of them."""
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
    earlier: Mapping[str, str] = _NONE,
    later: Mapping[str, str] = _NONE,
    is_public: bool = True,
    is_static: bool = False,
) -> Callable[[Callable[..., Any]], Operator[Value]]:
    """Publish a lowering ``f(b, values..., attributes...)`` under its OneFlow names.

    `vjp` replaces the gradient composed from the nodes: ``rule(b, inputs, outputs, *gradients)``
    returns one gradient, or None, for each blob argument in order. `earlier` maps a release to the
    signature that held before it, as text; `later` one to that which holds from it on, taken when
    a call has a keyword that only it knows: a keyword-only parameter of the lowering, which users
    do not see. An operator that is not public is a part of others; the results of one that is
    static have their shape at every call, whatever goes in.
    """

    def publish(lower: Callable[..., Any]) -> Operator[Value]:
        signatures = _signatures(lower, earlier, later)

        @functools.wraps(lower)
        def public(*args: Any, **kwargs: Any) -> Any:
            job = current_job(names[0])
            result = _call(job, names[0], lower, signatures, vjp, args, kwargs)
            return wrap(unwrap(result)) if is_static else result

        operator = cast(Operator[Value], public)
        operator.lower = lower
        public.__name__ = public.__qualname__ = names[0].rpartition(".")[2]
        public.__signature__ = signatures.current  # type: ignore[attr-defined]  # for help() and tests
        for name in names if is_public else ():
            register(name, operator)
        return operator

    return publish


def composite(
    *names: str, earlier: Mapping[str, str] = _NONE, is_public: bool = True
) -> Callable[[Callable[..., T]], Operator[T]]:
    """Publish a function over blobs: it makes variables and calls operators, but emits no node."""

    def publish(function: Callable[..., T]) -> Operator[T]:
        signature = inspect.signature(function)
        signatures = _Signatures(signature, _parse(earlier))

        @functools.wraps(function)
        def public(*args: Any, **kwargs: Any) -> Any:
            job = current_job(names[0])
            try:
                return function(**_flat(signatures, signatures.bind(job, args, kwargs)))
            except FlowError as error:
                raise error.located(job.spec.name, names[0], user_frame()) from None

        operator = cast(Operator[T], public)
        operator.lower = function
        for name in names if is_public else ():
            register(name, operator)
        return operator

    return publish


def _signatures(
    lower: Callable[..., Any], earlier: Mapping[str, str], later: Mapping[str, str]
) -> _Signatures:
    signature = inspect.signature(lower)
    parameters = [
        p.replace(annotation=_as_users_see(p.annotation))
        for p in list(signature.parameters.values())[1:]
    ]
    returned = _as_users_see(signature.return_annotation)
    newer = _parse(later)
    hidden = {p for _, s in newer for p in s.parameters} if newer else set[str]()
    hidden &= {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
    seen = [p for p in parameters if p.name not in hidden]
    return _Signatures(
        signature.replace(parameters=seen, return_annotation=returned),
        _parse(earlier),
        newer,
        tuple(p for p in parameters if p.name in hidden),
    )


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


def _parse(earlier: Mapping[str, str]) -> tuple[tuple[str, inspect.Signature], ...]:
    """Signatures written as text; the text is ours."""
    return tuple(
        (until, inspect.signature(eval(f"lambda {text.strip('()')}: None")))
        for until, text in earlier.items()
    )


def _flat(signatures: _Signatures, arguments: dict[str, Any]) -> dict[str, Any]:
    """What the function takes of the arguments of another release."""
    return {k: v for k, v in arguments.items() if k in signatures.taken}


def _call(
    job: Job,
    public_name: str,
    lower: Callable[..., Any],
    signatures: _Signatures,
    vjp: Rule | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    source = user_frame()
    try:
        arguments = _flat(signatures, signatures.bind(job, args, kwargs))
        name = job.name_op(arguments.get("name"), public_name.rpartition(".")[2])
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
    except FlowError as error:
        raise error.located(job.spec.name, public_name, source) from None


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
