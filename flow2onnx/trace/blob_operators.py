"""Python's syntax on a blob: arithmetic, indexing, short methods, and what is refused."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from flow2onnx_runtime.spelling import spelling_hint

from flow2onnx.errors import FlowError, NoAttributeError, TracingError
from flow2onnx.graph.types import sizes_of
from flow2onnx.source import user_frame
from flow2onnx.trace.context import traced_job
from flow2onnx.trace.registry import entries, method, operator

__all__ = ["BlobOperators"]

Axis = int | list[int] | tuple[int, ...] | None
E = TypeVar("E", bound=FlowError)
S = TypeVar("S", bound="BlobOperators")

_CHOOSE = (
    "flow.where(condition, a, b) chooses, flow.math.maximum(a, b) and flow.math.minimum(a, b) "
    "compare two, flow.math.reduce_any(x) and reduce_all(x) ask of all elements"
)
_RETURN = "return the blob from the job: what the call gives has the numbers"
_CONSTANT = "sizes and positions are Python numbers: x.shape[0], or flow.gather for computed ones"

# What torch, TensorFlow and numpy call a thing that has another name here.
_ELSEWHERE = {
    "add": "x + y",
    "backward": "flow.optimizer.SGD(0.1).minimize(loss)",
    "chunk": "x[:, :n] and x[:, n:]",
    "copy": "flow.identity(x); an operator never writes into what it reads",
    "cumsum": "x @ numpy.triu(numpy.ones((n, n), 'float32'))",
    "copy_": "flow.assign(variable, value)",
    "cpu": "flow.scope.placement('cpu', '0:0')",
    "cuda": "flow.scope.placement('gpu', '0:0')",
    "detach": "flow.get_variable(..., trainable=False), or leave its variables out of variables=",
    "device": "flow.scope.placement",
    "dim": "x.ndim",
    "div": "x / y",
    "dot": "x @ y",
    "double": "flow.cast(x, flow.float64)",
    "fill": "flow.constant_like(x, value)",
    "float": "flow.cast(x, flow.float32)",
    "grad": "flow.watch_diff(x, handler)",
    "half": "flow.cast(x, flow.float16)",
    "int": "flow.cast(x, flow.int32)",
    "item": _RETURN,
    "long": "flow.cast(x, flow.int64)",
    "matmul": "x @ y",
    "masked_fill": "flow.masked_fill(x, mask, value)",
    "mm": "x @ y",
    "mul": "x * y",
    "nonzero": "flow.argwhere(x)",
    "norm": "flow.math.reduce_euclidean_norm(x)",
    "numpy": _RETURN,
    "permute": "x.transpose(0, 2, 1)",
    "pow": "x ** y",
    "ravel": "x.flatten()",
    "repeat": "flow.concat([x, x], axis), or flow.expand",
    "requires_grad": "flow.get_variable(..., trainable=False)",
    "split": "x[:, :n] and x[:, n:]",
    "sub": "x - y",
    "softmax": "flow.nn.softmax(x)",
    "swapaxes": "x.transpose(0, 2, 1)",
    "to": "flow.cast(x, dtype), or flow.scope.placement for a device",
    "tolist": _RETURN,
    "unsqueeze": "x[:, None], or flow.expand_dims(x, axis)",
    "values": _RETURN,
    "view": "x.reshape(...)",
}  # fmt: skip


def _error(kind: type[E], message: str, hint: str) -> E:
    job = traced_job()
    where = {"job": job.spec.name if job else None, "source": user_frame()}
    return kind(message, hint=hint, **where)


def _call(blob: S, name: str, *args: Any) -> S:
    """The result of the operator ``flow.<name>``."""
    result: S = operator(name)(blob, *args)
    return result


def _apply(blob: S, name: str, *args: Any) -> S:
    """The result of Python's syntax `name`."""
    result: S = method(name)(blob, *args)
    return result


