"""Settings as users see them: methods, assignable attributes, nested groups."""

from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any, Protocol

from flow2onnx.config.effects import CALL, describe
from flow2onnx.config.kinds import failure, unknown
from flow2onnx.config.table import Flag, Table

__all__ = ["Setter", "Store", "Surface"]


class Store(Protocol):
    """The store that a surface writes to."""

    def set(self, name: str, value: object) -> object:
        """Check and keep a value."""
        ...


class Setter:
    """One setting as a call, such as ``config.enable_inplace(False)``."""

    def __init__(self, flag: Flag, argument: str, store: Callable[[], Store]) -> None:
        self._flag, self._store = flag, store
        self.__name__ = flag.name
        self.__doc__ = f"{flag.doc}\n\nTakes {flag.type.accepts}; effect: {describe(flag.effect)}."
        self.__signature__ = _signature(flag, argument)

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Set it; a session setting returns False when it is too late."""
        try:
            bound = self.__signature__.bind(*args, **kwargs)
        except TypeError:
            takes = f"{self._flag.name} takes one argument, {self._flag.type.accepts}"
            raise failure(f"{takes}; got {_show_call(args, kwargs)}") from None
        bound.apply_defaults()
        return self._store().set(self._flag.name, *bound.arguments.values())

    def __bool__(self) -> bool:
        # `if config.enable_inplace:` would otherwise always hold
        name = self._flag.name
        raise failure(f"{name} is a setter, not its value", f"read config.value({name!r})")

    def __repr__(self) -> str:
        return f"<setting {self._flag.name}{self.__signature__}>"


def _signature(flag: Flag, argument: str) -> Signature:
    default = True if flag.may_be_bare else Parameter.empty
    return Signature([Parameter(argument, Parameter.POSITIONAL_OR_KEYWORD, default=default)])


def _show_call(args: tuple[object, ...], kwargs: dict[str, object]) -> str:
    given = [*map(repr, args), *(f"{key}={value!r}" for key, value in kwargs.items())]
    return ", ".join(given) or "none"


class Surface:
    """The rows of a table below `prefix`, written to the store that `store` gives."""

    __slots__ = ("_prefix", "_store", "_table")
    _prefix: str
    _store: Callable[[], Store]
    _table: Table

    def __init__(self, table: Table, store: Callable[[], Store], prefix: str = "") -> None:
        object.__setattr__(self, "_table", table)
        object.__setattr__(self, "_store", store)
        object.__setattr__(self, "_prefix", prefix)

    def __getattr__(self, name: str) -> Any:  # a setter, a group or a call
        if name in Surface.__slots__:  # half-made, as when being unpickled
            raise AttributeError(name)
        full = self._prefix + name
        row = self._table.rows.get(full)
        if row is None:
            return self._group(name, full)
        if isinstance(row.effect, CALL):
            return getattr(self._store(), row.effect.method)
        return Setter(row, self._table.argument, self._store)

    def __setattr__(self, name: str, value: object) -> None:
        full = self._prefix + name
        if f"{full}." in self._groups():
            raise failure(f"{full} is a group", f"set its members, such as {self._example(full)}")
        if full not in self._table.rows:
            raise self._unknown(name)
        if isinstance(self._table.rows[full].effect, CALL):
            raise failure(f"{self._table.title}.{full} is called, not assigned")
        self._store().set(full, value)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *self._names()})

    def _group(self, name: str, full: str) -> "Surface":
        if f"{full}." not in self._groups():
            raise self._unknown(name)
        return Surface(self._table, self._store, f"{full}.")

    def _names(self) -> set[str]:
        below = (n for n in self._table.rows if n.startswith(self._prefix))
        return {n.removeprefix(self._prefix).split(".")[0] for n in below}

    def _groups(self) -> set[str]:
        return {n.rpartition(".")[0] + "." for n in self._table.rows if "." in n}

    def _example(self, group: str) -> str:
        return next(n for n in self._table.rows if n.startswith(f"{group}."))

    def _unknown(self, name: str) -> AttributeError:
        title = f"{self._table.title}.{self._prefix}".rstrip(".")
        return unknown(title, name, self._names())
