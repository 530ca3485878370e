"""`flow.deprecated`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import builtins as _builtins
import collections.abc as _collections_abc
import typing as _typing
import typing_extensions as _typing_extensions

def delete_worker() -> _typing.NoReturn:
    """Not available: a job runs on one machine in this version; leave it out."""
def init_worker(scp_binary: _typing.Any = True, use_uuid: _typing.Any = True) -> _typing.NoReturn:
    """Not available: a job runs on one machine in this version; leave it out."""
from flow2onnx.deprecated import nn as nn
@_typing_extensions.deprecated("use flow.scope.namespace")
def variable_scope(name: _builtins.str) -> _collections_abc.Iterator[None]:
    """Prefix the names of operators and variables made inside with ``name-``."""
