"""`flow.placement`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import flow2onnx.api.scope as _flow2onnx_api_scope
import typing_extensions as _typing_extensions

@_typing_extensions.deprecated("use flow.current_scope")
def current_scope() -> _flow2onnx_api_scope.Scope:
    """The scope at this place of the job being traced."""
