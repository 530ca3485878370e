"""`flow.distribute`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import builtins as _builtins
import flow2onnx.api.scope as _flow2onnx_api_scope
import flow2onnx.trace.distribution as _flow2onnx_trace_distribution
import typing as _typing
import typing_extensions as _typing_extensions

def assert_is_valid_distribute(distribute: _typing.Any) -> None:
    """Refuse what is no distribution hint."""
def auto() -> _flow2onnx_trace_distribution.Distribute:
    """As the compiler likes."""
def broadcast() -> _flow2onnx_trace_distribution.Distribute:
    """A copy on each device."""
@_typing_extensions.deprecated("use flow.scope.consistent_view")
def consistent_strategy() -> _flow2onnx_api_scope.LogicalView:
    """Blobs are whole, however many devices hold them."""
@_typing_extensions.deprecated("use flow.scope.consistent_view_enabled")
def consistent_strategy_enabled() -> _builtins.bool:
    """True if the consistent view holds here."""
@_typing_extensions.deprecated("use flow.scope.mirrored_view")
def mirrored_strategy() -> _flow2onnx_api_scope.LogicalView:
    """Blobs are one device's piece."""
@_typing_extensions.deprecated("use flow.scope.mirrored_view_enabled")
def mirrored_strategy_enabled() -> _builtins.bool:
    """True if the mirrored view holds here in the job being traced."""
def split(axis: _builtins.int) -> _flow2onnx_trace_distribution.Distribute:
    """Split along `axis`."""
