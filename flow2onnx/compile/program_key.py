"""The key of a traced program: a hash of everything that decides on the model made of it."""

import enum
import functools
import hashlib
import platform
import time
import types
from collections.abc import Iterable, Mapping, Set
from dataclasses import fields, is_dataclass
from importlib.metadata import version
from pathlib import Path

import flow2onnx_runtime
import numpy as np

from flow2onnx.graph import Graph, Node, Value
from flow2onnx.graph.model import model_bytes, model_of
from flow2onnx.optim.objectives import gradient_rules
from flow2onnx.trace.job import Job, Watch
from flow2onnx.trace.spec import JobSpec
from flow2onnx.trace.trace import Traced

__all__ = ["program_key"]

_PACKAGES = (Path(__file__).parents[1], Path(flow2onnx_runtime.__file__).parent)
_IMPORTED = time.time()  # about when the modules of this process were read
_LIBRARIES = ("onnx", "onnx-ir", "numpy", "ml_dtypes")
_PLAIN = (type(None), bool, int, float, str, bytes)
# The user's line, which errors name and no model has.
_SOURCE = "source"
# Of a job: what is hashed as bytes, what the specification says, what runs on the host.
_APART = frozenset({"b", "spec", "host", "user_variables"})
# Notes on values that are of no use once the job is traced.
_OF_CALLS = frozenset({_SOURCE, "class_numbers"})


class _UnknownError(Exception):
    """Something that nobody can describe, such as a function of the user's."""


def program_key(traced: Traced, *decisive: object) -> str:
    """A hash over a traced job and what else decides on its model; "" where nobody can tell.

    A program's own functions, such as gradients and schedules that it has written itself, may do
    anything: what they are part of has no key.
    """
    job = traced.job
    found = _Description(job)
    try:
        found.add((platform.python_version(), _versions(), _sources(), gradient_rules()))
        found.add(decisive)
        _add_spec(found, job.spec)
        found.add({f.name: getattr(job, f.name) for f in fields(job) if f.name not in _APART})
        found.add((traced.results, job.host.inputs, list(job.user_variables)))
        found.add(job.b.name_counts())
        _add_notes(found, job.b.graph)
    except _UnknownError:
        return ""
    found.add(model_bytes(model_of(job.b.graph)))
    return found.hexdigest()


def _add_spec(found: "_Description", spec: JobSpec) -> None:
    found.add((spec.name, spec.kind, spec.release, spec.layer_names, spec.view))
    found.add(spec.config.values())


def _add_notes(found: "_Description", graph: Graph) -> None:
    """What the trace noted of nodes and values, which a file does not have."""
    for node in graph.all_nodes():
        _add_note(found, node)
        for value in node.outputs:
            _add_note(found, value)
    for part in (graph, *graph.subgraphs()):
        for value in (*part.inputs, *part.initializers.values()):
            _add_note(found, value)


def _add_note(found: "_Description", of: Node | Value) -> None:
    notes = {k: v for k, v in of.meta.items() if k not in _OF_CALLS}
    if notes:
        found.add((of.name, notes))


