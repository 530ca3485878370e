"""The annotations of job functions and what they mean."""

import functools
import inspect
import types
import typing
from abc import ABCMeta
from collections.abc import Callable
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    Protocol,
    TypeAlias,
    TypeVar,
)

from flow2onnx.dtypes import DType, element_type, float32
from flow2onnx.errors import AnnotationError, ArgumentError, CallError, ShapeError

__all__ = [
    "AbsentReturn",
    "ArrayReturn",
    "Bundle",
    "BundleReturn",
    "Callback",
    "CallbackReturn",
    "DictReturn",
    "Kind",
    "ListListNumpy",
    "ListNumpy",
    "ListReturn",
    "NoneReturn",
    "Numpy",
    "ParameterSpec",
    "PlaceholderSpec",
    "ReturnSpec",
    "TupleReturn",
    "parse_parameter",
    "parse_return",
]

Kind = Literal["numpy", "list", "listlist"]
T = TypeVar("T")
S = TypeVar("S", covariant=True)


def _check_call(cls: type[T]) -> type[T]:
    """The class, whose constructor says what it takes where arguments are missing or unknown."""
    init: Callable[..., None] = cls.__init__
    signature = inspect.signature(init)

    @functools.wraps(init)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        __tracebackhide__ = True
        try:
            signature.bind(self, *args, **kwargs)
        except TypeError as error:
            hint = "it takes shape, dtype=flow.float32, batch_axis=0"
            raise CallError(f"{type(self).__qualname__}: {error}", hint=hint) from None
        init(self, *args, **kwargs)

    cls.__init__ = checked  # type: ignore[method-assign]  # of this very class
    return cls


@_check_call
@dataclass(frozen=True)
class PlaceholderSpec:
    """One input of a job; `batch_axis` None means that every sample shares the whole array.

    A negative `batch_axis` is stored counted from the front, that of a rank-0 shape as None.
    """

    kind: ClassVar[Kind]
    shape: tuple[int, ...]
    dtype: DType = float32
    batch_axis: int | None = 0

    def __post_init__(self) -> None:
        _check_shape(self.shape)
        object.__setattr__(self, "dtype", element_type(self.dtype))
        object.__setattr__(self, "batch_axis", _axis_from_front(self))


if TYPE_CHECKING:
    # A job is annotated with what a call gives, and its body returns blobs: these fit both.
    class _Placeholders(ABCMeta):
        Placeholder: type[PlaceholderSpec]

    class Numpy(Protocol, metaclass=_Placeholders):
        """One array: `Numpy.Placeholder(shape)` for a parameter, `Numpy` for a result."""

    class ListNumpy(Protocol, metaclass=_Placeholders):
        """A list with one array per device; `shape` is the upper bound of each."""

    class ListListNumpy(Protocol, metaclass=_Placeholders):
        """A list, per device, of lists of arrays; `shape` is the upper bound of each inner list."""

    class Callback(Protocol[S]):
        """The result of an asynchronous job: ``job(x)(receive)`` calls ``receive(S-value)``."""

    class Bundle(Protocol[S]):
        """Any nesting of list, tuple and dict whose leaves are S."""

else:

    class Numpy:
        """One array: `Numpy.Placeholder(shape)` for a parameter, `Numpy` for a result."""

        class Placeholder(PlaceholderSpec):
            """A parameter that takes one `numpy.ndarray` of exactly this shape."""

            kind = "numpy"

    class ListNumpy:
        """A list with one array per device; `shape` is the upper bound of each."""

        class Placeholder(PlaceholderSpec):
            """A parameter that takes a list of one `numpy.ndarray` of at most this size."""

            kind = "list"

    class ListListNumpy:
        """A list, per device, of lists of arrays; `shape` is the upper bound of each inner list."""

        class Placeholder(PlaceholderSpec):
            """A parameter that takes a list of one list of arrays of at most this size."""

            kind = "listlist"

    class Callback(Generic[T]):
        """The result of an asynchronous job: ``job(x)(receive)`` calls ``receive(value)``."""

    class Bundle(Generic[T]):
        """Any nesting of list, tuple and dict whose leaves are T."""


def _check_shape(shape: object) -> None:
    if not isinstance(shape, tuple):
        raise ShapeError(
            f"shape should be a tuple. {shape} found", hint="write (n,) for one dimension"
        )
    for index, dim in enumerate(shape):
        # bool and numpy integers would reach the model as something else than a dimension
        if type(dim) is not int or dim <= 0:
            raise ShapeError(
                f"dimension {index} of shape should be an int above 0. {dim!r} found",
                hint="write int(...) around a computed size",
            )


def _axis_from_front(spec: PlaceholderSpec) -> int | None:
    axis, rank = spec.batch_axis, len(spec.shape)
    if axis is None and spec.kind == "numpy":
        return None
    if type(axis) is not int or not -max(rank, 1) <= axis < max(rank, 1):
        raise ArgumentError(
            f"batch_axis should be an axis of shape {spec.shape}. {axis!r} found",
            hint="None, for no batch axis, is for Numpy.Placeholder only",
        )
    return axis % rank if rank else None


_KIND_OF: dict[object, Kind] = {Numpy: "numpy", ListNumpy: "list", ListListNumpy: "listlist"}
_NAME_OF: dict[Kind, str] = {"numpy": "Numpy", "list": "ListNumpy", "listlist": "ListListNumpy"}