def _binary(name: str, *, reflected: bool = False) -> Callable[[S, Any], S]:
    def apply(self: S, other: Any) -> S:
        pair = (other, self) if reflected else (self, other)
        result: S = operator(name)(*pair)
        return result

    apply.__doc__ = f"See `flow.{name}`."
    return apply


def _method(name: str, *, reflected: bool = False) -> Callable[[S, Any], S]:
    def apply(self: S, other: Any) -> S:
        pair = (other, self) if reflected else (self, other)
        result: S = method(name)(*pair)
        return result

    return apply


def _operator_hint(name: str, otherwise: str) -> str:
    """A hint at what replaces an attribute, or a function of numpy's."""
    found = [n for n in entries() if n.rpartition(".")[2] == name]
    first = min(found, key=lambda n: (not n.startswith(("math.", "nn.")), len(n)), default=None)
    return _ELSEWHERE.get(name) or (f"flow.{first}(x)" if first else otherwise)


# Numpy's functions that Python's syntax stands for.
_UFUNC_SYNTAX = {
    "absolute": "abs", "add": "add", "bitwise_and": "and", "bitwise_or": "or",
    "bitwise_xor": "xor", "divide": "truediv", "equal": "eq", "floor_divide": "floordiv",
    "greater": "gt", "greater_equal": "ge", "invert": "invert", "less": "lt", "less_equal": "le",
    "matmul": "matmul", "multiply": "mul", "negative": "neg", "not_equal": "ne", "positive": "pos",
    "power": "pow", "remainder": "mod", "subtract": "sub",
}  # fmt: skip
_MIRRORED = {"gt": "lt", "ge": "le", "lt": "gt", "le": "ge", "eq": "eq", "ne": "ne"}


def _call_syntax(syntax: str, operands: tuple[Any, ...]) -> Any:
    """The syntax on operands of which the first may be an array."""
    first = operands[0]
    if isinstance(first, BlobOperators):
        return getattr(type(first), f"__{syntax}__")(*operands)
    reflected = _MIRRORED.get(syntax, f"r{syntax}")
    return getattr(type(operands[1]), f"__{reflected}__")(operands[1], first)


