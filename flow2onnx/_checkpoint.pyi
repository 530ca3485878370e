"""`flow.checkpoint`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import builtins as _builtins
import collections.abc as _collections_abc
import flow2onnx.checkpoint.store as _flow2onnx_checkpoint_store
import os as _os
import typing as _typing

def get(path: _builtins.str | _os.PathLike[_builtins.str]) -> _builtins.dict[_builtins.str, _flow2onnx_checkpoint_store.SavedVariable] | _flow2onnx_checkpoint_store.SavedVariable:
    """The variables of a checkpoint by name, or one if `path` is a variable's own directory."""
def save(path: _builtins.str | _os.PathLike[_builtins.str], var_dict: _collections_abc.Mapping[_builtins.str, _typing.Any] | None = None) -> None:
    """Write variables, all unless told, as a checkpoint directory or a .safetensors file.

    A directory must be missing or empty. The checkpoint appears whole or not at all; of several
    processes the first writes it, and all go on once it is there. Calls of jobs wait meanwhile.
    """
