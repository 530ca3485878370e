"""The results of a job function: checked against its annotation, shown in its form."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from flow2onnx_runtime.dtypes import Array

from flow2onnx.errors import AnnotationError, JobError
from flow2onnx.typing.annotations import (
    AbsentReturn,
    ArrayReturn,
    BundleReturn,
    CallbackReturn,
    DictReturn,
    Kind,
    ListReturn,
    NoneReturn,
    ReturnSpec,
    TupleReturn,
)
from flow2onnx.typing.pytree import TreeDef, elements, flatten, unflatten

__all__ = ["check_return", "present", "whole"]


def check_return(
    spec: ReturnSpec, structure: object, function_name: str, is_blob: Callable[[object], bool]
) -> None:
    """Raise unless what a body returned is what its annotation promises.

    A blob tells with `is_dynamic` whether its shape varies from call to call.
    """
    _ReturnCheck(function_name, is_blob, spec, structure).check(spec, structure)


@dataclass(frozen=True)
class _ReturnCheck:
    job: str
    is_blob: Callable[[object], bool]
    annotation: ReturnSpec
    returned: object

    def check(self, spec: ReturnSpec, value: object) -> None:
        match spec:
            case AbsentReturn():
                self._check_unannotated(value)
            case NoneReturn() if value is not None:
                self._mismatch(spec, value)
            case CallbackReturn(inner):
                self.check(inner, value)
            case BundleReturn(item):
                for element in elements(value):
                    self.check(item, element)
            case ArrayReturn(kind):
                self._check_blob(kind, value)
            case TupleReturn() | ListReturn() | DictReturn():
                self._check_container(spec, value)

    def _check_container(self, spec: TupleReturn | ListReturn | DictReturn, value: object) -> None:
        if isinstance(spec, TupleReturn) and type(value) is tuple:
            if len(value) != len(spec.items):
                self._mismatch(spec, value, f" length compare: {len(value)} v.s. {len(spec.items)}")
            pairs: Iterable[tuple[ReturnSpec, object]] = zip(spec.items, value, strict=True)
        elif isinstance(spec, ListReturn) and type(value) is list:
            pairs = ((spec.item, item) for item in value)
        elif isinstance(spec, DictReturn) and type(value) is dict:
            for key in value:
                if type(key) is not spec.key:
                    self._mismatch(spec, value, f" key {key!r} is no {spec.key.__name__}")
            pairs = ((spec.item, item) for item in value.values())
        else:
            self._mismatch(spec, value)
        for item_spec, item in pairs:
            self.check(item_spec, item)

    def _check_blob(self, kind: Kind, value: Any) -> None:  # a blob is whatever is_blob says
        if not self.is_blob(value):
            self._fail(f"type(ret): {type(value)} is no blob")
        if kind == "numpy" and value.is_dynamic:
            self._fail(
                "only fixed shaped blob compatible to oneflow.typing.Numpy. "
                "you can change annotation to oneflow.typing.ListNumpy "
                "or oneflow.typing.ListListNumpy"
            )

    def _check_unannotated(self, value: object) -> None:
        bad = [e for e in elements(value) if not self.is_blob(e)]
        if bad and value is not None:
            raise AnnotationError(
                "oneflow.global_function returns RemoteBlob or list/tuple/dict nested RemoteBlob "
                f"only. {type(bad[0])} found",
                hint="return what operators and flow.get_variable give",
                job=self.job,
            )

    def _mismatch(self, spec: ReturnSpec, value: object, detail: str = "") -> NoReturn:
        self._fail(
            f"{value} does not matched return annotation {spec} of global_function "
            f"{self.job}.{detail}"
        )

    def _fail(self, message: str) -> NoReturn:
        others = [e for e in elements(self.returned) if not (e is None or self.is_blob(e))]
        fitting = _fitting_annotation(self.returned, self.is_blob)
        hint = f"the body returns {fitting}, the annotation says {self.annotation}"
        if others:
            kind = type(others[0]).__name__
            hint = f"return what operators give: a value of {kind} is known before the call"
        raise JobError(message, hint=hint, job=self.job)


def _fitting_annotation(value: Any, is_blob: Callable[[object], bool]) -> str:
    """The annotation that a returned value would match, as text."""
    if is_blob(value):
        return "oneflow.typing.ListNumpy" if value.is_dynamic else "oneflow.typing.Numpy"
    if type(value) is tuple and value:
        return f"typing.Tuple[{', '.join(_fitting_annotation(v, is_blob) for v in value)}]"
    if isinstance(value, list | tuple | dict) and all(map(is_blob, elements(value))):
        return "oneflow.typing.Bundle[oneflow.typing.Numpy]"
    return "None" if value is None else "no blob"


def present(spec: ReturnSpec, treedef: TreeDef, arrays: Sequence[Array], pieces: int = 1) -> Any:
    """The annotated form of a job's output arrays; for a callback, what the callback receives.

    Without annotation it is the structure the body returned. With several `pieces`, those of one
    result stand together in `arrays`: lists have them apart, and arrays put together. Arrays are
    not copied.
    """
    if treedef.kind == "leaf" and len(arrays) == 1 and isinstance(spec, ArrayReturn):
        array = np.asarray(arrays[0])
        return array if spec.kind == "numpy" else _Pieces([array]).show(spec.kind)
    apart = [[np.asarray(a) for a in arrays[i : i + pieces]] for i in range(0, len(arrays), pieces)]
    return _present(spec, unflatten(treedef, [_Pieces(group) for group in apart]))


@dataclass(frozen=True)
class _Pieces:
    """One result, on each device."""

    arrays: list[Array]

    def show(self, kind: Kind) -> Any:
        match kind:
            case "list":
                return self.arrays
            case "listlist":
                return [[array] for array in self.arrays]
        return whole(self.arrays)


def whole(pieces: Sequence[Array]) -> Array:
    """The pieces of a result in one array, along the first axis."""
    return pieces[0] if len(pieces) == 1 else np.concatenate([np.atleast_1d(p) for p in pieces])


def _present(spec: ReturnSpec, value: Any) -> Any:  # the annotation decides the type
    match spec:
        case CallbackReturn(inner):
            return _present(inner, value)
        case ArrayReturn(kind):
            return value.show(kind)
        case TupleReturn(items):
            return tuple(_present(s, v) for s, v in zip(items, value, strict=True))
        case ListReturn(item):
            return [_present(item, v) for v in value]
        case DictReturn(_, item):
            return {k: _present(item, v) for k, v in value.items()}
        case BundleReturn(item):
            leaves, tree = flatten(value)
            return unflatten(tree, [_present(item, leaf) for leaf in leaves])
    leaves, tree = flatten(value)
    return unflatten(tree, [leaf.show("numpy") for leaf in leaves])
