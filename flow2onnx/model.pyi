"""`flow.model`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import typing as _typing

def Callback() -> _typing.NoReturn:
    """Not available: the trainer classes of 0.4.0 are not available in this version; write the loop over calls of a train job and a predict job."""
def CheckpointConfig() -> _typing.NoReturn:
    """Not available: the trainer classes of 0.4.0 are not available in this version; write the loop over calls of a train job and a predict job."""
def DataModule(*args: _typing.Any, **kwargs: _typing.Any) -> _typing.NoReturn:
    """Not available: the trainer classes of 0.4.0 are not available in this version; write the loop over calls of a train job and a predict job."""
def Model(*args: _typing.Any, **kwargs: _typing.Any) -> _typing.NoReturn:
    """Not available: the trainer classes of 0.4.0 are not available in this version; write the loop over calls of a train job and a predict job."""
def NumpyDataModule(*args: _typing.Any, **kwargs: _typing.Any) -> _typing.NoReturn:
    """Not available: the trainer classes of 0.4.0 are not available in this version; write the loop over calls of a train job and a predict job."""
def TrainingConfig() -> _typing.NoReturn:
    """Not available: the trainer classes of 0.4.0 are not available in this version; write the loop over calls of a train job and a predict job."""
def ValidationConfig() -> _typing.NoReturn:
    """Not available: the trainer classes of 0.4.0 are not available in this version; write the loop over calls of a train job and a predict job."""
