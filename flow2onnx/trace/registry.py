"""Every public symbol under its OneFlow name; filled when the modules of operators are imported."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_type_hints

from flow2onnx.errors import ArgumentError, FlowError, UnsupportedError
from flow2onnx.source import is_called_by_user, user_frame
from flow2onnx.trace.context import traced_job
from flow2onnx.trace.symbols import annotated_signature, symbols

__all__ = [
    "Entry",
    "bind",
    "entries",
    "method",
    "operator",
    "publish",
    "register",
    "register_method",
]


@dataclass(frozen=True)
class Entry:
    """One public symbol: its dotted name below `flow`, and the function users call."""

    name: str
    function: Callable[..., Any]


_ENTRIES: dict[str, Entry] = {}
_METHODS: dict[str, Callable[..., Any]] = {}


def register(name: str, function: Callable[..., Any]) -> None:
    """Publish `function` as ``flow.<name>``."""
    assert name not in _ENTRIES, f"flow.{name} is registered twice"
    _ENTRIES[name] = Entry(name, function)


def register_method(name: str, function: Callable[..., Any]) -> None:
    """Make `function` what Python's syntax `name` does with a blob; it is no name below `flow`."""
    assert name not in _METHODS, f"the method {name} is registered twice"
    _METHODS[name] = function


def method(name: str) -> Callable[..., Any]:
    """The function of Python's syntax `name` on a blob, such as ``getitem``."""
    return _METHODS[name]


def operator(name: str) -> Callable[..., Any]:
    """The public function ``flow.<name>``."""
    if name not in _ENTRIES:
        raise UnsupportedError(f"flow.{name} is not available")
    return _ENTRIES[name].function


def entries() -> dict[str, Entry]:
    """All public symbols by name."""
    return dict(_ENTRIES)


def bind(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> inspect.BoundArguments:
    """The arguments of a call by name, with the defaults of those left out."""
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ArgumentError(str(error), hint=_parameters(signature)) from None
    bound.apply_defaults()
    return bound


def _parameters(signature: inspect.Signature) -> str:
    """The parameters with their defaults, in words."""
    shown = (
        p.name if p.default is p.empty else f"{p.name}={p.default!r}"
        for p in signature.parameters.values()
    )
    return f"it takes {', '.join(shown) or 'nothing'}"


def add_hint(error: FlowError, name: str) -> FlowError:
    """Let the error of ``flow.<name>`` say where to read on, if it says nothing else."""
    if error.hint is None:
        home = "flow.Blob" if name.startswith("blob.") else f"flow.{name}"
        error.hint = f"help({home}) says what it takes"
    return error


def publish(name: str, function: Any) -> None:
    """Publish a function or class, whose errors name the user's line, as ``flow.<name>``.

    A class is called with the arguments of its row in the catalogue; its ``__init__`` has them by
    keyword.
    """
    if isinstance(function, type):
        init = inspect.unwrap(function.__init__)  # type: ignore[misc]  # of this very class
        signature = _signature(name, function, init)

        def construct(self: Any, *args: Any, **kwargs: Any) -> None:
            init(self, **bind(signature, args, kwargs).arguments)

        function.__init__ = _with_location(functools.wraps(init)(construct), name)  # type: ignore[misc]
        function.__signature__ = signature  # type: ignore[attr-defined]  # for help() and tests
        register(name, function)
    else:
        register(name, _with_location(function, name))


def _signature(name: str, cls: type, init: Callable[..., Any]) -> inspect.Signature:
    """The catalogue's signature of a class, annotated as its fields and arguments are."""
    hints, known = get_type_hints(cls) | get_type_hints(init), inspect.signature(init).parameters
    own = [
        known[n].replace(annotation=hints[n])
        if n in known
        else inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, annotation=hints[n])
        for n in symbols()[name].signature.parameters
    ]
    return annotated_signature(name, own).replace(return_annotation=None)


def _with_location(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def public(*args: Any, **kwargs: Any) -> Any:
        job = traced_job()
        if job is not None and job.spec.guess is not None and is_called_by_user(__file__):
            job.spec.guess.use(name)
        try:
            return function(*args, **kwargs)
        except FlowError as error:
            place = job.spec.name if job else None
            raise add_hint(error, name).located(place, name, user_frame()) from None

    return public
