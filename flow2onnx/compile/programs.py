"""Programs: what is kept of compiled jobs, by which they are known again once they are traced."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Protocol

__all__ = ["KeptProgram", "Programs"]


@dataclass(frozen=True, kw_only=True)
class KeptProgram:
    """What is known of a compiled train job beside its trace and its model, by its key.

    `state` has the variables that training added: name, shape, element type, first value, role,
    owner. `outputs`: name, shape, code of the element type. `watches`: the outputs of each.
    """

    key: str
    job: str
    state: tuple[tuple[str, tuple[int, ...], str, float, str, str | None], ...]
    outputs: tuple[tuple[str, tuple[int | str, ...], int], ...]
    results: tuple[str, ...]
    losses: tuple[str, ...]
    watches: tuple[tuple[tuple[str, ...], ...], ...]

    def facts(self) -> dict[str, Any]:
        """The program as JSON has it."""
        return asdict(self)

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any]) -> "KeptProgram":
        """The program in such facts; raises KeyError for one that is missing."""
        return cls(**{f.name: _as_tuples(facts[f.name]) for f in fields(cls)})


def _as_tuples(found: Any) -> Any:  # as JSON has no tuples
    return tuple(map(_as_tuples, found)) if isinstance(found, list) else found


class Programs(Protocol):
    """A place where programs are kept by their keys, those of `fewest_nodes` and more."""

    @property
    def fewest_nodes(self) -> int:
        """The nodes of a compiled job from which on it is worth to keep its program."""

    def read_program(self, key: str) -> KeptProgram | None:
        """The program of a key, if there is one."""