class BlobOperators:
    """The base of blobs: what Python's operators do with them, and what numpy's methods do.

    There is no truth value and no number in a blob, for a job is traced without data; `==` builds
    an operator too: compare handles with `is`.
    """

    __slots__ = ()
    if TYPE_CHECKING:  # what the blob itself is

        @property
        def shape(self) -> tuple[int, ...]:
            """The dimensions."""

    __add__, __radd__ = _binary("math.add"), _binary("math.add", reflected=True)
    __sub__, __rsub__ = _binary("math.subtract"), _binary("math.subtract", reflected=True)
    __mul__, __rmul__ = _binary("math.multiply"), _binary("math.multiply", reflected=True)
    __truediv__, __rtruediv__ = _binary("math.divide"), _binary("math.divide", reflected=True)
    __mod__, __rmod__ = _method("mod"), _method("mod", reflected=True)
    __floordiv__, __rfloordiv__ = _method("floordiv"), _method("floordiv", reflected=True)
    __pow__, __rpow__ = _method("pow"), _method("pow", reflected=True)
    __matmul__, __rmatmul__ = _method("matmul"), _method("matmul", reflected=True)
    __and__, __rand__ = _method("and"), _method("and", reflected=True)
    __or__, __ror__ = _method("or"), _method("or", reflected=True)
    __xor__, __rxor__ = _method("xor"), _method("xor", reflected=True)
    __eq__ = _binary("math.equal")  # type: ignore[assignment]  # builds an operator, as in OneFlow
    __ne__ = _binary("math.not_equal")  # type: ignore[assignment]
    __lt__, __le__ = _binary("math.less"), _binary("math.less_equal")
    __gt__, __ge__ = _binary("math.greater"), _binary("math.greater_equal")
    __hash__ = object.__hash__

    def __neg__(self) -> Self:
        """The value times -1."""
        return _call(self, "math.negative")

    def __pos__(self) -> Self:
        """The value itself."""
        return self

    def __abs__(self) -> Self:
        """The absolute value."""
        return _call(self, "math.abs")

    def __invert__(self) -> Self:
        """1 where a truth is 0, and 0 where it is not."""
        return _apply(self, "not")

    def __getitem__(self, index: Any) -> Self:
        """A part, as numpy indexes: numbers, slices with steps, ``...``, None, whole numbers.

        One axis may be indexed by a list, an array or a blob of whole numbers. What would have no
        dimension has shape (1,), as full reductions have.
        """
        return _apply(self, "getitem", index)

    def __len__(self) -> int:
        """The size of the first axis, which has to be known before a call."""
        return self._first_size("len()")

    def __iter__(self) -> Iterator[Self]:
        """The parts along the first axis, whose size has to be known before a call."""
        count = self._first_size("iteration")
        return iter([self[i] for i in range(count)])

    def _first_size(self, what: str) -> int:
        size = sizes_of(self.value)[0] if self.shape else 0
        if isinstance(size, int) and self.shape:
            return size
        raise _error(
            TracingError,
            f"{what} asks for the size of the first axis of {self!r}, which a call decides"
            if self.shape
            else f"{what} of {self!r}, which has no axis",
            "declare a placeholder of fixed size, or use an operator on the whole: "
            "flow.math.reduce_sum(x, axis=0)",
        )

    def __bool__(self) -> bool:
        raise _error(
            TracingError,
            f"{self!r} is neither true nor false: a job is traced without data, and `if`, `and`, "
            "`or`, `not`, `in`, `assert`, `bool()`, `max()`, `min()` and `sorted()` ask for it",
            _CHOOSE,
        )

    def __contains__(self, item: object) -> bool:
        raise _error(
            TracingError,
            f"`in` asks for the data of {self!r}, and a job is traced without data",
            "flow.math.reduce_any(x == value) is 1 where an element equals the value",
        )

    def __index__(self) -> int:
        self._refuse_number("a position or a count", _CONSTANT)

    def __int__(self) -> int:
        self._refuse_number("int()", "flow.cast(x, flow.int32) cuts the fraction off in the job")

    def __float__(self) -> float:
        self._refuse_number("float()", _RETURN)

    def __complex__(self) -> complex:
        self._refuse_number("complex()", _RETURN)

    def __round__(self, digits: int | None = None) -> NoReturn:
        self._refuse_number("round()", "flow.math.rint(x) and flow.math.round(x) round in the job")

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse_number("numpy", "call the operators of flow.math in a job; " + _RETURN)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **settings: Any) -> Any:
        """The operator that numpy's function is, as of ``array + blob`` or ``numpy.exp(blob)``."""
        name = ufunc.__name__
        syntax = _UFUNC_SYNTAX.get(name)
        if method == "__call__" and not settings:
            if syntax is not None:
                return _call_syntax(syntax, inputs)
            if f"math.{name}" in entries():
                return operator(f"math.{name}")(*inputs)
        self._refuse_numpy(name)

    def __array_function__(self, function: Any, *called: Any) -> NoReturn:
        """Refuse numpy's functions, which compute with numbers."""
        self._refuse_numpy(function.__name__)

    def _refuse_numpy(self, name: str) -> NoReturn:
        own = hasattr(type(self), name)
        hint = f"x.{name}(...)" if own else _operator_hint(name, "call the operators of flow.math")
        self._refuse_number(f"numpy.{name}", f"in a job: {hint}")

    def __divmod__(self, other: Any) -> NoReturn:
        self._refuse_number("divmod()", "x // y and x % y")

    __rdivmod__ = __divmod__

    def _refuse_number(self, what: str, hint: str) -> NoReturn:
        raise _error(
            TracingError,
            f"{what} asks for the numbers in {self!r}, and a job is traced without data",
            hint,
        )

    def __setitem__(self, index: Any, value: Any) -> None:
        raise _error(
            TracingError,
            f"{self!r} cannot be written to: a blob stands for one value",
            "flow.where(condition, new, x) or flow.tensor_scatter_nd_update(x, indices, new) make "
            "a new one, flow.assign(variable, value) writes a variable",
        )

    def __delitem__(self, index: Any) -> None:
        raise _error(
            TracingError, f"nothing can be taken out of {self!r}", "flow.concat([x[:i], x[i + 1:]])"
        )

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        known = (n for n in dir(type(self)) if not n.startswith("_"))
        listed = "help(flow.Blob) lists what it has"
        otherwise = spelling_hint(name, known, listed, most=1, prefix="x.")
        hint = _operator_hint(name, otherwise)
        raise _error(NoAttributeError, f"a blob has no attribute {name!r}", hint)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements; of a dynamic blob the upper bound."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def T(self) -> Self:  # noqa: N802  # numpy's name
        """The axes in reverse order."""
        return self.transpose()

    def sum(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """The sum over `axis`, or over all elements in shape (1,)."""
        return _call(self, "math.reduce_sum", axis, keepdims)

    def mean(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """The mean over `axis`, or over all elements in shape (1,)."""
        return _call(self, "math.reduce_mean", axis, keepdims)

    def max(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """The largest over `axis`, or of all elements in shape (1,)."""
        return _call(self, "math.reduce_max", axis, keepdims)

    def min(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """The smallest over `axis`, or of all elements in shape (1,)."""
        return _call(self, "math.reduce_min", axis, keepdims)

    def prod(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """The product over `axis`, or over all elements in shape (1,)."""
        return _call(self, "math.reduce_prod", axis, keepdims)

    def var(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """The biased variance over `axis`, as numpy's."""
        return _call(self, "math.reduce_variance", axis, keepdims)

    def std(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """The root of the biased variance over `axis`, as numpy's."""
        return _call(self, "math.reduce_std", axis, keepdims)

    def any(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """1 where something over `axis` is not 0, int8."""
        return _call(self, "math.reduce_any", axis, keepdims)

    def all(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """1 where nothing over `axis` is 0, int8."""
        return _call(self, "math.reduce_all", axis, keepdims)

    def argmax(self, axis: int = -1) -> Self:
        """The position of the largest along `axis`, int32."""
        return _call(self, "math.argmax", axis)

    def abs(self) -> Self:
        """The absolute value."""
        return _call(self, "math.abs")

    def exp(self) -> Self:
        """e to the power of each element."""
        return _call(self, "math.exp")

    def log(self) -> Self:
        """The natural logarithm."""
        return _call(self, "math.log")

    def sqrt(self) -> Self:
        """The square root."""
        return _call(self, "math.sqrt")

    def clip(self, min: float | None = None, max: float | None = None) -> Self:
        """Every element limited to [min, max]; either end may be open."""
        return _call(self, "math.clip_by_value", min, max)

    def astype(self, dtype: Any) -> Self:
        """Another element type."""
        return _call(self, "cast", dtype)

    def reshape(self, *shape: Any) -> Self:
        """The same elements in another shape, given as numbers or as one list; one may be -1."""
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], list | tuple) else shape
        return _call(self, "reshape", list(wanted))

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """The axes from one to another, both included, made one."""
        return _call(self, "flatten", start_dim, end_dim)

    def transpose(self, *axes: Any) -> Self:
        """The axes in another order, given as numbers or as one list; reversed without one."""
        order = axes[0] if len(axes) == 1 and isinstance(axes[0], list | tuple) else axes
        return _call(self, "transpose", list(order or reversed(range(self.ndim))))

    def squeeze(self, axis: Axis = None) -> Self:
        """Axes of size 1 left out: those named, or all."""
        named = [axis] if isinstance(axis, int) else axis
        return _call(self, "squeeze", named)
