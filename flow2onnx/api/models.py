"""Variables from outside a job: reading, loading, checkpoints."""

import logging
import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from flow2onnx_runtime import view
from flow2onnx_runtime.collectives import first_rank_says, on_first_rank
from flow2onnx_runtime.dtypes import Array
from flow2onnx_runtime.view.texts import shape_text

from flow2onnx.api.session import current_session
from flow2onnx.checkpoint import store
from flow2onnx.checkpoint.store import SavedVariable
from flow2onnx.dtypes import DType, by_numpy
from flow2onnx.errors import CheckpointError
from flow2onnx.source import user_frame
from flow2onnx.trace.call_text import known_names

if TYPE_CHECKING:
    from flow2onnx.engine import Session

_log = logging.getLogger("flow2onnx.api")

__all__ = [
    "CheckPoint",
    "SimpleCheckPointManager",
    "VariableBlob",
    "get",
    "get_all_variables",
    "load_variables",
    "save",
    "save_variables",
]


class VariableBlob:
    """A variable of the session; `numpy()` reads its present value."""

    def __init__(self, session: "Session", name: str) -> None:
        self._session, self.name = session, name

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions."""
        return self._session.variables[self.name].shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._session.variables[self.name].dtype

    def numpy(self) -> Array:
        """A copy of the present value."""
        return self._session.read(self.name)

    def _repr_html_(self) -> str:
        """The variable for a notebook: what it is, and figures of its present value."""
        return view.html_block(f"variable {self.name}", view.facts_table(self._figures()))

    def _figures(self) -> dict[str, object]:
        variable, value = self._session.variables[self.name], self.numpy()
        facts: dict[str, object] = {
            "shape": shape_text(self.shape),
            "dtype": self.dtype.name,
            "role": variable.role,
            "trainable": "yes" if variable.is_trainable else "no",
            "of": variable.owner,
        }
        if value.size and self.dtype.is_floating_point:
            numbers = value.astype(np.float64)
            facts["mean ± deviation"] = f"{numbers.mean():.4g} ± {numbers.std():.4g}"
            facts["from, to"] = f"{numbers.min():.4g}, {numbers.max():.4g}"
        return facts

    def __repr__(self) -> str:
        return f"VariableBlob({self.name}, shape={self.shape}, dtype={self.dtype.name})"


class _Variables(dict[str, VariableBlob]):
    """Variables by name, in a table where a notebook shows them."""

    def _repr_html_(self) -> str:
        rows = [(v.name, v.dtype.name, shape_text(v.shape)) for v in self.values()]
        found = view.table(("name", "type", "shape"), rows)
        return view.html_block(f"{len(rows)} variables", found)


def get_all_variables() -> dict[str, VariableBlob]:
    """Every variable of the session by name, optimizer state and step counters included."""
    session = _start_session()
    return _Variables({name: VariableBlob(session, name) for name in session.variables})


def _start_session() -> "Session":
    session = current_session()
    session.start()
    return session


def load_variables(value_dict: Mapping[str, Any], ignore_mismatch: bool = True) -> None:
    """Give variables the values of arrays or of saved variables; all of them or none.

    Shapes and dtypes must match exactly. Names that are no variable are skipped with a warning in
    the log, or refused when `ignore_mismatch` is off; if no name is one, that is an error.
    """
    session = _start_session()
    values = {}
    for name, value in value_dict.items():
        if name in session.variables:
            values[name] = _fitting(session, name, value)
        elif not ignore_mismatch:
            raise CheckpointError(
                f'"{name}" is not a variable name',
                source=user_frame(),
                hint="leave it out, or ignore_mismatch on",
            )
    unknown = [name for name in value_dict if name not in session.variables]
    if unknown and not values:
        raise CheckpointError(
            f"no variable of the jobs is called {', '.join(map(repr, unknown[:5]))}",
            source=user_frame(),
            hint=known_names(unknown[0], session.variables),
        )
    if unknown:
        _log.warning(
            "load_variables: no variable is called %s: skipped; ignore_mismatch=False refuses",
            ", ".join(map(repr, unknown)),
        )
    session.write(values)


def _fitting(session: "Session", name: str, value: Any) -> Array:
    variable = session.variables[name]
    if isinstance(value, SavedVariable):
        array = value.view_as(variable.shape, variable.dtype)
    else:
        array = _array(name, value)
    for what, wanted, given in (
        ("shape", variable.shape, array.shape),
        ("dtype", variable.dtype, by_numpy(array.dtype)),
    ):
        if wanted != given:
            raise CheckpointError(
                f"{wanted} vs {given}: variable {name!r} and the value given have another {what}",
                source=user_frame(),
                hint=f"give a value of {what} {wanted}",
            )
    return array


def _array(name: str, value: Any) -> Array:
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "numpy"):  # a local blob, a variable of this or another session
        return np.asarray(value.numpy())
    raise CheckpointError(
        f"the value of variable {name!r} is no array but {type(value).__name__}",
        source=user_frame(),
        hint="give numpy arrays, or what flow.checkpoint.get returns",
    )


def save(path: str | os.PathLike[str], var_dict: Mapping[str, Any] | None = None) -> None:
    """Write variables, all unless told, as a checkpoint directory or a .safetensors file.

    A directory must be missing or empty. The checkpoint appears whole or not at all; of several
    processes the first writes it, and all go on once it is there. Calls of jobs wait meanwhile.
    """

    def write(values: Mapping[str, Array]) -> None:
        on_first_rank(lambda: store.save(path, values))

    if var_dict is None:
        session = _start_session()
        session.lend(list(session.variables), write)
    else:
        write({name: _array(name, value) for name, value in var_dict.items()})


def save_variables(obj: Mapping[str, Any], save_dir: str | os.PathLike[str]) -> None:
    """`save` with the arguments the other way round."""
    save(save_dir, obj)


def get(path: str | os.PathLike[str]) -> dict[str, SavedVariable] | SavedVariable:
    """The variables of a checkpoint by name, or one if `path` is a variable's own directory."""
    return store.load(path)


class CheckPoint:
    """Model input and output of the first releases."""

    def init(self) -> None:
        """Give the variables their first values, which the start of the session does anyway."""
        _start_session()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all variables as a checkpoint directory."""
        save(path)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Read the variables of a checkpoint directory into the session."""
        loaded = store.load(path)
        if isinstance(loaded, SavedVariable):
            raise CheckpointError(
                f"{path} is one variable, not a checkpoint",
                source=user_frame(),
                hint="load the directory above it",
            )
        load_variables(loaded)


class SimpleCheckPointManager:
    """A series of checkpoints below one directory, named by the time they were written."""

    def __init__(self, root_path: str | os.PathLike[str], prefix: str = "snapshot_") -> None:
        self._root, self._prefix = Path(root_path), prefix
        self._root.mkdir(parents=True, exist_ok=True)

    def list_checkpoints(self) -> list[str]:
        """The names of the complete checkpoints, oldest first."""
        return store.list_checkpoints(self._root, self._prefix)

    def latest_checkpoint(self) -> str | None:
        """The name of the newest complete checkpoint, of several processes for the first."""
        name = store.latest(self._root, self._prefix) or ""
        return first_rank_says(name.encode()).decode() or None

    def initialize_or_restore(self) -> None:
        """Load the newest checkpoint, or write the first."""
        name = self.latest_checkpoint()
        if name is None:
            self.save()
        else:
            CheckPoint().load(self._root / name)

    def save(self) -> None:
        """Write one more checkpoint."""
        save(self._root / store.new_snapshot_name(self._prefix, datetime.now()))
