"""`flow.tensorrt`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import typing as _typing

def cache_int8_calibration() -> _typing.NoReturn:
    """Not available: calibration tables belong to TensorRT; set config.tensorrt.int8_calibration(path) to a table that exists."""
def write_int8_calibration(path: _typing.Any) -> _typing.NoReturn:
    """Not available: calibration tables belong to TensorRT; set config.tensorrt.int8_calibration(path) to a table that exists."""
