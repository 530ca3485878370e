"""Rows of a table of settings, and the record of what a user set of them."""

import copy
import logging
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from types import MappingProxyType
from typing import Any

from flow2onnx.config.effects import ALIAS, PROVIDER, SESSION, UNSUPPORTED, Effect, note, translated
from flow2onnx.config.kinds import BOOL, Kind, failure, unknown
from flow2onnx.errors import UnsupportedError
from flow2onnx.source import user_frame

__all__ = ["Flag", "Record", "Table"]

_log = logging.getLogger("flow2onnx.config")


@dataclass(frozen=True)
class Flag:
    """One setting: what it is called, what it takes, what it leads to.

    A switch called without argument means True, unless `required`. `also` are flags set along
    with it, `needs` is a switch that must be on before.
    """

    name: str
    type: Kind
    default: object
    effect: Effect
    doc: str
    _: KW_ONLY
    required: bool = False
    also: tuple[tuple[str, object], ...] = ()
    needs: str | None = None

    @property
    def may_be_bare(self) -> bool:
        """True if it can be called without an argument."""
        return self.type is BOOL and not self.required


class Table:
    """Rows under their names; `title` is how users call the whole, `argument` its parameter."""

    def __init__(self, title: str, argument: str, *rows: Flag) -> None:
        self.title, self.argument = title, argument
        self.rows: Mapping[str, Flag] = MappingProxyType({row.name: row for row in rows})
        if len(self.rows) != len(rows):
            raise AssertionError(f"{title} has two rows of one name")

    def row(self, name: str) -> Flag:
        """The row of that name; an error with the close names where there is none."""
        if name not in self.rows:
            raise unknown(self.title, name, self.rows)
        return self.rows[name]

    def meant(self, name: str) -> Flag:
        """The row that holds the value of `name`: itself, or what it is another name of."""
        row = self.row(name)
        return self.row(row.effect.of) if isinstance(row.effect, ALIAS) else row


class Record:
    """The settings of a table that a user made, each checked when it is set."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._values: dict[str, Any] = {}  # of the kinds the rows name
        self._noted: set[str] = set()
        self._sources: dict[str, str] = {}

    def set(self, name: str, value: object) -> object:
        """Check and keep a value, and say once what it will not do."""
        row, meant = self.table.row(name), self.table.meant(name)
        kept = row.type.check(name, value)
        self._refuse(row, kept)
        if isinstance(row.effect, ALIAS):
            kept = row.effect.forward(kept)
        self._note(name, meant, kept)
        self._values |= dict(row.also)
        self._values[meant.name] = kept
        self._sources |= dict.fromkeys((meant.name, *dict(row.also)), user_frame() or "")
        return None

    def value(self, name: str) -> Any:  # of the kind the row names
        """The value set, or the default; the aliases of a flag read alike."""
        row, meant = self.table.row(name), self.table.meant(name)
        value = self._values.get(meant.name, meant.default)
        if isinstance(row.effect, ALIAS):
            return row.effect.back(value)
        return copy.deepcopy(value) if isinstance(value, dict) else value

    def values(self) -> dict[str, Any]:  # of the kinds the rows name
        """The values set, by full name such as ``"train.primary_lr"``; aliases resolved."""
        return {name: self.value(name) for name in self._values}

    def source(self, name: str) -> str | None:
        """Where in the user's program a flag was set last, or None if it was not."""
        return self._sources.get(self.table.meant(name).name) or None

    def session_options(self) -> dict[str, Any]:  # of the types that the fields have
        """Fields of `Options` and entries of the session that differ from the defaults."""
        found: dict[str, Any] = {}
        for row in self.table.rows.values():
            if isinstance(row.effect, SESSION):
                value = translated(row.effect, self.value(row.name))
                found |= dict.fromkeys(row.effect.settings, value) if value is not None else {}
        return found

    def providers(self) -> tuple[str, ...]:
        """Providers asked for besides that of the placement, the preferred one first."""
        return tuple(e.provider for _, e in self._provider_rows() if e.option is None)

    def provider_options(self, provider: str) -> dict[str, str]:
        """Options of a provider, such as ``"cuda"``, that differ from its defaults."""
        return {
            effect.option: str(value)
            for value, effect in self._provider_rows()
            if effect.option is not None and effect.provider == provider
        }

    def copy_to(self, other: "Record") -> None:
        """Give another record the same settings, and what was already said about them."""
        other._values, other._noted = copy.copy(self._values), set(self._noted)
        other._sources = dict(self._sources)

    def _provider_rows(self) -> list[tuple[object, PROVIDER]]:
        rows = [(self.value(r.name), r.effect) for r in self.table.rows.values()]
        found = [(translated(e, value), e) for value, e in rows if isinstance(e, PROVIDER)]
        return [(value, effect) for value, effect in found if value is not None]

    def _refuse(self, row: Flag, value: object) -> None:
        effect = row.effect
        if isinstance(effect, UNSUPPORTED) and value not in effect.unless:
            message = f"{row.name}: {effect.reason}"
            raise UnsupportedError(message, hint=effect.hint, source=user_frame())
        if row.needs and not self.value(row.needs):
            raise failure(f"{row.name} needs {row.needs}", f"call {row.needs}() first")

    def _note(self, name: str, meant: Flag, value: object) -> None:
        text = note(meant.effect, value, meant.default)
        if text and meant.name not in self._noted:
            self._noted.add(meant.name)
            _log.warning("%s: %s %s", user_frame() or "flow2onnx", name, text)