class _Description:
    """A hash of objects by their content; nodes and values of the job go by their names."""

    def __init__(self, job: Job) -> None:
        self._hash = hashlib.sha256()
        self._seen: dict[int, tuple[int, object]] = {}  # kept alive, as others would get their id
        self._of_trace = {id(job): "job", id(job.b): "builder", id(job.spec): "spec"}

    def hexdigest(self) -> str:
        """The hash of what was added."""
        return self._hash.hexdigest()[:40]

    def add(self, found: object) -> None:
        """One more object with all that it holds; raises for what may do anything."""
        if isinstance(found, _PLAIN) and not isinstance(found, enum.Enum):
            self._text(f"{type(found).__name__} {found!r}")
        elif isinstance(found, Value):
            maker = found.producer()
            self._text(f"value {found.name} of {None if maker is None else maker.name}")
        elif isinstance(found, Node):
            self._text(f"node {found.name}")
        elif id(found) in self._of_trace:
            self._text(self._of_trace[id(found)])
        elif id(found) in self._seen:
            self._text(f"again {self._seen[id(found)][0]}")
        else:
            self._seen[id(found)] = len(self._seen), found
            self._add_parts(found)

    def _text(self, text: str) -> None:
        content = text.encode("utf-8", "surrogatepass")
        self._hash.update(b"%d:" % len(content) + content)

    def _add_all(self, kind: str, parts: Iterable[object]) -> None:
        self._text(f"{kind} (")
        for part in parts:
            self.add(part)
        self._text(")")

    def _add_parts(self, found: object) -> None:
        match found:
            case enum.Enum():
                self._text(f"{_own_name(type(found))}.{found.name}")
            case Watch():  # its handler is called after the step
                self._add_all("watch", (found.values, found.is_gradient, found.is_once))
            case np.ndarray() | np.generic():
                self._add_all("array", (str(found.dtype), found.shape, found.tobytes()))
            case np.dtype():
                self._text(str(found))
            case Mapping():
                self._add_all("mapping", (part for item in found.items() for part in item))
            case list() | tuple():
                self._add_all(type(found).__name__, found)
            case Set():
                self._add_all("set", sorted(map(self._member, found)))
            case functools.partial():
                self._add_all("partial", (found.func, found.args, found.keywords))
            case types.MethodType():
                self._add_all("method", (found.__func__, found.__self__))
            case types.FunctionType():
                self._add_function(found)
            case type():
                self._text(_own_name(found))
            case _:
                self._add_object(found)

    def _member(self, found: object) -> str:
        """A member of a set, which has no order of its own, as text."""
        if isinstance(found, Value | Node):
            return f"{type(found).__name__} {found.name}"
        if isinstance(found, _PLAIN):
            return f"{type(found).__name__} {found!r}"
        raise _UnknownError(found)

    def _add_function(self, found: types.FunctionType) -> None:
        name, code = _own_name(found), found.__code__
        try:
            cells = [cell.cell_contents for cell in found.__closure__ or ()]
        except ValueError as error:  # a cell that is still empty
            raise _UnknownError(found) from error
        # two on one line have one name
        plain = [c for c in code.co_consts if isinstance(c, _PLAIN)]
        body = (code.co_firstlineno, code.co_code, code.co_names, plain)
        parts = (body, found.__defaults__, found.__kwdefaults__, cells)
        self._add_all(f"function {name}", parts)

    def _add_object(self, found: object) -> None:
        if is_dataclass(found):
            names = [f.name for f in fields(found) if f.name != _SOURCE]
        elif hasattr(found, "__dict__"):
            names = [name for name in vars(found) if name != _SOURCE]
        else:
            raise _UnknownError(found)
        parts = (part for name in names for part in (name, getattr(found, name)))
        self._add_all(_own_name(type(found)), parts)


def _own_name(found: type | types.FunctionType) -> str:
    """The name of a class or function of this package, whose source is hashed, or of Python's."""
    module = found.__module__ or ""
    if module.partition(".")[0] not in ("flow2onnx", "flow2onnx_runtime", "builtins"):
        raise _UnknownError(found)
    return f"{module}.{found.__qualname__}"


@functools.cache
def _versions() -> tuple[str, ...]:
    return tuple(version(name) for name in _LIBRARIES)


@functools.cache
def _sources() -> str:
    """A hash of compiler and runtime; their versions may stay while their rules change.

    Raises `_UnknownError` where a file was changed since this process began, whose rules may be
    those of before.
    """
    found = hashlib.sha256()
    for package in _PACKAGES:
        for path in sorted(package.rglob("*.py")):
            if path.stat().st_mtime > _IMPORTED:
                raise _UnknownError(path)
            found.update(path.relative_to(package).as_posix().encode() + b"\0")
            found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()
