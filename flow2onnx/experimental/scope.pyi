"""`flow.experimental.scope`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import collections.abc as _collections_abc
import typing as _typing

def config(**kwargs: _typing.Any) -> _collections_abc.Iterator[None]:
    """Attributes of a scope, which steer OneFlow's engine and change no value."""
