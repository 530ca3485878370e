"""`@op`: a lowering becomes the OneFlow operator that users call in a job."""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType, UnionType
from typing import Any, Protocol, TypeVar, Union, cast, get_args, get_origin

from flow2onnx.errors import ArgumentError, FlowError
from flow2onnx.graph import Builder, Value
from flow2onnx.trace.blob import Blob, unwrap, wrap
from flow2onnx.trace.context import current_job
from flow2onnx.trace.job import Job, Region
from flow2onnx.trace.registry import register
from flow2onnx.trace.source import user_frame
from flow2onnx.typing.structure import elements

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
class _Signatures:
    """The signature users see, and those of earlier releases, newest first."""

    current: inspect.Signature
    earlier: tuple[tuple[str, inspect.Signature], ...] = field(default=())

    def bind(self, job: Job, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name, in the release that the job speaks."""
        chosen = self.current
        for until, signature in self.earlier:
            if job.spec.is_before(until):
                chosen = signature
        try:
            bound = chosen.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentError(f"{error}; the signature is {chosen}") from None
        bound.apply_defaults()
        return bound.arguments


def op(
    *names: str, vjp: Rule | None = None, earlier: Mapping[str, str] = _NONE
) -> Callable[[Callable[..., Any]], Operator[Value]]:
    """Publish a lowering ``f(b, values..., attributes...)`` under its OneFlow names.

    `vjp` replaces the gradient composed from the nodes: ``rule(b, inputs, outputs, *gradients)``
    returns one gradient, or None, for each blob argument in order. `earlier` maps a release to the
    signature that held before it, as text.
    """

    def publish(lower: Callable[..., Any]) -> Operator[Value]:
        signatures = _signatures(lower, earlier)

        @functools.wraps(lower)
        def public(*args: Any, **kwargs: Any) -> Any:
            job = current_job(names[0])
            return _call(job, names[0], lower, signatures, vjp, args, kwargs)

        operator = cast(Operator[Value], public)
        operator.lower = lower
        public.__name__ = public.__qualname__ = names[0].rpartition(".")[2]
        public.__signature__ = signatures.current  # type: ignore[attr-defined]  # for help() and tests
        for name in names:
            register(name, operator)
        return operator

    return publish


def composite(
    *names: str, earlier: Mapping[str, str] = _NONE
) -> Callable[[Callable[..., T]], Operator[T]]:
    """Publish a function over blobs: it makes variables and calls operators, but emits no node."""

    def publish(function: Callable[..., T]) -> Operator[T]:
        signature = inspect.signature(function)
        signatures = _Signatures(signature, _parse(earlier))

        @functools.wraps(function)
        def public(*args: Any, **kwargs: Any) -> Any:
            job = current_job(names[0])
            try:
                return function(**_flat(signature, signatures.bind(job, args, kwargs)))
            except FlowError as error:
                raise error.located(job.spec.name, names[0], user_frame()) from None

        operator = cast(Operator[T], public)
        operator.lower = function
        for name in names:
            register(name, operator)
        return operator

    return publish


def _signatures(lower: Callable[..., Any], earlier: Mapping[str, str]) -> _Signatures:
    signature = inspect.signature(lower)
    parameters = [
        p.replace(annotation=_as_users_see(p.annotation))
        for p in list(signature.parameters.values())[1:]
    ]
    returned = _as_users_see(signature.return_annotation)
    return _Signatures(
        signature.replace(parameters=parameters, return_annotation=returned), _parse(earlier)
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


def _flat(signature: inspect.Signature, arguments: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in arguments.items() if k in signature.parameters}


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
        arguments = _flat(signatures.current, signatures.bind(job, args, kwargs))
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
        return wrap(_named(job.b, name, result, start), is_dynamic)
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


def _named(b: Builder, name: str, result: Any, start: int) -> Any:
    """Call what the operator made ``<name>/out`` (``out_0``, …); the rest keeps its name."""
    made = set(b.nodes[start:])
    several = isinstance(result, list | tuple)
    for i, value in enumerate(result if several else [result]):
        if isinstance(value, Value) and value.producer() in made:
            b.rename(value, f"{name}/out_{i}" if several else f"{name}/out")
    return result
