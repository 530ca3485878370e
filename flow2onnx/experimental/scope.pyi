"""`flow.experimental.scope`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import contextlib as _contextlib
import typing as _typing

def config(**kwargs: _typing.Any) -> _contextlib.AbstractContextManager[None]:
    """Attributes of a scope, which steer OneFlow's engine and change no value."""
from flow2onnx.scope import consistent_view as consistent_view
from flow2onnx.scope import consistent_view_enabled as consistent_view_enabled
from flow2onnx.scope import current_scope as current_scope
from flow2onnx.scope import mirrored_view as mirrored_view
from flow2onnx.scope import mirrored_view_enabled as mirrored_view_enabled
from flow2onnx.scope import namespace as namespace
from flow2onnx.scope import placement as placement
