"""Variables from outside a job: reading, loading, checkpoints."""

import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from flow2onnx import checkpoint
from flow2onnx.checkpoint import SavedVariable
from flow2onnx.dtypes import DType, by_numpy
from flow2onnx.errors import CheckpointError
from flow2onnx.session import Session, current_session
from flow2onnx.trace.source import user_frame

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

Array = np.ndarray[Any, np.dtype[Any]]


class VariableBlob:
    """A variable of the session; `numpy()` reads its present value."""

    def __init__(self, session: Session, name: str) -> None:
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

    def __repr__(self) -> str:
        return f"VariableBlob({self.name}, shape={self.shape}, dtype={self.dtype.name})"


def get_all_variables() -> dict[str, VariableBlob]:
    """Every variable of the session by name, optimizer state and step counters included."""
    session = current_session()
    session.start()
    return {name: VariableBlob(session, name) for name in session.variables}


def load_variables(value_dict: Mapping[str, Any], ignore_mismatch: bool = True) -> None:
    """Give variables the values of arrays or of saved variables; all of them or none.

    Shapes and dtypes must match exactly. Names that are no variable are skipped, or refused when
    `ignore_mismatch` is off.
    """
    session = current_session()
    session.start()
    values = {}
    for name, value in value_dict.items():
        if name in session.variables:
            values[name] = _fitting(session, name, value)
        elif not ignore_mismatch:
            raise CheckpointError(f'"{name}" is not a variable name', source=user_frame())
    session.write(values)


def _fitting(session: Session, name: str, value: Any) -> Array:
    variable = session.variables[name]
    if isinstance(value, SavedVariable):
        array = value.numpy_as(variable.shape, variable.dtype)
    else:
        array = value if isinstance(value, np.ndarray) else np.asarray(value.numpy())
    if array.shape != variable.shape:
        raise CheckpointError(
            f"{array.shape} vs {variable.shape}: the shape of {name!r} differs", source=user_frame()
        )
    if by_numpy(array.dtype) != variable.dtype:
        raise CheckpointError(
            f"{by_numpy(array.dtype)} vs {variable.dtype}: the dtype of {name!r} differs",
            source=user_frame(),
        )
    return array


def save(path: str | os.PathLike[str], var_dict: Mapping[str, Any] | None = None) -> None:
    """Write variables, all unless told, as a checkpoint directory or a .safetensors file.

    A directory must be missing or empty. The checkpoint appears whole or not at all.
    """
    chosen = get_all_variables() if var_dict is None else var_dict
    arrays = {n: v if isinstance(v, np.ndarray) else v.numpy() for n, v in chosen.items()}
    checkpoint.save(path, arrays)


def save_variables(obj: Mapping[str, Any], save_dir: str | os.PathLike[str]) -> None:
    """`save` with the arguments the other way round."""
    save(save_dir, obj)


def get(path: str | os.PathLike[str]) -> dict[str, SavedVariable] | SavedVariable:
    """The variables of a checkpoint by name, or one if `path` is a variable's own directory."""
    return checkpoint.load(path)


class CheckPoint:
    """Model input and output of the first releases."""

    def init(self) -> None:
        """Give the variables their first values, which the start of the session does anyway."""
        current_session().start()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all variables as a checkpoint directory."""
        save(path)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Read the variables of a checkpoint directory into the session."""
        loaded = checkpoint.load(path)
        if isinstance(loaded, SavedVariable):
            raise CheckpointError(f"{path} is one variable, not a checkpoint", source=user_frame())
        load_variables(loaded)


class SimpleCheckPointManager:
    """A series of checkpoints below one directory, named by the time they were written."""

    def __init__(self, root_path: str | os.PathLike[str], prefix: str = "snapshot_") -> None:
        self._root, self._prefix = Path(root_path), prefix
        self._root.mkdir(parents=True, exist_ok=True)

    def list_checkpoints(self) -> list[str]:
        """The names of the complete checkpoints, oldest first."""
        return checkpoint.list_checkpoints(self._root, self._prefix)

    def latest_checkpoint(self) -> str | None:
        """The name of the newest complete checkpoint."""
        return checkpoint.latest(self._root, self._prefix)

    def initialize_or_restore(self) -> None:
        """Load the newest checkpoint, or write the first."""
        name = self.latest_checkpoint()
        if name is None:
            self.save()
        else:
            CheckPoint().load(self._root / name)

    def save(self) -> None:
        """Write one more checkpoint."""
        save(self._root / checkpoint.new_snapshot_name(self._prefix, datetime.now()))