# Lists and dicts come from default values of the oldest form only; annotations give tuples.
ParameterSpec: TypeAlias = (
    "PlaceholderSpec | tuple[ParameterSpec, ...] | list[ParameterSpec] | dict[Any, ParameterSpec]"
)


@dataclass(frozen=True)
class AbsentReturn:
    """No annotation: the call gives a future."""

    def __str__(self) -> str:
        return "(absent)"


@dataclass(frozen=True)
class NoneReturn:
    """The job returns nothing."""

    def __str__(self) -> str:
        return "None"


@dataclass(frozen=True)
class ArrayReturn:
    """One blob, shown as an array, a list of one, or a list of a list of one."""

    kind: Kind

    def __str__(self) -> str:
        return f"oneflow.typing.{_NAME_OF[self.kind]}"


@dataclass(frozen=True)
class TupleReturn:
    """A tuple of exactly these elements."""

    items: tuple["ReturnSpec", ...]

    def __str__(self) -> str:
        return f"typing.Tuple[{', '.join(map(str, self.items))}]"


@dataclass(frozen=True)
class ListReturn:
    """A list of any length."""

    item: "ReturnSpec"

    def __str__(self) -> str:
        return f"typing.List[{self.item}]"


@dataclass(frozen=True)
class DictReturn:
    """A dict whose keys are exactly of type `key`."""

    key: type
    item: "ReturnSpec"

    def __str__(self) -> str:
        return f"typing.Dict[{self.key.__name__}, {self.item}]"


@dataclass(frozen=True)
class BundleReturn:
    """Any nesting of list, tuple and dict."""

    item: ArrayReturn

    def __str__(self) -> str:
        return f"oneflow.typing.Bundle[{self.item}]"


@dataclass(frozen=True)
class CallbackReturn:
    """`inner`, delivered to a callback."""

    inner: "ReturnSpec"

    def __str__(self) -> str:
        return f"oneflow.typing.Callback[{self.inner}]"


ReturnSpec: TypeAlias = (
    AbsentReturn
    | NoneReturn
    | ArrayReturn
    | TupleReturn
    | ListReturn
    | DictReturn
    | BundleReturn
    | CallbackReturn
)


def parse_parameter(annotation: object) -> ParameterSpec:
    """The placeholder, or nested tuple of placeholders, that a parameter annotation means."""
    if isinstance(annotation, PlaceholderSpec):
        return annotation
    origin, args = _origin_and_arguments(annotation)
    if origin is tuple:
        return tuple(
            parse_parameter(a) for a in _check_count(args, "T in typing.Tuple[T, ...]", len(args))
        )
    raise AnnotationError(
        f"invalid parameter annotation {annotation} found",
        hint="annotate with tp.Numpy.Placeholder(shape), or with a typing.Tuple of placeholders",
    )


def parse_return(annotation: object) -> ReturnSpec:
    """The results that a return annotation, or `inspect.Signature.empty`, asks for."""
    if annotation is inspect.Signature.empty:
        return AbsentReturn()
    if annotation is None or annotation is types.NoneType:
        return NoneReturn()
    origin, args = _origin_and_arguments(annotation)
    if origin is Callback:
        (inner,) = _check_count(args, "T in oneflow.typing.Callback[T]", 1)
        return CallbackReturn(_parse_nested(inner))
    if origin is Bundle:
        (leaf,) = _check_count(args, "T in oneflow.typing.Bundle[T]", 1)
        return BundleReturn(_parse_array(leaf))
    return _parse_nested(annotation)


def _parse_nested(annotation: object) -> ReturnSpec:
    origin, args = _origin_and_arguments(annotation)
    if origin is tuple:
        items = _check_count(args, "T in typing.Tuple[T, ...]", len(args))
        return TupleReturn(tuple(_parse_nested(item) for item in items))
    if origin is list:
        (item,) = _check_count(args, "T in typing.List[T]", 1)
        return ListReturn(_parse_nested(item))
    if origin is dict:
        key, value = _check_count(args, "(K, V) in typing.Dict[K,V]", 2)
        return DictReturn(_key_type(key), _parse_nested(value))
    return _parse_array(annotation)


def _parse_array(annotation: object) -> ArrayReturn:
    if isinstance(annotation, type) and annotation in _KIND_OF:
        return ArrayReturn(_KIND_OF[annotation])
    raise AnnotationError(
        f"invalid return annotation {annotation} found",
        hint="annotate with tp.Numpy, typing.Tuple, typing.List, typing.Dict, tp.Callback or "
        "tp.Bundle; the last two stand outermost",
    )


def _key_type(key: object) -> type:
    if isinstance(key, type):
        return key
    raise AnnotationError(
        f"invalid return annotation {key} found", hint="the keys of a typing.Dict have one class"
    )


def _origin_and_arguments(annotation: object) -> tuple[object, tuple[object, ...]]:
    """Origin and arguments of a generic; a generic without arguments is its own origin."""
    return typing.get_origin(annotation) or annotation, typing.get_args(annotation)


def _check_count(args: tuple[object, ...], what: str, count: int) -> tuple[object, ...]:
    if not args:
        raise AnnotationError(f"{what} cannot be omitted", hint="name every type argument")
    if len(args) != count:  # typing counts for its own generics, builtin list and dict do not
        raise AnnotationError(f"{what}: {count} type arguments expected, {len(args)} found")
    return args
